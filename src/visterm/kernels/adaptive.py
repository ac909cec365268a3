"""VSE-ens: draw tags that are likely to score high for an image, from one sorted list of tags a dimension."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from visterm.kernels.dot import dot
from visterm.kernels.random import draw_below, draw_unit, stream_of
from visterm.kernels.sorted_lists import contains, nth_absent


class SortedTags(NamedTuple):
    """One list of tags a dimension."""

    order: np.ndarray  # int64, shape (dim, n_tags). The tags by their value, largest first, ties by the smaller tag.
    sigmas: np.ndarray  # float64, shape (dim,). Deviation of the values over the tags (Eq. 8).
    scale: float  # λ |A|, by which ranks are drawn


@njit(cache=True, nogil=True)
def sort_tags(W, first, last, lists):
    """Fill `lists`, a `SortedTags`, in the dimensions first .. last-1 of W (n_tags, dim)."""
    n_tags = W.shape[0]
    for f in range(first, last):
        values = np.empty(n_tags, np.float64)
        for t in range(n_tags):
            values[t] = -W[t, f]
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
    left = unit * total
    chosen = 0
    for f in range(dim):
        weight = abs(u[f]) * sigmas[f]
        if weight > 0:
            chosen = f
            if left < weight:
                break
            left -= weight
    return chosen


@njit(cache=True, nogil=True)
def draw_adaptive(pairs, first, last, positives, U, W, lists, draws):
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
    n_tags = W.shape[0]
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
        gaps[p] = dot(u, W[tags[p]]) - dot(u, W[drawn])
