"""One linear scorer a tag by least squares: the strong simple baseline, solved in closed form."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import check_number, check_size
from visterm.core.threads import one_blas_thread
from visterm.core.types import Matrix, RandomState
from visterm.metrics.ranking import average_precisions
from visterm.models.least_squares import fit_ridge, leave_one_out, mean_square_norm
from visterm.models.linear import LinearAnnotator

ALPHAS = tuple(10.0 ** (step / 2) for step in range(4, -7, -1))
"""Penalties tried, from strong to weak, in units of the features' mean squared length."""

CHOICE_ROWS = 2000
"""At most so many images choose the penalty: the time grows with their cube, and the best penalty hardly with them."""

MAX_WEIGHT_BYTES = 2**33


class Ridge(LinearAnnotator):
    """Predicts for each tag 1 where it is given and 0 where not, by penalised least squares with an intercept.

    Minimises ``Σ (x · w + b - y)² + alpha ‖w‖²`` for all tags at once. Explicit negatives count as not given.

    Parameters
    ----------
    alpha : float, optional
        Penalty, in units of the mean squared length of the centred feature rows. More is smoother and nearer to the
        tag frequencies. None: the value, from 100 down to 0.001, whose exact leave-one-out predictions rank the tags
        of training images best (MAP over images, on at most 2,000 of them).
    random_state : int, RandomState, Generator or None
        Which images choose the penalty, where there are more than 2,000.

    Attributes
    ----------
    alpha_ : float
        The penalty that was used.
    tag_rows_, weights_, intercept_
        As in `LinearAnnotator`.
    """

    test_params: ClassVar[dict[str, Any]] = {}

    def __init__(self, *, alpha: float | None = None, random_state: RandomState = 0) -> None:
        self.alpha = alpha
        self.random_state = random_state

    def _fit(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator) -> None:
        if self.alpha is not None:
            check_number(self.alpha, "alpha", above=0, otherwise="or None to have it chosen")
        check_size(
            12 * X.shape[1] * Y.shape[1],
            MAX_WEIGHT_BYTES,
            f"Ridge weights of {X.shape[1]} features × {Y.shape[1]} tags, with their products,",
            "Use a model with an embedding (wsabie), or leave out rare tags.",
        )
        given = sp.csr_array(Y > 0, dtype=np.float32)
        scale = mean_square_norm(X)
        with one_blas_thread():
            self.alpha_ = self._choose(X, given, scale, rng) if self.alpha is None else float(self.alpha)
            fitted = fit_ridge(X, given, self.alpha_ * scale)
        self._keep(fitted.weights, fitted.intercept, X)

    def _choose(self, X: Matrix, given: sp.csr_array, scale: float, rng: np.random.Generator) -> float:
        rows = np.sort(rng.permutation(X.shape[0])[:CHOICE_ROWS])
        some, tags = X[rows], given[rows]
        if rows.size < 3 or tags.nnz == 0 or tags.shape[1] < 2:
            return 1.0
        best, best_map = 1.0, -1.0
        for alpha, predicted in leave_one_out(some, tags, ALPHAS, scale=scale):
            found = float(np.nanmean(average_precisions(predicted, tags)))
            if found <= best_map:
                break
            best, best_map = alpha, found
        return best
