"""Exact best pairs of tags, one for an object and one for a part, without the scores of all K × K pairs.

The score of objects' tag i and parts' tag j is ``(a[i] + b[j]) + F[i, j]``, in this order of additions and in float32, as
NumPy makes it. Rounding never turns round an order: where no term of one sum is above that of another, its rounded value
is not either. So ``(a[i] + max b) + max F[i]``, rounded just so, bounds the scores of a row, and no slack is needed.

A few good pairs give a floor that the k best must reach. Rows whose bound is below it are left out, then blocks of columns
of the rows that remain; what is left is scored, and the floor rises with the worst of the k best so far. The diagonal
(a tag with itself), largest where F holds products of rows of one length, has bounds of its own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from visterm.kernels.topk import _select_rows, _sift_down

COLUMNS = 64
"""Columns of a block: one bound for so many pairs, which are then scored in vector registers."""

ROWS = 64
"""Rows of F that stay in the second cache while the examples of a group pass."""

EXAMPLES = 8
"""Examples of a group."""

GRID = 8
"""Best rows and best columns whose pairs give the first floor, if the k asked for are no more than a few dozen."""


class PairTerms(NamedTuple):
    """The label-label term F of all pairs, with what bounds it.

    Attributes
    ----------
    F : ndarray of float32, shape (K, K)
        Row: tag of the object, column: tag of the part. C order, finite.
    own : ndarray of float32, shape (K,)
        The diagonal of F. All that follows leaves it out.
    most, least : ndarray of float32, shape (K, ceil(K / 64))
        Largest and smallest value of each row in each block of columns; minus infinity and infinity where it has none.
    row_most, row_least, column_most : ndarray of float32, shape (K,)
        The same of whole rows, and of whole columns.
    row_best : ndarray of int64, shape (K,)
        The column of each row's largest value (its own where K is 1).
    """

    F: np.ndarray
    own: np.ndarray
    most: np.ndarray
    least: np.ndarray
    row_most: np.ndarray
    row_least: np.ndarray
    column_most: np.ndarray
    row_best: np.ndarray


def pair_terms(F):
    """Make the bounds of a finite (K, K) matrix of float32 in C order; once a model."""
    n = F.shape[0]
    shape = n, -(-n // COLUMNS)
    most, least = np.full(shape, -np.inf, np.float32), np.full(shape, np.inf, np.float32)
    row_most, row_least = np.full(n, -np.inf, np.float32), np.full(n, np.inf, np.float32)
    column_most, row_best = np.full(n, -np.inf, np.float32), np.arange(n)
    _fill_bounds(F, most, least, row_most, row_least, column_most, row_best)
    return PairTerms(F, F.diagonal().copy(), most, least, row_most, row_least, column_most, row_best)


@njit(cache=True, nogil=True)
def _fill_bounds(F, most, least, row_most, row_least, column_most, row_best):
    n = F.shape[0]
    row = np.empty(n, np.float32)
    for i in range(n):
        for extreme in (np.float32(np.inf), np.float32(-np.inf)):  # stands in the diagonal's place
            row[:] = F[i]
            row[i] = extreme
            for block in range(most.shape[1]):
                columns = row[block * COLUMNS : (block + 1) * COLUMNS]
                if extreme > 0:
                    least[i, block] = _smallest(columns)
                else:
                    most[i, block] = _largest(columns)
        for j in range(n):
            column_most[j] = row[j] if row[j] > column_most[j] else column_most[j]
        row_least[i] = _smallest(least[i])
        row_most[i] = _largest(most[i])
        block = 0
        while most[i, block] != row_most[i]:
            block += 1
        row_best[i] = block * COLUMNS
        while row[row_best[i]] != row_most[i]:
            row_best[i] += 1


@njit(cache=True, nogil=True)
def top_pairs(A, B, terms, own, first, last, ids, scores):
    """Fill `ids` and `scores` with the k best pairs of the examples `first` .. `last` - 1, ties by the smaller number.

    Parameters
    ----------
    A, B : ndarray of float32, shape (n, K)
        Scores of each tag for the object's image and for the part's; finite, as are all sums with F.
    terms : PairTerms
    own : bool
        Whether a tag with itself is a pair too.
    first, last : int
        Within 0 and n.
    ids : ndarray of int64, shape (n, k)
        Changed in these rows: numbers of pairs, ``i * K + j``. k at least 1 and at most the number of pairs.
    scores : ndarray of float32, shape (n, k)
        Changed in these rows.
    """
    n = terms.F.shape[0]
    k = ids.shape[1]
    if A.shape[1] != n or B.shape[1] != n or first < 0 or last > min(A.shape[0], B.shape[0]):
        raise IndexError("the examples are outside A and B, or these are not as wide as F")
    if k < 1 or k > (n * n if own else n * (n - 1)):
        raise IndexError("there are not so many pairs")
    bounds = np.empty((EXAMPLES, n), np.float32)
    owns = np.empty((EXAMPLES, n), np.float32)
    block_b = np.empty((EXAMPLES, terms.most.shape[1]), np.float32)
    floors = np.empty(EXAMPLES, np.float32)
    found = np.empty(EXAMPLES, np.int64)
    side = min(n, max(GRID, int(np.ceil(np.sqrt(k))) + 1))
    scratch = _Scratch(
        np.empty((2, n), np.float32),
        np.empty((2, side), np.int64),
        np.empty((2, side), np.float32),
        np.empty((1, side * side), np.float32),
        np.empty((1, k), np.int64),
        np.empty((1, k), np.float32),
    )
    made = np.empty(COLUMNS, np.float32)
    for start in range(first, last, EXAMPLES):
        size = min(EXAMPLES, last - start)
        for e in range(size):
            found[e] = 0
            floors[e] = _begin(A[start + e], B[start + e], terms, own, k, bounds[e], owns[e], block_b[e], scratch)
        for top in range(0, n, ROWS):
            bottom = min(top + ROWS, n)
            for e in range(size):
                if not _any_from(bounds[e, top:bottom], floors[e]):
                    continue
                a, b = A[start + e], B[start + e]
                for i in range(top, bottom):
                    if bounds[e, i] >= floors[e]:
                        found[e], floors[e] = _take_row(
                            i, a[i], b, terms, block_b[e], owns[e, i], own, made, ids[start + e], scores[start + e],
                            found[e], floors[e],
                        )  # fmt: skip
        for e in range(size):
            _sort_heap(ids[start + e], scores[start + e])


class _Scratch(NamedTuple):
    lists: np.ndarray
    grid_ids: np.ndarray
    grid_bounds: np.ndarray
    grid: np.ndarray
    ids: np.ndarray
    values: np.ndarray


@njit(cache=True, nogil=True)
def _begin(a, b, terms, own, k, bounds, owns, block_b, scratch):
    """Fill the bounds of one example and give a floor that at least k pairs reach."""
    n = a.shape[0]
    for c in range(block_b.shape[0]):
        block_b[c] = _largest(b[c * COLUMNS : (c + 1) * COLUMNS])
    b_most = _largest(block_b)
    a_most = _largest(a)
    columns = scratch.lists[1]
    for i in range(n):
        bounds[i] = (a[i] + b_most) + terms.row_most[i]
        columns[i] = (a_most + b[i]) + terms.column_most[i]
        owns[i] = (a[i] + b[i]) + terms.own[i]
    if own:
        for i in range(n):
            bounds[i] = max(bounds[i], owns[i])
    side = scratch.grid_ids.shape[1]
    scratch.lists[0] = bounds
    _select_rows(scratch.lists, scratch.grid_ids, scratch.grid_bounds)
    place = 0
    for p in range(side):
        i = scratch.grid_ids[0, p]
        for q in range(side):
            j = scratch.grid_ids[1, q]
            if own or i != j:
                scratch.grid[0, place] = (a[i] + b[j]) + terms.F[i, j]
                place += 1
    floor = np.float32(-np.inf)
    if place >= k:
        _select_rows(scratch.grid[:, :place], scratch.ids, scratch.values)
        floor = scratch.values[0, k - 1]
    if n >= k and n > 1:
        best = scratch.lists[0]
        for i in range(n):
            j = terms.row_best[i]
            best[i] = (a[i] + b[j]) + terms.F[i, j]
            if own:
                best[i] = max(best[i], owns[i])
        _select_rows(scratch.lists[:1], scratch.ids, scratch.values)
        floor = max(floor, scratch.values[0, k - 1])
    return floor


@njit(cache=True, nogil=True)
def _take_row(i, a_i, b, terms, block_b, own_score, own, made, ids, scores, found, floor):
    """Bring the pairs of a row that reach the floor into the heap; give the pairs in it and the floor from then on."""
    n = b.shape[0]
    k = ids.shape[0]
    for block in range(block_b.shape[0]):
        bound = (a_i + block_b[block]) + terms.most[i, block]
        start = block * COLUMNS
        if not (bound >= floor or (own and block == i // COLUMNS and own_score >= floor)):
            continue
        stop = min(start + COLUMNS, n)
        for c in range(stop - start):
            made[c] = (a_i + b[start + c]) + terms.F[i, start + c]
        if not _any_from(made[: stop - start], floor):
            continue
        for c in range(stop - start):
            j = start + c
            if made[c] >= floor and (own or j != i):
                if found < k:
                    ids[found] = i * n + j
                    scores[found] = made[c]
                    found += 1
                    if found == k:
                        for place in range(k // 2 - 1, -1, -1):
                            _sift_down(ids, scores, place, k)
                        floor = np.nextafter(scores[0], np.float32(np.inf))
                else:
                    ids[0] = i * n + j
                    scores[0] = made[c]
                    _sift_down(ids, scores, 0, k)
                    floor = np.nextafter(scores[0], np.float32(np.inf))
    return found, floor


@njit(cache=True, nogil=True)
def _sort_heap(ids, scores):
    """Sort a heap whose worst lies at the root, best first."""
    for end in range(ids.shape[0] - 1, 0, -1):
        ids[0], ids[end] = ids[end], ids[0]
        scores[0], scores[end] = scores[end], scores[0]
        _sift_down(ids, scores, 0, end)


@njit(cache=True, nogil=True, fastmath={"nnan", "nsz"})
def _largest(values):
    largest = values[0]
    for c in range(1, values.shape[0]):
        largest = max(largest, values[c])
    return largest


@njit(cache=True, nogil=True)
def _any_from(values, floor):
    """Say whether any value is `floor` or more. Counts, because that goes in vectors."""
    count = np.int32(0)
    for c in range(values.shape[0]):
        count += np.int32(values[c] >= floor)
    return count > 0


@njit(cache=True, nogil=True, fastmath={"nnan", "nsz"})
def _smallest(values):
    smallest = values[0]
    for c in range(1, values.shape[0]):
        smallest = min(smallest, values[c])
    return smallest


@njit(cache=True, nogil=True)
def pair_ranks(A, B, terms, own, objects, parts, first, last, ranks):
    """Fill `ranks` with how many pairs stand before one, in the order of `top_pairs`.

    Parameters
    ----------
    A, B, terms, own, first, last
        As for `top_pairs`.
    objects, parts : ndarray of int64, shape (n,)
        The pair of each example; of two tags, if `own` is false.
    ranks : ndarray of int64, shape (n,)
        Changed for these examples; 0 is best.
    """
    n = terms.F.shape[0]
    if A.shape[1] != n or B.shape[1] != n or first < 0 or last > min(A.shape[0], B.shape[0]):
        raise IndexError("the examples are outside A and B, or these are not as wide as F")
    highest = np.empty((EXAMPLES, terms.most.shape[1]), np.float32)
    lowest = np.empty((EXAMPLES, terms.most.shape[1]), np.float32)
    for start in range(first, last, EXAMPLES):
        size = min(EXAMPLES, last - start)
        for e in range(size):
            i, j = objects[start + e], parts[start + e]
            if i < 0 or i >= n or j < 0 or j >= n:
                raise IndexError("a tag of a pair is outside F")
            ranks[start + e] = 0
            for block in range(highest.shape[1]):
                columns = B[start + e, block * COLUMNS : (block + 1) * COLUMNS]
                highest[e, block] = _largest(columns)
                lowest[e, block] = _smallest(columns)
        for i in range(n):
            for e in range(size):
                x = start + e
                ranks[x] += _count_row(i, A[x], B[x], terms, highest[e], lowest[e], own, objects[x], parts[x])


@njit(cache=True, nogil=True)
def _count_row(i, a, b, terms, highest, lowest, own, true_i, true_j):
    """Count the pairs of row i that stand before the true one."""
    n = b.shape[0]
    score = (a[true_i] + b[true_j]) + terms.F[true_i, true_j]
    above = np.nextafter(score, np.float32(np.inf))
    a_i, row = a[i], terms.F[i]
    if i == true_i:
        count = _count_from(a_i, b[:true_j], row[:true_j], score) + _count_from(a_i, b[true_j:], row[true_j:], above)
        limit = score if i < true_j else above
        return count if own else count - ((a_i + b[i]) + row[i] >= limit)
    limit = score if i < true_i else above  # of equals the smaller number stands before
    own_counts = (a_i + b[i]) + row[i] >= limit
    count = np.int64(own and own_counts)
    if (a_i + _largest(highest)) + terms.row_most[i] < limit:
        return count
    if (a_i + _smallest(lowest)) + terms.row_least[i] >= limit:
        return count + n - 1
    for block in range(highest.shape[0]):
        if (a_i + highest[block]) + terms.most[i, block] < limit:
            continue
        start = block * COLUMNS
        stop = min(start + COLUMNS, n)
        has_own = start <= i < stop
        if (a_i + lowest[block]) + terms.least[i, block] >= limit:
            count += stop - start - has_own
        else:
            count += _count_from(a_i, b[start:stop], row[start:stop], limit) - (has_own and own_counts)
    return count


@njit(cache=True, nogil=True)
def _count_from(a_i, b, row, limit):
    """Count the pairs of a stretch of a row that score `limit` or more."""
    count = np.int32(0)
    for c in range(b.shape[0]):
        count += np.int32((a_i + b[c]) + row[c] >= limit)
    return np.int64(count)
