"""The logistic loss of pairs in place of the hinge of `visterm.kernels.warp.weigh_pairs`: each pair makes a step."""

from __future__ import annotations

import math

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def loss_and_slope(gap):
    """Return ``log(1 + exp(-gap))`` of a gap f_y - f_ȳ, and how fast it falls as the gap grows."""
    if gap > 0:
        rest = math.exp(-gap)
        return math.log1p(rest), rest / (1.0 + rest)
    rest = math.exp(gap)
    return math.log1p(rest) - gap, 1.0 / (1.0 + rest)


@njit(cache=True, nogil=True)
def weigh_logistic(pairs, first, last, rate, V, steps):
    """Turn the draws of pairs first .. last-1 into gains, and into the steps of the image's side.

    The gain is the slope of the loss, the image's step ``rate · gain · (V_y - V_ȳ)``. Where it is 0, `violators` is set
    to -1. `steps`, (n, width) or (n, 0) where the image's side does not move, is overwritten.

    Returns the sum of the losses, of the draws, and how many pairs have a gain.
    """
    _, _, tags, _, violators, trials, gaps, gains = pairs
    total = 0.0
    n_trials = n_steps = 0
    for p in range(first, last):
        n_trials += trials[p]
        gain = np.float32(0.0)
        if violators[p] >= 0:
            value, slope = loss_and_slope(np.float64(gaps[p]))
            total += value
            gain = np.float32(slope)
        gains[p] = gain
        step = steps[p]
        if gain == 0.0:
            violators[p] = -1
            step[:] = 0.0
            continue
        n_steps += 1
        factor = np.float32(rate) * gain
        better, worse = V[tags[p]], V[violators[p]]
        for c in range(step.shape[0]):
            step[c] = factor * (better[c] - worse[c])
    return total, n_trials, n_steps
