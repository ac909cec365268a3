"""WARP from all scores at once: the violators are counted, and the number of draws is drawn by its law."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from visterm.kernels.random import draw_below, draw_unit, stream_of

CHUNK = 64  # Scores that are compared at once, in vector registers


@njit(cache=True, nogil=True)
def draw_geometric(pairs, first, last, positives, scores, draws):
    """Draw for pairs first .. last-1 as `draw_violators` does, by the same law, from all scores of these pairs.

    Among c candidates with v violators, draws with replacement meet the first violator at draw N with
    p(N) = (1 - v/c)^(N-1) v/c, and it is each of the v with the same probability. So one number gives N, one the
    violator, and the work does not grow with N.

    `scores` are U · Wᵀ, float32, shape (last - first, n_tags); those of the tags that an image has are overwritten.
    """
    examples, images, tags, _, violators, trials, gaps, _ = pairs
    tags_start, positive_tags = positives
    margin, max_trials, seed, epoch = draws
    n_tags = scores.shape[1]
    for p in range(first, last):
        row = scores[p - first]
        begin, end = tags_start[images[p]], tags_start[images[p] + 1]
        candidates = n_tags - (end - begin)
        true_score = row[tags[p]]
        least = true_score - np.float32(margin)
        for q in range(begin, end):
            row[positive_tags[q]] = -np.inf
        violators[p] = -1
        trials[p] = min(candidates, max_trials)
        count = 0
        for start in range(0, n_tags, CHUNK):
            count += _count_above(row[start : start + CHUNK], least)
        if count == 0:
            continue
        stream = stream_of(seed, epoch, examples[p])
        n = 1
        if count < candidates:
            n += int(math.log1p(-draw_unit(stream, 0)) / math.log1p(-count / candidates))
        if n <= trials[p]:
            trials[p] = n
            violators[p] = _nth_above(row, least, draw_below(stream, 1, count))
            gaps[p] = true_score - row[violators[p]]


@njit(cache=True, nogil=True)
def _count_above(values, limit):
    count = np.int32(0)
    for c in range(values.shape[0]):
        count += np.int32(values[c] > limit)
    return count


@njit(cache=True, nogil=True)
def _nth_above(values, limit, n):
    """Return the place of number n, counted from 0, of the values above a limit; there are more than n."""
    for start in range(0, values.shape[0], CHUNK):
        chunk = values[start : start + CHUNK]
        here = _count_above(chunk, limit)
        if n >= here:
            n -= here
            continue
        for c in range(chunk.shape[0]):
            if chunk[c] > limit:
                if n == 0:
                    return start + c
                n -= 1
    raise IndexError("fewer values are above the limit")
