"""Fits on objects and parts: settings by the validation quadruplets, chosen ones by the test rows; all on record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from visterm.core.digests import key_of
from visterm.core.errors import DivergedError
from visterm_research.comparison.arms import Settings
from visterm_research.comparison.record import Record
from visterm_research.comparison.trials import FORMAT, Trials
from visterm_research.papers.objects_and_parts import LABELLING
from visterm_research.parts.arms import ANNOTATION, IMAGES, OFFSET, WORDS, PartArm
from visterm_research.parts.data import PartsProblem
from visterm_research.parts.shown import shown_lists
from visterm_research.parts.tasks import (
    Floats,
    Ints,
    all_scores,
    known_ranks,
    pair_terms,
    ranks_of,
    task_ranks,
)

KNOWN = "among known relations"
"""In place of a task: candidates are the relations alone (Table 5)."""


@dataclass(frozen=True)
class Choice:
    """The setting of a method with the least mean rank over the validation quadruplets.

    Attributes
    ----------
    arm : PartArm
    settings : dict
    record : dict
        Of its fit.
    tried : list of (dict, dict)
        All settings, and the records of their fits.
    """

    arm: PartArm
    settings: Settings
    record: Record
    tried: list[tuple[Settings, Record]] = field(repr=False)


@dataclass(frozen=True)
class Judged:
    """A chosen setting on the test rows.

    Attributes
    ----------
    ranks : dict of (str, str) to ndarray of int64
        Of the right answers, 1 for the best, by set of examples and task (or `KNOWN`).
    nearest : dict of str to list of str
        The labels of the largest f_L beside each of some labels.
    images : dict of str to list of int
        The best test rows for each of some labels, and
    parts : dict of str to list of str
        its parts by f_L.
    """

    ranks: dict[tuple[str, str], Ints] = field(repr=False)
    nearest: dict[str, list[str]]
    images: dict[str, list[int]]
    parts: dict[str, list[str]]


def choose(trials: Trials, problem: PartsProblem, arm: PartArm) -> Choice:
    """Go through the stages of a method's settings, keeping the best one.

    Raises
    ------
    OutOfTimeError
        If a fit would have to begin after the end of the time.
    DivergedError
        If the settings to start with, and all others, diverged.
    """
    best = dict(arm.start)
    found = validate(trials, problem, arm, best)
    tried = [(best, found)]
    for stage in arm.stages:
        start = best
        for change in stage:
            settings = {**start, **change}
            if settings in [one for one, _ in tried]:
                continue
            record = validate(trials, problem, arm, settings)
            tried.append((settings, record))
            if _rank(record, arm) < _rank(found, arm):
                best, found = settings, record
    if not np.isfinite(_rank(found, arm)):
        raise DivergedError(f"Each of the {len(tried)} settings of {arm.label} diverged on {problem.name}.")
    return Choice(arm, best, found, tried)


def validate(trials: Trials, problem: PartsProblem, arm: PartArm, settings: Settings) -> Record:
    """Fit a setting, and return its record: mean ranks over the validation quadruplets, seconds, epochs.

    Methods that differ in the score alone share their fits.
    """
    key = trials.key(problem, arm.model, settings)

    def work() -> Record:
        trials.check_time()
        of: Record = {"model": arm.model, "settings": settings}
        try:
            model, seconds = _fit(trials, problem, arm, settings)
        except DivergedError as error:
            return {**of, "mean_rank": None, "diverged": str(error), "seconds": None, "epoch": None}
        trials.keep(f"{problem.name}/{key}", key, model)
        ranks = _mean_ranks(model, problem, trials.n_jobs)
        return {**of, "mean_rank": ranks, "seconds": seconds, "epoch": getattr(model, "n_epochs_", None)}

    return trials.record(f"{problem.name}/valid", key, work)


def judge(trials: Trials, problem: PartsProblem, choice: Choice, shown: Sequence[int]) -> Judged:
    """Rank the right answers of the test rows by a chosen setting, unless that is on record.

    Parameters
    ----------
    shown : sequence of int
        Labels whose nearest labels, parts and images are kept for Table 6 and Figure 4.
    """
    arm = choice.arm

    def work() -> tuple[Record, dict[str, Any]]:
        model = _fitted(trials, problem, arm, choice.settings)
        S = all_scores(model, problem.data.test.X)
        ranks = _test_ranks(model, S, problem, arm, trials.n_jobs)
        values = {f"{sets}|{task}": found.astype(np.float64) for (sets, task), found in ranks.items()}
        return {"arm": arm.label, "settings": choice.settings, **shown_lists(model, S, problem, arm, shown)}, values

    key = trials.key(problem, arm.model, choice.settings)
    key = key_of(FORMAT, key, problem.test_fingerprint, arm.by, list(shown))
    record, values = trials.record_values(f"{problem.name}/test", key, work)
    named = {name.partition("|"): array for name, array in values.items()}
    ranks = {(sets, task): array.astype(np.int64) for (sets, _, task), array in named.items()}
    return Judged(ranks, record["nearest"], record["images"], record["parts"])


def once(
    trials: Trials,
    problem: PartsProblem,
    arm: PartArm,
    settings: Settings,
    name: str,
    work: Callable[[Any], Record],
) -> Record:
    """Return what some work finds of the fitted model of a setting on the test rows, or found before."""
    key = key_of(FORMAT, trials.key(problem, arm.model, settings), problem.test_fingerprint, name)
    return trials.record(f"{problem.name}/derived", key, lambda: work(_fitted(trials, problem, arm, settings)))


def answer_ranks(
    problem: PartsProblem, model: Any, examples: str, *, words: bool, n_jobs: int | None
) -> dict[str, Ints]:
    """Rank the right answers of all tasks, of one set of examples."""
    S = all_scores(model, problem.data.test.X)
    return task_ranks(S, pair_terms(model, S.shape[1], words), problem.tests[examples], n_jobs)


def _test_ranks(
    model: Any, S: Floats, problem: PartsProblem, arm: PartArm, n_jobs: int | None
) -> dict[tuple[str, str], Ints]:
    F = pair_terms(model, S.shape[1], arm.words)
    offset = model.pair_scores(words=False, offset=OFFSET) if arm.by == IMAGES else F
    found = {}
    for name, examples in problem.tests.items():
        for task, ranks in task_ranks(S, F, examples, n_jobs).items():
            found[name, task] = ranks
        found[name, KNOWN] = known_ranks(S, offset, examples, problem.every)
    return found


def _mean_ranks(model: Any, problem: PartsProblem, n_jobs: int | None) -> dict[str, float]:
    S = all_scores(model, problem.data.valid.X)
    examples = problem.valid
    both = np.concatenate(
        [ranks_of(S[examples.object_images], examples.objects), ranks_of(S[examples.part_images], examples.parts)]
    )
    found = {ANNOTATION: float(both.mean())}
    if hasattr(model, "pair_scores"):
        for by in (WORDS, IMAGES):
            F = pair_terms(model, S.shape[1], by == WORDS)
            found[by] = float(np.mean(task_ranks(S, F, examples, n_jobs)[LABELLING]))
    return found


def _fitted(trials: Trials, problem: PartsProblem, arm: PartArm, settings: Settings) -> Any:
    """Return the fitted model of a setting: kept from its fit, or fitted again to the same bytes."""
    key = trials.key(problem, arm.model, settings)
    return trials.kept_model(f"{problem.name}/{key}", key, lambda: _fit(trials, problem, arm, settings)[0])


def _fit(trials: Trials, problem: PartsProblem, arm: PartArm, settings: Settings) -> tuple[Any, float]:
    model = trials.make(arm.model, settings, part_of=problem.relations.kept)
    data = problem.data
    return model, trials.fit(model, data.train, data.valid, f"{problem.name}, {arm.label}")


def _rank(record: Record, arm: PartArm) -> float:
    found = record["mean_rank"]
    return np.inf if found is None else float(found[arm.by])
