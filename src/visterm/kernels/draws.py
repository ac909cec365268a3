"""Other ways to draw tags than one by one: by the law of the draws, from all scores at once; or where scores are high.

`draw_geometric` is WARP: the violators are counted, and the number of draws is drawn by its law. `draw_adaptive` is
VSE-ens: it draws tags that are likely to score high for an image, from one sorted list of tags a dimension.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from visterm.kernels.dot import dot
from visterm.kernels.random import draw_below, draw_unit, stream_of
from visterm.kernels.sorted_lists import contains, nth_absent

CHUNK = 64  # Scores that are compared at once, in vector registers


class SortedTags(NamedTuple):
    """One list of tags a dimension."""

    order: np.ndarray  # int64, shape (dim, n_tags). The tags by their value, largest first, ties by the smaller tag.
    sigmas: np.ndarray  # float64, shape (dim,). Deviation of the values over the tags (Eq. 8).
    scale: float  # λ |A|, by which ranks are drawn


@njit(cache=True, nogil=True)
def sort_tags(V, first, last, lists):
    """Fill `lists`, a `SortedTags`, in the dimensions first .. last-1 of V (n_tags, dim)."""
    n_tags = V.shape[0]
    for f in range(first, last):
        values = np.empty(n_tags, np.float64)
        for t in range(n_tags):
            values[t] = -V[t, f]
        lists.order[f] = np.argsort(values, kind="mergesort")
        lists.sigmas[f] = np.std(values)


@njit(cache=True, nogil=True)
def draw_rank(unit, scale, n):
    """Return the rank r in 0 .. n-1 with p(r) ∝ exp(-r / scale) at the share `unit` of the distribution."""
    whole = 1.0 - math.exp(-n / scale)
    r = int(-scale * math.log1p(-unit * whole))
    return min(max(r, 0), n - 1)


@njit(cache=True, nogil=True)
def draw_dimension(unit, u, sigmas):
    """Return the dimension f with p(f) ∝ |u_f| σ_f (Eq. 7) at the share `unit`; uniform where all of those are 0."""
    dim = u.shape[0]
    total = 0.0
    for f in range(dim):
        total += abs(u[f]) * sigmas[f]
    if not total > 0:
        return min(int(unit * dim), dim - 1)
    remaining = unit * total
    chosen = 0
    for f in range(dim):
        weight = abs(u[f]) * sigmas[f]
        if weight > 0:
            chosen = f
            if remaining < weight:
                break
            remaining -= weight
    return chosen


@njit(cache=True, nogil=True)
def draw_adaptive(pairs, first, last, positives, U, V, lists, draws):
    """Draw a tag that is probably ranked high for each of the pairs first .. last-1 (Algorithm 1, lines 12 to 18).

    A rank r from p(r) ∝ exp(-r / scale), a dimension f from p(f) ∝ |u_f| σ_f, and the tag on place r of the list of f,
    from its end where u_f is not positive. If the image has that tag, both are drawn again; after `max_trials` such
    draws one tag is drawn uniformly. Image rows are those of `U`, (n, dim); the margin counts for nothing.

    References
    ----------
    Guo, Zhai, Yuan, Liu, Wang 2018, section "Process of Sampling".
    """
    examples, images, tags, _, violators, trials, gaps, _ = pairs
    tags_start, positive_tags = positives
    order, sigmas, scale = lists
    _, max_trials, seed, epoch = draws
    n_tags = V.shape[0]

    for p in range(first, last):
        begin, end = tags_start[images[p]], tags_start[images[p] + 1]
        candidates = n_tags - (end - begin)
        violators[p] = -1
        trials[p] = 0
        if candidates == 0:
            continue
        u = U[p]
        stream = stream_of(seed, epoch, examples[p])
        drawn = -1
        n = 0
        while n < max_trials and drawn < 0:
            r = draw_rank(draw_unit(stream, 2 * n), scale, n_tags)
            f = draw_dimension(draw_unit(stream, 2 * n + 1), u, sigmas)
            tag = order[f, r] if u[f] > 0 else order[f, n_tags - 1 - r]
            if not contains(positive_tags, begin, end, tag):
                drawn = tag
            n += 1
        if drawn < 0:
            drawn = nth_absent(positive_tags, begin, end, draw_below(stream, 2 * n, candidates))
            n += 1
        violators[p] = drawn
        trials[p] = n
        gaps[p] = dot(u, V[tags[p]]) - dot(u, V[drawn])


@njit(cache=True, nogil=True)
def draw_geometric(pairs, first, last, positives, scores, draws):
    """Draw for pairs first .. last-1 as `draw_violators` does, by the same law, from all scores of these pairs.

    Among c candidates with v violators, draws with replacement meet the first violator at draw N with
    p(N) = (1 - v/c)^(N-1) v/c, and it is each of the v with the same probability. So one number gives N, one the
    violator, and the work does not grow with N.

    `scores` are U · Vᵀ, float32, shape (last - first, n_tags); those of the tags that an image has are overwritten.
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
