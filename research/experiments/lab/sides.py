"""Two sides of one race: our models, stopped between epochs, and a rival in its child process."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from lab.child import Child
from lab.judged import Judge
from visterm.core.tables import MODELS

Judged = Callable[[float, float], bool]
"""Takes the seconds of training so far and the MAP after them; says whether to stop."""

Settings = dict[str, Any]


class Side(Protocol):
    """Trains with some settings from a seed, and tells `judged` after every epoch."""

    name: str

    def train(self, settings: Settings, seed: int, judged: Judged) -> None:
        """Train until `judged` says stop."""


class Ours:
    """One of our models. The clock runs from the call of `fit`, and stands still while the weights are judged.

    Parameters
    ----------
    model : str
        Name in the table of models; it must call `on_epoch` and hold its weights then.
    X, own : features and tags to learn from
    judged_rows : features of the judged images
    judge : Judge
    fixed : dict
        Settings that all runs share.
    """

    def __init__(self, model: str, X: Any, own: sp.csr_array, judged_rows: Any, judge: Judge, fixed: Settings) -> None:
        self.name = f"visterm {model}"
        self._model, self._X, self._own, self._rows, self._judge, self._fixed = model, X, own, judged_rows, judge, fixed

    def train(self, settings: Settings, seed: int, judged: Judged) -> None:
        """Fit on all rows, for as many epochs as it takes."""
        model = MODELS.create(self._model, **{**self._fixed, **settings}, random_state=seed)
        clock = _Clock(lambda: self._judge.products(model.image_rows(self._rows), model.tag_rows_), judged)
        model.fit(self._X, self._own, on_epoch=clock)


class Theirs:
    """A rival: its own clock around its own fitting.

    Parameters
    ----------
    child : Child
    name : str
    folder : Path
        Where arrays are handed over.
    judge : Judge
    fixed : dict
        Settings that all runs share.
    """

    def __init__(self, child: Child, name: str, folder: Path, judge: Judge, fixed: Settings) -> None:
        self.name = f"{name} {child.version}"
        self._child, self._judge, self._fixed = child, judge, fixed
        self._files = {"rows": str(folder / f"{name}-rows.npy"), "tags": str(folder / f"{name}-tags.npy")}

    def train(self, settings: Settings, seed: int, judged: Judged) -> None:
        """Fit epoch by epoch."""
        self._child.ask("start", settings={**self._fixed, **settings}, seed=seed)
        seconds = 0.0
        while True:
            seconds += self._child.ask("epoch")["seconds"]
            self._child.ask("save", **self._files)
            if judged(seconds, self._judge.products(*(np.load(path) for path in self._files.values()))):
                return


def hand_over(path: Path, own: sp.csr_array, judged: np.ndarray) -> str:
    """Write the pairs that a rival learns from, and which of its images are judged."""
    pairs = own.tocoo()
    np.savez(path, images=pairs.row.astype(np.int32), tags=pairs.col.astype(np.int32), shape=own.shape, judged=judged)
    return str(path)


class _Clock:
    """Judges the weights after every epoch, with the clock stopped; ends the fit once the race is over."""

    def __init__(self, found: Callable[[], float], judged: Judged) -> None:
        self._found, self._judged = found, judged
        self._stopped = 0.0
        self._began = time.perf_counter()

    def __call__(self, record: dict[str, Any]) -> str | None:
        """Stop the clock, judge, and go on; what comes before the first epoch counts."""
        now = time.perf_counter()
        seconds = now - self._began - self._stopped
        if self._judged(seconds, self._found()):
            return "stop"
        self._stopped += time.perf_counter() - now
        return None
