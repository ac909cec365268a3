"""Norms, the projection that keeps a norm under its limit, and running means of rows."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from visterm.kernels.lanes import dot


@njit(cache=True, nogil=True)
def limit_norm(vector, max_norm):
    """Scale a float32 vector, in place, to the Euclidean norm `max_norm` if its norm is larger."""
    norm = math.sqrt(dot(vector, vector))
    if norm > max_norm:
        scale = np.float32(max_norm / norm)
        for c in range(vector.shape[0]):
            vector[c] *= scale


@njit(cache=True, nogil=True)
def limit_norms(matrix, max_norm):
    """Apply `limit_norm` to each row of a float32 matrix, in place."""
    for row in range(matrix.shape[0]):
        limit_norm(matrix[row], max_norm)


@njit(cache=True, nogil=True)
def mix_rows(mean, current, share, first, last):
    """Move rows first .. last-1 of a float32 matrix by `share` of the way to another's.

    Returns
    -------
    bool
        Whether the squared lengths of the new rows are finite.
    """
    total = np.float32(0.0)
    factor = np.float32(share)
    for row in range(first, last):
        target, source = mean[row], current[row]
        for c in range(target.shape[0]):
            target[c] += factor * (source[c] - target[c])
        total += dot(target, target) * np.float32(0.0)
    return total == 0.0
