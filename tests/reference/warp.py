"""Algorithm 1 of WSABIE in plain Python and NumPy, for comparison with the kernels and the block training."""

from __future__ import annotations

import math

import numpy as np

from visterm.kernels.dot import dot
from visterm.kernels.random import draw_below as draw_from
from visterm.kernels.random import stream_of
from visterm.kernels.row_moves import limit_norms as limit_in_place
from visterm.kernels.warp import loss_and_slope

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(word):
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
    return word ^ (word >> 31)


def draw_word(seed, epoch, example, draw):
    word = mix((seed + GOLDEN) & MASK)
    word = mix((word + (epoch + 1) * GOLDEN) & MASK)
    word = mix((word + (example + 1) * GOLDEN) & MASK)
    return mix((word + (draw + 1) * GOLDEN) & MASK)


def draw_below(seed, epoch, example, draw, n):
    return ((draw_word(seed, epoch, example, draw) >> 32) * n) >> 32


def draw_unit(seed, epoch, example, draw):
    return (draw_word(seed, epoch, example, draw) >> 11) / 2**53


def first_violator(f, y, own, max_trials, draws):
    """Draw tags that are not `own` until one violates; give it (or None) and the number of draws N."""
    others = [tag for tag in range(len(f)) if tag not in own]
    for n in range(1, min(len(others), max_trials) + 1):
        drawn = others[draws(n - 1, len(others))]
        if f[drawn] > f[y] - 1:
            return drawn, n
    return None, min(len(others), max_trials)


def counted_violator(f, y, own, max_trials, unit, draws):
    """Return the first violator and N by their law, from how many violate."""
    others = [tag for tag in range(len(f)) if tag not in own]
    bad = [tag for tag in others if f[tag] > f[y] - 1]
    most = min(len(others), max_trials)
    if not bad:
        return None, most
    n = 1 + math.floor(math.log(1 - unit) / math.log(1 - len(bad) / len(others))) if len(bad) < len(others) else 1
    return (bad[draws(1, len(bad))], n) if n <= most else (None, most)


def rank_weight(candidates, n):
    """L(floor(candidates / N)) with L(k) = 1 + 1/2 + ... + 1/k."""
    return sum(1 / j for j in range(1, candidates // n + 1))


def limit_norms(rows, max_norm):
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows * np.minimum(1, max_norm / np.maximum(norms, 1e-300))


def train_block(X, own, examples, A, V, *, seed, epoch, rate, max_norm, max_trials, counted=False):
    """Take a block of steps; examples are (number, image, tag). Gives the new A and V, the violators and the draws."""
    new_A, new_V = A.copy(), V.copy()
    violators, trials = [], []
    moved = set()
    for number, image, y in examples:
        u = X[image] @ A
        f = V @ u
        draws = lambda d, m, e=number: draw_below(seed, epoch, e, d, m)  # noqa: E731
        if counted:
            bad, n = counted_violator(f, y, own[image], max_trials, draw_unit(seed, epoch, number, 0), draws)
        else:
            bad, n = first_violator(f, y, own[image], max_trials, draws)
        violators.append(-1 if bad is None else bad)
        trials.append(n)
        if bad is None:
            continue
        factor = rate * rank_weight(len(V) - len(own[image]), n)
        new_A += factor * np.outer(X[image], V[y] - V[bad])
        new_V[y] += factor * u
        new_V[bad] -= factor * u
        moved |= {y, bad}
    return limit_norms(new_A, max_norm), limit_norms(new_V, max_norm), violators, trials


def plain_block(pairs, positives, U, V, objective, draws, rule):
    """Run Algorithm 1 for a block of pairs (image x, true tag y), one pair after another, without L2 and AdaGrad.

    `U`, (n, width), are the image rows of the pairs. Changes the tag rows `V`, (n_tags, width), and fills the results
    of the draws into `pairs`. Returns the steps of the image rows, (n, width).
    """
    steps = np.zeros_like(U)
    for p, (image, y) in enumerate(zip(pairs.images, pairs.tags, strict=True)):
        image_tags = positives.tags[positives.start[image] : positives.start[image + 1]]
        others = np.setdiff1d(np.arange(len(V)), image_tags)
        stream = np.uint64(stream_of(draws.seed, draws.epoch, pairs.examples[p]))
        f_y, max_draws = dot(U[p], V[y]), min(len(others), draws.max_trials)
        pairs.violators[p], pairs.trials[p], pairs.gains[p] = -1, max_draws, 0
        for n in range(1, max_draws + 1):
            drawn = others[draw_from(stream, n - 1, len(others))]
            f_drawn = dot(U[p], V[drawn])
            if f_drawn > f_y - np.float32(draws.margin):
                pairs.gaps[p] = np.float32(f_y) - np.float32(f_drawn)
                _, slope = loss_and_slope(int(objective.loss), np.float64(pairs.gaps[p]))
                gain = objective.rank_weights[len(others) // n] * np.float32(slope)
                pairs.violators[p], pairs.trials[p], pairs.gains[p] = drawn if gain else -1, n, gain
                steps[p] = np.float32(rule.rate) * gain * (V[y] - V[drawn])
                break

    for step in np.flatnonzero(pairs.violators >= 0):
        change = np.float32(rule.rate) * pairs.gains[step] * U[step]
        V[pairs.tags[step]] += change
        V[pairs.violators[step]] -= change
    limit_in_place(V, rule.max_norm)
    return steps
