"""What each feature of an image contributes to the score of a tag, for models that are linear in the features."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import ShapeError, UserError
from visterm.core.estimator import check_fitted
from visterm.core.types import Matrix
from visterm.models.base import Annotator


class FeatureShares(NamedTuple):
    """A score taken apart: ``Σ shares + constant + elsewhere``."""

    shares: NDArray[np.float64]  # shape (n_features,): the image's features times `weights`
    weights: NDArray[np.float64]  # shape (n_features,): what the tag's score gains with each feature
    constant: float  # What the tag scores on an image without any feature: its bias
    elsewhere: float = 0.0
    """From members of a blend whose scores are no sums over features, because they compare whole images."""


class LinearScores(Annotator):
    """An annotator whose scores are ``x · w_tag + b_tag``; a new one writes `_scorer`."""

    def explain(self, x: Any, tag: int) -> FeatureShares:
        """Return what each feature of an image `x`, (1, n_features), contributes to the score of a tag (a column).

        The shares sum to the score of `decision_function`, up to its rounding to float32. Raises ShapeError if `x` is
        not one image; UserError if there is no such tag, or the score is not linear after all: that of an `Ensemble`
        with another model in it.
        """
        check_fitted(self)
        x = self._check_features(x)
        if x.shape[0] != 1:
            raise ShapeError(f"x has {x.shape[0]} rows; expected one image, shape (1, {self.n_features_in_}).")
        if not 0 <= tag < self.n_tags_:
            raise UserError(f"tag is {tag}; expected a column of Y, from 0 to {self.n_tags_ - 1}.")
        weights, constant = self._scorer(x, int(tag))
        row = np.asarray(x.toarray() if sp.issparse(x) else x, np.float64)[0]
        return FeatureShares(row * weights, weights, constant)

    @abstractmethod
    def _scorer(self, x: Matrix, tag: int) -> tuple[NDArray[np.float64], float]:
        """Return the weights of the features, shape (n_features,), and the bias of a tag, as they are for image `x`."""
