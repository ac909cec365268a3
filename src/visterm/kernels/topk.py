"""Exact rankings of rows of scores: the k best of each row, also while scores are computed, and ranks of entries.

The best come first, ties are broken by the smaller id. Ranks are counted, not sorted.

To avoid storing the (images × tags) matrix, each result has a bounded heap with its worst entry at the root: nearly
every tag costs one comparison. `stream_best` computes all scores itself, as fast as V can be read; `screen_best` scans
a matrix product of BLAS and recomputes the few scores that may exceed the root after rounding. Both rank by
`score_rows`, so the selection does not depend on BLAS, on the tiles or on the other images of the batch.
"""

from __future__ import annotations

import numpy as np

from visterm.kernels.compiled import kernel
from visterm.kernels.dot import dot

CHUNK_SCORES = 64  # Number of scores that are compared with the root at once, in vector registers
CHUNK_ROWS = 4096
"""Rows of V that are scored for one image before they are compared: two short loops are faster than a combined one."""

SHARED_CHUNK_ROWS = 1024  # Rows of V that are scored for each of several images: they stay in the L2 cache
STREAMS = 4
"""Positions of V that are read in turn: the processor prefetches each stream (a fifth faster than one stream)."""


def top_k(scores, k):
    """Return the ids (int64) and values of the k best columns of each row, (n, k) of scores (n, m) without NaN."""
    ids = np.empty((scores.shape[0], k), np.int64)
    values = np.empty((scores.shape[0], k), scores.dtype)
    if k > 0:
        _select_rows(scores, ids, values)
    return ids, values


@kernel
def _select_rows(scores, ids, values):
    """Fill `ids` and `values` row by row, using a bounded heap with the worst of the k at the root."""
    n, m = scores.shape
    k = ids.shape[1]
    for row in range(n):
        heap_ids = ids[row]
        heap_values = values[row]
        for i in range(k):
            heap_ids[i] = i
            heap_values[i] = scores[row, i]
        heapify(heap_ids, heap_values)
        for j in range(k, m):
            if scores[row, j] > heap_values[0]:  # ties keep the smaller id
                replace_worst(heap_ids, heap_values, j, scores[row, j])
        sort_heap(heap_ids, heap_values)


