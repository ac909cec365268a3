"""Fits on objects and parts: settings by the validation quadruplets, chosen ones by the test rows; all on record."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from visterm.core.digests import key_of
from visterm.core.errors import DivergedError
from visterm.core.progress import Progress, Titled
from visterm.core.tables import MODELS
from visterm_research.comparison.arms import Settings
from visterm_research.comparison.record import Record, Records
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

FORMAT = 1
"""Of the stored results; raised when what they hold changes."""

KNOWN = "among known relations"
"""In place of a task: candidates are the relations alone (Table 5)."""

MODELS_KEPT = 64


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


class PartTrials:
    """All fits of the comparison: looked up where they are finished, made where not.

    Parameters
    ----------
    folder : Path
        Where results are kept.
    seed : int
    n_jobs : int, optional
    check_time : callable
        Called before every fit; raises where the time is over.
    progress : Progress
    """

    def __init__(
        self, folder: Path, *, seed: int, n_jobs: int | None, check_time: Callable[[], None], progress: Progress
    ) -> None:
        self._seed, self._n_jobs = seed, n_jobs
        self._check_time, self._progress = check_time, progress
        self._records = Records(folder)
        self._models: dict[str, Any] = {}

    def choose(self, problem: PartsProblem, arm: PartArm) -> Choice:
        """Go through the stages of a method's settings, keeping the best one.

        Raises
        ------
        OutOfTimeError
            If a fit would have to begin after the end of the time.
        DivergedError
            If the settings to start with, and all others, diverged.
        """
        best = dict(arm.start)
        found = self.validate(problem, arm, best)
        tried = [(best, found)]
        for stage in arm.stages:
            start = best
            for change in stage:
                settings = {**start, **change}
                if settings in [one for one, _ in tried]:
                    continue
                record = self.validate(problem, arm, settings)
                tried.append((settings, record))
                if _rank(record, arm) < _rank(found, arm):
                    best, found = settings, record
        if not np.isfinite(_rank(found, arm)):
            raise DivergedError(f"Each of the {len(tried)} settings of {arm.label} diverged on {problem.name}.")
        return Choice(arm, best, found, tried)

    def validate(self, problem: PartsProblem, arm: PartArm, settings: Settings) -> Record:
        """Fit a setting, and give its record: mean ranks over the validation quadruplets, seconds, epochs.

        Methods that differ in the score alone share their fits.
        """
        group, key = f"{problem.name}/valid", self._key(problem, arm, settings)
        record = self._records.get(group, key)
        if record is not None:
            return record
        self._check_time()
        of: Record = {"model": arm.model, "settings": settings}
        try:
            model, seconds = self._fit(problem, arm, settings)
        except DivergedError as error:
            record = {**of, "mean_rank": None, "diverged": str(error), "seconds": None, "epoch": None}
        else:
            ranks = self._mean_ranks(model, problem)
            record = {**of, "mean_rank": ranks, "seconds": seconds, "epoch": getattr(model, "n_epochs_", None)}
            self._keep(key, model)
        self._records.put(group, key, record)
        return record

    def judge(self, problem: PartsProblem, choice: Choice, shown: Sequence[int]) -> Judged:
        """Rank the right answers of the test rows by a chosen setting, unless that is on record.

        Parameters
        ----------
        shown : sequence of int
            Labels whose nearest labels, parts and images are kept for Table 6 and Figure 4.
        """
        arm, group = choice.arm, f"{problem.name}/test"
        key = key_of(FORMAT, self._key(problem, arm, choice.settings), problem.test_fingerprint, arm.by, list(shown))
        record, values = self._records.get(group, key), self._records.get_values(group, key)
        if record is None or values is None:
            model = self._model(problem, arm, choice.settings)
            S = all_scores(model, problem.data.test.X)
            ranks = self._test_ranks(model, S, problem, arm)
            values = {f"{sets}|{task}": found.astype(np.float64) for (sets, task), found in ranks.items()}
            record = {"arm": arm.label, "settings": choice.settings, **shown_lists(model, S, problem, arm, shown)}
            self._records.put_values(group, key, values)
            self._records.put(group, key, record)
        named = {name.partition("|"): array for name, array in values.items()}
        ranks = {(sets, task): array.astype(np.int64) for (sets, _, task), array in named.items()}
        return Judged(ranks, record["nearest"], record["images"], record["parts"])

    def once(
        self, problem: PartsProblem, arm: PartArm, settings: Settings, name: str, work: Callable[[Any], Record]
    ) -> Record:
        """Give what some work finds of the fitted model of a setting on the test rows, or found before."""
        group = f"{problem.name}/derived"
        key = key_of(FORMAT, self._key(problem, arm, settings), problem.test_fingerprint, name)
        record = self._records.get(group, key)
        if record is None:
            record = work(self._model(problem, arm, settings))
            self._records.put(group, key, record)
        return record

    def ranks(self, problem: PartsProblem, model: Any, examples: str, *, words: bool) -> dict[str, Ints]:
        """Rank the right answers of all tasks, of one set of examples."""
        S = all_scores(model, problem.data.test.X)
        return task_ranks(S, pair_terms(model, S.shape[1], words), problem.tests[examples], self._n_jobs)

    def _test_ranks(self, model: Any, S: Floats, problem: PartsProblem, arm: PartArm) -> dict[tuple[str, str], Ints]:
        F = pair_terms(model, S.shape[1], arm.words)
        offset = model.pair_scores(words=False, offset=OFFSET) if arm.by == IMAGES else F
        found = {}
        for name, examples in problem.tests.items():
            for task, ranks in task_ranks(S, F, examples, self._n_jobs).items():
                found[name, task] = ranks
            found[name, KNOWN] = known_ranks(S, offset, examples, problem.every)
        return found

    def _mean_ranks(self, model: Any, problem: PartsProblem) -> dict[str, float]:
        S = all_scores(model, problem.data.valid.X)
        examples = problem.valid
        both = np.concatenate(
            [ranks_of(S[examples.object_images], examples.objects), ranks_of(S[examples.part_images], examples.parts)]
        )
        found = {ANNOTATION: float(both.mean())}
        if hasattr(model, "pair_scores"):
            for by in (WORDS, IMAGES):
                F = pair_terms(model, S.shape[1], by == WORDS)
                found[by] = float(np.mean(task_ranks(S, F, examples, self._n_jobs)[LABELLING]))
        return found

    def _model(self, problem: PartsProblem, arm: PartArm, settings: Settings) -> Any:
        """Give the fitted model of a setting: kept from its fit, or fitted again to the same bytes."""
        key = self._key(problem, arm, settings)
        if key not in self._models:
            self._check_time()
            self._keep(key, self._fit(problem, arm, settings)[0])
        return self._models[key]

    def _keep(self, key: str, model: Any) -> None:
        self._models = dict(list(self._models.items())[1 - MODELS_KEPT :])
        self._models[key] = model

    def _fit(self, problem: PartsProblem, arm: PartArm, settings: Settings) -> tuple[Any, float]:
        accepted = inspect.signature(MODELS.load(arm.model)).parameters
        given = {"random_state": self._seed, "n_jobs": self._n_jobs, "part_of": problem.relations.kept}
        params: Mapping[str, Any] = {name: value for name, value in given.items() if name in accepted}
        model = MODELS.create(arm.model, **params, **settings)
        data = problem.data
        began = time.perf_counter()
        monitor = Titled(self._progress, f"{problem.name}, {arm.label}")
        model.fit(data.train.X, data.train.Y, valid=(data.valid.X, data.valid.Y), monitor=monitor)
        return model, time.perf_counter() - began

    def _key(self, problem: PartsProblem, arm: PartArm, settings: Settings) -> str:
        return key_of(FORMAT, problem.fingerprint, arm.model, settings, self._seed)


def _rank(record: Record, arm: PartArm) -> float:
    found = record["mean_rank"]
    return np.inf if found is None else float(found[arm.by])
