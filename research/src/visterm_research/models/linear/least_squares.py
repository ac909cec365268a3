"""Least squares: ridge without its penalty, to compare others with."""

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
"""Directions in which the features vary by less than this share of the most (in squares) count as none."""

CENTRING_SHARE = 1e-13  # What is left of the squares by centring features that never vary


class LeastSquares(LinearAnnotator):
    """Predicts for each tag 1 where it is given and 0 where not, by least squares with an intercept.

    `Ridge` without its penalty: minimises ``Σ (x · w + b - y)²`` for all tags at once, and where many weights do, takes
    the shortest. Where features are as many as images it learns the noise too; it is there to compare with. Explicit
    negatives count as not given.

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
    """Fit without a penalty, by the eigenvectors of the smaller square system; too large ones by conjugate gradients.

    Nothing would hold back roundings of float32 here, so that the squares are summed in float64.
    """
    n, d = X.shape
    mean_x, mean_t = column_means(X), column_means(T)
    if min(n, d) > DIRECT_SIZE:
        return with_intercept(conjugate_gradients(X, T, mean_x, mean_t, 0.0), mean_x, mean_t)
    exact: Any = X.astype(np.float64)
    least = CENTRING_SHARE * float(exact.power(2).sum() if sp.issparse(exact) else np.einsum("ij,ij->", exact, exact))
    if d <= n:
        gram = _dense(exact.T @ exact) - n * np.outer(mean_x, mean_x)
        weights = _pseudo_solve(gram, _dense(exact.T @ T) - n * np.outer(mean_x, mean_t), least)
    else:
        dual = _pseudo_solve(centred_kernel(exact), _dense(T) - mean_t, least)
        weights = exact.T @ dual - np.outer(mean_x, dual.sum(axis=0))
    return with_intercept(weights, mean_x, mean_t)


def _pseudo_solve(square: Doubles, moment: Doubles, least: float) -> Doubles:
    """Return the shortest solution: the one in the directions that vary by more than `least`."""
    values, vectors = eigh(square, overwrite_a=True)
    kept = values > max(RANK_SHARE * float(values[-1]), least)
    some = vectors[:, kept]
    return np.asarray(some @ ((some.T @ moment) / values[kept, None]))


def _dense(matrix: Any) -> NDArray[Any]:
    return matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix)
