"""Seconds of one epoch of `wsabie`, from a state that others can start from too."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from visterm.core.tables import MODELS


class Epoch(NamedTuple):
    """One epoch that was timed.

    Attributes
    ----------
    seconds, processor : float
        By the clock, and of the process's threads together.
    draws, violated : float
        Mean draws a pair, and the share of pairs that made a step.
    V, W : ndarray of float32
        The rows of features and tags at its beginning.
    """

    seconds: float
    processor: float
    draws: float
    violated: float
    V: np.ndarray
    W: np.ndarray


def timed_epoch(X: Any, own: sp.csr_array, *, before: int, n_jobs: int, **settings: Any) -> Epoch:
    """Train for `before` epochs, then time one more.

    Rows of features have about length 1: `row_length` is held at 1. AdaGrad, the bias, the schedule "open" and its
    limit of draws, the running mean, and what makes scores comparable across images are left out, unless `settings`
    name them: so algorithm and weights are those of the paper, and other programs can go on from them.
    """
    model = MODELS.create(
        "wsabie",
        **{
            "row_length": 1.0,
            "average": 1,
            "step": "sgd",
            "schedule": "constant",
            "bias": 0.0,
            "standardize": False,
            "valid_share": 0,
            "epochs": before + 1,
            "n_jobs": n_jobs,
            **settings,
        },
    )
    watch = _Watch(model, before)
    model.fit(X, own, monitor=watch)
    last = model.history_[-1]
    return Epoch(watch.seconds, watch.processor, last["draws"], last["violated"], *watch.weights)


class _Watch:
    """A monitor that copies the weights before the last epoch, and times it."""

    def __init__(self, model: Any, before: int) -> None:
        self._model, self._left = model, before
        self.weights: tuple[np.ndarray, ...] = ()
        self.seconds = self.processor = 0.0

    def start(self, task: str, total: int | None = None) -> None:
        self._turn()

    def advance(self, steps: int = 1, note: str = "") -> None:
        self.seconds, self.processor = time.perf_counter() - self._began, time.process_time() - self._clock
        self._left -= 1
        self._turn()

    def finish(self) -> None:
        return

    def _turn(self) -> None:
        if self._left == 0:
            self.weights = tuple(np.array(getattr(self._model, name)) for name in ("image_map_", "tag_rows_"))
        self._began, self._clock = time.perf_counter(), time.process_time()
