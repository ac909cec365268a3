"""From drawn pairs of tags to steps: the loss and the weight of the rank, and the moves of the tags' rows."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from visterm.kernels.codes import Loss
from visterm.kernels.rows import add_row, row_square
from visterm.kernels.rules import scale_row
from visterm.kernels.vectors import limit_norm

HINGE = int(Loss.HINGE)


@njit(cache=True, nogil=True)
def loss_and_slope(loss, gap):
    """Return the loss of a gap f_y - f_ȳ, and how fast it falls as the gap grows."""
    if loss == HINGE:
        return max(0.0, 1.0 - gap), 1.0 if gap < 1.0 else 0.0
    if gap > 0:
        rest = math.exp(-gap)
        return math.log1p(rest), rest / (1.0 + rest)
    rest = math.exp(gap)
    return math.log1p(rest) - gap, 1.0 / (1.0 + rest)


@njit(cache=True, nogil=True)
def weigh_pairs(
    tags, images, own_start, rank_weights, most_trials, loss, rate, W, violators, trials, gaps, gains, steps
):
    """Turn the pairs (y, ȳ) of a block into gains, the tags' side of their steps, and into the steps of the image side.

    After N draws the rank of y is estimated as floor(candidates / N), or as floor(most_trials / N) where that is given.
    The gain of a pair is L(rank) times the slope of the loss; the step of the image's side is
    ``rate · gain · (W_y - W_ȳ)``.

    Parameters
    ----------
    tags, images, own_start, W
        As for `draw_violators`.
    rank_weights : ndarray of float32, shape (n_tags + 1,)
        L(k) of each rank; longer where `most_trials` is more than n_tags.
    most_trials : int
        0: the number of tags that the image does not have stands for it.
    loss : Loss
    rate : float
        Learning rate of the image's side.
    violators : ndarray of int64, shape (n,)
        ȳ, or -1; set to -1 where the loss is flat.
    trials : ndarray of int64, shape (n,)
        N.
    gaps : ndarray of float32, shape (n,)
        f_y - f_ȳ.
    gains : ndarray of float32, shape (n,)
        Overwritten.
    steps : ndarray of float32, shape (n, width) or (n, 0)
        Overwritten; no columns where the image's side does not move.

    Returns
    -------
    total : float
        Sum of L(rank) times the loss.
    n_trials : int
    n_steps : int
        Pairs with a gain.
    """
    n_tags = W.shape[0]
    total = 0.0
    n_trials = n_steps = 0
    for p in range(tags.shape[0]):
        n_trials += trials[p]
        gain = np.float32(0.0)
        if violators[p] >= 0:
            candidates = n_tags - (own_start[images[p] + 1] - own_start[images[p]])
            weight = rank_weights[(most_trials or candidates) // max(1, trials[p])]
            value, slope = loss_and_slope(loss, np.float64(gaps[p]))
            total += weight * value
            gain = weight * np.float32(slope)
        gains[p] = gain
        if gain == 0.0:
            violators[p] = -1
            for c in range(steps.shape[1]):
                steps[p, c] = 0.0
            continue
        n_steps += 1
        factor = np.float32(rate) * gain
        better, worse = W[tags[p]], W[violators[p]]
        for c in range(steps.shape[1]):
            steps[p, c] = factor * (better[c] - worse[c])
    return total, n_trials, n_steps


@njit(cache=True, nogil=True)
def add_tag_steps(tags, violators, gains, rows, at, rule, squares, first, last, W):
    """Take the steps of a block on the tags' side, then bring the tags that moved back under the norm limit.

    ``W_y += rate · gain · u`` and ``W_ȳ -= rate · gain · u`` for the tags first .. last-1, in the order of the
    examples; with AdaGrad each divided by the root of the tag's `squares`, this block's included; with L2 the row first
    shrinks once for each step. Threads with ranges of tags that do not meet change different rows.

    Parameters
    ----------
    tags, violators, gains : ndarray, shape (n,)
        As `weigh_pairs` left them.
    rows, at
        As for `draw_violators`.
    rule : Rule
    squares : ndarray of float32, shape (n_tags,) or (0,)
        Entries first .. last-1 are changed: one plus the mean squares of the tag's gradients so far. Empty for SGD.
    first, last : int
        The range of tags.
    W : ndarray of float32, shape (n_tags, width)
        Rows first .. last-1 are changed.
    """
    adaptive = squares.shape[0] > 0
    if adaptive or rule.keep < 1.0:
        for p in range(tags.shape[0]):
            if violators[p] < 0:
                continue
            square = gains[p] * gains[p] * row_square(rows, at[p]) / np.float32(W.shape[1])
            for y in (tags[p], violators[p]):
                if first <= y < last:
                    if adaptive:
                        squares[y] += square
                    if rule.keep < 1.0:
                        scale_row(W[y], rule.keep)
    moved = np.zeros(last - first, np.uint8)
    width = W.shape[1]
    for p in range(tags.shape[0]):
        if violators[p] < 0:
            continue
        factor = np.float32(rule.rate) * gains[p]
        u = rows.vals[rows.start[at[p]] : rows.start[at[p] + 1]]
        for y, sign in ((tags[p], np.float32(1.0)), (violators[p], np.float32(-1.0))):
            if y < first or y >= last:
                continue
            moved[y - first] = 1
            share = sign * factor
            if adaptive:
                share /= np.float32(math.sqrt(squares[y]))
            if u.shape[0] != width:
                add_row(rows, at[p], share, W[y])
                continue
            row = W[y]
            for c in range(width):
                row[c] += share * u[c]
    for y in range(first, last):
        if moved[y - first]:
            limit_norm(W[y], rule.max_norm)
