"""Dot products, norms and the projection that keeps a norm under its limit."""

from __future__ import annotations

import math

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def dot(a, b):
    """Multiply two float32 vectors of the same length.

    Eight running sums, added in a fixed order: the processor need not wait for one sum, and the result does not depend
    on how wide its vectors are.
    """
    n = a.shape[0]
    whole = n - n % 8
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = np.float32(0.0)
    for c in range(0, whole, 8):
        s0 += a[c] * b[c]
        s1 += a[c + 1] * b[c + 1]
        s2 += a[c + 2] * b[c + 2]
        s3 += a[c + 3] * b[c + 3]
        s4 += a[c + 4] * b[c + 4]
        s5 += a[c + 5] * b[c + 5]
        s6 += a[c + 6] * b[c + 6]
        s7 += a[c + 7] * b[c + 7]
    for c in range(whole, n):
        s0 += a[c] * b[c]
    return ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))


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
    """Move rows first .. last-1 of a float32 matrix by `share` of the way to another's; say whether all is finite."""
    total = np.float32(0.0)
    factor = np.float32(share)
    for row in range(first, last):
        target, source = mean[row], current[row]
        for c in range(target.shape[0]):
            target[c] += factor * (source[c] - target[c])
            total += target[c] * np.float32(0.0)
    return total == 0.0
