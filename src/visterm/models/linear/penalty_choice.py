"""The penalty of a ridge regression, chosen by leaving training images out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.types import Matrix
from visterm.metrics.ranking import average_precisions
from visterm.models.linear.normal_equations import leave_one_out

ALPHAS = tuple(10.0 ** (step / 2) for step in range(4, -7, -1))
"""Penalties tried, from strong to weak, in units of the features' mean squared length."""

CHOICE_ROWS = 2000
"""At most so many images choose the penalty: the time grows with their cube, and the best penalty hardly with them."""


class PenaltyChoice(NamedTuple):
    """What was chosen, and what it predicts for images that were left out.

    Attributes
    ----------
    alpha : float
        1 where nothing could be judged.
    rows : ndarray of int64, shape (n,)
        The images that were left out in turn; none where nothing could be judged.
    predicted : ndarray of float64, shape (n, n_tags)
    """

    alpha: float
    rows: NDArray[np.int64]
    predicted: NDArray[np.float64]


def choose_penalty(
    X: Matrix, given: sp.csr_array, scale: float, rng: np.random.Generator, alphas: Sequence[float] = ALPHAS
) -> PenaltyChoice:
    """Find the penalty that ranks the tags of left-out images best (MAP over images), going from strong to weak.

    Parameters
    ----------
    X : array or CSR of float32, shape (n_images, n_features)
    given : csr_array of float32, shape (n_images, n_tags)
        Ones where a tag is given.
    scale : float
        Penalties are ``alpha · scale``.
    rng : Generator
        Draws the images that choose, where there are more than 2,000.
    alphas : sequence of float
        The first that is not better than the one before ends the search.
    """
    rows = np.sort(rng.permutation(X.shape[0])[:CHOICE_ROWS])
    some, tags = X[rows], given[rows]
    best = PenaltyChoice(alphas[0] if len(alphas) == 1 else 1.0, rows[:0], np.empty((0, given.shape[1])))
    if rows.size < 3 or tags.nnz == 0 or tags.shape[1] < 2:
        return best
    best_map = -1.0
    for alpha, predicted in leave_one_out(some, tags, alphas, scale=scale):
        found = float(np.nanmean(average_precisions(predicted, tags)))
        if found <= best_map:
            break
        best, best_map = PenaltyChoice(alpha, rows, predicted), found
    return best
