"""Kernels between bags of points: the best match of each point in the other bag, and overlaps of Gaussian mixtures."""

from __future__ import annotations

import math
from enum import IntEnum

import numpy as np
from numba import njit

VARIANCES_PER_LOG = 8  # Number of variances that are multiplied before a logarithm, so that float64 doesn't overflow


class Minor(IntEnum):
    """The kernel of two points, which grows with ``x · y - own(x) - own(y)``: the best match has the largest value.

    Products of histograms are not negative, so powers of them grow, too.
    """

    LINEAR = 0  # ``x · y``; own is 0
    RBF = 1  # ``exp(-γ |x - y|²)``; own is half the squared length
    POLYNOMIAL = 2  # ``(x · y + offset)^degree``; own is 0


@njit(cache=True, nogil=True)
def best_matches(products, own_x, own_y, start_x, start_y, minor, gamma, degree, offset, out):
    """Average the best matches between the bags of images x and of images y (PAMIR paper, section IV-C).

    ``k̂(p, p') = Σ_i max_j k(p_i, p'_j) / |p|``, and the kernel is ``(k̂(p, p') + k̂(p', p)) / 2``. Sums are float64,
    in the order of the points. `products`, (n_points_x, n_points_y), are those of all points; `own_x` and `own_y` have
    one value per point, see `Minor`, also for the settings. The points of each bag, at least one, begin at `start_x`,
    (n_x + 1,), and `start_y`, (n_y + 1,). `out`, float64 (n_x, n_y), is overwritten.
    """
    max_points = 0
    for y in range(out.shape[1]):
        max_points = max(max_points, start_y[y + 1] - start_y[y])
    best = np.empty(max_points, np.float32)
    for x in range(out.shape[0]):
        for y in range(out.shape[1]):
            first, stop = start_y[y], start_y[y + 1]
            n_x, n_y = start_x[x + 1] - start_x[x], stop - first
            own_y_bag = own_y[first:stop]
            columns = best[:n_y]
            columns[:] = np.float32(-1e30)
            total_x = 0.0
            for i in range(start_x[x], start_x[x + 1]):
                row = products[i, first:stop]
                own_x_point = own_x[i]
                highest = _highest(row, own_y_bag)
                for j in range(n_y):
                    difference = row[j] - own_x_point
                    columns[j] = difference if difference > columns[j] else columns[j]
                total_x += _minor_kernel(minor, highest - own_x_point, gamma, degree, offset)
            total_y = 0.0
            for j in range(n_y):
                total_y += _minor_kernel(minor, columns[j] - own_y_bag[j], gamma, degree, offset)
            out[x, y] = 0.5 * (total_x / n_x + total_y / n_y)


@njit(cache=True, nogil=True)
def _highest(row, own):
    """Return the largest difference of two float32 vectors, with four independent maxima in parallel."""
    a = b = c = d = np.float32(-1e30)
    n = row.shape[0]
    for q in range(n // 4):
        j = np.uint64(4 * q)
        w, x = row[j] - own[j], row[j + np.uint64(1)] - own[j + np.uint64(1)]
        y, z = row[j + np.uint64(2)] - own[j + np.uint64(2)], row[j + np.uint64(3)] - own[j + np.uint64(3)]
        a = w if w > a else a
        b = x if x > b else b
        c = y if y > c else c
        d = z if z > d else d
    for index in range(4 * (n // 4), n):
        a = max(a, row[index] - own[index])
    return max(max(a, b), max(c, d))


@njit(cache=True, nogil=True)
def _minor_kernel(minor, best, gamma, degree, offset):
    """Return the kernel of two points from `best`, the value that it grows with (see `Minor`)."""
    value = np.float64(best)
    if minor == Minor.RBF:
        return math.exp(2.0 * gamma * min(value, 0.0))
    if minor == Minor.POLYNOMIAL:
        return (value + offset) ** degree
    return value


@njit(cache=True, nogil=True)
def log_expected_likelihoods(
    weights_x, means_x, spreads_x, start_x, weights_y, means_y, spreads_y, start_y, full, first, stop, first_column, out
):
    """Compute the logarithms of ``∫ p(v) p'(v) dv`` for mixtures x and y, in closed form.

    ``Σ_ab w_a w'_b N(μ_a - μ'_b; 0, Σ_a + Σ'_b)`` (PAMIR paper, section IV-C; Jebara, Kondor: Bhattacharyya and
    expected likelihood kernels, COLT 2003). The bytes of a pair of mixtures don't depend on other mixtures.

    All are float64: `weights_x`, (n_components,), are the logarithms of the components' weights, `means_x` are
    (n_components, n_features), and `spreads_x`, far enough from singular, (n_components, n_features, n_features) with
    `full` covariances, otherwise variances, (n_components, n_features, 1). The components of mixture i begin at
    `start_x[i]`, int64 (n + 1,); the same for the mixtures y. Overwrites `out`, (n_x, n_y), in the rows first ..
    stop-1, from column `first_column` to the last column.
    """
    n_features = means_x.shape[1]
    scratch = np.empty((n_features, n_features if full else 1))
    for x in range(first, stop):
        for y in range(first_column, out.shape[1]):
            highest, total = -np.inf, 0.0
            for a in range(start_x[x], start_x[x + 1]):
                for b in range(start_y[y], start_y[y + 1]):
                    term = weights_x[a] + weights_y[b] - 0.5 * n_features * math.log(2.0 * math.pi)
                    if full:
                        term += _log_full(means_x[a], means_y[b], spreads_x[a], spreads_y[b], scratch)
                    else:
                        term += _log_diagonal(means_x[a], means_y[b], spreads_x[a], spreads_y[b])
                    if term > highest:
                        total = total * math.exp(highest - term) + 1.0
                        highest = term
                    else:
                        total += math.exp(term - highest)
            out[x, y] = highest + math.log(total)


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _log_diagonal(mean_a, mean_b, spread_a, spread_b):
    """Return ``-½ (log |Σ| + δ' Σ⁻¹ δ)`` for sums of variances."""
    square, logs, product = 0.0, 0.0, 1.0
    for c in range(mean_a.shape[0]):
        spread = spread_a[c, 0] + spread_b[c, 0]
        difference = mean_a[c] - mean_b[c]
        square += difference * difference / spread
        product *= spread
        if c % VARIANCES_PER_LOG == VARIANCES_PER_LOG - 1:
            logs += math.log(product)
            product = 1.0
    return -0.5 * (logs + math.log(product) + square)


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _log_full(mean_a, mean_b, spread_a, spread_b, scratch):
    """Return ``-½ (log |Σ| + δ' Σ⁻¹ δ)`` for sums of covariances, from the rows of the Cholesky factor."""
    n = mean_a.shape[0]
    square, logs = 0.0, 0.0
    solution = np.empty(n)
    for i in range(n):
        row = scratch[i]
        difference = mean_a[i] - mean_b[i]
        for j in range(i + 1):
            above = scratch[j]
            value = spread_a[i, j] + spread_b[i, j]
            for c in range(j):
                value -= row[c] * above[c]
            row[j] = math.sqrt(value) if i == j else value / above[j]
        for c in range(i):
            difference -= row[c] * solution[c]
        solution[i] = difference / row[i]
        square += solution[i] * solution[i]
        logs += math.log(row[i])
    return -0.5 * square - logs
