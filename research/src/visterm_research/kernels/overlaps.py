"""Sums of overlaps between rows and landmarks over features, for the kernels of kernel PCA.

A feature counts only if both have it: ``min(x, y)``, ``x y`` and ``x y / (x + y)`` are 0 if x or y is 0. So the outer
loops visit the non-zero values of a row, and the inner loops the landmarks, whose values of a feature are contiguous.
Sums are always computed in the order of the features, so that the bytes do not depend on how rows are split into
calls.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numba import njit

TILE_FEATURES = 32  # Features per tile
TILE_LANDMARKS = 2048  # Landmarks per tile: its 256 KiB stay in the L2 cache while the rows of a call are processed


class Overlap(IntEnum):
    """The contribution of a feature to the sum."""

    SMALLER = 0  # ``min(x, y)``, for values that are not negative
    PRODUCT = 1  # ``x y``
    HARMONIC = 2  # ``x y / (x + y)``, for values that are not negative


@njit(cache=True, nogil=True)
def add_dense_overlaps(kind, start, cols, vals, landmarks, first, stop, sums):
    """Add the overlaps of rows `first` .. `stop` - 1 with dense landmarks, (n_features, n_landmarks), to `sums`.

    `start`, `cols` and `vals` are the rows as the three arrays of a canonical CSR matrix with columns below n_features;
    `sums` are float32 (n_rows, n_landmarks).
    """
    n_features, n_landmarks = landmarks.shape
    for low in range(0, n_landmarks, TILE_LANDMARKS):
        high = min(low + TILE_LANDMARKS, n_landmarks)
        next_entry = start[first:stop].copy()
        for tile_end in range(TILE_FEATURES, n_features + TILE_FEATURES, TILE_FEATURES):
            for i in range(first, stop):
                e, end = next_entry[i - first], start[i + 1]
                out = sums[i, low:high]
                while e + 3 < end and cols[e + 3] < tile_end:
                    _add_four(
                        kind,
                        vals[e : e + 4],
                        landmarks[cols[e], low:high],
                        landmarks[cols[e + 1], low:high],
                        landmarks[cols[e + 2], low:high],
                        landmarks[cols[e + 3], low:high],
                        out,
                    )
                    e += 4
                while e < end and cols[e] < tile_end:
                    _add_one(kind, vals[e], landmarks[cols[e], low:high], out)
                    e += 1
                next_entry[i - first] = e


@njit(cache=True, nogil=True)
def add_sparse_overlaps(kind, start, cols, vals, l_start, l_cols, l_vals, first, stop, sums):
    """Add the overlaps of rows `first` .. `stop` - 1 with sparse landmarks to `sums`.

    Like `add_dense_overlaps`, but `l_start`, `l_cols` and `l_vals` are the landmarks as the three arrays of a CSR
    matrix, (n_features, n_landmarks).
    """
    for i in range(first, stop):
        out = sums[i]
        for e in range(start[i], start[i + 1]):
            x = vals[e]
            feature = cols[e]
            for f in range(l_start[feature], l_start[feature + 1]):
                out[l_cols[f]] += _overlap(kind, x, l_vals[f])


@njit(cache=True)
def _overlap(kind, x, y):
    if kind == Overlap.SMALLER:
        return x if x < y else y
    if kind == Overlap.PRODUCT:
        return x * y
    total = x + y
    return x * y / total if total > 0 else np.float32(0)


@njit(cache=True)
def _add_one(kind, x, y, out):
    for j in range(out.shape[0]):
        out[j] += _overlap(kind, x, y[j])


@njit(cache=True)
def _add_four(kind, x, y0, y1, y2, y3, out):
    """Add four consecutive features in the same order as four calls of `_add_one`, but in one pass over the sums."""
    x0, x1, x2, x3 = x[0], x[1], x[2], x[3]
    for j in range(out.shape[0]):
        total = out[j] + _overlap(kind, x0, y0[j])
        total += _overlap(kind, x1, y1[j])
        total += _overlap(kind, x2, y2[j])
        out[j] = total + _overlap(kind, x3, y3[j])
