"""FastTag: a linear scorer learned together with a map that fills in the tags people left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from visterm.core.checks import check_number, check_size
from visterm.core.errors import UserError
from visterm.core.learned import Array, Kind, Number
from visterm.core.threads import one_blas_thread
from visterm.core.types import Matrix, RandomState
from visterm.metrics import average_precisions
from visterm.models import (
    ALPHAS,
    LinearAnnotator,
    PenaltyChoice,
    check_weight_size,
    choose_penalty,
    fit_ridge,
    mean_square_norm,
)

Doubles = NDArray[np.float64]

CORRUPTIONS = (0.1, 0.3, 0.5, 0.7, 0.9)
TRUSTS = (0.1, 1.0, 10.0)

MAX_TAG_BYTES = 2**33


@dataclass(kw_only=True, eq=False, repr=False)
class FastTag(LinearAnnotator):
    """Learns to predict tags from features and full tag lists from partial lists, so that both predictions agree.

    People give only some of the tags that fit an image. A map B of tags learns to restore tag lists y from which each
    tag was dropped with probability `corruption`, and so adds missing tags; a linear scorer W learns the full lists. It
    minimises ``Σ |B y - W x - b|² + alpha |W|² + trust Σ E |y - B ỹ|²``, where ỹ is the corrupted list. The
    expectation is exact (marginalised), from the number of images that tags share.

    For a fixed B, W is a ridge regression on ``B y``: B times the regression on ``y``. For a fixed W, B solves
    ``B (trust Q + S) = trust P + W X Y``. The paper alternates between both; as each is linear in the other, both
    are solved here at once: ``B (trust Q + S - M) = trust P``, where M are the products of tags and their ridge
    predictions.

    Parameters
    ----------
    alpha : float, optional
        Penalty, as in `Ridge`. None: chosen as in `Ridge`.
    corruption : float, optional
        p, above 0 and below 1. With more, tags that occur together predict each other more. None: chosen.
    trust : float, optional
        γ, above 0. With more, B depends more on tag lists and less on images. None: chosen.
    random_state : int, RandomState, Generator or None
        If there are more than 2,000 images, samples 2,000 of them to choose the settings.

    Attributes
    ----------
    alpha_, corruption_, trust_ : float
        The used settings. Settings that are None are chosen, first the penalty of ridge, then p from 0.1 to 0.9 and γ
        from 0.1 to 10, so that predictions for left-out images rank their tags best (MAP over images).
    completion_ : ndarray of float32, shape (n_tags, n_tags)
        B.
    tag_rows_, weights_, intercept_
        As in `LinearAnnotator`.

    References
    ----------
    Chen, Zheng, Weinberger: Fast image tagging. ICML 2013; equations 3 to 9.
    """

    learned: ClassVar[dict[str, Kind]] = {
        "alpha_": Number(above=0),
        "corruption_": Number(above=0, below=1),
        "trust_": Number(above=0),
        "completion_": Array("float32", ("n_tags_", "n_tags_")),
    }

    test_params: ClassVar[dict[str, Any]] = {}

    alpha: float | None = None
    corruption: float | None = None
    trust: float | None = None
    random_state: RandomState = 0

    def _fit(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator) -> None:
        self.check_settings()
        n_tags = Y.shape[1]
        check_weight_size(X.shape[1], n_tags, "FastTag")
        advice = "Use ridge, or leave out rare tags."
        check_size(32 * n_tags**2, MAX_TAG_BYTES, f"FastTag's maps of {n_tags} × {n_tags} tags", advice)
        given = sp.csr_array(Y > 0, dtype=np.float32)
        scale = mean_square_norm(X)
        with one_blas_thread():
            alphas = ALPHAS if self.alpha is None else (float(self.alpha),)
            penalty_choice = choose_penalty(X, given, scale, rng, alphas)
            ridge = fit_ridge(X, given, penalty_choice.alpha * scale)
            cooccurrences = (given.T @ given).toarray().astype(np.float64)
            # The predictions of each tag, summed over the images with each other tag, without all predictions in memory
            moment: Any = (given.T @ X) @ ridge.weights
            sums = np.asarray(moment, np.float64) + np.outer(given.sum(axis=0, dtype=np.float64), ridge.intercept)
            prediction_sums = (sums + sums.T) / 2
            self.alpha_ = penalty_choice.alpha
            self.corruption_, self.trust_ = self._choose(penalty_choice, given, cooccurrences, prediction_sums)
            B = completion(cooccurrences, prediction_sums, self.corruption_, self.trust_)
            self.completion_ = B.astype(np.float32)
            weights = np.asarray(ridge.weights @ self.completion_.T, np.float32)
            intercept = np.asarray(B @ ridge.intercept, np.float32)
        self._keep(weights, intercept, X)

    def _check_settings(self) -> None:
        for name, below in (("alpha", np.inf), ("corruption", 1), ("trust", np.inf)):
            check_number(getattr(self, name), name, above=0, below=below, otherwise="or None to have it chosen")

    def _choose(
        self, penalty_choice: PenaltyChoice, given: sp.csr_array, cooccurrences: Doubles, prediction_sums: Doubles
    ) -> tuple[float, float]:
        """Return corruption and trust; choose settings that are None by the ridge predictions for left-out images."""
        corruptions = CORRUPTIONS if self.corruption is None else (float(self.corruption),)
        trusts = TRUSTS if self.trust is None else (float(self.trust),)
        pairs = [(corruption, trust) for corruption in corruptions for trust in trusts]
        if len(pairs) == 1 or penalty_choice.rows.size == 0:
            return pairs[len(pairs) // 2]
        tags = given[penalty_choice.rows]
        maps = []
        for pair in pairs:
            scores = penalty_choice.predicted @ completion(cooccurrences, prediction_sums, *pair).T
            maps.append(float(np.nanmean(average_precisions(scores, tags))))
        return pairs[int(np.argmax(maps))]


def completion(cooccurrences: Doubles, prediction_sums: Doubles, corruption: float, trust: float) -> Doubles:
    """Solve ``B (trust Q + S - M) = trust P`` for the map B, (n_tags, n_tags), that completes tag lists.

    `cooccurrences` is S (n_tags, n_tags), the number of images with both tags; `prediction_sums` is M (n_tags, n_tags),
    the ridge predictions of one tag summed over the images with another. B is 0 in rows and columns of tags that no
    image has. Raises UserError if `trust` is so small that rounding errors decide.
    """
    keep_probability = 1 - corruption
    counts = np.diag(cooccurrences)
    matrix = trust * keep_probability**2 * cooccurrences + cooccurrences - prediction_sums
    matrix[np.diag_indices_from(matrix)] += trust * keep_probability * corruption * counts + (counts == 0)
    try:
        factor = cho_factor(matrix, lower=True, overwrite_a=True)
    except LinAlgError as error:
        raise UserError(
            f"trust is {trust:g}, less than the rounding errors of the predictions. Choose a larger trust or alpha."
        ) from error
    B: Doubles = cho_solve(factor, trust * keep_probability * cooccurrences).T
    return B
