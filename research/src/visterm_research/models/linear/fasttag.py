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
    """Learns to predict tags from features, and full tag lists from partial ones, and has the two agree.

    People give some of the tags that fit an image. A map B of tags, learned to restore tag lists y from which each tag
    was dropped with probability `corruption`, adds what they left out, and a linear scorer W learns the full lists:
    it minimises ``Σ |B y - W x - b|² + alpha |W|² + trust Σ E |y - B ỹ|²``, where ỹ is the corrupted list. The
    expectation is exact (marginalised), from how many images tags share.

    With B held, W is a ridge regression on ``B y``: B times the one on ``y``. With W held, B solves
    ``B (trust Q + S) = trust P + W X Y``. The paper solves the two in turn; as one is linear in the other, the point
    where both hold is solved for at once: ``B (trust Q + S - M) = trust P``, M being the products of tags and their
    ridge predictions.

    Parameters
    ----------
    alpha : float, optional
        Penalty, as in `Ridge`. None: chosen as there.
    corruption : float, optional
        p, above 0 and below 1. More trusts tags that are seen together more to stand for each other. None: chosen.
    trust : float, optional
        γ, above 0. More holds B to what the tag lists say, less to what the images show. None: chosen.
    random_state : int, RandomState, Generator or None
        Which images choose the settings, where there are more than 2,000.

    Attributes
    ----------
    alpha_, corruption_, trust_ : float
        The settings that were used. Those not given are the ones, of ridge first, then of p from 0.1 to 0.9 and γ from
        0.1 to 10, whose predictions for left-out images rank their tags best (MAP over images).
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
            chosen = choose_penalty(X, given, scale, rng, alphas)
            fitted = fit_ridge(X, given, chosen.alpha * scale)
            together = (given.T @ given).toarray().astype(np.float64)
            # The predictions of each tag summed over the images with each other tag, without holding all of them.
            moment: Any = (given.T @ X) @ fitted.weights
            sums = np.asarray(moment, np.float64) + np.outer(given.sum(axis=0, dtype=np.float64), fitted.intercept)
            predicted = (sums + sums.T) / 2
            self.alpha_ = chosen.alpha
            self.corruption_, self.trust_ = self._choose(chosen, given, together, predicted)
            B = completion(together, predicted, self.corruption_, self.trust_)
            self.completion_ = B.astype(np.float32)
            weights = np.asarray(fitted.weights @ self.completion_.T, np.float32)
            intercept = np.asarray(B @ fitted.intercept, np.float32)
        self._keep(weights, intercept, X)

    def _check_settings(self) -> None:
        for name, below in (("alpha", np.inf), ("corruption", 1), ("trust", np.inf)):
            check_number(getattr(self, name), name, above=0, below=below, otherwise="or None to have it chosen")

    def _choose(
        self, chosen: PenaltyChoice, given: sp.csr_array, together: Doubles, predicted: Doubles
    ) -> tuple[float, float]:
        """Return corruption and trust; those that are None by the ridge predictions of left-out images."""
        corruptions = CORRUPTIONS if self.corruption is None else (float(self.corruption),)
        trusts = TRUSTS if self.trust is None else (float(self.trust),)
        pairs = [(corruption, trust) for corruption in corruptions for trust in trusts]
        if len(pairs) == 1 or chosen.rows.size == 0:
            return pairs[len(pairs) // 2]
        tags = given[chosen.rows]
        maps = []
        for pair in pairs:
            scores = chosen.predicted @ completion(together, predicted, *pair).T
            maps.append(float(np.nanmean(average_precisions(scores, tags))))
        return pairs[int(np.argmax(maps))]


def completion(together: Doubles, predicted: Doubles, corruption: float, trust: float) -> Doubles:
    """Solve ``B (trust Q + S - M) = trust P`` for the map B, (n_tags, n_tags), that completes tag lists.

    `together` is S (n_tags, n_tags), images with both tags; `predicted` is M (n_tags, n_tags), the ridge predictions of
    one tag summed over the images with another. B is 0 in rows and columns of tags that no image has. Raises UserError
    if `trust` is so small that only roundings are left to solve.
    """
    kept = 1 - corruption
    counts = np.diag(together)
    left = trust * kept**2 * together + together - predicted
    left[np.diag_indices_from(left)] += trust * kept * corruption * counts + (counts == 0)
    try:
        factor = cho_factor(left, lower=True, overwrite_a=True)
    except LinAlgError as error:
        raise UserError(
            f"trust is {trust:g}, too small beside the roundings of the predictions. Take a larger trust or alpha."
        ) from error
    solved: Doubles = cho_solve(factor, trust * kept * together).T
    return solved
