"""The other steps and samplers of the ranking family in plain Python and NumPy, for comparison with the kernels."""

from __future__ import annotations

import numpy as np


def owpc_factors(f, y, own):
    """Eq. 6 and 7 of WSABIE: the factor of each tag's row in the step of one example, and the loss."""
    violators = [t for t in range(len(f)) if t not in own and 1 + f[t] > f[y]]
    factors = np.zeros(len(f))
    if not violators:
        return factors, 0.0
    weight = sum(1 / j for j in range(1, len(violators) + 1)) / len(violators)
    for t in violators:
        factors[t] -= weight
        factors[y] += weight
    return factors, weight * sum(1 - f[y] + f[t] for t in violators)


def adaptive_law(u, V, scale):
    """Return VSE-ens's chance of each tag: Σ_f p(f|u) p(place of the tag in the list of f)."""
    n_tags, dim = V.shape
    importance = np.abs(u) * V.std(axis=0)
    importance /= importance.sum()
    places = np.exp(-np.arange(n_tags) / scale)
    places /= places.sum()
    law = np.zeros(n_tags)
    for f in range(dim):
        order = np.argsort(-V[:, f], kind="stable")
        law[order if u[f] > 0 else order[::-1]] += importance[f] * places
    return law


def block_sum(weights, squares, terms, *, rate, l2, max_norm, adagrad):
    """Move one row by a block's gradients: shrink for each, add all (AdaGrad: over the root of the squares), limit."""
    row = weights.astype(float) * (1 - rate * l2) ** len(terms)
    gradient = np.sum([np.zeros_like(row), *terms], axis=0)
    if adagrad:
        squares = squares + sum(float(np.mean(np.square(term))) for term in terms)
        row = row + rate * gradient / np.sqrt(squares)
    else:
        row = row + rate * gradient
    norm = np.linalg.norm(row)
    return row * min(1, max_norm / max(norm, 1e-300)), squares
