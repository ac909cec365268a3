"""PAMIR's steps with an eye on the top: draw images until one violates; the rank that this tells weighs the step."""

from __future__ import annotations

import numpy as np
from numba import njit

from visterm.kernels.random import draw_below, stream_of
from visterm.kernels.rows import add_row, row_dot
from visterm.kernels.triplets import difference_square


@njit(cache=True, nogil=True)
def rank_violators(
    n_steps, q_start, q_words, q_weights, r_start, r_images, gains, shares, table, rows, n_images, max_trials,
    aggressiveness, seed, epoch, W, scratch,
):  # fmt: skip
    """Draw (q, p+), then images of less gain until one, p-, scores within 1 of p+; step as `rank_triplets` does.

    If the n-th draw is the first such image, about ``r = n_images / n`` images are within the margin or above. The
    longest step is ``aggressiveness · table[r] · (gain of p+ - gain of p-) · share of q``. A draw of an image of as
    much gain counts as one that does not violate, so that r is right without knowing how many there are. Where none of
    `max_trials` draws violates, no step is made.

    Parameters
    ----------
    n_steps, q_start, q_words, q_weights, r_start, r_images, rows, n_images, aggressiveness, seed, epoch
        As for `visterm.kernels.triplets.rank_triplets`; a query may have all images, if their gains differ.
    gains : ndarray of float32
        Of the entries of `r_images`, above 0; other images have a gain of 0.
    shares : ndarray of float32, shape (n_queries,)
        What a gain is multiplied by.
    table : ndarray of float32, shape (n_images + 1,)
        Weights by rank.
    max_trials : int
        At least 1.
    W : ndarray of float32, shape (n_words, width)
        Changed.
    scratch : ndarray of float32, shape (width,)
        Overwritten.

    Returns
    -------
    total : float
        Sum of the losses ``1 - score of p+ + score of p-``, each weighed as its step.
    n_moved : int
        Pairs (q, p+) that made a step.
    n_trials : int
        Images drawn.
    """
    total = 0.0
    n_moved = 0
    n_trials = 0
    if r_start.shape[0] < 2:
        return total, n_moved, n_trials
    for step in range(n_steps):
        stream = stream_of(seed, epoch, step)
        query = draw_below(stream, 0, r_start.shape[0] - 1)
        first, last = r_start[query], r_start[query + 1]
        begin, end = q_start[query], q_start[query + 1]
        chosen = first + draw_below(stream, 1, last - first)
        plus = np.int64(r_images[chosen])
        own = _score(rows, plus, begin, end, q_words, q_weights, W)
        for trial in range(max_trials):
            n_trials += 1
            minus = np.int64(draw_below(stream, 2 + trial, n_images))
            gap = gains[chosen] - _gain_of(minus, r_images, gains, first, last)
            if not gap > 0:
                continue
            loss = 1.0 - own + _score(rows, minus, begin, end, q_words, q_weights, W)
            if not loss > 0:
                continue
            weight = np.float64(table[max(1, n_images // (trial + 1))]) * gap * shares[query]
            total += weight * loss
            length = np.float32(0.0)
            for e in range(begin, end):
                length += q_weights[e] * q_weights[e]
            square = np.float64(length) * np.float64(difference_square(rows, plus, minus, scratch))
            if square > 0:
                n_moved += 1
                size = min(aggressiveness * weight, loss / square)
                for e in range(begin, end):
                    factor = np.float32(size * q_weights[e])
                    add_row(rows, plus, factor, W[q_words[e]])
                    add_row(rows, minus, -factor, W[q_words[e]])
            break
    return total, n_moved, n_trials


@njit(cache=True, nogil=True)
def _score(rows, image, begin, end, q_words, q_weights, W):
    score = 0.0
    for e in range(begin, end):
        score += np.float64(q_weights[e]) * np.float64(row_dot(rows, image, W[q_words[e]]))
    return score


@njit(cache=True, nogil=True)
def _gain_of(image, r_images, gains, first, last):
    """Find an image in the sorted list ``r_images[first:last]``; 0 where it is not there."""
    end = last
    while first < last:
        middle = (first + last) // 2
        if r_images[middle] < image:
            first = middle + 1
        else:
            last = middle
    if first < end and r_images[first] == image:
        return gains[first]
    return np.float32(0.0)
