"""How a weighted distance of feature blocks must change for right neighbours to come nearer than wrong ones (2PKNN)."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

L1, L2, CHI2, COSINE = 0, 1, 2, 3  # Kinds of distances
SHORTEST = 1e-12  # The slope of a square root at 0 has no bound; nearer pairs have none


@njit(cache=True, nogil=True)
def metric_slopes(x, rows, right, wrong, push, kinds, columns, scales, v, w, slopes_v, slopes_w):
    """Add the slopes of the large-margin loss of one image along all weights; return the loss.

    With ``D_j = Σ_b v_b d_b(x, rows_j) / scale_b``, where the features of a block have the weights `w`, the loss is the
    mean over the right neighbours j of ``D_j + push Σ_k wrong_k [1 + D_j - D_k]_+``, summed over the wrong ones k.
    The distances in a block are ``Σ w |x - y|`` (L1), ``√(Σ w (x - y)²)`` (L2) and ``Σ w (x - y)² / (|x| + |y|)``
    (CHI2); COSINE is ``1 - cos(x, y)``, whose features are not weighed.

    `x` is float32 (n_features,), `rows` float32 (n, n_features) of the neighbours, `right`, bool (n,), which are right;
    `wrong`, float64 (n,), how wrong the others are. `kinds`, int64 (n_blocks,), and `columns`, int64 (n_blocks, 2), say
    how blocks are compared, and the first of their features and the one after the last; `scales` and `v` are float64
    (n_blocks,), `w` float64 (n_features,). `slopes_v` and `slopes_w`, float64 of their shapes, are added to.
    """
    n, n_blocks = rows.shape[0], kinds.shape[0]
    parts = np.empty((n, n_blocks))
    D = np.zeros(n)
    for r in range(n):
        for b in range(n_blocks):
            parts[r, b] = _distance(x, rows[r], kinds[b], columns[b, 0], columns[b, 1], w) / scales[b]
            D[r] += v[b] * parts[r, b]
    turns = np.zeros(n)
    n_right, loss = 0, 0.0
    for j in range(n):
        if not right[j]:
            continue
        n_right += 1
        loss += D[j]
        turns[j] += 1.0
        for k in range(n):
            gap = 1.0 + D[j] - D[k]
            if not right[k] and wrong[k] > 0 and gap > 0:
                loss += push * wrong[k] * gap
                turns[j] += push * wrong[k]
                turns[k] -= push * wrong[k]
    if n_right == 0:
        return 0.0
    for r in range(n):
        turn = turns[r] / n_right
        if turn == 0:
            continue
        for b in range(n_blocks):
            slopes_v[b] += turn * parts[r, b]
            if v[b] == 0 or kinds[b] == COSINE:
                continue
            along = turn * v[b] / scales[b]
            if kinds[b] == L2:
                length = parts[r, b] * scales[b]
                along *= 0.5 / length if length > SHORTEST else 0.0
            for f in range(columns[b, 0], columns[b, 1]):
                slopes_w[f] += along * _part(x[f], rows[r, f], kinds[b])
    return loss / n_right


@njit(cache=True)
def _distance(x, y, kind, first, stop, w):
    total = 0.0
    if kind == COSINE:
        own, others = 0.0, 0.0
        for f in range(first, stop):
            total += float(x[f]) * float(y[f])
            own += float(x[f]) * float(x[f])
            others += float(y[f]) * float(y[f])
        return max(1.0 - total / math.sqrt(own * others), 0.0) if own > 0 and others > 0 else 1.0
    for f in range(first, stop):
        total += w[f] * _part(x[f], y[f], kind)
    return math.sqrt(total) if kind == L2 else total


@njit(cache=True)
def _part(x, y, kind):
    """Return what one feature adds to a distance, before its weight and the root."""
    apart = abs(float(x) - float(y))
    if kind == L1:
        return apart
    if kind == L2:
        return apart * apart
    sizes = abs(float(x)) + abs(float(y))
    return apart * apart / sizes if sizes > 0 else 0.0
