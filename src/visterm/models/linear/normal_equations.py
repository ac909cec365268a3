"""Penalised least squares for many targets: by factorisation or conjugate gradients, with exact leave-one-out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve, eigh, lapack

from visterm.core.products import column_means, dense
from visterm.core.types import Doubles, Floats, Matrix

DIRECT_SIZE = 6000  # Largest square system (275 MiB) to solve by factorisation; above, by conjugate gradients
CG_TOLERANCE = 1e-5
CG_ITERATIONS = 500
CG_COLUMNS = 256  # Number of targets that conjugate gradients solve at a time, to limit the memory
ROUNDING = 1e-6  # Relative differences of float32 numbers up to this are rounding errors
MIN_LEFT_OVER = 1e-12  # Avoids a division by zero if a row alone determines its own prediction


class LinearFit(NamedTuple):
    """Weights of linear functions ``x · weights + intercept``."""

    weights: Floats  # shape (n_features, n_targets)
    intercept: Floats  # shape (n_targets,)


def fit_ridge(X: Matrix, T: Matrix, alpha: float) -> LinearFit:
    """Minimise ``‖x W + b - t‖² + alpha ‖W‖²`` over all rows; the intercept b has no penalty.

    `X` is (n, n_features), `T` are targets, (n, n_targets). The smaller of the two square systems (features, or images)
    is solved by Cholesky factorisation; if it is larger than `DIRECT_SIZE`, conjugate gradients solve it without
    forming it. Sparse features stay sparse, as the products are centred and not the features.
    """
    n, d = X.shape
    mean_x, mean_t = column_means(X), column_means(T)
    if min(n, d) > DIRECT_SIZE:
        weights = conjugate_gradients(X, T, mean_x, mean_t, alpha)
    elif d <= n:
        gram = dense(X.T @ X).astype(np.float64) - n * np.outer(mean_x, mean_x)
        moment = dense(X.T @ T) - n * np.outer(mean_x, mean_t)
        weights = cho_solve(_factor(gram, alpha), moment, overwrite_b=True)
    else:
        dual = cho_solve(_factor(centred_kernel(X), alpha), dense(T) - mean_t, overwrite_b=True)
        weights = X.T @ dual - np.outer(mean_x, dual.sum(axis=0))
    return with_intercept(weights, mean_x, mean_t)


def leave_one_out(X: Matrix, T: Matrix, alphas: Sequence[float], *, scale: float) -> Iterator[tuple[float, Doubles]]:
    """Yield each alpha with the prediction of each row by the ridge fit to all other rows, (n, n_targets).

    The predictions are exact; there must be at least 3 rows. With fewer features than rows, one decomposition is used
    for all alphas; otherwise each needs a factorisation in O(n³): with K the centred kernel, ``c =
    (K + αI)⁻¹ t`` and ``g = diag (K + αI)⁻¹``, the error on a row that was left out is ``α c / (α g - 1/n)`` (Allen's
    PRESS; 1/n is the intercept's leverage). The penalty of each fit is ``alpha · scale``.
    """
    targets = dense(T).astype(np.float64)
    centred = targets - targets.mean(axis=0)
    n, d = X.shape
    if d < n:
        values, vectors = eigh(dense(X.T @ X).astype(np.float64) - n * np.outer(column_means(X), column_means(X)))
        rows = X @ vectors - column_means(X) @ vectors
        squares, moments = rows**2, rows.T @ centred
        for alpha in alphas:
            shrunk = 1 / (np.maximum(values, 0) + alpha * scale)
            left_over = np.maximum(1 - 1 / n - squares @ shrunk, MIN_LEFT_OVER)
            yield alpha, targets - (centred - rows @ (shrunk[:, None] * moments)) / left_over[:, None]
        return

    kernel = centred_kernel(X)
    for alpha in alphas:
        penalty = alpha * scale
        factor, lower = _factor(kernel.copy(), penalty)
        dual = cho_solve((factor, lower), centred)
        inverse, _ = lapack.dpotri(factor, lower=lower, overwrite_c=True)
        left_over = np.maximum(penalty * np.diag(inverse) - 1 / n, MIN_LEFT_OVER)
        yield alpha, targets - penalty * dual / left_over[:, None]


def mean_square_norm(X: Matrix) -> float:
    """Return the mean squared length of the centred rows, the unit of a penalty; never 0.

    If all rows are equal except for rounding, it is a small share of the mean squared length of the rows.
    """
    squares = sp.csr_array(X).power(2).sum() if sp.issparse(X) else np.einsum("ij,ij->", X, X, dtype=np.float64)
    mean_square = float(squares) / X.shape[0]
    mean = column_means(X)
    return max(mean_square - float(mean @ mean), ROUNDING * mean_square) or 1.0


def with_intercept(weights: Doubles | Floats, mean_x: Doubles, mean_t: Doubles) -> LinearFit:
    """Return weights with the intercepts that map mean rows to mean targets."""
    return LinearFit(np.asarray(weights, np.float32), np.asarray(mean_t - mean_x @ weights, np.float32))


def conjugate_gradients(X: Matrix, T: Matrix, mean_x: Doubles, mean_t: Doubles, alpha: float) -> Floats:
    """Solve ``(XᶜᵀXᶜ + αI) W = XᶜᵀTᶜ`` for many columns at a time, without forming the square matrix."""

    def forward(V: Floats) -> Floats:
        return np.asarray(X @ V - (mean_x @ V).astype(np.float32))

    def backward(R: Floats) -> Floats:
        return np.asarray(X.T @ R - np.outer(mean_x, R.sum(axis=0)).astype(np.float32))

    weights = np.empty((X.shape[1], T.shape[1]), np.float32)
    columns = sp.csc_array(T) if sp.issparse(T) else T
    for start in range(0, T.shape[1], CG_COLUMNS):
        part = slice(start, start + CG_COLUMNS)
        targets = (dense(columns[:, part]) - mean_t[part]).astype(np.float32)
        W = np.zeros((X.shape[1], targets.shape[1]), np.float32)
        residual = backward(targets)
        direction = residual.copy()
        square = np.einsum("ij,ij->j", residual, residual, dtype=np.float64)
        tolerance = CG_TOLERANCE**2 * square
        for _ in range(CG_ITERATIONS):
            if (square <= tolerance).all():
                break
            applied = backward(forward(direction)) + np.float32(alpha) * direction
            curvature = np.einsum("ij,ij->j", direction, applied, dtype=np.float64)
            step = np.divide(square, curvature, out=np.zeros_like(square), where=curvature > 0)
            W += direction * step.astype(np.float32)
            residual -= applied * step.astype(np.float32)
            previous_square, square = square, np.einsum("ij,ij->j", residual, residual, dtype=np.float64)
            ratio = np.divide(square, previous_square, out=np.zeros_like(square), where=previous_square > 0)
            direction = residual + direction * ratio.astype(np.float32)
        weights[:, part] = W
    return weights


def centred_kernel(X: Matrix) -> Doubles:
    """Return the products of centred rows, shape (n, n)."""
    kernel = dense(X @ X.T).astype(np.float64)
    rows = kernel.mean(axis=0)
    kernel += rows.mean() - rows - rows[:, None]
    return kernel


def _factor(square: Doubles, alpha: float) -> tuple[Doubles, bool]:
    square[np.diag_indices_from(square)] += alpha
    factor: tuple[Doubles, bool] = cho_factor(square, lower=True, overwrite_a=True)
    return factor
