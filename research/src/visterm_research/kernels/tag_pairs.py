"""Passive-aggressive steps on pairs of tags, one after the other: PAMIR with tags in place of images."""

from __future__ import annotations

import numpy as np
from numba import njit

from visterm.kernels import add_row, draw_below, nth_absent, row_dot, stream_of


@njit(cache=True, nogil=True)
def rank_in_turn(examples, images, tags, positive_start, positive_tags, rows, squares, aggressiveness, seed, epoch, W):
    """Visit examples (x, y) in order: draw a tag ȳ that the image does not have, and make f_y exceed f_ȳ by 1.

    With the loss ``l = |1 - f_y + f_ȳ|₊`` the step is ``τ = min(aggressiveness, l / (2 |x|²))``: ``W_y += τ x`` and
    ``W_ȳ -= τ x`` (PAMIR, Eq. 10, with two rows of W instead of one vector).

    `examples`, `images` and `tags`, int64 (n,), are as in `PairBatch`, `positive_start` and `positive_tags` as in
    `PositiveTags`. `rows` are image rows, `squares`, float32 (n_images,), their squared lengths. `W`, float32 (n_tags,
    width), is changed. Returns the sum of the losses, the number of drawn tags, and the number of steps.
    """
    n_tags = W.shape[0]
    total = 0.0
    n_trials = n_steps = 0
    for p in range(examples.shape[0]):
        i, y = images[p], tags[p]
        first, stop = positive_start[i], positive_start[i + 1]
        candidates = n_tags - (stop - first)
        if candidates == 0:
            continue
        n_trials += 1
        negative = nth_absent(
            positive_tags, first, stop, draw_below(stream_of(seed, epoch, examples[p]), 0, candidates)
        )
        loss = 1.0 - np.float64(row_dot(rows, i, W[y])) + np.float64(row_dot(rows, i, W[negative]))
        if not loss > 0 or not squares[i] > 0:
            continue
        n_steps += 1
        total += loss
        step = np.float32(min(aggressiveness, loss / (2.0 * squares[i])))
        add_row(rows, i, step, W[y])
        add_row(rows, i, -step, W[negative])
    return total, n_trials, n_steps
