"""Slow twins of the kernels between bags: every point with every point, and every pair of Gaussians, in plain NumPy."""

from __future__ import annotations

import numpy as np


def minor_kernel(name, x, y, gamma=1.0, degree=2, offset=1.0):
    """Compare two points."""
    if name == "linear":
        return float(x @ y)
    if name == "polynomial":
        return float((x @ y + offset) ** degree)
    return float(np.exp(-gamma * np.sum((x - y) ** 2)))


def match(p, q, name, **settings):
    """Return the match kernel of two bags, as section IV-C of the PAMIR paper prints it."""

    def one_way(a, b):
        return sum(max(minor_kernel(name, x, y, **settings) for y in b) for x in a) / len(a)

    p, q = p.astype(float), q.astype(float)
    return 0.5 * (one_way(p, q) + one_way(q, p))


def density(v, weights, means, covariances):
    """Return the density of a mixture of Gaussians at points v, shape (n, n_features)."""
    total = np.zeros(len(v))
    for weight, mean, covariance in zip(weights, means, covariances, strict=True):
        apart = v - mean
        squares = np.einsum("ij,ij->i", apart @ np.linalg.inv(covariance), apart)
        total += weight * np.exp(-0.5 * squares) / np.sqrt(np.linalg.det(2 * np.pi * covariance))
    return total
