"""Algorithm 1 of WSABIE in plain Python and NumPy, for comparison with the kernels and the block training."""

from __future__ import annotations

import math

import numpy as np

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
