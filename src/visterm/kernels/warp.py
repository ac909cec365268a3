"""Algorithm 1 of WSABIE for a block of pairs: draw tags until one violates, weigh the step by the rank, move the tags.

`visterm.models.ranking.warp` calls these loops in this order. The step of the image's side is left in `steps`.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from visterm.kernels.dot import dot
from visterm.kernels.pair_batch import Loss
from visterm.kernels.prefetch import AHEAD, prefetch_row
from visterm.kernels.random import draw_below, stream_of
from visterm.kernels.row_moves import limit_norm, scale_row
from visterm.kernels.rows import add_row, row_dot, row_square
from visterm.kernels.sorted_lists import contains, nth_absent


@njit(cache=True, nogil=True)
def draw_violators(pairs, first, last, positives, rows, W, pool, draws):
    """Draw tags ȳ that the image does not have until f_ȳ(x) > f_y(x) - margin, for pairs first .. last-1.

    The draws are uniform, with replacement. They may begin with those of a pool, whose scores are one matrix product:
    each pair reads it from a place of its own and passes over the tags that its image has, so that it sees independent
    uniform draws, as without a pool. Only pairs that share a pool are not independent of each other.

    Fills in `violators`, `trials` and `gaps`; `W` is (n_tags, width), and `rows` are `Rows` of that width.
    """
    examples, images, tags, rows_at, violators, trials, gaps, _ = pairs
    tags_start, positive_tags = positives
    margin, max_trials, seed, epoch = draws
    pool_tags, pool_scores = pool
    n_tags, m = W.shape[0], pool_tags.shape[0]
    for later in range(first, last + AHEAD):
        if later < last:
            prefetch_row(W, tags[later])
            begin, end = tags_start[images[later]], tags_start[images[later] + 1]
            if m == 0 and end - begin < n_tags:
                stream = stream_of(seed, epoch, examples[later])
                prefetch_row(W, nth_absent(positive_tags, begin, end, draw_below(stream, 0, n_tags - (end - begin))))
        p = later - AHEAD
        if p < first:
            continue
        begin, end = tags_start[images[p]], tags_start[images[p] + 1]
        candidates = n_tags - (end - begin)
        limit = min(candidates, max_trials)
        y, at = tags[p], rows_at[p]
        u = rows.vals[rows.start[at] : rows.start[at + 1]]
        whole = u.shape[0] == W.shape[1]
        true_score = dot(u, W[y]) if whole else row_dot(rows, at, W[y])
        least = true_score - np.float32(margin)
        stream = stream_of(seed, epoch, examples[p])
        violator = np.int64(-1)
        n = 0
        if m > 0:
            place = draw_below(stream, max_trials, m)
            for _ in range(m):
                if n == limit:
                    break
                drawn = pool_tags[place]
                score = pool_scores[p, place]
                if not contains(positive_tags, begin, end, drawn):
                    n += 1
                    if score > least:
                        violator = drawn
                        gaps[p] = true_score - score
                        break
                place = place + 1 if place + 1 < m else 0
        while n < limit and violator < 0:
            drawn = nth_absent(positive_tags, begin, end, draw_below(stream, n, candidates))
            score = dot(u, W[drawn]) if whole else row_dot(rows, at, W[drawn])
            n += 1
            if score > least:
                violator = drawn
                gaps[p] = true_score - score
        violators[p] = violator
        trials[p] = n


@njit(cache=True, nogil=True)
def loss_and_slope(loss, gap):
    """Return the loss of a gap f_y - f_ȳ, and how fast it falls as the gap grows."""
    if loss == Loss.HINGE:
        return max(0.0, 1.0 - gap), 1.0 if gap < 1.0 else 0.0
    if gap > 0:
        rest = math.exp(-gap)
        return math.log1p(rest), rest / (1.0 + rest)
    rest = math.exp(gap)
    return math.log1p(rest) - gap, 1.0 / (1.0 + rest)


@njit(cache=True, nogil=True)
def weigh_pairs(pairs, first, last, positives, rank_loss, rate, W, steps):
    """Turn the violations of pairs first .. last-1 into gains, and into the steps of the image's side.

    After N draws the rank of y is about floor(candidates / N), which costs L(rank) times the loss. The gain is L(rank)
    times the slope of the loss, the image's step ``rate · gain · (W_y - W_ȳ)``. Where the loss is flat, `violators` is
    set to -1. `steps`, (n, width) or (n, 0) where the image's side does not move, is overwritten.

    Returns the sum of the costs, of the draws, and how many pairs have a gain.
    """
    _, images, tags, _, violators, trials, gaps, gains = pairs
    tags_start, _ = positives
    loss, rank_weights, most_trials = rank_loss
    total = 0.0
    n_trials = n_steps = 0
    for p in range(first, last):
        n_trials += trials[p]
        gain = np.float32(0.0)
        if violators[p] >= 0:
            image = images[p]
            candidates = W.shape[0] - (tags_start[image + 1] - tags_start[image])
            weight = rank_weights[(most_trials or candidates) // max(1, trials[p])]
            value, slope = loss_and_slope(loss, np.float64(gaps[p]))
            total += weight * value
            gain = weight * np.float32(slope)
        gains[p] = gain
        step = steps[p]  # a row of its own: loops over steps[p, c] stay out of vector registers
        if gain == 0.0:
            violators[p] = -1
            step[:] = 0.0
            continue
        n_steps += 1
        factor = np.float32(rate) * gain
        better, worse = W[tags[p]], W[violators[p]]
        for c in range(step.shape[0]):
            step[c] = factor * (better[c] - worse[c])
    return total, n_trials, n_steps


@njit(cache=True, nogil=True)
def add_tag_steps(pairs, rows, rule, squares, first, last, W):
    """Move tags first .. last-1 by ``W_y += rate · gain · u`` and ``W_ȳ -= rate · gain · u``, then limit their norms.

    The order is that of the pairs. With AdaGrad each step is divided by the root of the tag's `squares`, (n_tags,): one
    plus the mean squares of its gradients so far, this block's included; they are empty for SGD. With L2 the row first
    shrinks once for each step. Threads with ranges of tags that do not meet change different rows.
    """
    _, _, tags, rows_at, violators, _, _, gains = pairs
    adaptive = squares.shape[0] > 0
    width = W.shape[1]
    if adaptive or rule.keep < 1.0:
        for p in range(tags.shape[0]):
            if violators[p] < 0:
                continue
            square = gains[p] * gains[p] * row_square(rows, rows_at[p]) / np.float32(width)
            for y in (tags[p], violators[p]):
                if first <= y < last:
                    if adaptive:
                        squares[y] += square
                    if rule.keep < 1.0:
                        scale_row(W[y], rule.keep)
    entries, n = np.empty(2 * tags.shape[0], np.int64), 0
    for p in range(tags.shape[0]):  # without branches, which no processor would foresee
        entries[n] = 2 * p
        n += (violators[p] >= 0) & (first <= tags[p]) & (tags[p] < last)
        entries[n] = 2 * p + 1
        n += (violators[p] >= 0) & (first <= violators[p]) & (violators[p] < last)
    moved = np.zeros(last - first, np.uint8)
    for e in range(n):
        if e + AHEAD < n:
            p = entries[e + AHEAD] >> 1
            prefetch_row(W, violators[p] if entries[e + AHEAD] & 1 else tags[p])
        p = entries[e] >> 1
        at = rows_at[p]
        share = np.float32(rule.rate) * gains[p]
        y = tags[p]
        if entries[e] & 1:
            y, share = violators[p], -share
        moved[y - first] = 1
        if adaptive:
            share /= np.float32(math.sqrt(squares[y]))
        u = rows.vals[rows.start[at] : rows.start[at + 1]]
        row = W[y]
        if u.shape[0] != width:
            add_row(rows, at, share, row)
            continue
        for c in range(width):
            row[c] += share * u[c]
    for y in range(first, last):
        if moved[y - first]:
            limit_norm(W[y], rule.max_norm)
