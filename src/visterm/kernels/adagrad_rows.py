"""Row-wise Adagrad: a step of some rows of a table, each with one number that remembers its gradients."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from visterm.kernels.lanes import dot


@njit(cache=True, nogil=True)
def move_row(row, gradient, rate, sums, place):
    """Add the mean square of `gradient` to ``sums[place]``, and step: ``row -= rate gradient / √sums[place]``."""
    width = row.shape[0]
    sums[place] += dot(gradient, gradient) / np.float32(width)
    if sums[place] > 0:
        factor = np.float32(rate / math.sqrt(sums[place]))
        for c in range(width):
            row[c] -= factor * gradient[c]


@njit(cache=True, nogil=True)
def move_drawn_rows(table, sums, tags, order, gradients, rate):
    """Step those rows of a table that were drawn, each once, by the sum of its gradients.

    Parameters
    ----------
    table : ndarray of float32, shape (n_tags, width)
        Rows of `tags` are changed.
    sums : ndarray of float32, shape (n_tags,)
        What Adagrad remembers; entries of `tags` are changed.
    tags : ndarray of int64, shape (n_draws,)
        Within 0 .. n_tags - 1; may be repeated.
    order : ndarray of int64, shape (n_draws,)
        Sorts `tags`, stably.
    gradients : ndarray of float32, shape (n_draws, width)
    rate : float

    Returns
    -------
    int
        Rows that were moved.
    """
    moved, place, total = 0, 0, np.empty(table.shape[1], np.float32)
    while place < order.shape[0]:
        tag = tags[order[place]]
        total[:] = 0
        while place < order.shape[0] and tags[order[place]] == tag:
            gradient = gradients[order[place]]
            for c in range(total.shape[0]):
                total[c] += gradient[c]
            place += 1
        move_row(table[tag], total, rate, sums, tag)
        moved += 1
    return moved


@njit(cache=True, nogil=True)
def move_all_rows(table, sums, gradients, rate):
    """Step all rows of a table, as `move_drawn_rows` would with each drawn once."""
    for tag in range(table.shape[0]):
        move_row(table[tag], gradients[tag], rate, sums, tag)
