"""Steps of rows that each belong to one image: what training asks where images are known only by number."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from visterm.kernels.rules import mean_square, scale_row
from visterm.kernels.vectors import limit_norm


@njit(cache=True, nogil=True)
def copy_rows(weights, chosen, out):
    """Copy rows together: ``out[p] = weights[chosen[p]]``."""
    for p in range(chosen.shape[0]):
        source, target = weights[chosen[p]], out[p]
        for c in range(source.shape[0]):
            target[c] = source[c]


@njit(cache=True, nogil=True)
def add_steps(chosen, active, steps, first, last, rule, squares, weights):
    """Add a block of steps to the rows that they belong to, then bring those rows back under the norm limit.

    ``weights[j] += Σ_p steps[p]`` over the active p with ``chosen[p] == j``, in the order of p, for the rows
    first .. last-1: `add_outer` for features that are 1 in one place and 0 elsewhere. Threads with ranges of rows that
    do not meet change different rows.

    Parameters
    ----------
    chosen : ndarray of int32 or int64, shape (n,)
        Row of each step.
    active, steps, rule
        As for `add_outer`.
    first, last : int
        The range of rows.
    squares : ndarray of float32, shape (n_rows,) or (0,)
        Entries first .. last-1 are changed: one plus the mean squares of the row's gradients so far. Empty for SGD.
    weights : ndarray of float32, shape (n_rows, width)
        Rows first .. last-1 are changed.
    """
    adaptive = squares.shape[0] > 0
    if adaptive or rule.keep < 1.0:
        for p in range(chosen.shape[0]):
            j = chosen[p]
            if active[p] < 0 or j < first or j >= last:
                continue
            if adaptive:
                squares[j] += mean_square(steps[p], rule.rate)
            if rule.keep < 1.0:
                scale_row(weights[j], rule.keep)
    for p in range(chosen.shape[0]):
        j = chosen[p]
        if active[p] < 0 or j < first or j >= last:
            continue
        factor = np.float32(1.0) / np.float32(math.sqrt(squares[j])) if adaptive else np.float32(1.0)
        row, step = weights[j], steps[p]
        for c in range(row.shape[0]):
            row[c] += factor * step[c]
    for p in range(chosen.shape[0]):
        j = chosen[p]
        if active[p] >= 0 and first <= j < last:
            limit_norm(weights[j], rule.max_norm)
