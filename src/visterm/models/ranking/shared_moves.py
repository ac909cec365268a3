"""What several workers did to the same weights, put together: which rows each moved by how much, and their sum.

Workers start from equal weights, each trains on rows of its own for a short while, and then every row of weights moves
by the sum of what the workers moved it by. Short enough, that is one training with larger blocks: the pairs between two
meetings are seen from the same weights, whoever sees them. Means of the moves would be smaller steps: a tag that all
workers move would go half as far with two, a quarter with four.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from visterm.kernels.vectors import limit_norms
from visterm.models.ranking.feature_steps import Floats, Ints

COMPARED = 4096
"""Rows compared at a time."""


class Moves(NamedTuple):
    """How rows of an array were moved.

    Attributes
    ----------
    rows : ndarray of int64, shape (n,)
        Ascending.
    change : ndarray of float32, shape (n, width)
    movers : ndarray of int32, shape (n,)
        Workers that moved the row.
    """

    rows: Ints
    change: Floats
    movers: NDArray[np.int32]


def moves(before: Floats, now: Floats) -> Moves:
    """Return the rows that one worker moved; of vectors each number is a row."""
    before, now = _as_rows(before), _as_rows(now)
    parts = [slice(start, start + COMPARED) for start in range(0, len(now), COMPARED)]
    moved = [np.flatnonzero((before[part] != now[part]).any(axis=1)) + part.start for part in parts]
    rows = np.concatenate([np.empty(0, np.int64), *moved])
    with np.errstate(invalid="ignore", over="ignore"):  # a training that diverges is told of at the end of the epoch
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

    Rows that several workers moved are brought back to the longest row that may be; one that a single worker moved is
    within it.
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
