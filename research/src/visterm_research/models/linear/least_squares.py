"""Least squares: ridge without its penalty, as a baseline."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import eigh

from visterm.core.products import column_means
from visterm.core.threads import one_blas_thread
from visterm.core.types import Matrix
from visterm.models import (
    DIRECT_SIZE,
    LinearAnnotator,
    LinearFit,
    centred_kernel,
    check_weight_size,
    conjugate_gradients,
    with_intercept,
)

Doubles = NDArray[np.float64]

RANK_SHARE = 1e-10
"""Directions whose squared variation is less than this share of the largest are ignored."""

CENTRING_SHARE = 1e-13  # Rounding errors after centring constant features, as a share of the sum of squares


class LeastSquares(LinearAnnotator):
    """Predicts 1 for images with a tag and 0 for other images, by least squares with an intercept.

    This is `Ridge` without its penalty: it minimises ``Σ (x · w + b - y)²`` for all tags at once, by the shortest of
    all solutions. With as many features as images it also fits the noise, so it is only a baseline. Explicit negatives
    are ignored.

    Attributes
    ----------
    tag_rows_, weights_, intercept_
        As in `LinearAnnotator`.
    """

    test_params: ClassVar[dict[str, Any]] = {}

    def _fit(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator) -> None:
        check_weight_size(X.shape[1], Y.shape[1], "Least-squares")
        with one_blas_thread():
            fitted = fit_shortest(X, sp.csr_array(Y > 0, dtype=np.float32))
        self._keep(fitted.weights, fitted.intercept, X)


def fit_shortest(X: Matrix, T: Matrix) -> LinearFit:
    """Fit without a penalty, by the eigenvectors of the smaller square system, or by conjugate gradients if large.

    Without a penalty, rounding errors of float32 would matter, so squares are summed in float64.
    """
    n, d = X.shape
    mean_x, mean_t = column_means(X), column_means(T)
    if min(n, d) > DIRECT_SIZE:
        return with_intercept(conjugate_gradients(X, T, mean_x, mean_t, 0.0), mean_x, mean_t)
    exact: Any = X.astype(np.float64)
    min_value = CENTRING_SHARE * float(
        exact.power(2).sum() if sp.issparse(exact) else np.einsum("ij,ij->", exact, exact)
    )
    if d <= n:
        gram = _dense(exact.T @ exact) - n * np.outer(mean_x, mean_x)
        weights = _pseudo_solve(gram, _dense(exact.T @ T) - n * np.outer(mean_x, mean_t), min_value)
    else:
        dual = _pseudo_solve(centred_kernel(exact), _dense(T) - mean_t, min_value)
        weights = exact.T @ dual - np.outer(mean_x, dual.sum(axis=0))
    return with_intercept(weights, mean_x, mean_t)


def _pseudo_solve(square: Doubles, moment: Doubles, min_value: float) -> Doubles:
    """Return the shortest solution, which only uses directions with eigenvalues above `min_value`."""
    values, vectors = eigh(square, overwrite_a=True)
    is_kept = values > max(RANK_SHARE * float(values[-1]), min_value)
    directions = vectors[:, is_kept]
    return np.asarray(directions @ ((directions.T @ moment) / values[is_kept, None]))


def _dense(matrix: Any) -> NDArray[Any]:
    return matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix)
