"""Stopping from outside, for images known only by number: their rankings leave out the tags that a model was told."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

from visterm.core.progress import Progress


class EnoughError(Exception):
    """Ends a fit that no longer gets better; caught by whoever began it."""


class Watch:
    """Measures a model after each epoch of its fit, keeps a copy at its best, and ends the fit after `patience` more.

    It is passed to ``fit`` as its monitor. A model stops by validation rows of its own accord, but is not told which
    tags to leave out of them; images known only by number need that. What it costs to measure is not counted as time
    of training. The model's learned arrays have to be current when it reports an epoch, as those of `Wsabie` are.

    Parameters
    ----------
    model : Annotator
        The one that is fitted.
    measure : callable
        Gives the measure of the model as it stands; higher is better.
    patience : int
        Epochs without a new best until the fit is ended.
    progress : Progress
        Told of what the model reports.
    name : str
        Of the measure, for people.

    Attributes
    ----------
    curve : list of (float, float)
        After each epoch: seconds of training so far, and the measure.
    best : Annotator or None
        A copy of the model at its best.
    best_epoch : int
    """

    def __init__(
        self, model: Any, measure: Callable[[Any], float], patience: int, progress: Progress, *, name: str = "MAP"
    ) -> None:
        self._model, self._measure, self._patience, self._progress = model, measure, patience, progress
        self._name = name
        self._began = time.perf_counter()
        self._measuring = 0.0
        self.curve: list[tuple[float, float]] = []
        self.best: Any = None
        self.best_epoch = 0

    def start(self, task: str, total: int | None = None) -> None:
        """Pass it on."""
        self._progress.start(task, total)

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Measure the model after one more epoch.

        Raises
        ------
        EnoughError
            If `patience` epochs have brought no new best.
        """
        now = time.perf_counter()
        value = self._measure(self._model)
        self.curve.append((now - self._began - self._measuring, value))
        if self.best is None or value > self.curve[self.best_epoch - 1][1]:
            self.best, self.best_epoch = copy.deepcopy(self._model), len(self.curve)
        self._progress.advance(steps, f"{self._name} {value:.3f}")
        self._measuring += time.perf_counter() - now
        if len(self.curve) - self.best_epoch >= self._patience:
            raise EnoughError

    def finish(self) -> None:
        """Pass it on."""
        self._progress.finish()
