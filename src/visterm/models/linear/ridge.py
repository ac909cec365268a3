"""One linear scorer a tag by least squares: the strong simple baseline, solved in closed form."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import check_number
from visterm.core.learned import Kind, Number
from visterm.core.threads import one_blas_thread
from visterm.core.types import Matrix, RandomState
from visterm.models.linear.base import LinearAnnotator, check_weight_size
from visterm.models.linear.normal_equations import fit_ridge, mean_square_norm
from visterm.models.linear.penalty_choice import choose_penalty


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

    learned: ClassVar[dict[str, Kind]] = {"alpha_": Number(above=0)}

    test_params: ClassVar[dict[str, Any]] = {}

    def __init__(self, *, alpha: float | None = None, random_state: RandomState = 0) -> None:
        self.alpha = alpha
        self.random_state = random_state

    def _fit(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator) -> None:
        self.check_settings()
        check_weight_size(X.shape[1], Y.shape[1], "Ridge")
        given = sp.csr_array(Y > 0, dtype=np.float32)
        scale = mean_square_norm(X)
        with one_blas_thread():
            self.alpha_ = choose_penalty(X, given, scale, rng).alpha if self.alpha is None else float(self.alpha)
            fitted = fit_ridge(X, given, self.alpha_ * scale)
        self._keep(fitted.weights, fitted.intercept, X)

    def _check_settings(self) -> None:
        if self.alpha is not None:
            check_number(self.alpha, "alpha", above=0, otherwise="or None to have it chosen")
