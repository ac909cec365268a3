"""Alternating least squares for images known by number, by the package `implicit`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from implicit.cpu.als import AlternatingLeastSquares

from visterm.core.checks import check_count, check_number
from visterm.core.errors import DataError
from visterm.core.learned import Array, Kind
from visterm.core.products import product
from visterm.core.threads import one_blas_thread, resolve_jobs
from visterm.core.types import Matrix, RandomState
from visterm.models.base import Annotator, Limit
from visterm.models.linear.normal_equations import fit_ridge, mean_square_norm


@dataclass(kw_only=True, eq=False, repr=False)
class Als(Annotator):
    """Factorises the matrix of images known by number and their tags, with a confidence for each entry.

    ``score(i, t) = u_i · v_t``, where U and V minimise ``Σ_it c_it (y_it - u_i · v_t)² + regularization (‖U‖² + ‖V‖²)``
    over all entries, with ``c_it = alpha w_it`` for given tags of weight w (1 without weights), and 1 for others. With
    features, U is then predicted by ridge regression.

    Parameters
    ----------
    dim : int
        Width of the vectors.
    regularization, alpha : float
        The defaults are implicit's. With few tags per image, more of both is better: ``auto`` takes 30 and 4.
    epochs : int
        Number of times that both matrices are solved for.
    n_jobs : int, optional
    random_state : int, RandomState, Generator or None
        The start of both matrices.

    Attributes
    ----------
    weights_ : ndarray of float32, shape (n_images, dim)
        U; with features, (n_features + 1, dim): the weights and, last, the intercept.
    tag_rows_ : ndarray of float32, shape (n_tags, dim)

    References
    ----------
    Hu, Koren, Volinsky: Collaborative filtering for implicit feedback datasets. ICDM 2008. Equations 3 and 4.
    """

    learned: ClassVar[dict[str, Kind]] = {
        "weights_": Array("float32", (None, "dim")),
        "tag_rows_": Array("float32", ("n_tags_", "dim")),
    }
    limits: ClassVar[dict[str, Limit]] = {
        "dim": check_count,
        "epochs": check_count,
        "regularization": partial(check_number, above=0),
        "alpha": partial(check_number, above=0),
    }
    test_params: ClassVar[Mapping[str, object]] = {"dim": 8, "epochs": 3}
    uses_pair_weights: ClassVar[bool] = True

    dim: int = 64
    regularization: float = 0.01
    alpha: float = 1.0
    epochs: int = 15
    n_jobs: int | None = None
    random_state: RandomState = 0

    def fold_in(self, Y: sp.csr_array) -> Matrix:
        """Return the rows of images with the tags or weights `Y`: the best ones for V (equation 4)."""
        solver = self._solver()
        solver.item_factors = self.tag_rows_
        with one_blas_thread():
            return np.asarray(solver.recalculate_user(np.arange(Y.shape[0]), sp.csr_matrix(Y, dtype=np.float32)))

    def _fit(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator) -> None:
        self.check_settings()
        solver = self._solver(int(rng.integers(2**31)))
        with one_blas_thread():
            solver.fit(sp.csr_matrix(self.weighted(Y)), show_progress=False)
        rows, self.tag_rows_ = (np.ascontiguousarray(M) for M in (solver.user_factors, solver.item_factors))
        if not getattr(self, "by_number_", False):
            weights, intercept = fit_ridge(X, rows, mean_square_norm(X))
            rows = np.ascontiguousarray(np.vstack([weights, intercept]), np.float32)
        self.weights_ = rows

    def _solver(self, seed: int = 0) -> Any:
        return AlternatingLeastSquares(
            factors=self.dim, regularization=self.regularization, alpha=self.alpha, iterations=self.epochs,
            num_threads=resolve_jobs(self.n_jobs), random_state=seed,
        )  # fmt: skip

    def _image_rows(self, X: Matrix) -> Matrix:
        if getattr(self, "by_number_", False):
            return np.ascontiguousarray(sp.csr_array(X) @ self.weights_, np.float32)
        return np.asarray(product(X, self.weights_[:-1]) + self.weights_[-1], np.float32)

    def _check_learned(self) -> None:
        n_rows = self.n_features_in_ + (not getattr(self, "by_number_", False))
        if self.weights_.shape[0] != n_rows:
            raise DataError(f"weights_ has {self.weights_.shape[0]} rows; expected {n_rows}")
