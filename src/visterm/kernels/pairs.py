"""Exact best pairs of tags (one of an object, one of a part) without computing the scores of all K × K pairs.

The score of the object's tag i and the part's tag j is ``(a[i] + b[j]) + F[i, j]``, added in this order in float32, as
in NumPy. Rounding is monotonic: the rounded sum of larger numbers is never below the rounded sum of smaller ones. So
``(a[i] + max b) + max F[i]``, rounded the same way, bounds the scores of row i, and no slack is needed.

The rows with the largest bounds come first and give a floor that the k best must reach. Then all rows are visited in
order, and rows whose bound is below the floor are skipped; the floor rises with the worst of the k best so far. The
diagonal (a tag with itself), which is largest if F has products of rows of equal length, is excluded from max F[i].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from visterm.kernels.topk import _select_rows, heapify, replace_worst, sort_heap

FIRST_ROWS = 8, 64
"""Minimum and maximum number of rows that are visited first; k rows if k is between them."""

COLUMNS = 64  # Number of scores of a row that are compared with the floor at once, in vector registers


class PairTerms(NamedTuple):
    """The label-label term F of all pairs, and its bounds."""

    F: np.ndarray  # float32, shape (K, K). Row: tag of the object, column: tag of the part. C order, finite.
    diagonal: np.ndarray  # float32, shape (K,). Diagonal of F, a tag with itself; excluded below.
    # float32, shape (K,). Largest and smallest value of each row; minus infinity and infinity for a single tag.
    row_max: np.ndarray
    row_min: np.ndarray


def pair_terms(F):
    """Compute the bounds of a finite (K, K) matrix of float32 in C order; once per model."""
    others = ~np.eye(len(F), dtype=bool)
    row_max, row_min = F.max(axis=1, where=others, initial=-np.inf), F.min(axis=1, where=others, initial=np.inf)
    return PairTerms(F, F.diagonal().copy(), row_max, row_min)


@njit(cache=True, nogil=True)
def top_pairs(A, B, terms, first, stop, ids, scores):
    """Fill `ids` and `scores` with the k best pairs of the examples `first` .. `stop` - 1, ties by the smaller id.

    `A` and `B`, float32 (n, K), are the scores of tags for the object's and the part's image. They and all sums with F
    are finite. A tag with itself is a pair, too. `ids`, int64 (n, k), are overwritten with ``i * K + j``; k is from 1
    to the number of pairs.
    """
    n, k = terms.F.shape[0], ids.shape[1]
    _check_examples(A, B, terms, first, stop)
    if k < 1 or k > n * n:
        raise IndexError("k is below 1, or more than there are pairs")
    n_first = min(n, max(FIRST_ROWS[0], min(FIRST_ROWS[1], k)))
    bounds = np.empty((1, n), np.float32)
    first_rows, first_bounds = np.empty((1, n_first), np.int64), np.empty((1, n_first), np.float32)

    for x in range(first, stop):
        a, b, heap_ids, heap_scores = A[x], B[x], ids[x], scores[x]
        b_max = b.max()
        for i in range(n):
            bounds[0, i] = max((a[i] + b_max) + terms.row_max[i], (a[i] + b[i]) + terms.diagonal[i])
        _select_rows(bounds, first_rows, first_bounds)
        count, floor = 0, np.float32(-np.inf)
        for i in first_rows[0]:
            count, floor = _merge_row(i, a[i], b, terms.F[i], heap_ids, heap_scores, count, floor)

        floor = heap_scores[0] if count == k else np.float32(-np.inf)
        count = 0
        for i in range(n):
            if bounds[0, i] >= floor:
                count, floor = _merge_row(i, a[i], b, terms.F[i], heap_ids, heap_scores, count, floor)
        sort_heap(heap_ids, heap_scores)


@njit(cache=True, nogil=True)
def pair_ranks(A, B, terms, objects, parts, first, stop, ranks):
    """Fill `ranks`, int64 (n,), with the number of pairs before each example's pair, in the order of `top_pairs`.

    The pairs are `objects` and `parts`, int64 (n,). Rank 0 is best.
    """
    n = terms.F.shape[0]
    _check_examples(A, B, terms, first, stop)
    for x in range(first, stop):
        a, b, whole, part = A[x], B[x], objects[x], parts[x]
        if whole < 0 or whole >= n or part < 0 or part >= n:
            raise IndexError("a tag of a pair is outside F")
        score = (a[whole] + b[part]) + terms.F[whole, part]
        above = np.nextafter(score, np.float32(np.inf))  # ties: the smaller id comes first
        rank = _count_at_least(a[whole], b[:part], terms.F[whole, :part], score)
        rank += _count_at_least(a[whole], b[part:], terms.F[whole, part:], above)
        b_max, b_min = b.max(), b.min()

        for i in range(n):
            limit = above if i > whole else score
            if i == whole:
                continue
            if (a[i] + b_max) + terms.row_max[i] < limit:
                rank += (a[i] + b[i]) + terms.diagonal[i] >= limit
            elif (a[i] + b_min) + terms.row_min[i] >= limit:
                rank += n - 1 + ((a[i] + b[i]) + terms.diagonal[i] >= limit)
            else:
                rank += _count_at_least(a[i], b, terms.F[i], limit)
        ranks[x] = rank


@njit(cache=True)
def _check_examples(A, B, terms, first, stop):
    n = terms.F.shape[0]
    if A.shape[1] != n or B.shape[1] != n or first < 0 or stop > min(A.shape[0], B.shape[0]):
        raise IndexError("the examples are outside A and B, or these are not as wide as F")


@njit(cache=True, nogil=True)
def _merge_row(i, a_i, b, row, ids, scores, count, floor):
    """Merge the pairs of row i of F that reach the floor into the heap; return the heap's size and the new floor."""
    n, k = b.shape[0], ids.shape[0]
    for start in range(0, n, COLUMNS):
        stop = min(start + COLUMNS, n)
        if _count_at_least(a_i, b[start:stop], row[start:stop], floor) == 0:
            continue
        for j in range(start, stop):
            score = (a_i + b[j]) + row[j]
            if score < floor:
                continue
            if count == k:
                replace_worst(ids, scores, i * n + j, score)
            else:
                ids[count], scores[count] = i * n + j, score
                count += 1
                if count < k:
                    continue
                heapify(ids, scores)
            floor = np.nextafter(scores[0], np.float32(np.inf))
    return count, floor


@njit(cache=True, nogil=True)
def _count_at_least(a_i, b, row, limit):
    """Count the pairs of a section of a row with a score of `limit` or more."""
    count = np.int32(0)
    for c in range(b.shape[0]):
        count += np.int32((a_i + b[c]) + row[c] >= limit)
    return np.int64(count)
