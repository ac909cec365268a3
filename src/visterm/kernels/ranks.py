"""Ranks of the relevant entries of score rows and score columns, by counting instead of sorting."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def first_non_finite_row(scores):
    """Find the first row of scores (n, m), in C order, that holds NaN or infinity; -1 where there is none."""
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

    `scores`, (n, m) in C order without NaN: higher is better, and minus infinity is never above nor level with a finite
    one. `indptr` and `indices` are the CSR pattern of the relevant entries. In `ranks` 1 is best, and of equal scores
    the smaller column ranks first; in `mid_ranks` equal scores share the mean of their ranks.
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


@njit(cache=True, nogil=True)
def count_irrelevant_above(scores, first_row, indptr, best, ids, n_above):
    """Add to `n_above`, for some rows of a score matrix, how many irrelevant ones stand in each gap of a column.

    `scores`, (n, m) in C order without NaN, are the rows `first_row` to `first_row + n` of the matrix; minus infinity
    is left out of the ranking. `indptr`, (m + 1,), says where the relevant entries of each column begin; `best` and
    `ids` are their scores and row ids, best first, ties by the smaller id. `n_above` gains the irrelevant rows that
    stand just above each relevant entry, below the one before it.
    """
    n, m = scores.shape
    for i in range(n):
        row_id = first_row + i
        for c in range(m):
            start, stop = indptr[c], indptr[c + 1]
            score = scores[i, c]
            if start == stop or score == -np.inf or score < best[stop - 1]:
                continue
            low, high = start, stop
            while low < high:  # the first relevant entry that stands at or below this row
                middle = (low + high) // 2
                if best[middle] > score or (best[middle] == score and ids[middle] < row_id):
                    low = middle + 1
                else:
                    high = middle
            if low < stop and ids[low] != row_id:
                n_above[low] += 1
