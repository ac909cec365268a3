"""Exact best pairs of tags (one of an object, one of a part) without computing the scores of all K × K pairs.

The score of the object's tag i and the part's tag j is ``(a[i] + b[j]) + F[i, j]``, added in this order in float32, as
in NumPy. Rounding is monotonic: the rounded sum of larger numbers is never below the rounded sum of smaller ones. So
``(a[i] + max b) + max F[i]``, rounded the same way, bounds the scores of row i, and no slack is needed.

The rows with the largest bounds come first and give a floor that the k best must reach. Then all rows are visited in
order: rows whose bound is below the floor are skipped, and so are blocks of columns of the other rows. The remaining
pairs are scored, and the floor rises with the worst of the k best so far. The diagonal (a tag with itself), which is
largest if F has products of rows of equal length, is excluded from the bounds and handled separately.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from visterm.kernels.topk import _select_rows, heapify, replace_worst, sort_heap

ROWS_PER_TILE = 64  # Rows of F that stay in the L2 cache while the examples of a group are processed
GROUP_SIZE = 8  # Number of examples per group
FIRST_ROWS = 8, 64
"""Minimum and maximum number of rows that are visited first; k rows if k is between them."""

COLUMNS = 64  # Columns per block: they share a bound and are scored in vector registers
_LOWEST, _HIGHEST, _SHIFT = np.int32(-(2**31)), np.int32(2**31 - 1), np.int32(31)


class PairTerms(NamedTuple):
    """The label-label term F of all pairs, and its bounds."""

    F: np.ndarray  # float32, shape (K, K). Row: tag of the object, column: tag of the part. C order, finite.
    diagonal: np.ndarray  # float32, shape (K,). Diagonal of F, a tag with itself; excluded below.
    # float32, shape (K, ceil(K / 64)). Largest and smallest value of each row per block of columns;
    # minus infinity and infinity for a block that has only the diagonal.
    block_max: np.ndarray
    block_min: np.ndarray
    # float32, shape (K,). Largest and smallest value of each row.
    row_max: np.ndarray
    row_min: np.ndarray


def pair_terms(F):
    """Compute the bounds of a finite (K, K) matrix of float32 in C order; once per model."""
    n = F.shape[0]
    block_max, block_min = np.empty((2, n, -(-n // COLUMNS)), np.float32)
    _fill_bounds(F, block_max, block_min)
    return PairTerms(F, F.diagonal().copy(), block_max, block_min, block_max.max(axis=1), block_min.min(axis=1))


@njit(cache=True, nogil=True)
def _fill_bounds(F, block_max, block_min):
    row = np.empty(F.shape[0], np.float32)
    unused = np.empty(1, np.float32)
    for i in range(F.shape[0]):
        row[:] = F[i]
        row[i] = -np.inf
        block_extremes(row, block_max[i], block_min[i])
        row[i] = np.inf
        block = i // COLUMNS
        block_extremes(row[block * COLUMNS : (block + 1) * COLUMNS], unused, block_min[i, block : block + 1])


@njit(cache=True, nogil=True)
def block_extremes(values, block_max, block_min):
    """Fill `block_max` and `block_min` with the extremes of blocks of float32 values (C order, no NaN).

    Values are compared as integers of the same order, which the compiler can vectorise.
    """
    bits = values.view(np.int32)
    for block in range(block_max.shape[0]):
        columns = bits[block * COLUMNS : (block + 1) * COLUMNS]
        largest, smallest = _LOWEST, _HIGHEST
        for c in range(columns.shape[0]):
            ordered = _ordered_bits(columns[c])
            largest = ordered if ordered > largest else largest
            smallest = ordered if ordered < smallest else smallest
        block_max[block] = np.int32(_ordered_bits(largest)).view(np.float32)
        block_min[block] = np.int32(_ordered_bits(smallest)).view(np.float32)


@njit(cache=True)
def _ordered_bits(bits):
    """Map the bits of a float to an integer of the same order, or that integer back to the bits."""
    return np.int32(bits ^ (np.int32(bits >> _SHIFT) & _HIGHEST))


@njit(cache=True, nogil=True)
def top_pairs(A, B, terms, first, stop, ids, scores):
    """Fill `ids` and `scores` with the k best pairs of the examples `first` .. `stop` - 1, ties by the smaller id.

    `A` and `B`, float32 (n, K), are the scores of tags for the object's and the part's image. They and all sums with F
    are finite. A tag with itself is a pair, too. `ids`, int64 (n, k), are overwritten with ``i * K + j``; k is from 1
    to the number of pairs.
    """
    n = terms.F.shape[0]
    k = ids.shape[1]
    if A.shape[1] != n or B.shape[1] != n or first < 0 or stop > min(A.shape[0], B.shape[0]):
        raise IndexError("the examples are outside A and B, or these are not as wide as F")
    if k < 1 or k > n * n:
        raise IndexError("k is below 1, or more than there are pairs")
    n_first = min(n, max(FIRST_ROWS[0], min(FIRST_ROWS[1], k)))
    bounds = np.empty((GROUP_SIZE, n), np.float32)
    self_scores = np.empty((GROUP_SIZE, n), np.float32)
    block_b = np.empty((GROUP_SIZE, terms.block_max.shape[1]), np.float32)
    unused = np.empty(block_b.shape[1], np.float32)
    floors = np.empty(GROUP_SIZE, np.float32)
    counts = np.empty(GROUP_SIZE, np.int64)
    first_rows = np.empty((GROUP_SIZE, n_first), np.int64)
    first_bounds = np.empty((GROUP_SIZE, n_first), np.float32)

    for start in range(first, stop, GROUP_SIZE):
        size = min(GROUP_SIZE, stop - start)
        for e in range(size):
            _fill_row_bounds(A[start + e], B[start + e], terms, bounds[e], self_scores[e], block_b[e], unused)
        _select_rows(bounds[:size], first_rows, first_bounds)
        for e in range(size):
            a, b, heap_ids, heap_scores = A[start + e], B[start + e], ids[start + e], scores[start + e]
            count, floor = 0, np.float32(-np.inf)
            for rank in range(n_first):
                i = first_rows[e, rank]
                if bounds[e, i] < floor:
                    break
                count, floor = _merge_row(
                    i, a[i], b, terms, block_b[e], self_scores[e, i], heap_ids, heap_scores, count, floor
                )
            floors[e] = heap_scores[0] if count == k else -np.inf
            counts[e] = 0
        for top in range(0, n, ROWS_PER_TILE):
            bottom = min(top + ROWS_PER_TILE, n)
            for e in range(size):
                if not _any_at_least(bounds[e, top:bottom], floors[e]):
                    continue
                a, b, heap_ids, heap_scores = A[start + e], B[start + e], ids[start + e], scores[start + e]
                count, floor = counts[e], floors[e]
                for i in range(top, bottom):
                    if bounds[e, i] >= floor:
                        count, floor = _merge_row(
                            i, a[i], b, terms, block_b[e], self_scores[e, i], heap_ids, heap_scores, count, floor
                        )
                counts[e], floors[e] = count, floor
        for e in range(size):
            sort_heap(ids[start + e], scores[start + e])


@njit(cache=True, nogil=True)
def pair_ranks(A, B, terms, objects, parts, first, stop, ranks):
    """Fill `ranks`, int64 (n,), with the number of pairs before each example's pair, in the order of `top_pairs`.

    The pairs are `objects` and `parts`, int64 (n,). Rank 0 is best.
    """
    n = terms.F.shape[0]
    if A.shape[1] != n or B.shape[1] != n or first < 0 or stop > min(A.shape[0], B.shape[0]):
        raise IndexError("the examples are outside A and B, or these are not as wide as F")
    n_blocks = terms.block_max.shape[1]
    highest, lowest = np.empty((GROUP_SIZE, n_blocks), np.float32), np.empty((GROUP_SIZE, n_blocks), np.float32)
    b_max, b_min = np.empty(GROUP_SIZE, np.float32), np.empty(GROUP_SIZE, np.float32)
    limits = np.empty((GROUP_SIZE, 2), np.float32)

    for start in range(first, stop, GROUP_SIZE):
        size = min(GROUP_SIZE, stop - start)
        for e in range(size):
            x = start + e
            i, j = objects[x], parts[x]
            if i < 0 or i >= n or j < 0 or j >= n:
                raise IndexError("a tag of a pair is outside F")
            ranks[x] = 0
            limits[e, 0] = (A[x, i] + B[x, j]) + terms.F[i, j]
            limits[e, 1] = np.nextafter(limits[e, 0], np.float32(np.inf))
            block_extremes(B[x], highest[e], lowest[e])
            b_max[e], b_min[e] = highest[e].max(), lowest[e].min()
        for i in range(n):
            for e in range(size):
                x = start + e
                a_i = A[x, i]
                limit = limits[e, np.int64(i > objects[x])]  # ties: the smaller id comes first
                self_score = (a_i + B[x, i]) + terms.diagonal[i]
                if i == objects[x]:
                    part_tag = parts[x]
                    ranks[x] += _count_at_least(a_i, B[x, :part_tag], terms.F[i, :part_tag], limits[e, 0])
                    ranks[x] += _count_at_least(a_i, B[x, part_tag:], terms.F[i, part_tag:], limits[e, 1])
                elif (a_i + b_max[e]) + terms.row_max[i] < limit:
                    ranks[x] += self_score >= limit
                elif (a_i + b_min[e]) + terms.row_min[i] >= limit:
                    ranks[x] += n - 1 + (self_score >= limit)
                else:
                    ranks[x] += _count_row(i, a_i, B[x], terms, highest[e], lowest[e], self_score, limit)


@njit(cache=True, nogil=True)
def _fill_row_bounds(a, b, terms, bounds, self_scores, block_b, unused):
    """Fill, for one example, each row's bound, the scores on the diagonal, and the largest b of each block."""
    block_extremes(b, block_b, unused)
    b_max = block_b.max()
    for i in range(a.shape[0]):
        bounds[i] = (a[i] + b_max) + terms.row_max[i]
        self_scores[i] = (a[i] + b[i]) + terms.diagonal[i]
    for i in range(a.shape[0]):
        bounds[i] = self_scores[i] if self_scores[i] > bounds[i] else bounds[i]


