"""Alternatives to drawing tags one by one: draw the number of draws itself, or prefer tags with high scores.

`draw_geometric` is WARP: it counts the violators and draws the number of trials from its distribution. `draw_adaptive`
is VSE-ens: it draws tags that are likely to score high for an image, from a sorted list of tags per dimension.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from visterm.kernels.dot import dot
from visterm.kernels.random import draw_below, draw_unit, stream_of
from visterm.kernels.sorted_lists import contains, nth_absent

CHUNK_SCORES = 64  # Number of scores that are compared at once, in vector registers


class SortedTags(NamedTuple):
    """A sorted list of tags per dimension."""

    order: np.ndarray  # int64, shape (dim, n_tags). Tags by their value, largest first, ties by the smaller tag.
    sigmas: np.ndarray  # float64, shape (dim,). Standard deviation of the values over the tags (Eq. 8).
    scale: float  # λ |A|, the scale of the distribution of ranks


@njit(cache=True, nogil=True)
def sort_tags(V, first, stop, lists):
    """Fill `lists`, a `SortedTags`, for the dimensions first .. stop-1 of V (n_tags, dim)."""
    for f in range(first, stop):
        values = -V[:, f].astype(np.float64)
        lists.order[f] = np.argsort(values, kind="mergesort")
        lists.sigmas[f] = np.std(values)


@njit(cache=True, nogil=True)
def draw_rank(unit, scale, n):
    """Return the quantile `unit` (0 to 1) of the ranks 0 .. n-1 with p(r) ∝ exp(-r / scale)."""
    mass = 1.0 - math.exp(-n / scale)
    r = int(-scale * math.log1p(-unit * mass))
    return min(max(r, 0), n - 1)


@njit(cache=True, nogil=True)
def draw_dimension(unit, u, sigmas):
    """Return the quantile `unit` of the dimensions with p(f) ∝ |u_f| σ_f (Eq. 7); uniform if all weights are 0."""
    dim = u.shape[0]
    total = 0.0
    for f in range(dim):
        total += abs(u[f]) * sigmas[f]
    if not total > 0:
        return min(int(unit * dim), dim - 1)
    remaining = unit * total
    dimension = 0
    for f in range(dim):
        weight = abs(u[f]) * sigmas[f]
        if weight > 0:
            dimension = f
            if remaining < weight:
                break
            remaining -= weight
    return dimension


@njit(cache=True, nogil=True)
def draw_adaptive(pairs, first, stop, positives, U, V, lists, draws):
    """Draw a tag that probably ranks high for each pair first .. stop-1 (Algorithm 1, lines 12 to 18).

    Draw a rank r from p(r) ∝ exp(-r / scale) and a dimension f from p(f) ∝ |u_f| σ_f, and take the tag at position r of
    the list of f, counted from the end if u_f is not positive. If the image has that tag, draw r and f again; after
    `max_trials` attempts draw a tag uniformly. `U`, (n, dim), are image rows; the margin is ignored.

    References
    ----------
    Guo, Zhai, Yuan, Liu, Wang 2018, section "Process of Sampling".
    """
    examples, images, tags, _, violators, trials, gaps, _ = pairs
    tags_start, positive_tags = positives
    order, sigmas, scale = lists
    _, max_trials, seed, epoch = draws
    n_tags = V.shape[0]

    for p in range(first, stop):
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
def draw_geometric(pairs, first, stop, positives, scores, draws):
    """Draw violators for pairs first .. stop-1, with the same distribution as `draw_violators`, from all their scores.

    Among c candidates with v violators, draws with replacement hit the first violator at draw N with
    p(N) = (1 - v/c)^(N-1) v/c, and every violator is equally likely. So one random number gives N, another the
    violator, and the work does not grow with N.

    `scores` are U · Vᵀ, float32, shape (stop - first, n_tags); the scores of an image's own tags are overwritten.
    """
    examples, images, tags, _, violators, trials, gaps, _ = pairs
    tags_start, positive_tags = positives
    margin, max_trials, seed, epoch = draws
    n_tags = scores.shape[1]

    for p in range(first, stop):
        row = scores[p - first]
        begin, end = tags_start[images[p]], tags_start[images[p] + 1]
        candidates = n_tags - (end - begin)
        true_score = row[tags[p]]
        threshold = true_score - np.float32(margin)
        for q in range(begin, end):
            row[positive_tags[q]] = -np.inf
        violators[p] = -1
        trials[p] = min(candidates, max_trials)
        count = _count_above(row, threshold)
        if count == 0:
            continue
        stream = stream_of(seed, epoch, examples[p])
        n = 1
        if count < candidates:
            n += int(math.log1p(-draw_unit(stream, 0)) / math.log1p(-count / candidates))
        if n <= trials[p]:
            trials[p] = n
            violators[p] = _nth_above(row, threshold, draw_below(stream, 1, count))
            gaps[p] = true_score - row[violators[p]]


@njit(cache=True, nogil=True)
def _count_above(values, limit):
    count = np.int32(0)
    for c in range(values.shape[0]):
        count += np.int32(values[c] > limit)
    return count


@njit(cache=True, nogil=True)
def _nth_above(values, limit, n):
    """Return the index of the n-th value, counted from 0, above a limit."""
    for start in range(0, values.shape[0], CHUNK_SCORES):
        chunk = values[start : start + CHUNK_SCORES]
        count = _count_above(chunk, limit)
        if n >= count:
            n -= count
            continue
        for c in range(chunk.shape[0]):
            if chunk[c] > limit:
                if n == 0:
                    return start + c
                n -= 1
    raise IndexError("fewer values are above the limit")
