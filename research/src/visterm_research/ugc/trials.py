"""Fits judged by five tags an image: settings by the validation rows, chosen ones by the test rows, each on record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.digests import key_of
from visterm.core.errors import DivergedError
from visterm.models.abilities import PlacesWords
from visterm_research.comparison.arms import Arm, Settings
from visterm_research.comparison.record import Record
from visterm_research.comparison.trials import FORMAT, Trials
from visterm_research.ugc.measures import KINDS, K, five_metrics, five_of
from visterm_research.ugc.problems import OUTSIDE_SEARCHED, SHOWN_IMAGES, TagProblem

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class Choice:
    """The setting of a method with the best F1 over the validation rows, averaged in one way.

    Attributes
    ----------
    arm : Arm
    kind : str
        How it is averaged.
    settings : dict
    record : dict
        Of its fit: ``metrics`` (validation), ``seconds``, ``epoch``.
    tried : list of (dict, dict)
        All settings and their records.
    """

    arm: Arm
    kind: str
    settings: Settings
    record: Record
    tried: list[tuple[Settings, Record]]


@dataclass(frozen=True)
class Judged:
    """A chosen setting on the test rows.

    Attributes
    ----------
    metrics : dict of str to float
    ids : ndarray of int64, shape (n_images, 5)
        The tags that each image is given.
    found : ndarray of int64, shape (n_searches, n_shown)
        The best test images of what Figure 3 searches for: tags, then words that are none.
    outside : ndarray of int64, shape (n_shown, n_words)
        The best words that are no tags for each image that is shown; no columns where none has a vector.
    """

    metrics: dict[str, float]
    ids: Ids = field(repr=False)
    found: Ids = field(repr=False)
    outside: Ids = field(repr=False)


def choose(trials: Trials, problem: TagProblem, arm: Arm) -> list[Choice]:
    """Fit all settings of a method that are not on record; choose by F1 over tags, and by F1 over images.

    Raises
    ------
    OutOfTimeError
        If a fit would have to begin after the end of the time.
    DivergedError
        If every setting diverged.
    """
    trials.forget(problem)
    settings = arm.settings()
    tried = []
    for number, one in enumerate(settings, start=1):
        tried.append((one, _validate(trials, problem, arm, one, f"{arm.label}, {number} of {len(settings)}")))
    if all(record["metrics"] is None for _, record in tried):
        raise DivergedError(f"Each of the {len(tried)} settings of {arm.label} diverged on {problem.name}.")
    choices = []
    for kind in KINDS:
        chosen, record = max(tried, key=lambda one: _f1(one[1], kind))
        choices.append(Choice(arm, kind, chosen, record, tried))
    return choices


def judge(trials: Trials, problem: TagProblem, choice: Choice) -> Judged:
    """Judge a chosen setting by the test rows, unless that is on record.

    Raises
    ------
    OutOfTimeError
        If it would have to be fitted again after the end of the time.
    """

    def work() -> tuple[Record, dict[str, Any]]:
        model = fitted(trials, problem, choice)
        test = problem.rows.test
        arrays: dict[str, Any] = {"ids": model.annotate(test.X, K).ids, **_searched(model, problem)}
        metrics = five_metrics(model, test.X, test.Y)
        return {"method": choice.arm.label, "settings": choice.settings, "metrics": metrics}, arrays

    key = trials.key(problem, choice.arm.model, choice.settings)
    key = key_of(key, problem.rows.test_fingerprint, *_shown(problem))
    record, values = trials.record_values(f"{problem.name}/test", key, work)
    ids, found, outside = (np.asarray(values[name], np.int64) for name in ("ids", "found", "outside"))
    return Judged(record["metrics"], ids, found, outside)


def fitted(trials: Trials, problem: TagProblem, choice: Choice) -> Any:
    """Return the fitted model of a choice: kept from its fit, or fitted again to the same bytes."""
    arm, settings = choice.arm, choice.settings
    key = trials.key(problem, arm.model, settings)
    return trials.kept_model(
        f"{problem.name}/{choice.kind}", key, lambda: _fit(trials, problem, arm, settings, f"{arm.label}, chosen")[0]
    )


def once(trials: Trials, group: str, of: Sequence[Any], work: Callable[[], Any]) -> Any:
    """Return the result of some work, or of when it was done before: lists, numbers and dicts.

    Parameters
    ----------
    group : str
        Where it is kept.
    of : sequence
        What it depends on besides the seed.
    work : callable

    Raises
    ------
    OutOfTimeError
        If it would have to begin after the end of the time.
    """

    def in_time() -> Record:
        trials.check_time()
        return {"of": list(of), "result": work()}

    return trials.record(group, key_of(FORMAT, *of, trials.seed), in_time)["result"]


def _validate(trials: Trials, problem: TagProblem, arm: Arm, settings: Settings, task: str) -> Record:
    group, key = f"{problem.name}/valid", trials.key(problem, arm.model, settings)

    def work() -> Record:
        trials.check_time()
        about = {"method": arm.label, "model": arm.model, "settings": settings}
        try:
            model, seconds = _fit(trials, problem, arm, settings, task)
        except DivergedError as error:
            return {**about, "metrics": None, "diverged": str(error)}
        valid = problem.rows.valid
        metrics = five_metrics(model, valid.X, valid.Y)
        record = {**about, "metrics": metrics, "seconds": seconds, "epoch": getattr(model, "n_epochs_", None)}
        for kind in KINDS:
            slot = f"{problem.name}/{kind}"
            best = trials.kept_key(slot)
            earlier = None if best is None else trials.records.get(group, best)
            if earlier is None or _f1(record, kind) > _f1(earlier, kind):
                trials.keep(slot, key, model)
        return record

    return trials.record(group, key, work)


def _fit(trials: Trials, problem: TagProblem, arm: Arm, settings: Settings, task: str) -> tuple[Any, float]:
    model = trials.make(arm.model, settings, word_vectors=problem.words.tags)
    rows = problem.rows
    return model, trials.fit(model, rows.train, rows.valid, f"{problem.name}, {task}")


def _f1(record: Record, kind: str) -> float:
    return -1.0 if record["metrics"] is None else five_of(record["metrics"], kind).f1


def _shown(problem: TagProblem) -> list[Any]:
    return [problem.searched_tags, problem.shown, problem.words.outside]


def _searched(model: Any, problem: TagProblem) -> dict[str, Ids]:
    """Search for some tags and words by a model that places words; other models find nothing."""
    words = problem.words
    if not isinstance(model, PlacesWords):
        return {"found": np.empty((0, 0), np.int64), "outside": np.empty((len(problem.shown), 0), np.int64)}
    placing: Any = model
    U = placing.image_rows(problem.rows.test.X)
    rows = placing.tag_rows_[problem.searched_tags]
    placed = placing.tag_rows_from(words.outside_rows) if words.outside else np.empty((0, rows.shape[1]), np.float32)
    rows = np.concatenate([rows, placed[:OUTSIDE_SEARCHED]])
    return {
        "found": np.argsort(-(rows @ U.T), axis=1, kind="stable")[:, :SHOWN_IMAGES],
        "outside": np.argsort(-(U[problem.shown] @ placed.T), axis=1, kind="stable")[:, :K],
    }
