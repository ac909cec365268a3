"""Ridge regression, a linear scorer per tag: the strong simple baseline, solved in closed form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import check_number
from visterm.core.learned import Kind, Number
from visterm.core.selected_rows import copied
from visterm.core.threads import one_blas_thread
from visterm.core.types import Doubles, Ints, Matrix, RandomState
from visterm.metrics.ranking import average_precisions
from visterm.models.base import Limit
from visterm.models.linear.base import LinearAnnotator, check_weight_size
from visterm.models.linear.normal_equations import fit_ridge, leave_one_out, mean_square_norm

ALPHAS = tuple(10.0 ** (step / 2) for step in range(4, -7, -1))  # To try, in units of the features' mean squared length
CHOICE_ROWS = 2000  # Use at most this many images to choose the penalty: more take much longer, and change it little


class PenaltyChoice(NamedTuple):
    """The penalty (1 without data to choose by), and its leave-one-out predictions, (n, n_tags), for `rows`."""

    alpha: float
    rows: Ints
    predicted: Doubles


def choose_penalty(
    X: Matrix, given: sp.csr_array, scale: float, rng: np.random.Generator, alphas: Sequence[float] = ALPHAS
) -> PenaltyChoice:
    """Find the penalty with the best leave-one-out MAP over images, trying penalties from strong to weak.

    `given`, (n_images, n_tags), is 1 for the tags of images; penalties are ``alpha · scale``. The search ends at the
    first alpha that is not better than the one before. If there are more than 2,000 images, `rng` samples 2,000.
    """
    rows = np.sort(rng.permutation(X.shape[0])[:CHOICE_ROWS])
    sample, tags = X[rows], given[rows]
    best = PenaltyChoice(alphas[0] if len(alphas) == 1 else 1.0, rows[:0], np.empty((0, given.shape[1])))
    if rows.size < 3 or tags.nnz == 0 or tags.shape[1] < 2:
        return best
    best_map = -1.0
    for alpha, predicted in leave_one_out(sample, tags, alphas, scale=scale):
        current_map = float(np.nanmean(average_precisions(predicted, tags)))
        if current_map <= best_map:
            break
        best, best_map = PenaltyChoice(alpha, rows, predicted), current_map
    return best


@dataclass(kw_only=True, eq=False, repr=False)
class Ridge(LinearAnnotator):
    """Predicts 1 for tags of an image and 0 for other tags, by penalised least squares with an intercept.

    Minimises ``Σ (x · w + b - y)² + alpha ‖w‖²`` for all tags at once. Explicit negatives count as unknown.

    Parameters
    ----------
    alpha : float, optional
        Penalty, in units of the mean squared length of the centred feature rows. More is smoother and nearer to the
        tag frequencies. None: the value, from 100 down to 0.001, whose exact leave-one-out predictions rank the tags
        of training images best (MAP over images, on at most 2,000 of them).
    random_state : int, RandomState, Generator or None
        If there are more than 2,000 images, samples 2,000 of them to choose the penalty.

    Attributes
    ----------
    alpha_ : float
        The penalty that was used.
    tag_rows_, weights_, intercept_
        As in `LinearAnnotator`.
    """

    learned: ClassVar[dict[str, Kind]] = {"alpha_": Number(above=0)}

    limits: ClassVar[dict[str, Limit]] = {
        "alpha": partial(check_number, above=0, otherwise="or None to have it chosen")
    }

    test_params: ClassVar[Mapping[str, object]] = {}
    reads_parts: ClassVar[bool] = True

    alpha: float | None = None
    random_state: RandomState = 0

    def _fit(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator) -> None:
        self.check_settings()
        check_weight_size(X.shape[1], Y.shape[1], "Ridge")
        given = sp.csr_array(Y > 0, dtype=np.float32)
        scale = mean_square_norm(copied(X))
        with one_blas_thread():
            self.alpha_ = choose_penalty(X, given, scale, rng).alpha if self.alpha is None else float(self.alpha)
            fitted = fit_ridge(copied(X), given, self.alpha_ * scale)
        self._keep(fitted.weights, fitted.intercept, X)
