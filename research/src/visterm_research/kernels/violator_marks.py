"""Draws of WARP for pairs that need many draws: first mark all tags that violate, a few tags for all pairs at a time.

This is for sparse rows and one weight per feature and tag. A draw then reads a mark, not a row of weights from memory.
Draws and learned bytes are the same as without marks.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from visterm.kernels import add_at, dot_at, draw_below, nth_absent, row_dot, stream_of

BLOCK_TAGS = 16  # Number of tags whose weights of one feature are stored next to each other: one cache line


@njit(cache=True, nogil=True)
def score_own_tags(pairs, rows, V):
    """Set the `gaps` of all pairs to the scores f_y, which `mark_violators` and `draw_marked` use."""
    _, _, tags, row_ids, _, _, gaps, _ = pairs
    for p in range(tags.shape[0]):
        gaps[p] = row_dot(rows, row_ids[p], V[tags[p]])


@njit(cache=True, nogil=True)
def mark_violators(pairs, margin, rows, first, stop, V, marks):
    """Mark, for all pairs, the tags among first .. stop-1 with f_ȳ(x) > f_y(x) - margin.

    The sums have the order of `row_dot`. Overwrites these columns of `marks`, bool (n, n_tags); threads with disjoint
    ranges of tags write different columns.
    """
    _, _, _, row_ids, _, _, gaps, _ = pairs
    width = V.shape[1]
    block_weights, sums = np.zeros((width, BLOCK_TAGS), np.float32), np.empty(BLOCK_TAGS, np.float32)
    for start in range(first, stop, BLOCK_TAGS):
        n = min(BLOCK_TAGS, stop - start)
        for j in range(width):
            for c in range(n):
                block_weights[j, c] = V[start + c, j]
        for p in range(row_ids.shape[0]):
            i = row_ids[p]
            begin, end, shift = rows.start[i], rows.start[i + 1], rows.shift[i]
            threshold = gaps[p] - np.float32(margin)
            if end - begin == width:
                for c in range(n):
                    sums[c] = dot_at(rows.vals, begin, V, (start + c) * width, width)
            else:
                sums[:] = 0.0
                for e in range(begin, end):
                    add_at(sums, 0, block_weights, rows.cols[e - shift] * BLOCK_TAGS, BLOCK_TAGS, rows.vals[e])
            for c in range(n):
                marks[p, start + c] = sums[c] > threshold


@njit(cache=True, nogil=True)
def draw_marked(pairs, first, stop, positives, rows, V, marks, draws):
    """Draw the same tags as `draw_violators` without a pool for the pairs first .. stop-1, from their `marks`.

    First the marks of the image's own tags are removed; a pair without remaining marks is not drawn for.
    """
    examples, images, _, row_ids, violators, trials, gaps, _ = pairs
    tags_start, positive_tags = positives
    _, max_trials, seed, epoch = draws
    n_tags = V.shape[0]
    for p in range(first, stop):
        begin, end = tags_start[images[p]], tags_start[images[p] + 1]
        for q in range(begin, end):
            marks[p, positive_tags[q]] = False
        candidates = n_tags - (end - begin)
        limit = min(candidates, max_trials)
        violators[p], trials[p] = -1, limit
        if not marks[p].any():
            continue
        stream = stream_of(seed, epoch, examples[p])
        for n in range(limit):
            drawn = nth_absent(positive_tags, begin, end, draw_below(stream, n, candidates))
            if marks[p, drawn]:
                violators[p], trials[p] = drawn, n + 1
                gaps[p] -= row_dot(rows, row_ids[p], V[drawn])
                break
