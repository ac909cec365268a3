"""Fit every setting of a method, choose by the validation rows, and judge the chosen one by the test rows, once."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from visterm.core.digests import jsonable, key_of
from visterm.core.errors import DivergedError
from visterm.core.progress import SILENT, Progress, Titled
from visterm.core.tables import MODELS
from visterm.tagging.tuning.early_stopping import EarlyStopping
from visterm_research.comparison.arms import Arm, Settings
from visterm_research.comparison.costs import measure_cost
from visterm_research.comparison.measures import judge, validation_map
from visterm_research.comparison.problem import Problem, Rows
from visterm_research.comparison.record import Record, Records

FORMAT = 1
"""Of the stored results; raised when what they hold changes, so that older ones are made anew."""


MODELS_KEPT = 64
"""Fitted models in memory."""


class Named(Protocol):
    """What results are kept for."""

    @property
    def name(self) -> str:
        """Name of its folders of results."""


class Fingerprinted(Protocol):
    """Rows that a fit depends on."""

    @property
    def fingerprint(self) -> str:
        """Name that changes whenever a training or validation row does."""


class OutOfTimeError(Exception):
    """The time that the comparison may take is over; what is finished is kept."""


@dataclass(frozen=True)
class Chosen:
    """The setting of a method that ranks the tags of the validation rows best.

    Attributes
    ----------
    arm : Arm
    settings : dict
    record : dict
        Of its fit: ``map`` (validation), ``seconds``, ``epoch``, ``curve``.
    tried : list of dict
        The records of all settings.
    """

    arm: Arm
    settings: Settings
    record: Record
    tried: list[Record]


@dataclass(frozen=True)
class Tested:
    """The chosen setting, judged by the test rows.

    Attributes
    ----------
    chosen : Chosen
    metrics : dict of str to float
    cost : dict
        Seconds an image and bytes.
    values : dict of str to ndarray, shape (n_images,)
        Metrics image by image.
    """

    chosen: Chosen
    metrics: dict[str, float]
    cost: dict[str, float]
    values: dict[str, NDArray[np.float64]] = field(repr=False)


class Trials:
    """All fits of one comparison: looked up where they are finished, made where not.

    `choose` and `test` are for models that annotate images; other comparisons have functions of their own over the same
    records.

    Parameters
    ----------
    folder : Path
        Where results are kept.
    seed : int
    n_jobs : int, optional
    until : float, optional
        The value of `time.monotonic` after which no fit is begun.
    progress : Progress
    small : mapping, optional
        Settings in place of others, for quick runs, where a model has them.
    """

    def __init__(
        self,
        folder: Path,
        *,
        seed: int = 0,
        n_jobs: int | None = None,
        until: float | None = None,
        progress: Progress = SILENT,
        small: Mapping[str, Any] | None = None,
    ) -> None:
        self.seed = seed
        self.n_jobs = n_jobs
        self.records = Records(folder)
        self._until = until
        self._progress = progress
        self._small = small or {}
        self._kept: dict[str, tuple[str, Any]] = {}

    def key(self, problem: Fingerprinted, model: str, settings: Mapping[str, Any]) -> str:
        """Return the name of a fit: of its rows, its model, its settings and the seed."""
        return key_of(FORMAT, problem.fingerprint, model, settings, self.seed)

    def make(self, model: str, settings: Mapping[str, Any], *, n_jobs: int | None = None, **shared: Any) -> Any:
        """Return a model with its settings; of the seed, threads and what is shared it gets what it accepts."""
        accepted = inspect.signature(MODELS.load(model)).parameters
        given = {"random_state": self.seed, "n_jobs": n_jobs or self.n_jobs, **shared}
        params = {name: value for name, value in given.items() if name in accepted}
        small = {name: value for name, value in self._small.items() if name in accepted}
        return MODELS.create(model, **{**params, **settings, **small})

    def fit(self, model: Any, train: Rows, valid: Rows | None, task: str) -> float:
        """Fit a model, with validation rows if there are any, and return how many seconds it took."""
        extra = {} if valid is None else {"valid": (valid.X, valid.Y)}
        began = time.perf_counter()
        model.fit(train.X, train.Y, **extra, monitor=self.monitor(task))
        return time.perf_counter() - began

    def monitor(self, task: str) -> Progress:
        """Return the progress of one task."""
        return Titled(self._progress, task)

    def record(self, group: str, key: str, work: Callable[[], Record]) -> Record:
        """Return a result that is on record, else the result of some work, which is kept."""
        record = self.records.get(group, key)
        if record is None:
            record = jsonable(work())
            self.records.put(group, key, record)
        return record

    def record_values(
        self, group: str, key: str, work: Callable[[], tuple[Record, dict[str, Any]]]
    ) -> tuple[Record, dict[str, Any]]:
        """Return a result with arrays that is on record, else those of some work, which are kept."""
        record, values = self.records.get(group, key), self.records.get_values(group, key)
        if record is None or values is None:
            record, values = work()
            self.records.put_values(group, key, values)
            self.records.put(group, key, record)
        return record, values

    def once(self, group: str, of: Sequence[Any], work: Callable[[], Record], about: Mapping[str, Any]) -> Record:
        """Return the result of some work, or of when it was done before.

        Parameters
        ----------
        group : str
            Where it is kept.
        of : sequence
            What it depends on besides the seed.
        work : callable
        about : mapping
            Kept beside the result, for people.

        Raises
        ------
        OutOfTimeError
            If it would have to begin after the end of the time.
        """

        def in_time() -> Record:
            self.check_time()
            return {"of": dict(about), **work()}

        return self.record(group, key_of(FORMAT, *of, self.seed), in_time)

    def keep(self, slot: str, key: str, model: Any) -> None:
        """Keep a fitted model in place of the one in this slot; the oldest of many slots is let go."""
        self._kept.pop(slot, None)
        self._kept = dict(list(self._kept.items())[1 - MODELS_KEPT :])
        self._kept[slot] = key, model

    def kept_key(self, slot: str) -> str | None:
        """Return the name of the fit in a slot; None where there is none."""
        return self._kept[slot][0] if slot in self._kept else None

    def kept_model(self, slot: str, key: str, fit: Callable[[], Any]) -> Any:
        """Return the model of a fit: a kept one, or fitted again to the same bytes and kept in the slot.

        Raises
        ------
        OutOfTimeError
            If it would have to be fitted after the end of the time.
        """
        for kept, model in self._kept.values():
            if kept == key:
                return model
        self.check_time()
        model = fit()
        self.keep(slot, key, model)
        return model

    def forget(self, problem: Named) -> None:
        """Let go of the models of a problem."""
        self._kept = {slot: kept for slot, kept in self._kept.items() if not slot.startswith(f"{problem.name}/")}

    def check_time(self) -> None:
        """Let work begin only before the end of the time.

        Raises
        ------
        OutOfTimeError
            After it.
        """
        if self._until is not None and time.monotonic() > self._until:
            raise OutOfTimeError

    def choose(self, problem: Problem, arm: Arm) -> Chosen:
        """Fit all settings of a method that are not on record, and choose by MAP over the validation images.

        Raises
        ------
        OutOfTimeError
            If a fit would have to begin after the end of the time.
        DivergedError
            If every setting diverged.
        """
        settings = arm.settings()
        tried = []
        for number, setting in enumerate(settings, start=1):
            task = f"{problem.name}, {arm.label}, {number} of {len(settings)}"
            tried.append(self._validate(problem, arm, setting, task))
        best = max(range(len(tried)), key=lambda i: (tried[i]["map"] is not None, tried[i]["map"] or 0.0))
        if tried[best]["map"] is None:
            raise DivergedError(f"Each of the {len(tried)} settings of {arm.label} diverged on {problem.name}.")
        return Chosen(arm, settings[best], tried[best], tried)

    def test(self, problem: Problem, arm: Arm) -> Tested:
        """Choose, and judge the chosen setting by the test rows unless that is on record.

        Raises
        ------
        OutOfTimeError, DivergedError
            As `choose` does.
        """
        chosen = self.choose(problem, arm)

        def work() -> tuple[Record, dict[str, Any]]:
            model = self.model(problem, chosen)
            values = judge(model, problem.test, problem.siblings)
            metrics = {name: float(np.nanmean(array)) for name, array in values.items()}
            cost = measure_cost(model, problem.test.X, self.seed)
            return {"arm": arm.label, "settings": chosen.settings, "metrics": metrics, "cost": cost}, values

        key = key_of(self.key(problem, arm.model, chosen.settings), problem.test_fingerprint)
        record, values = self.record_values(f"{problem.name}/test", key, work)
        return Tested(chosen, record["metrics"], record["cost"], values)

    def model(self, problem: Problem, chosen: Chosen) -> Any:
        """Return the fitted model of a chosen setting: kept from its fit, or fitted again to the same bytes."""
        arm, task = chosen.arm, f"{problem.name}, {chosen.arm.label}, chosen"
        key = self.key(problem, arm.model, chosen.settings)
        return self.kept_model(
            f"{problem.name}/{arm.label}", key, lambda: self._train(problem, arm, chosen.settings, task)[0]
        )

    def derive(self, problem: Problem, chosen: Chosen, name: str, work: Callable[[Any], Any]) -> Any:
        """Return what some work makes of the fitted model of a chosen setting, or made before: lists and numbers.

        Parameters
        ----------
        name : str
            Of the work, and of what it depends on besides the model and the test rows.
        work : callable
            Takes the model.

        Raises
        ------
        OutOfTimeError
            If the model would have to be fitted again after the end of the time.
        """
        key = key_of(self.key(problem, chosen.arm.model, chosen.settings), problem.test_fingerprint, name)
        return self.record(
            f"{problem.name}/derived", key, lambda: {"name": name, "result": work(self.model(problem, chosen))}
        )["result"]

    def _validate(self, problem: Problem, arm: Arm, settings: Settings, task: str) -> Record:
        group, key, slot = (
            f"{problem.name}/valid",
            self.key(problem, arm.model, settings),
            f"{problem.name}/{arm.label}",
        )

        def work() -> Record:
            self.check_time()
            record = {"model": arm.model, "settings": settings}
            try:
                model, facts = self._train(problem, arm, settings, task)
            except DivergedError as error:
                return {**record, "map": None, "diverged": str(error)}
            best = self.kept_key(slot)
            earlier = self.records.get(group, best) if best is not None else None
            if earlier is None or facts["map"] > earlier["map"]:
                self.keep(slot, key, model)
            return {**record, **facts}

        return self.record(group, key, work)

    def _train(self, problem: Problem, arm: Arm, settings: Settings, task: str) -> tuple[Any, Record]:
        shared: dict[str, Any] = {"valid_share": 0.0} if problem.by_number else {}
        model = self.make(arm.model, settings, **shared)
        if problem.by_number and hasattr(model, "patience"):
            return _fit_stopped(model, problem, int(model.patience), self.monitor(task))
        seconds = self.fit(model, problem.train, None if problem.by_number else problem.valid, task)
        history = getattr(model, "history_", [])
        clock = np.cumsum([entry["seconds"] for entry in history])
        curve = [_point(entry, float(at), entry["map"]) for entry, at in zip(history, clock, strict=True)]
        found = validation_map(model, problem.valid)
        return model, {"map": found, "seconds": seconds, "epoch": getattr(model, "n_epochs_", None), "curve": curve}


def _fit_stopped(model: Any, problem: Problem, patience: int, progress: Progress) -> tuple[Any, Record]:
    stopping = EarlyStopping(model, lambda fitted: validation_map(fitted, problem.valid), patience, progress)
    began = time.perf_counter()
    model.fit(problem.train.X, problem.train.Y, monitor=progress, on_epoch=stopping)
    history = model.history_
    curve = [_point(entry, *point) for entry, point in zip(history, stopping.curve, strict=True)]
    best = stopping.curve[stopping.best_epoch - 1]
    facts = {"map": best[1], "seconds": time.perf_counter() - began, "epoch": stopping.best_epoch, "curve": curve}
    return stopping.best, facts


def _point(entry: Mapping[str, Any], seconds: float, found: float | None) -> Record:
    return {
        "epoch": entry["epoch"],
        "seconds": seconds,
        "map": found,
        "draws": entry.get("draws"),
        "violated": entry.get("violated"),
    }
