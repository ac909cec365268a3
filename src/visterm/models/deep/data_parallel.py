"""One training in several processes, each on its part of every batch: what a fit asks of the others."""

from __future__ import annotations

from typing import Any, NamedTuple

from visterm.core.checks import check_count


class Part(NamedTuple):
    """The images of a batch that a process computes."""

    rows: slice  # Which of the batch they are
    n: int  # Images of the whole batch

    def __len__(self) -> int:
        return int(self.rows.stop - self.rows.start)


class DataParallel:
    """Processes that hold the same weights, and make each step together; as it stands there is only this one.

    All of them draw what is drawn for the whole batch, by the same seeds, and compute their part of it. So a training
    takes the same steps however many they are, but for the rounding of sums. All of them call the same methods at the
    same place; tensors are torch's, on any device.
    """

    rank: int = 0  # Of this process, from 0. The first alone writes checkpoints.
    size: int = 1  # How many there are

    def averaging(self, network: Any) -> Any:
        """Return a module that computes as `network` does, and averages its gradients over the processes."""
        return network

    def total(self, values: Any) -> Any:
        """Return the sum of a tensor over the processes, of the same shape."""
        return values

    def gathered(self, rows: Any, n: int) -> Any:
        """Return the rows (n, ...) of a whole batch, in its order: those of each process's part after each other."""
        return rows

    def agreed(self, number: int) -> int:
        """Return the number that the first process has."""
        return number


ALONE = DataParallel()


def part_of(n: int, rank: int, size: int) -> Part:
    """Return a process's part of n images: parts follow each other, and none has two images more than another."""
    check_count(size, "size")
    return Part(slice(rank * n // size, (rank + 1) * n // size), n)
