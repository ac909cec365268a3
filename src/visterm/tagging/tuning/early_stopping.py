"""Callbacks that end a fit: when a measure stops rising, or after as many epochs as were best before."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

from visterm.core.progress import Progress
from visterm.models.stopping import OnEpoch


class EarlyStopping:
    """Measures a model after each epoch of its fit, keeps a copy at its best, and stops the fit after `patience` more.

    It is passed to ``fit`` as `on_epoch`. A model stops by validation rows of its own accord, but does not know which
    tags to leave out of them; images known only by number need that. What it costs to measure is not counted as time
    of training. The model's learned arrays have to be current after an epoch, as those of `Wsabie` are.

    Parameters
    ----------
    model : Annotator
        The one that is fitted.
    measure : callable
        Returns the measure of the model as it stands; higher is better.
    patience : int
        Epochs without a new best until the fit is ended.
    progress : Progress
        Shows the measure.
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

    def __call__(self, record: dict[str, Any]) -> str | None:
        """Measure the model after one more epoch; return "stop" if `patience` epochs have brought no new best."""
        now = time.perf_counter()
        value = self._measure(self._model)
        self.curve.append((now - self._began - self._measuring, value))
        if self.best is None or value > self.curve[self.best_epoch - 1][1]:
            self.best, self.best_epoch = copy.deepcopy(self._model), len(self.curve)
        self._progress.advance(0, f"{self._name} {value:.3f}")
        self._measuring += time.perf_counter() - now
        return "stop" if len(self.curve) - self.best_epoch >= self._patience else None


def stop_after(epochs: int) -> OnEpoch:
    """Return a callback that ends a fit after some epochs: with fewer set, a learning rate that falls falls sooner."""
    return lambda record: "stop" if record["epoch"] >= epochs else None
