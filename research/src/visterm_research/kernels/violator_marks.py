"""WARP's draws where a pair needs many: first the tags that violate are marked, a few tags for all pairs at a time.

For sparse rows and one weight a feature and tag. A draw then reads a mark, not a row of weights out of memory. The
draws are the same either way, and so are the learned bytes.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from visterm.kernels import add_at, dot_at, draw_below, nth_absent, row_dot, stream_of

TOGETHER = 16  # Tags whose weights of one feature lie side by side: one line of the cache


@njit(cache=True, nogil=True)
def score_own_tags(pairs, rows, V):
    """Put the scores f_y of all pairs into their `gaps`, from which the two loops below go on."""
    _, _, tags, rows_at, _, _, gaps, _ = pairs
    for p in range(tags.shape[0]):
        gaps[p] = row_dot(rows, rows_at[p], V[tags[p]])


@njit(cache=True, nogil=True)
def mark_violators(pairs, margin, rows, first, last, V, marks):
    """Mark for all pairs which of the tags first .. last-1 have f_ȳ(x) > f_y(x) - margin.

    The sums have the order of `row_dot`. `marks`, bool, (n, n_tags), are overwritten in these columns; threads with
    ranges of tags that do not meet write different ones.
    """
    _, _, _, rows_at, _, _, gaps, _ = pairs
    width = V.shape[1]
    beside, sums = np.zeros((width, TOGETHER), np.float32), np.empty(TOGETHER, np.float32)
    for start in range(first, last, TOGETHER):
        n = min(TOGETHER, last - start)
        for j in range(width):
            for c in range(n):
                beside[j, c] = V[start + c, j]
        for p in range(rows_at.shape[0]):
            i = rows_at[p]
            begin, end, shift = rows.start[i], rows.start[i + 1], rows.shift[i]
            least = gaps[p] - np.float32(margin)
            if end - begin == width:
                for c in range(n):
                    sums[c] = dot_at(rows.vals, begin, V, (start + c) * width, width)
            else:
                sums[:] = 0.0
                for e in range(begin, end):
                    add_at(sums, 0, beside, rows.cols[e - shift] * TOGETHER, TOGETHER, rows.vals[e])
            for c in range(n):
                marks[p, start + c] = sums[c] > least


@njit(cache=True, nogil=True)
def draw_marked(pairs, first, last, positives, rows, V, marks, draws):
    """Draw for pairs first .. last-1 the tags that `draw_violators` draws without a pool, by their `marks`.

    The marks of the tags that an image has are removed, so that a pair without any needs no draws.
    """
    examples, images, _, rows_at, violators, trials, gaps, _ = pairs
    tags_start, positive_tags = positives
    _, max_trials, seed, epoch = draws
    n_tags = V.shape[0]
    for p in range(first, last):
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
                gaps[p] -= row_dot(rows, rows_at[p], V[drawn])
                break