@njit(cache=True, nogil=True)
def _merge_row(i, a_i, b, terms, block_b, self_score, ids, scores, count, floor):
    """Merge the pairs of a row that reach the floor into the heap; return the heap's size and the new floor."""
    n = b.shape[0]
    k = ids.shape[0]
    block_max = terms.block_max[i]
    self_counts = self_score >= floor
    if not self_counts and _count_at_least(a_i, block_b, block_max, floor) == 0:
        return count, floor

    for block in range(block_b.shape[0]):
        start = block * COLUMNS
        if not ((a_i + block_b[block]) + block_max[block] >= floor or (self_counts and start <= i < start + COLUMNS)):
            continue
        stop = min(start + COLUMNS, n)
        if _count_at_least(a_i, b[start:stop], terms.F[i, start:stop], floor) == 0:
            continue
        for j in range(start, stop):
            score = (a_i + b[j]) + terms.F[i, j]
            if score >= floor:
                if count < k:
                    ids[count] = i * n + j
                    scores[count] = score
                    count += 1
                    if count == k:
                        heapify(ids, scores)
                        floor = np.nextafter(scores[0], np.float32(np.inf))
                elif score > scores[0]:
                    replace_worst(ids, scores, i * n + j, score)
                    floor = np.nextafter(scores[0], np.float32(np.inf))
    return count, floor