@kernel
def heapify(ids, scores):
    """Order ids and scores as a heap with the worst entry at the root."""
    for parent in range(ids.shape[0] // 2 - 1, -1, -1):
        _sift_down(ids, scores, parent, ids.shape[0])


@kernel
def replace_worst(ids, scores, j, score):
    """Replace the worst entry of a heap."""
    ids[0] = j
    scores[0] = score
    _sift_down(ids, scores, 0, ids.shape[0])


@kernel
def sort_heap(ids, scores):
    """Sort a heap, best first."""
    for end in range(ids.shape[0] - 1, 0, -1):
        ids[0], ids[end] = ids[end], ids[0]
        scores[0], scores[end] = scores[end], scores[0]
        _sift_down(ids, scores, 0, end)


@kernel
def _sift_down(ids, values, i, size):
    """Restore the heap below `i`: parents are worse than children; at equal values the larger id is worse."""
    while True:
        worst = i
        for child in (2 * i + 1, 2 * i + 2):
            if child < size and (
                values[child] < values[worst] or (values[child] == values[worst] and ids[child] > ids[worst])
            ):
                worst = child
        if worst == i:
            return
        ids[i], ids[worst] = ids[worst], ids[i]
        values[i], values[worst] = values[worst], values[i]
        i = worst


@kernel
def _row_at(row_ids, entry):
    return row_ids[entry] if row_ids.shape[0] > 0 else entry


@kernel
def score_rows(u, V, row_ids, first, out):
    """Fill `out` (float32, shape (m,)) with the products of `u` and m rows of V from entry `first` of `row_ids` on.

    If `row_ids` (int64) is empty, they are the rows of V from row `first` on. All rankings use these scores.
    """
    stride = out.shape[0] // STREAMS
    for r in range(stride):
        for stream in range(STREAMS):
            entry = r + stream * stride
            out[entry] = dot(u, V[_row_at(row_ids, first + entry)])
    for r in range(STREAMS * stride, out.shape[0]):
        out[r] = dot(u, V[_row_at(row_ids, first + r)])


@kernel
def stream_best(U, V, row_ids, first, stop, ids, scores):
    """Fill `ids` and `scores`, (n, k), with heaps of the best of the rows ``row_ids[first:stop]`` of V.

    V is read once for all rows of U, finite float32 of the same width. `row_ids` is ascending, so that ties keep the
    smaller tag; if it is empty, these are the rows ``V[first:stop]``. k is from 1 to the number of rows.
    """
    k, n_rows = ids.shape[1], row_ids.shape[0] if row_ids.shape[0] > 0 else V.shape[0]
    if k < 1 or first < 0 or first + k > stop or stop > n_rows or U.shape[1] != V.shape[1]:
        raise IndexError("the rows are outside V, fewer than the k best, or of another width")
    if _row_at(row_ids, first) < 0 or _row_at(row_ids, stop - 1) >= V.shape[0]:
        raise IndexError("a row is outside V")
    for i in range(U.shape[0]):
        score_rows(U[i], V, row_ids, first, scores[i])
        for entry in range(k):
            ids[i, entry] = _row_at(row_ids, first + entry)
        heapify(ids[i], scores[i])

    chunk_size = CHUNK_ROWS if U.shape[0] == 1 else SHARED_CHUNK_ROWS
    buffer = np.empty(chunk_size, np.float32)
    for start in range(first + k, stop, chunk_size):
        row_scores = buffer[: min(chunk_size, stop - start)]
        for i in range(U.shape[0]):
            score_rows(U[i], V, row_ids, start, row_scores)
            if _any_above(row_scores, scores[i, 0]):
                for r in range(row_scores.shape[0]):
                    if row_scores[r] > scores[i, 0]:
                        replace_worst(ids[i], scores[i], _row_at(row_ids, start + r), row_scores[r])


@kernel
def screen_best(block, U, V, first, slack, ids, scores):
    """Merge the tags of a block of approximate scores into heaps of earlier tags.

    `block`, (n, m), are products of U with tags `first` to `first + m`, as rounded by any BLAS. `slack`, (n,), is the
    maximum difference of each row's scores from those of `score_rows`; NaN: recompute every tag of the row. Other
    arguments are as in `stream_best`.
    """
    n, m = block.shape
    k = ids.shape[1]
    if first < 0 or first + m > V.shape[0] or U.shape[0] < n or U.shape[1] != V.shape[1] or k < 1:
        raise IndexError("the block is outside U and V, or they are of different widths")
    for i in range(n):
        row = block[i]
        limit = scores[i, 0] - slack[i]
        for start in range(0, m, CHUNK_SCORES):
            chunk = row[start : start + CHUNK_SCORES]
            if not _any_above(chunk, limit):
                continue
            for c in range(chunk.shape[0]):
                if not (chunk[c] <= limit):
                    j = first + start + c
                    score = dot(U[i], V[j])
                    if score > scores[i, 0]:
                        replace_worst(ids[i], scores[i], j, score)
                        limit = scores[i, 0] - slack[i]


@kernel
def _any_above(values, limit):
    """Return whether any value is above `limit`, or `limit` is NaN. Counts, because counting is vectorised."""
    count = np.int32(0)
    for c in range(values.shape[0]):
        count += np.int32(not (values[c] <= limit))
    return count > 0


@kernel
def rank_in_rows(scores, indptr, indices, ranks, mid_ranks):
    """Fill `ranks` and `mid_ranks` with the rank of each relevant entry in its row. O(relevant × m) per row, no sort.

    `scores`, (n, m), are in C order without NaN; higher is better, and minus infinity is below every finite score.
    `indptr` and `indices` are the CSR pattern of the relevant entries. In `ranks` 1 is best, and ties are broken by the
    smaller column; in `mid_ranks` equal scores share the mean of their ranks.
    """
    n, m = scores.shape
    for i in range(n):
        row = scores[i]
        for e in range(indptr[i], indptr[i + 1]):
            j = indices[e]
            if j < 0 or j >= m:
                raise IndexError("a relevant column is outside the scores")
            score = row[j]
            n_above = np.int32(0)
            n_not_below = np.int32(0)
            for c in range(m):  # int32 keeps the loop in vector registers
                n_above = np.int32(n_above + np.int32(row[c] > score))
                n_not_below = np.int32(n_not_below + np.int32(row[c] >= score))
            n_ties = n_not_below - n_above - 1
            n_earlier = 0
            if n_ties > 0:
                for c in range(j):
                    if row[c] == score:
                        n_earlier += 1
            ranks[e] = 1 + n_above + n_earlier
            mid_ranks[e] = 1 + n_above + n_ties / 2


@kernel
def count_irrelevant_above(scores, first_row, indptr, best, ids, n_above):
    """Count the irrelevant rows just above each relevant entry of a column, and add the counts to `n_above`.

    `scores`, (n, m) in C order without NaN, are the rows `first_row` to `first_row + n` of a score matrix; minus
    infinity is excluded from the ranking. `indptr`, (m + 1,), has the start of each column's relevant entries; `best`
    and `ids` are their scores and row ids, best first, ties by the smaller id. An irrelevant row counts for the best
    relevant entry below it.
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
            while low < high:  # the first relevant entry at or below this row
                middle = (low + high) // 2
                if best[middle] > score or (best[middle] == score and ids[middle] < row_id):
                    low = middle + 1
                else:
                    high = middle
            if low < stop and ids[low] != row_id:
                n_above[low] += 1
