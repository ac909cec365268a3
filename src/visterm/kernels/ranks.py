"""Ranks of the relevant entries of score rows and score columns, by counting instead of sorting."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def first_non_finite_row(scores):
    """Find the first row that holds NaN or infinity; -1 where there is none.

    Parameters
    ----------
    scores : ndarray of float32 or float64, shape (n, m), C order
    """
    n, m = scores.shape
    for i in range(n):
        row = scores[i]
        bad = np.int32(0)
        for c in range(m):
            bad = np.int32(bad + np.int32(not np.isfinite(row[c])))
        if bad:
            return i
    return -1


@njit(cache=True, nogil=True)
def rank_in_rows(scores, indptr, indices, ranks, mid_ranks):
    """Fill `ranks` and `mid_ranks`: where in its row each relevant entry stands. O(relevant × m) a row, no sort.

    Parameters
    ----------
    scores : ndarray of float32 or float64, shape (n, m), C order
        Higher is better; no NaN. An entry of minus infinity is never above nor level with a finite one.
    indptr, indices : ndarray of int64, shapes (n + 1,) and (n_relevant,)
        CSR pattern of the relevant entries; columns below m.
    ranks : ndarray of int64, shape (n_relevant,)
        1 is best; of equal scores the smaller column ranks first.
    mid_ranks : ndarray of float64, shape (n_relevant,)
        Equal scores share the mean of their ranks.
    """
    n, m = scores.shape
    for i in range(n):
        row = scores[i]
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            if j < 0 or j >= m:
                raise IndexError("a relevant column is outside the scores")
            score = row[j]
            above = np.int32(0)
            not_below = np.int32(0)
            for c in range(m):  # int32 keeps the loop in vector registers
                above = np.int32(above + np.int32(row[c] > score))
                not_below = np.int32(not_below + np.int32(row[c] >= score))
            level = not_below - above - 1
            earlier = 0
            if level > 0:
                for c in range(j):
                    if row[c] == score:
                        earlier += 1
            ranks[e] = 1 + above + earlier
            mid_ranks[e] = 1 + above + level / 2
