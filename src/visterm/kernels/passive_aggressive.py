"""Passive-aggressive training of PAMIR: each step just satisfies the margin, up to a maximum step size.

Steps use triplets of a query, a relevant and an irrelevant image, with equal weights or weighted by rank.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from visterm.kernels.compiled import kernel
from visterm.kernels.dot import dot
from visterm.kernels.random import draw_below, stream_of
from visterm.kernels.rows import add_row, row_dot, row_of
from visterm.kernels.sorted_lists import lower_bound, nth_absent

DRAWS_PER_STEP = 3  # Draws per step: the query, the relevant image, the irrelevant image
MIN_DISTANCE_SHARE = 1e-6  # Squared distances below this share of squared lengths are rounding errors of float32


class JudgedQueries(NamedTuple):
    """Queries and their relevant images."""

    q_start: np.ndarray  # int64, shape (n_queries + 1,)
    q_words: np.ndarray  # int32 or int64: query q has the distinct words ``q_words[q_start[q]:q_start[q + 1]]``
    q_weights: np.ndarray  # float32: their weights
    r_start: np.ndarray  # int64, shape (n_queries + 1,)
    r_images: np.ndarray  # int32 or int64
    """``r_images[r_start[q]:r_start[q + 1]]`` are the images relevant to query q, sorted: at least 1, but not all."""


@kernel
def draw_triplet(stream, step, r_start, r_images, n_images):
    """Draw a query, a relevant image and an irrelevant image, each uniformly.

    `step` numbers the triplets of a stream of `stream_of`, from 0; for `r_start` and `r_images` see `JudgedQueries`.
    """
    query = draw_below(stream, DRAWS_PER_STEP * step, r_start.shape[0] - 1)
    first, stop = r_start[query], r_start[query + 1]
    plus = np.int64(r_images[first + draw_below(stream, DRAWS_PER_STEP * step + 1, stop - first)])
    minus = nth_absent(r_images, first, stop, draw_below(stream, DRAWS_PER_STEP * step + 2, n_images - (stop - first)))
    return query, plus, np.int64(minus)


@kernel
def rank_triplets(n_steps, queries, rows, n_images, aggressiveness, key, W, scratch):
    """Draw triplets (q, p+, p-), and take a step after each so that q scores p+ above p- by 1 (PAMIR, Eq. 10).

    With ``v = γ(q, p+) - γ(q, p-)``, whose component for word t is ``q_t (p+ - p-)``, and the loss
    ``l = |1 - w · v|₊``, the step is ``w += τ v``, ``τ = min(aggressiveness, l / |v|²)``. Only the rows of the query's
    words change. Two images with identical rows make no step.

    Words of `queries` are below n_words, images below `n_images`; `rows` are image rows. `key` is the seed and the
    epoch of the draws. Changes `W`, float32 (n_words, width), and overwrites `scratch`, float32 (width,). Returns the
    sum of the losses and the number of triplets that made a step.
    """
    q_start, q_words, q_weights, r_start, r_images = queries
    width = W.shape[1]
    stream = stream_of(key[0], key[1], 0)
    total = 0.0
    n_moved = 0
    if r_start.shape[0] < 2:
        return total, n_moved

    for step in range(n_steps):
        query, plus, minus = draw_triplet(stream, step, r_start, r_images, n_images)
        first, stop = q_start[query], q_start[query + 1]
        both_dense = rows.start[plus + 1] - rows.start[plus] == rows.start[minus + 1] - rows.start[minus] == width
        score = np.float32(0.0)
        if both_dense:
            for c in range(width):
                scratch[c] = rows.vals[rows.start[plus] + c] - rows.vals[rows.start[minus] + c]
            for e in range(first, stop):
                score += q_weights[e] * dot(scratch, W[q_words[e]])
        else:
            for e in range(first, stop):
                score += q_weights[e] * _difference_dot(rows, plus, minus, W[q_words[e]])
        loss = 1.0 - np.float64(score)
        if loss > 0:
            square = dot(scratch, scratch) if both_dense else difference_square(rows, plus, minus, scratch)
            total += loss
            n_moved += _step(rows, plus, minus, square, loss, aggressiveness, first, stop, q_words, q_weights, W)
    return total, n_moved


@kernel
def _step(rows, plus, minus, square, loss, max_step, first, stop, q_words, q_weights, W):
    """Move the words first .. stop-1 of a query along a difference of images, whose squared length is `square`.

    Return whether they moved.
    """
    query_square = np.float32(0.0)
    for e in range(first, stop):
        query_square += q_weights[e] * q_weights[e]
    length = np.float64(query_square) * np.float64(square)
    if not length > 0:
        return False
    step_size = min(max_step, loss / length)
    for e in range(first, stop):
        factor = np.float32(step_size * q_weights[e])
        add_row(rows, plus, factor, W[q_words[e]])
        add_row(rows, minus, -factor, W[q_words[e]])
    return True


@kernel
def _difference_dot(rows, plus, minus, weights):
    """Return the dot product of (row `plus` - row `minus`) and a float32 vector, with four independent sums.

    Casting columns to unsigned avoids a check for negative indices in each step, and halves the time.
    """
    a_cols, a_vals = row_of(rows, plus)
    b_cols, b_vals = row_of(rows, minus)
    a0 = a1 = b0 = b1 = np.float32(0.0)
    n_pairs = min(a_vals.shape[0], b_vals.shape[0]) // 2
    for p in range(n_pairs):
        e = 2 * p
        a0 += a_vals[e] * weights[np.uint64(a_cols[e])]
        b0 += b_vals[e] * weights[np.uint64(b_cols[e])]
        a1 += a_vals[e + 1] * weights[np.uint64(a_cols[e + 1])]
        b1 += b_vals[e + 1] * weights[np.uint64(b_cols[e + 1])]

    for e in range(2 * n_pairs, a_vals.shape[0]):
        a0 += a_vals[e] * weights[np.uint64(a_cols[e])]
    for e in range(2 * n_pairs, b_vals.shape[0]):
        b0 += b_vals[e] * weights[np.uint64(b_cols[e])]
    return (a0 + a1) - (b0 + b1)


@kernel
def difference_square(rows, plus, minus, scratch):
    """Return the squared length of row `plus` minus row `minus`: exactly 0 if they are equal."""
    a_cols, a_vals = row_of(rows, plus)
    b_cols, b_vals = row_of(rows, minus)
    for e in range(b_vals.shape[0]):
        scratch[np.uint64(b_cols[e])] = 0.0
    for e in range(a_vals.shape[0]):
        scratch[np.uint64(a_cols[e])] = a_vals[e]
    for e in range(b_vals.shape[0]):
        scratch[np.uint64(b_cols[e])] -= b_vals[e]
    total = np.float32(0.0)
    for cols in (a_cols, b_cols):
        for e in range(cols.shape[0]):
            c = np.uint64(cols[e])
            total += scratch[c] * scratch[c]
            scratch[c] = 0.0  # so that columns of both rows count once
    return total


@kernel
def rank_violators(n_steps, queries, gains, shares, costs, rows, n_images, max_trials, aggressiveness, key, W, scratch):
    """Draw (q, p+), then images until an image p- with less gain violates the margin; step as in `rank_triplets`.

    If the n-th draw is the first violator, about ``r = n_images / n`` images are within the margin of 1 or above. The
    maximum step is ``aggressiveness · costs[r] · (gain of p+ - gain of p-) · share of q``. Images of equal or larger
    gain count as draws that do not violate, so the estimate r does not need their number. If none of `max_trials` draws
    violates the margin, no step is made.

    All images may be relevant to a query if their gains differ. `gains`, float32, are the gains of the entries of
    `r_images`, above 0; other images have a gain of 0. `shares`, float32 (n_queries,), are factors of a query's gains,
    and `costs`, float32 (n_images + 1,), is the cost of each rank; the rest is as in `rank_triplets`. Returns the
    weighted sum of the losses ``1 - score of p+ + score of p-``, and the numbers of pairs with a step and of draws.
    """
    q_start, q_words, q_weights, r_start, r_images = queries
    total = 0.0
    n_moved = 0
    n_trials = 0
    if r_start.shape[0] < 2:
        return total, n_moved, n_trials

    for step in range(n_steps):
        stream = stream_of(key[0], key[1], step)
        query = draw_below(stream, 0, r_start.shape[0] - 1)
        first, stop = r_start[query], r_start[query + 1]
        begin, end = q_start[query], q_start[query + 1]
        entry = first + draw_below(stream, 1, stop - first)
        plus = np.int64(r_images[entry])
        plus_score = _score(rows, plus, begin, end, q_words, q_weights, W)
        for trial in range(max_trials):
            n_trials += 1
            minus = np.int64(draw_below(stream, 2 + trial, n_images))
            gap = gains[entry] - _gain_of(minus, r_images, gains, first, stop)
            if not gap > 0:
                continue
            loss = 1.0 - plus_score + _score(rows, minus, begin, end, q_words, q_weights, W)
            if not loss > 0:
                continue
            weight = np.float64(costs[max(1, n_images // (trial + 1))]) * gap * shares[query]
            total += weight * loss
            square, max_step = difference_square(rows, plus, minus, scratch), aggressiveness * weight
            n_moved += _step(rows, plus, minus, square, loss, max_step, begin, end, q_words, q_weights, W)
            break
    return total, n_moved, n_trials


@kernel
def _score(rows, image, begin, end, q_words, q_weights, W):
    score = 0.0
    for e in range(begin, end):
        score += np.float64(q_weights[e]) * np.float64(row_dot(rows, image, W[q_words[e]]))
    return score


@kernel
def _gain_of(image, r_images, gains, first, stop):
    """Return the gain of an image in the sorted list ``r_images[first:stop]``; 0 if it is not in the list."""
    entry = lower_bound(r_images, first, stop, image)
    return gains[entry] if entry < stop and r_images[entry] == image else np.float32(0.0)
