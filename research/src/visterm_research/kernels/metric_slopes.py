"""Slopes of the large-margin loss that learns weights of a distance of feature blocks (2PKNN)."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

L1, L2, CHI2, COSINE = 0, 1, 2, 3  # Kinds of distances
MIN_DISTANCE = 1e-12  # Pairs at smaller distances have slope 0, as the slope of a square root at 0 is infinite


@njit(cache=True, nogil=True)
def metric_slopes(x, rows, right, wrong, push, kinds, columns, scales, v, w, slopes_v, slopes_w):
    """Add the slopes of the large-margin loss of one image with respect to all weights; return the loss.

    With ``D_j = Σ_b v_b d_b(x, rows_j) / scale_b``, where the features of a block have the weights `w`, the loss is the
    mean over the right neighbours j of ``D_j + push Σ_k wrong_k [1 + D_j - D_k]_+``, summed over wrong neighbours k.
    The distances in a block are ``Σ w |x - y|`` (L1), ``√(Σ w (x - y)²)`` (L2) and ``Σ w (x - y)² / (|x| + |y|)``
    (CHI2); COSINE is ``1 - cos(x, y)``, without weights of features.

    `x` is float32 (n_features,), `rows` float32 (n, n_features), the neighbours; `right`, bool (n,), flags right
    neighbours, and `wrong`, float64 (n,), is the weight of wrong ones. `kinds`, int64 (n_blocks,), are the distances of
    the blocks, and `columns`, int64 (n_blocks, 2), their (start, stop) features; `scales` and `v` are float64
    (n_blocks,), `w` float64 (n_features,). Adds to `slopes_v` and `slopes_w`, float64 of the shapes of `v` and `w`.
    """
    n, n_blocks = rows.shape[0], kinds.shape[0]
    parts = np.empty((n, n_blocks))
    D = np.zeros(n)
    for r in range(n):
        for b in range(n_blocks):
            parts[r, b] = _distance(x, rows[r], kinds[b], columns[b, 0], columns[b, 1], w) / scales[b]
            D[r] += v[b] * parts[r, b]
    distance_slopes = np.zeros(n)
    n_right, loss = 0, 0.0
    for j in range(n):
        if not right[j]:
            continue
        n_right += 1
        loss += D[j]
        distance_slopes[j] += 1.0
        for k in range(n):
            gap = 1.0 + D[j] - D[k]
            if not right[k] and wrong[k] > 0 and gap > 0:
                loss += push * wrong[k] * gap
                distance_slopes[j] += push * wrong[k]
                distance_slopes[k] -= push * wrong[k]
    if n_right == 0:
        return 0.0
    for r in range(n):
        distance_slope = distance_slopes[r] / n_right
        if distance_slope == 0:
            continue
        for b in range(n_blocks):
            slopes_v[b] += distance_slope * parts[r, b]
            if v[b] == 0 or kinds[b] == COSINE:
                continue
            slope = distance_slope * v[b] / scales[b]
            if kinds[b] == L2:
                length = parts[r, b] * scales[b]
                slope *= 0.5 / length if length > MIN_DISTANCE else 0.0
            for f in range(columns[b, 0], columns[b, 1]):
                slopes_w[f] += slope * _part(x[f], rows[r, f], kinds[b])
    return loss / n_right


@njit(cache=True)
def _distance(x, y, kind, first, stop, w):
    total = 0.0
    if kind == COSINE:
        x_square, y_square = 0.0, 0.0
        for f in range(first, stop):
            total += float(x[f]) * float(y[f])
            x_square += float(x[f]) * float(x[f])
            y_square += float(y[f]) * float(y[f])
        return max(1.0 - total / math.sqrt(x_square * y_square), 0.0) if x_square > 0 and y_square > 0 else 1.0
    for f in range(first, stop):
        total += w[f] * _part(x[f], y[f], kind)
    return math.sqrt(total) if kind == L2 else total


@njit(cache=True)
def _part(x, y, kind):
    """Return the contribution of one feature to a distance, before its weight and the root."""
    difference = abs(float(x) - float(y))
    if kind == L1:
        return difference
    if kind == L2:
        return difference * difference
    sizes = abs(float(x)) + abs(float(y))
    return difference * difference / sizes if sizes > 0 else 0.0
