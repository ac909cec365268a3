"""What the linear ranking models share: a weight vector and a bias a tag, and features of one mean length."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import check_number
from visterm.core.learned import Array, Kind, Number
from visterm.core.types import Matrix
from visterm.models.base import Limit
from visterm.models.epochs import Floats, Weights
from visterm.models.linear.base import LinearAnnotator
from visterm.models.ranking.base import RankingAnnotator
from visterm.models.ranking.embedding_ranking import mean_length


@dataclass(kw_only=True, eq=False, repr=False)
class LinearRanker(RankingAnnotator, LinearAnnotator):
    """One linear scorer a tag, trained on pairs; a new model writes `_training` and `_rate`.

    The space is that of the features, ``u = [x, 1]`` and ``v = [w, b]``, so that image rows stay valid whatever is
    learned later. In training the features are multiplied by `scale_`, which `row_length` chooses.

    Attributes
    ----------
    tag_rows_ : ndarray of float32, shape (n_tags, n_features + 1)
        Weights, then the bias.
    scale_ : float
        The factor that brings the training rows to `row_length`.
    """

    row_length: float = 1.0

    learned: ClassVar[dict[str, Kind]] = {
        "tag_rows_": Array("float32", ("n_tags_", "n_features_in_ + 1")),
        "scale_": Number(above=0),
    }

    limits: ClassVar[dict[str, Limit]] = {
        "row_length": partial(check_number, above=0),
        "aggressiveness": partial(check_number, above=0),
    }

    def _scale_features(self, X: Matrix) -> None:
        self.scale_ = self.row_length / (mean_length(X) or 1.0)

    def _scaled(self, X: Matrix) -> Matrix:
        """Return ``[scale_ · x, 1]``."""
        ones = np.ones((X.shape[0], 1), np.float32)
        X = X * np.float32(self.scale_)
        if sp.issparse(X):
            return sp.csr_array(sp.hstack([X, ones], format="csr"), dtype=np.float32)
        return np.ascontiguousarray(np.hstack([X, ones]), np.float32)

    def _start(self, X: Matrix, n_tags: int, rng: np.random.Generator) -> Weights:
        return (np.zeros((n_tags, X.shape[1] + 1), np.float32),)

    def _resume(self) -> Weights:
        rows = self.tag_rows_.copy()
        rows[:, :-1] /= np.float32(self.scale_)
        return (rows,)

    def _publish(self, *weights: Floats, images: bool = True) -> None:
        rows = weights[0].copy()
        rows[:, :-1] *= np.float32(self.scale_)
        self.tag_rows_ = rows
