"""Base class of linear ranking models: a weight vector and a bias per tag, and features scaled to a mean length."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from visterm.core.checks import check_number
from visterm.core.learned import Array, Kind, Number
from visterm.core.types import Doubles, Floats, Matrix
from visterm.encoders.onnx_graph import GraphSteps
from visterm.models.abilities import explain_linear
from visterm.models.base import Limit
from visterm.models.epochs import Weights, mean_length
from visterm.models.linear.base import with_ones
from visterm.models.ranking.ranker import PairRanker


@dataclass(kw_only=True, eq=False, repr=False)
class LinearRanker(PairRanker):
    """One linear scorer per tag, trained on pairs; a new model implements `_training` and `_rate`.

    The space is that of the features, ``u = [x, 1]`` and ``v = [w, b]``, so image rows stay valid when the model learns
    more. In training, the features are multiplied by `scale_`, which follows from `row_length`.

    Attributes
    ----------
    tag_rows_ : ndarray of float32, shape (n_tags, n_features + 1)
        Weights, followed by the bias.
    scale_ : float
        The factor that scales the training rows to the length `row_length`.
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

    explain = explain_linear

    def _scorer(self, x: Matrix, tag: int) -> tuple[Doubles, float]:
        row = self.tag_rows_[tag].astype(np.float64)
        return row[:-1], float(row[-1])

    def _image_rows(self, X: Matrix) -> Matrix:
        return with_ones(X)

    def write_steps(self, steps: GraphSteps, x: str) -> str:
        """Add the steps from features to scores, see `WritesSteps`."""
        return str(steps.affine(x, self.tag_rows_[:, :-1].T, self.tag_rows_[:, -1]))

    def _scale_features(self, X: Matrix) -> None:
        self.scale_ = self.row_length / (mean_length(X) or 1.0)

    def _scaled(self, X: Matrix) -> Matrix:
        return with_ones(X * np.float32(self.scale_))

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
