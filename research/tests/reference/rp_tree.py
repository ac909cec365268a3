"""Slow twin of the random-projection tree: directions written out, nodes split by recursion."""

from __future__ import annotations

import numpy as np

from visterm.kernels.random import GOLDEN, mix, stream_of


def direction(seed, node, n_columns):
    with np.errstate(over="ignore"):
        stream = stream_of(np.int64(seed), np.int64(0), np.int64(node))
        words = [mix(np.uint64(stream) + np.uint64(j + 1) * GOLDEN) for j in range(n_columns)]
    return np.array([float(np.uint64(word) >> np.uint64(40)) / 2**23 - 1 for word in words])


def slow_leaves(X, seed, levels):
    """Training rows of each leaf, left to right, and the threshold of each node."""
    thresholds = {}

    def split(rows, node, left):
        if left == 0:
            return [sorted(rows)]
        values = X[rows].astype(float) @ direction(seed, node, X.shape[1])
        ranked = [rows[p] for p in np.argsort(values, kind="stable")]
        half = len(rows) // 2
        ordered = np.sort(values)
        thresholds[node] = (ordered[half - 1] + ordered[half]) / 2
        return split(sorted(ranked[:half]), 2 * node, left - 1) + split(sorted(ranked[half:]), 2 * node + 1, left - 1)

    return split(list(range(len(X))), 1, levels), thresholds


def slow_leaf(x, seed, levels, thresholds):
    node = 1
    for _ in range(levels):
        node = 2 * node + int(x.astype(float) @ direction(seed, node, len(x)) >= thresholds[node])
    return node - 2**levels
