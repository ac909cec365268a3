"""Where workers that train the same weights meet: each brings what it has, and all leave with the same."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from visterm.models.ranking.shared_moves import Moves, sum_of_moves


class Exchange(NamedTuple):
    """One worker's way to the others. All must call the same, in the same order; each call waits for the last of them.

    Attributes
    ----------
    rank : int
        Which worker this is, from 0.
    n_workers : int
    meet : callable
        `MeetingPlace.meet` of the place that all share, wherever it is.
    """

    rank: int
    n_workers: int
    meet: Callable[[int, str, Any], Any]

    def sum_moves(self, moved: Sequence[Moves]) -> list[Moves]:
        """Return the sums of what all workers did to some arrays."""
        return [Moves(*summed) for summed in self.meet(self.rank, "sum", list(moved))]

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all workers, in their order."""
        return list(self.meet(self.rank, "gather", value))


class MeetingPlace:
    """A room for a number of workers, each in a thread of its own or calling from elsewhere.

    Parameters
    ----------
    n_workers : int
    """

    def __init__(self, n_workers: int) -> None:
        self._n_workers = n_workers
        self._changed = threading.Condition()
        self._brought: dict[int, Any] = {}
        self._n_met = 0
        self._result: Any = None
        self._closed = False

    def meet(self, rank: int, how: str, value: Any) -> Any:
        """Bring a value, wait for the others, and take what came of all: their list ("gather"), or sums of moves.

        Raises
        ------
        LeftAloneError
            If a worker closed the place, since it will not come.
        """
        with self._changed:
            number = self._n_met
            self._brought[rank] = value
            if len(self._brought) == self._n_workers:
                brought = [self._brought[rank] for rank in range(self._n_workers)]
                self._result = (
                    brought if how == "gather" else [sum_of_moves(each) for each in zip(*brought, strict=True)]
                )
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


class LeftAloneError(RuntimeError):
    """Another worker has ended early; why, is its error."""
