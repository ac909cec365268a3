"""Fits judged by five tags an image: settings by the validation rows, chosen ones by the test rows, each on record."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.digests import jsonable, key_of
from visterm.core.errors import DivergedError
from visterm.core.progress import Progress, Titled
from visterm.core.tables import MODELS
from visterm.models.abilities import PlacesWords
from visterm_research.comparison.arms import Arm, Settings
from visterm_research.comparison.record import Record, Records
from visterm_research.ugc.measures import KINDS, K, five_metrics, five_of
from visterm_research.ugc.problems import OUTSIDE_SEARCHED, SHOWN_IMAGES, TagProblem

FORMAT = 1
"""Of the stored results; raised when what they hold changes."""

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


class TagTrials:
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
        self,
        folder: Path,
        *,
        seed: int,
        n_jobs: int | None,
        check_time: Callable[[], None],
        progress: Progress,
    ) -> None:
        self.seed = seed
        self.n_jobs = n_jobs
        self.check_time = check_time
        self.records = Records(folder)
        self._progress = progress
        self._kept: dict[str, tuple[str, Any]] = {}

    def choose(self, problem: TagProblem, arm: Arm) -> list[Choice]:
        """Fit all settings of a method that are not on record; choose by F1 over tags, and by F1 over images.

        Raises
        ------
        OutOfTimeError
            If a fit would have to begin after the end of the time.
        DivergedError
            If every setting diverged.
        """
        self._kept = {}
        settings = arm.settings()
        tried = []
        for number, one in enumerate(settings, start=1):
            tried.append((one, self._validate(problem, arm, one, f"{arm.label}, {number} of {len(settings)}")))
        if all(record["metrics"] is None for _, record in tried):
            raise DivergedError(f"Each of the {len(tried)} settings of {arm.label} diverged on {problem.name}.")
        choices = []
        for kind in KINDS:
            chosen, record = max(tried, key=lambda one: _f1(one[1], kind))
            choices.append(Choice(arm, kind, chosen, record, tried))
        return choices

    def judge(self, problem: TagProblem, choice: Choice) -> Judged:
        """Judge a chosen setting by the test rows, unless that is on record.

        Raises
        ------
        OutOfTimeError
            If it would have to be fitted again after the end of the time.
        """
        group = f"{problem.name}/test"
        key = key_of(self._key(problem, choice.arm, choice.settings), problem.rows.test_fingerprint, *_shown(problem))
        record, values = self.records.get(group, key), self.records.get_values(group, key)
        if record is None or values is None:
            model = self._model(problem, choice)
            test = problem.rows.test
            arrays: dict[str, Any] = {"ids": model.annotate(test.X, K).ids, **_searched(model, problem)}
            metrics = five_metrics(model, test.X, test.Y)
            record = {"method": choice.arm.label, "settings": choice.settings, "metrics": metrics}
            self.records.put_values(group, key, arrays)
            self.records.put(group, key, record)
            values = arrays
        ids, found, outside = (np.asarray(values[name], np.int64) for name in ("ids", "found", "outside"))
        return Judged(record["metrics"], ids, found, outside)

    def once(self, group: str, of: Sequence[Any], work: Callable[[], Any]) -> Any:
        """Give the result of some work, or of when it was done before: lists, numbers and dicts.

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
        key = key_of(FORMAT, *of, self.seed)
        record = self.records.get(group, key)
        if record is None:
            self.check_time()
            record = {"of": jsonable(list(of)), "result": jsonable(work())}
            self.records.put(group, key, record)
        return record["result"]

    def _validate(self, problem: TagProblem, arm: Arm, settings: Settings, task: str) -> Record:
        group, key = f"{problem.name}/valid", self._key(problem, arm, settings)
        record = self.records.get(group, key)
        if record is not None:
            return record
        self.check_time()
        try:
            model, seconds = self._fit(problem, arm, settings, task)
        except DivergedError as error:
            record = {"metrics": None, "diverged": str(error)}
        else:
            valid = problem.rows.valid
            metrics = five_metrics(model, valid.X, valid.Y)
            record = {"metrics": metrics, "seconds": seconds, "epoch": getattr(model, "n_epochs_", None)}
            self._keep_best(problem, key, model, record)
        record = {"method": arm.label, "model": arm.model, "settings": settings, **record}
        self.records.put(group, key, record)
        return record

    def _keep_best(self, problem: TagProblem, key: str, model: Any, record: Record) -> None:
        for kind in KINDS:
            kept = self._kept.get(kind)
            earlier = None if kept is None else self.records.get(f"{problem.name}/valid", kept[0])
            if earlier is None or _f1(record, kind) > _f1(earlier, kind):
                self._kept[kind] = key, model

    def _model(self, problem: TagProblem, choice: Choice) -> Any:
        """Give the fitted model of a choice: kept from its fit, or fitted again to the same bytes."""
        key = self._key(problem, choice.arm, choice.settings)
        for kept, model in self._kept.values():
            if kept == key:
                return model
        self.check_time()
        model, _ = self._fit(problem, choice.arm, choice.settings, f"{choice.arm.label}, chosen")
        self._kept[choice.kind] = key, model
        return model

    def _fit(self, problem: TagProblem, arm: Arm, settings: Settings, task: str) -> tuple[Any, float]:
        accepted = inspect.signature(MODELS.load(arm.model)).parameters
        shared: dict[str, Any] = {
            "random_state": self.seed,
            "n_jobs": self.n_jobs,
            "word_vectors": problem.words.tags,
        }
        model = MODELS.create(arm.model, **{**{key: shared[key] for key in shared if key in accepted}, **settings})
        rows = problem.rows
        monitor = Titled(self._progress, f"{problem.name}, {task}")
        began = time.perf_counter()
        model.fit(rows.train.X, rows.train.Y, valid=(rows.valid.X, rows.valid.Y), monitor=monitor)
        return model, time.perf_counter() - began

    def _key(self, problem: TagProblem, arm: Arm, settings: Settings) -> str:
        return key_of(FORMAT, problem.fingerprint, arm.model, settings, self.seed)


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