@njit(cache=True, nogil=True)
def _any_at_least(values, floor):
    """Return whether any value is `floor` or more. Counts, because counting is vectorised."""
    count = np.int32(0)
    for c in range(values.shape[0]):
        count += np.int32(values[c] >= floor)
    return count > 0


@njit(cache=True, nogil=True)
def _count_row(i, a_i, b, terms, highest, lowest, self_score, limit):
    """Count the pairs of row i with a score of `limit` or more."""
    n = b.shape[0]
    count = np.int64(self_score >= limit)
    for block in range(highest.shape[0]):
        if (a_i + highest[block]) + terms.block_max[i, block] < limit:
            continue
        start = block * COLUMNS
        stop = min(start + COLUMNS, n)
        has_self = start <= i < stop
        if (a_i + lowest[block]) + terms.block_min[i, block] >= limit:
            count += stop - start - has_self
        else:
            count += _count_at_least(a_i, b[start:stop], terms.F[i, start:stop], limit)
            count -= has_self and self_score >= limit
    return count


@njit(cache=True, nogil=True)
def _count_at_least(a_i, b, row, limit):
    """Count the pairs of a section of a row with a score of `limit` or more."""
    count = np.int32(0)
    for c in range(b.shape[0]):
        count += np.int32((a_i + b[c]) + row[c] >= limit)
    return np.int64(count)
