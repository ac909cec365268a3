"""Workers train the same weights, each on rows of its own: they sync a few times a window and leave with equal weights.

Workers start from equal weights, each trains for a short while, and then every row of weights moves by the sum of what
the workers moved it by. Short enough, that is one training with larger blocks: the pairs between two syncs are seen
from the same weights, whoever sees them. Means of the moves would be smaller steps: a tag that all workers move would
go half as far with two, a quarter with four.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import UserError
from visterm.kernels.row_moves import limit_norms
from visterm.models.epochs import EpochSums, Floats

COMPARED = 4096  # Rows compared at a time
SYNCS = 16
"""Syncs an epoch, at least: on held-out images of Corel5k and NUS-WIDE more did no better, and fewer were worse."""

MOST_PAIRS = 65_536  # Pairs of all workers between two syncs, at most
WAYS = "ways"


class Moves(NamedTuple):
    """How rows of an array were moved."""

    rows: NDArray[np.int64]  # shape (n,): ascending
    change: Floats  # shape (n, width)
    movers: NDArray[np.int32]  # shape (n,): workers that moved the row


class Exchange(NamedTuple):
    """One worker's way to the others. All must call the same, in the same order; each call waits for the last."""

    rank: int  # Which worker this is, from 0
    n_workers: int
    meet: Callable[[int, str, Any], Any]  # `MeetingPlace.meet` of the place that all share, wherever it is

    def sum_moves(self, moved: Sequence[Moves]) -> list[Moves]:
        """Return the sums of what all workers did to some arrays."""
        return [Moves(*summed) for summed in self.meet(self.rank, "sum", list(moved))]

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all workers, in their order."""
        return list(self.meet(self.rank, "gather", value))


class LeftAloneError(RuntimeError):
    """Another worker has ended early; why, is its error."""


class MeetingPlace:
    """Where a number of workers exchange values, each in a thread of its own or calling from elsewhere."""

    def __init__(self, n_workers: int) -> None:
        self._n_workers = n_workers
        self._changed = threading.Condition()
        self._brought: dict[int, Any] = {}
        self._n_met = 0
        self._result: Any = None
        self._closed = False

    def meet(self, rank: int, how: str, value: Any) -> Any:
        """Bring a value, wait for the others, and return what came of all: their list ("gather"), or sums of moves.

        Raises LeftAloneError if a worker closed the place, since it will not come.
        """
        with self._changed:
            number = self._n_met
            self._brought[rank] = value
            if len(self._brought) == self._n_workers:
                brought = [self._brought[rank] for rank in range(self._n_workers)]
                sums = how != "gather"
                self._result = [sum_of_moves(each) for each in zip(*brought, strict=True)] if sums else brought
                self._brought = {}
                self._n_met += 1
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._n_met > number or self._closed)
            if self._n_met == number:
                raise LeftAloneError("A worker that trains the same weights has ended early.")
            return self._result

    def close(self) -> None:
        """Let nobody wait any more for one who will not come."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def exchange(self, rank: int) -> Exchange:
        """Return the way of a worker in this process."""
        return Exchange(rank, self._n_workers, self.meet)


