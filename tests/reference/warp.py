"""Algorithm 1 of WSABIE in plain Python and NumPy, for comparison with the kernels and the block training."""

from __future__ import annotations

import numpy as np

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(word):
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
    return word ^ (word >> 31)


def draw_below(seed, epoch, example, draw, n):
    word = mix((seed + GOLDEN) & MASK)
    word = mix((word + (epoch + 1) * GOLDEN) & MASK)
    word = mix((word + (example + 1) * GOLDEN) & MASK)
    word = mix((word + (draw + 1) * GOLDEN) & MASK)
    return ((word >> 32) * n) >> 32


def first_violator(f, y, own, max_trials, draws):
    """Draw tags that are not `own` until one violates; give it (or None) and the number of draws N."""
    others = [tag for tag in range(len(f)) if tag not in own]
    for n in range(1, min(len(others), max_trials) + 1):
        drawn = others[draws(n - 1, len(others))]
        if f[drawn] > f[y] - 1:
            return drawn, n
    return None, min(len(others), max_trials)


def rank_weight(candidates, n):
    """L(floor(candidates / N)) with L(k) = 1 + 1/2 + ... + 1/k."""
    return sum(1 / j for j in range(1, candidates // n + 1))


def limit_norms(rows, max_norm):
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows * np.minimum(1, max_norm / np.maximum(norms, 1e-300))


def train_block(X, own, examples, V, W, *, seed, epoch, rate, max_norm, max_trials):
    """Take a block of steps; examples are (number, image, tag). Gives the new V and W, the violators and the draws."""
    new_V, new_W = V.copy(), W.copy()
    violators, trials = [], []
    moved = set()
    for number, image, y in examples:
        u = X[image] @ V
        f = W @ u
        bad, n = first_violator(f, y, own[image], max_trials, lambda d, m, e=number: draw_below(seed, epoch, e, d, m))
        violators.append(-1 if bad is None else bad)
        trials.append(n)
        if bad is None:
            continue
        factor = rate * rank_weight(len(W) - len(own[image]), n)
        new_V += factor * np.outer(X[image], W[y] - W[bad])
        new_W[y] += factor * u
        new_W[bad] -= factor * u
        moved |= {y, bad}
    return limit_norms(new_V, max_norm), limit_norms(new_W, max_norm), violators, trials
