"""Exact selection of the k best of each row, best first, ties by the smaller id."""

from __future__ import annotations

import numpy as np
from numba import njit


def top_k(scores, k):
    """Return the ids (int64) and values of the k best columns of each row, (n, k) of scores (n, m) without NaN."""
    ids = np.empty((scores.shape[0], k), np.int64)
    values = np.empty((scores.shape[0], k), scores.dtype)
    if k > 0:
        _select_rows(scores, ids, values)
    return ids, values


@njit(cache=True, nogil=True)
def _select_rows(scores, ids, values):
    """Fill `ids` and `values` row by row with a bounded heap: the worst of the k lies at the root."""
    n, m = scores.shape
    k = ids.shape[1]
    for row in range(n):
        heap_ids = ids[row]
        heap_values = values[row]
        for i in range(k):
            heap_ids[i] = i
            heap_values[i] = scores[row, i]
        for i in range(k // 2 - 1, -1, -1):
            _sift_down(heap_ids, heap_values, i, k)
        for j in range(k, m):
            if scores[row, j] > heap_values[0]:  # at equal scores the earlier, smaller id stays
                heap_ids[0] = j
                heap_values[0] = scores[row, j]
                _sift_down(heap_ids, heap_values, 0, k)
        for end in range(k - 1, 0, -1):
            heap_ids[0], heap_ids[end] = heap_ids[end], heap_ids[0]
            heap_values[0], heap_values[end] = heap_values[end], heap_values[0]
            _sift_down(heap_ids, heap_values, 0, end)


@njit(cache=True)
def _sift_down(ids, values, i, size):
    """Restore the heap below `i`: parents are worse than children."""
    while True:
        worst = i
        for child in (2 * i + 1, 2 * i + 2):
            if child < size and _worse(values[child], ids[child], values[worst], ids[worst]):
                worst = child
        if worst == i:
            return
        ids[i], ids[worst] = ids[worst], ids[i]
        values[i], values[worst] = values[worst], values[i]
        i = worst


@njit(cache=True)
def _worse(value_a, id_a, value_b, id_b):
    """Return whether a ranks after b."""
    return value_a < value_b or (value_a == value_b and id_a > id_b)
