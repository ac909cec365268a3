"""Workers of Ray that meet again and again and do nothing between: what a meeting costs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from visterm.core.executor import Member
from visterm.models.epochs import EpochSums
from visterm.models.ranking import worker_sync
from visterm.models.ranking.worker_sync import Exchange
from visterm.tagging.streamed_fit_together import _meeting_place


class OnlyMeetings(NamedTuple):
    """What each worker does: gives the seconds of a meeting, after as many that are not counted.

    Attributes
    ----------
    n : int
    shapes : tuple
        Of the weights, of which all rows are moved.
    """

    n: int
    shapes: tuple[tuple[int, int], ...]

    def __call__(self, together: Member, progress: Any) -> float:
        meet, _ = _meeting_place(together, together.size)
        weights = tuple(np.zeros(shape, np.float32) for shape in self.shapes)
        exchange = Exchange(together.rank, together.size, meet)
        group = worker_sync.SyncedTraining(exchange, weights, (math.inf,) * len(weights))
        for _ in range(2):
            start = time.perf_counter()
            group.run_window(_Moved(weights), 0.0, 1, self.n)
        return (time.perf_counter() - start) / self.n


class _Moved:
    """A training that moves all rows a little between two meetings."""

    def __init__(self, weights: tuple[NDArray[np.float32], ...]) -> None:
        self._weights = weights

    def carried(self) -> dict[str, NDArray[Any]]:
        return {}

    def run_epoch(self, rate: float, meet: Callable[[], None], n: int) -> EpochSums:
        for _ in range(n):
            for array in self._weights:
                array += 1
            meet()
        return EpochSums(0.0, 0.0, 0.0)
