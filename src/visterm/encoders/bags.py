"""Bags of points, one an image: kept end to end, cut into tiles of fixed shape, and known again by their bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

TILE_POINTS = 640
"""Points of the bags that are compared at once: their products, 640 × 640, stay in the second cache."""

MARK_BYTES = 16


class Bags(NamedTuple):
    """Bags of points end to end.

    Attributes
    ----------
    points : ndarray of float32, shape (n_points, n_features)
    start : ndarray of int64, shape (n_bags + 1,)
        Bag i has the points ``points[start[i]:start[i + 1]]``, one or more.
    """

    points: Floats
    start: NDArray[np.int64]

    @classmethod
    def of(cls, bags: Sequence[Floats]) -> Self:
        """Lay bags end to end."""
        return cls(np.concatenate(bags), np.cumsum([0, *(len(bag) for bag in bags)], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.start) - 1

    def bag(self, i: int) -> Floats:
        """Return the points of a bag."""
        return self.points[self.start[i] : self.start[i + 1]]

    def tiles(self) -> list[tuple[int, int]]:
        """Cut the bags into runs of about `TILE_POINTS` points: first bag, and the one after the last."""
        runs, first = [], 0
        for i in range(1, len(self) + 1):
            if i == len(self) or self.start[i + 1] - self.start[first] > TILE_POINTS:
                runs.append((first, i))
                first = i
        return runs

    def spread(self) -> float:
        """Return the mean squared distance of two points drawn from all."""
        squares = float(np.einsum("ij,ij->", self.points, self.points, dtype=np.float64)) / len(self.points)
        return max(0.0, 2 * (squares - float(np.square(self.points.mean(axis=0, dtype=np.float64)).sum())))


def mark_of(bag: Floats) -> bytes:
    """Return the few bytes by which a bag is known again."""
    return hashlib.blake2b(np.ascontiguousarray(bag).tobytes(), digest_size=MARK_BYTES).digest()