class SyncedTraining:
    """One worker's part of a training that several share, with what it remembers of the weights since the last sync.

    `weights` are changed in place by training, and here; `longest` is the longest row of each.
    """

    def __init__(self, exchange: Exchange, weights: tuple[Floats, ...], longest: tuple[float, ...]) -> None:
        self.exchange, self._weights, self._longest = exchange, weights, longest
        self._before = [array.copy() for array in weights]
        self._squares_before: dict[str, Floats] = {}

    def check_seed(self, seed: int) -> None:
        """Refuse workers that would draw start values of their own.

        Raises UserError if the seeds of the workers differ.
        """
        if len(set(self.exchange.gather(seed))) > 1:
            raise UserError("random_state differs between the workers; give a whole number.")

    def run_window(
        self, training: Any, rate: float, n_pairs: int, n_syncs: int
    ) -> tuple[EpochSums, int, dict[str, NDArray[Any]]]:
        """Train on a window, and sync with the others `n_syncs` times on the way, the last time at its end.

        Return what all workers did, as means over their pairs; how many pairs those were; what the next window's
        training takes over.
        """
        squares = {name: array for name, array in training.carried().items() if name != WAYS}
        if not self._squares_before:
            self._squares_before = {name: array.copy() for name, array in squares.items()}

        def sync() -> None:
            before = [*self._before, *(self._squares_before[name] for name in squares)]
            now = [*self._weights, *squares.values()]
            longest = [*(each * training.growth for each in self._longest), *[math.inf] * len(squares)]
            summed = self.exchange.sum_moves([moves(*both) for both in zip(before, now, strict=True)])
            for each in zip(before, now, summed, longest, strict=True):
                take_moves(*each)

        mine = training.run_epoch(rate, sync, n_syncs)
        ways = training.carried().get(WAYS)
        each = self.exchange.gather((tuple(mine), n_pairs, None if ways is None else ways.tolist()))
        counts = np.array([n for _, n, _ in each], np.float64)
        n_all = int(counts.sum())
        sums = EpochSums(*(np.array([sums for sums, _, _ in each], np.float64).T @ counts / max(1, n_all)).tolist())
        if ways is None:
            return sums, n_all, squares
        return sums, n_all, squares | {WAYS: np.any([ways for _, _, ways in each], axis=0)}


def syncs_a_window(n_pairs: int, n_windows: int) -> int:
    """Return how often workers sync in each of their windows.

    An epoch has `n_pairs` of all workers, and `n_windows` of the worker that has most.
    """
    between = min(MOST_PAIRS, max(1, n_pairs // SYNCS))
    return max(1, math.ceil(n_pairs / (between * max(1, n_windows))))


def moves(before: Floats, now: Floats) -> Moves:
    """Return the rows that one worker moved; of vectors each number is a row."""
    before, now = _as_rows(before), _as_rows(now)
    parts = [slice(start, start + COMPARED) for start in range(0, len(now), COMPARED)]
    moved = [np.flatnonzero((before[part] != now[part]).any(axis=1)) + part.start for part in parts]
    rows = np.concatenate([np.empty(0, np.int64), *moved])
    with np.errstate(invalid="ignore", over="ignore"):  # a training that diverges is refused at the end of the epoch
        change = now[rows] - before[rows]
    return Moves(rows, change, np.ones(rows.size, np.int32))


def sum_of_moves(parts: Sequence[Moves]) -> Moves:
    """Add up what the workers did to one array, in their order, so that the bytes are always the same."""
    rows = parts[0].rows
    if any(not np.array_equal(part.rows, rows) for part in parts[1:]):
        rows = np.unique(np.concatenate([part.rows for part in parts]))
    change = np.zeros((rows.size, parts[0].change.shape[1]), np.float32)
    movers = np.zeros(rows.size, np.int32)
    with np.errstate(invalid="ignore", over="ignore"):
        for part in parts:
            if part.rows.size == rows.size:
                change += part.change
                movers += part.movers
            else:
                places = np.searchsorted(rows, part.rows)
                change[places] += part.change
                movers[places] += part.movers
    return Moves(rows, change, movers)


def take_moves(before: Floats, now: Floats, summed: Moves, longest: float) -> None:
    """Bring an array, and the copy of how it was before, to where the sum of the moves leads.

    Rows that several workers moved are limited to the longest row; one that a single worker moved is within it.
    """
    before, now = _as_rows(before), _as_rows(now)
    with np.errstate(invalid="ignore", over="ignore"):
        reached = before[summed.rows] + summed.change
    several = summed.movers > 1
    if np.isfinite(longest) and several.any():
        of_several = reached[several]
        limit_norms(of_several, longest)
        reached[several] = of_several
    before[summed.rows] = now[summed.rows] = reached


def _as_rows(array: Floats) -> Floats:
    return array if array.ndim == 2 else array.reshape(-1, 1)
