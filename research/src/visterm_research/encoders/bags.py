"""Bags of points, one an image, and the match kernel: how well each point is matched by the best of the other bag."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from visterm.core.progress import Progress, reported
from visterm.core.threads import Team, one_blas_thread, resolve_jobs
from visterm_research.kernels.bags import Minor, best_matches

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

TILE_POINTS = 640  # Points of the bags that are compared at once: their products, 640 × 640, stay in the second cache
MARK_BYTES = 16

_Tile: TypeAlias = "tuple[Floats, NDArray[np.int64], Floats]"
"""Bags that are compared at once: their points, where each bag begins, and half the squared lengths of the points."""

MINORS = {"rbf": Minor.RBF, "linear": Minor.LINEAR, "polynomial": Minor.POLYNOMIAL}
TILES_AT_ONCE = 16  # Rows of tiles between two reports of progress


class Bags(NamedTuple):
    """Bags of points end to end."""

    points: Floats  # shape (n_points, n_features)
    start: NDArray[np.int64]
    """int64, shape (n_bags + 1,). Bag i has the points ``points[start[i]:start[i + 1]]``, one or more."""

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


def in_turn(work: Callable[[int], None], n: int, step: int, task: str, n_jobs: int | None, progress: Progress) -> None:
    """Run ``work(0)`` .. ``work(n - 1)`` in a few threads, and report after each `step`."""
    with reported(progress, task, n), Team(resolve_jobs(n_jobs)) as team:
        for start in range(0, n, step):
            count = min(step, n - start)
            team.run(lambda i, start=start: work(start + i), count)  # type: ignore[misc]
            progress.advance(count)


def mark_of(bag: Floats) -> bytes:
    """Return 16 bytes of a bag's hash, to recognise the photo later."""
    return hashlib.blake2b(np.ascontiguousarray(bag).tobytes(), digest_size=MARK_BYTES).digest()


class BestMatches:
    """The match kernel of bags with those of training images (PAMIR paper, section IV-C); their points are not below 0.

    Products come from BLAS, whose last bits depend on the shape of what it is given: training bags are compared in
    tiles that they alone decide, the earlier of two always on the left, and another bag by itself with each tile. So
    the bytes are the same for any number of threads and images at a time. `minor` is one of `MINORS`; for its settings
    see `visterm.kernels.bags.Minor`.
    """

    def __init__(self, bags: Bags, minor: str, *, gamma: float, degree: float, offset: float) -> None:
        self._bags = bags
        self._minor = MINORS[minor]
        self._settings = (int(self._minor), float(gamma), float(degree), float(offset))
        self._tiles = bags.tiles()
        self._own = self._own_parts(bags.points)

    def among(self, progress: Progress, n_jobs: int | None) -> Doubles:
        """Return the kernel of the training images with each other, shape (n, n), symmetric."""
        n = len(self._bags)
        K = np.empty((n, n))

        def row(number: int) -> None:
            first, last = self._tiles[number]
            for left, right in self._tiles[number:]:
                part = self._compare(self._slice(first, last), self._slice(left, right))
                K[first:last, left:right] = part
                K[left:right, first:last] = part.T
            within = K[first:last, first:last]
            within[:] = np.triu(within) + np.triu(within, 1).T

        with one_blas_thread():
            in_turn(row, len(self._tiles), TILES_AT_ONCE, "compare training images", n_jobs, progress)
        return K

    def values(self, bag: Floats) -> Doubles:
        """Return the kernel of a bag with all training images, shape (n,)."""
        one = bag, np.array([0, len(bag)]), self._own_parts(bag)
        return np.concatenate([self._compare(one, self._slice(*tile))[0] for tile in self._tiles])

    def with_itself(self, bag: Floats) -> float:
        """Return the kernel of a bag with itself."""
        one = bag, np.array([0, len(bag)]), self._own_parts(bag)
        return float(self._compare(one, one)[0, 0])

    def _compare(self, x: _Tile, y: _Tile) -> Doubles:
        out = np.empty((len(x[1]) - 1, len(y[1]) - 1))
        best_matches(np.matmul(x[0], y[0].T), x[2], y[2], x[1], y[1], *self._settings, out)
        return out

    def _slice(self, first: int, last: int) -> _Tile:
        start = self._bags.start[first : last + 1]
        points = slice(start[0], start[-1])
        return self._bags.points[points], start - start[0], self._own[points]

    def _own_parts(self, points: Floats) -> Floats:
        """Return half the squared length of each point, which the rbf needs; zeros for the others."""
        if self._minor != Minor.RBF:
            return np.zeros(len(points), np.float32)
        return np.asarray(np.einsum("ij,ij->i", points, points, dtype=np.float64) / 2, np.float32)
