"""Least squares: ridge without its penalty, to compare others with."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from visterm.core.threads import one_blas_thread
from visterm.core.types import Matrix
from visterm.models import LinearAnnotator, check_weight_size, fit_ridge


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
            fitted = fit_ridge(X, sp.csr_array(Y > 0, dtype=np.float32), 0.0)
        self._keep(fitted.weights, fitted.intercept, X)
