"""The costs of deep taggers, sum by sum as the paper writes them, in NumPy and float64."""

from __future__ import annotations

import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def sampled_cross_entropy(f, v_p, v_n, has, counts):
    total = 0.0
    for i in range(len(f)):
        for p in range(v_p.shape[1]):
            total -= has[i, p] * np.log(sigmoid(f[i] @ v_p[i, p]))
        for n in range(v_n.shape[1]):
            total -= counts[i, n] * np.log(sigmoid(-f[i] @ v_n[i, n]))
    return total / len(f)


def related_tags(v_p, v_n, pairs, apart, *, alpha, printed):
    first = second = 0.0
    value = sigmoid if printed else lambda x: np.log(sigmoid(x))
    for i in range(len(v_p)):
        for p in range(v_p.shape[1]):
            for other in range(v_p.shape[1]):
                first += pairs[i, p, other] * value(v_p[i, p] @ v_p[i, other])
            for n in range(v_n.shape[1]):
                second += apart[i, p, n] * value(-v_p[i, p] @ v_n[i, n])
    return -(alpha * first + (second if printed else alpha * second)) / len(v_p)


def full_cross_entropy(f, V, given):
    total = 0.0
    for i in range(len(f)):
        for t in range(len(V)):
            score = f[i] @ V[t]
            total -= np.log(sigmoid(score if given[i, t] else -score))
    return total / len(f)


def sampled_rank_cost(f, v_p, v_n, has, counts):
    total = 0.0
    for i in range(len(f)):
        costs = [
            -np.log(sigmoid(f[i] @ (v_p[i, p] - v_n[i, n])))
            for p in range(v_p.shape[1])
            for n in range(v_n.shape[1])
            if has[i, p] and counts[i, n]
        ]
        total += np.mean(costs) if costs else 0.0
    return total / len(f)


def full_rank_cost(f, V, given):
    total = 0.0
    for i in range(len(f)):
        costs = [
            -np.log(sigmoid(f[i] @ (V[p] - V[n]))) for p in np.flatnonzero(given[i]) for n in np.flatnonzero(~given[i])
        ]
        total += np.mean(costs) if costs else 0.0
    return total / len(f)
