"""Pairs of tags, by making the scores of all of them and sorting."""

import numpy as np


def pairs_in_order(a, b, F):
    """Return the numbers ``i * K + j`` and the scores of all pairs of one example, best first, ties by the number."""
    K = len(a)
    scores = ((a[:, None] + b[None, :]) + F).ravel()
    numbers = np.arange(K * K)
    order = numbers[np.argsort(-scores[numbers], kind="stable")]
    return order, scores[order]
