"""Fit every setting of a method, choose by the validation rows, and judge the chosen one by the test rows, once."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.app.early_stopping import EnoughError, Watch
from visterm.core.digests import jsonable, key_of
from visterm.core.errors import DivergedError
from visterm.core.progress import SILENT, Progress, Titled
from visterm.core.tables import MODELS
from visterm_research.comparison.arms import Arm, Settings
from visterm_research.comparison.costs import measure_cost
from visterm_research.comparison.measures import judge, validation_map
from visterm_research.comparison.problem import Problem
from visterm_research.comparison.record import Record, Records

FORMAT = 1
"""Of the stored results; raised when what they hold changes, so that older ones are made anew."""


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

    Parameters
    ----------
    folder : Path
        Where results are kept.
    seed : int
    n_jobs : int, optional
    until : float, optional
        The value of `time.monotonic` after which no fit is begun.
    progress : Progress
    """

    def __init__(
        self,
        folder: Path,
        *,
        seed: int = 0,
        n_jobs: int | None = None,
        until: float | None = None,
        progress: Progress = SILENT,
    ) -> None:
        self.seed = seed
        self._n_jobs = n_jobs
        self._until = until
        self._progress = progress
        self._records = Records(folder)
        self._kept: dict[str, tuple[str, Any]] = {}

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
            tried.append(self._fit(problem, arm, setting, task))
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
        group = _group(problem, "test")
        key = key_of(self._key(problem, arm, chosen.settings), problem.test_fingerprint)
        record, values = self._records.get(group, key), self._records.get_values(group, key)
        if record is None or values is None:
            model = self.model(problem, chosen)
            values = judge(model, problem.test, problem.siblings)
            metrics = {name: float(np.nanmean(array)) for name, array in values.items()}
            cost = measure_cost(model, problem.test.X, self.seed)
            record = {"arm": arm.label, "settings": chosen.settings, "metrics": metrics, "cost": cost}
            self._records.put_values(group, key, values)
            self._records.put(group, key, record)
        return Tested(chosen, record["metrics"], record["cost"], values)

    def model(self, problem: Problem, chosen: Chosen) -> Any:
        """Give the fitted model of a chosen setting: kept from its fit, or fitted again to the same bytes."""
        key = self._key(problem, chosen.arm, chosen.settings)
        kept = self._kept.get(_slot(problem, chosen.arm))
        if kept is not None and kept[0] == key:
            return kept[1]
        self.check_time()
        task = f"{problem.name}, {chosen.arm.label}, chosen"
        model, _ = self._train(problem, chosen.arm, chosen.settings, task)
        self._kept[_slot(problem, chosen.arm)] = key, model
        return model

    def derive(self, problem: Problem, chosen: Chosen, name: str, work: Callable[[Any], Any]) -> Any:
        """Give what some work makes of the fitted model of a chosen setting, or gave before: lists and numbers.

        Parameters
        ----------
        name : str
            Of the work, and of what it depends on besides the model and the test rows.
        work : callable
            Is given the model.

        Raises
        ------
        OutOfTimeError
            If the model would have to be fitted again after the end of the time.
        """
        group = _group(problem, "derived")
        key = key_of(self._key(problem, chosen.arm, chosen.settings), problem.test_fingerprint, name)
        record = self._records.get(group, key)
        if record is None:
            record = {"name": name, "result": jsonable(work(self.model(problem, chosen)))}
            self._records.put(group, key, record)
        return record["result"]

    def check_time(self) -> None:
        """Let work begin only before the end of the time.

        Raises
        ------
        OutOfTimeError
            After it.
        """
        if self._until is not None and time.monotonic() > self._until:
            raise OutOfTimeError

    def forget(self, problem: Problem) -> None:
        """Let go of the models of a problem."""
        self._kept = {slot: kept for slot, kept in self._kept.items() if not slot.startswith(f"{problem.name}/")}

    def _fit(self, problem: Problem, arm: Arm, settings: Settings, task: str) -> Record:
        group, key = _group(problem, "valid"), self._key(problem, arm, settings)
        record = self._records.get(group, key)
        if record is not None:
            return record
        self.check_time()
        try:
            model, facts = self._train(problem, arm, settings, task)
        except DivergedError as error:
            record = {"model": arm.model, "settings": settings, "map": None, "diverged": str(error)}
        else:
            record = {"model": arm.model, "settings": settings, **facts}
            self._keep_best(problem, arm, key, model, record)
        self._records.put(group, key, record)
        return record

    def _keep_best(self, problem: Problem, arm: Arm, key: str, model: Any, record: Record) -> None:
        slot = _slot(problem, arm)
        best = self._kept.get(slot)
        earlier = self._records.get(_group(problem, "valid"), best[0]) if best is not None else None
        if earlier is None or record["map"] > earlier["map"]:
            self._kept[slot] = key, model

    def _train(self, problem: Problem, arm: Arm, settings: Settings, task: str) -> tuple[Any, Record]:
        progress = Titled(self._progress, task)
        accepted = inspect.signature(MODELS.load(arm.model)).parameters
        shared: dict[str, Any] = {"random_state": self.seed, "n_jobs": self._n_jobs}
        if problem.by_number:
            shared["valid_share"] = 0.0
        params = {**{name: value for name, value in shared.items() if name in accepted}, **settings}
        model = MODELS.create(arm.model, **params)
        began = time.perf_counter()
        if problem.by_number and "patience" in accepted:
            return _fit_watched(model, problem, int(model.patience), progress)
        if problem.by_number:
            model.fit(problem.train.X, problem.train.Y, monitor=progress)
        else:
            model.fit(problem.train.X, problem.train.Y, valid=(problem.valid.X, problem.valid.Y), monitor=progress)
        seconds = time.perf_counter() - began
        history = getattr(model, "history_", [])
        clock = np.cumsum([entry["seconds"] for entry in history])
        curve = [_point(entry, float(at), entry["map"]) for entry, at in zip(history, clock, strict=True)]
        found = validation_map(model, problem.valid)
        return model, {"map": found, "seconds": seconds, "epoch": getattr(model, "n_epochs_", None), "curve": curve}

    def _key(self, problem: Problem, arm: Arm, settings: Mapping[str, Any]) -> str:
        return key_of(FORMAT, problem.fingerprint, arm.model, settings, self.seed)


def _fit_watched(model: Any, problem: Problem, patience: int, progress: Progress) -> tuple[Any, Record]:
    watch = Watch(model, lambda fitted: validation_map(fitted, problem.valid), patience, progress)
    began = time.perf_counter()
    with suppress(EnoughError):
        model.fit(problem.train.X, problem.train.Y, monitor=watch)
    history = model.history_
    curve = [_point(entry, *point) for entry, point in zip(history, watch.curve, strict=True)]
    best = watch.curve[watch.best_epoch - 1]
    facts = {"map": best[1], "seconds": time.perf_counter() - began, "epoch": watch.best_epoch, "curve": curve}
    return watch.best, facts


def _point(entry: Mapping[str, Any], seconds: float, found: float | None) -> Record:
    return {
        "epoch": entry["epoch"],
        "seconds": seconds,
        "map": found,
        "draws": entry.get("draws"),
        "violated": entry.get("violated"),
    }


def _group(problem: Problem, part: str) -> str:
    return f"{problem.name}/{part}"


def _slot(problem: Problem, arm: Arm) -> str:
    return f"{problem.name}/{arm.label}"
