"""One worker's part of a training that several share: it meets the others so many times a window."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import UserError
from visterm.models.ranking.meetings import Exchange
from visterm.models.ranking.pair_training import EpochSums
from visterm.models.ranking.shared_moves import moves, take_moves

MEETINGS = 16
"""Meetings an epoch, at least: on held-out images of Corel5k and NUS-WIDE 64 did no better, and 8 were 2 % worse (of
NUS-WIDE by number, four workers)."""

MOST_PAIRS = 65_536
"""Pairs of all workers between two meetings, at most."""

WAYS = "ways"


class Together:
    """What a worker remembers of the weights since the last meeting.

    Parameters
    ----------
    exchange : Exchange
    weights : tuple of ndarray
        Changed in place by training, and here.
    longest : tuple of float
        The longest row of each.
    """

    def __init__(
        self, exchange: Exchange, weights: tuple[NDArray[np.float32], ...], longest: tuple[float, ...]
    ) -> None:
        self.exchange, self._weights, self._longest = exchange, weights, longest
        self._before = [array.copy() for array in weights]
        self._squares_before: dict[str, NDArray[np.float32]] = {}

    def check_seed(self, seed: int) -> None:
        """Refuse workers that would draw start values of their own.

        Raises
        ------
        UserError
            If the seeds of the workers differ.
        """
        if len(set(self.exchange.gather(seed))) > 1:
            raise UserError("random_state differs between the workers; give a whole number.")

    def run_window(
        self, training: Any, rate: float, n_pairs: int, n_meetings: int
    ) -> tuple[EpochSums, int, dict[str, NDArray[Any]]]:
        """Train on a window, and meet the others `n_meetings` times on the way, the last time at its end.

        Returns
        -------
        tuple
            What all workers did, as means over their pairs; how many pairs those were; what the next windows' training
            is handed.
        """
        carried = training.carried()
        squares = {name: array for name, array in carried.items() if name != WAYS}
        if not self._squares_before:
            self._squares_before = {name: array.copy() for name, array in squares.items()}

        def meet() -> None:
            before = [*self._before, *(self._squares_before[name] for name in squares)]
            now = [*self._weights, *squares.values()]
            longest = [*self._longest, *[math.inf] * len(squares)]
            summed = self.exchange.sum_moves([moves(*both) for both in zip(before, now, strict=True)])
            for each in zip(before, now, summed, longest, strict=True):
                take_moves(*each)

        own = training.run_epoch(rate, meet, n_meetings)
        ways = training.carried().get(WAYS)
        each = self.exchange.gather((tuple(own), n_pairs, None if ways is None else ways.tolist()))
        counts = np.array([n for _, n, _ in each], np.float64)
        n_all = int(counts.sum())
        sums = EpochSums(*(np.array([sums for sums, _, _ in each], np.float64).T @ counts / max(1, n_all)).tolist())
        if ways is None:
            return sums, n_all, squares
        return sums, n_all, squares | {WAYS: np.any([ways for _, _, ways in each], axis=0)}


def meetings_a_window(n_pairs: int, n_windows: int) -> int:
    """Say how often workers meet in each of their windows.

    Parameters
    ----------
    n_pairs : int
        Of an epoch, of all workers.
    n_windows : int
        Of an epoch, of the worker that has most.
    """
    between = min(MOST_PAIRS, max(1, n_pairs // MEETINGS))
    return max(1, math.ceil(n_pairs / (between * max(1, n_windows))))
