"""Base class of the linear models: a weight vector and a bias per tag, stored in the space with the smaller width."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import check_size
from visterm.core.errors import DataError
from visterm.core.learned import Array, Kind
from visterm.core.products import product
from visterm.core.types import Doubles, Floats, Matrix
from visterm.encoders.onnx_graph import GraphSteps
from visterm.models.abilities import explain_linear
from visterm.models.base import Annotator

MAX_WEIGHT_BYTES = 2**33


class LinearAnnotator(Annotator):
    """Scores a tag by ``x · w + b``; a new model implements `_fit`, which calls `_keep`.

    With sparse features, or fewer features than tags, the space is that of the features: ``u = [x, 1]``, ``v = [w,
    b]``, so an image's row is as short as its features. Otherwise it is tag space: ``u`` is the row of scores.


    Attributes
    ----------
    tag_rows_ : ndarray of float32, shape (n_tags, n_features + 1)
        Only in feature space: weights, followed by the bias.
    weights_ : ndarray of float32, shape (n_features, n_tags)
        Only in tag space.
    intercept_ : ndarray of float32, shape (n_tags,)
        Only in tag space.
    """

    learned: ClassVar[dict[str, Kind]] = {
        "tag_rows_": Array("float32", ("n_tags_", "n_features_in_ + 1"), required=False),
        "weights_": Array("float32", ("n_features_in_", "n_tags_"), required=False),
        "intercept_": Array("float32", ("n_tags_",), required=False),
    }

    explain = explain_linear

    def _keep(self, weights: Floats, intercept: Floats, X: Matrix) -> None:
        """Set the attributes learned from `X`: weights (n_features, n_tags) and intercept (n_tags,)."""
        if sp.issparse(X) or weights.shape[0] < weights.shape[1]:
            self.tag_rows_ = np.ascontiguousarray(np.vstack([weights, intercept]).T)
        else:
            self.weights_ = np.ascontiguousarray(weights)
            self.intercept_ = intercept

    def _image_rows(self, X: Matrix) -> Matrix:
        if hasattr(self, "tag_rows_"):
            return with_ones(X)
        return np.asarray(product(X, self.weights_) + self.intercept_, np.float32)

    def write_steps(self, steps: GraphSteps, x: str) -> str:
        """Add the steps from features to scores, see `WritesSteps`."""
        if hasattr(self, "tag_rows_"):
            return str(steps.affine(x, self.tag_rows_[:, :-1].T, self.tag_rows_[:, -1]))
        return str(steps.affine(x, self.weights_, self.intercept_))

    def _check_learned(self) -> None:
        super()._check_learned()
        names = {name for name in ("tag_rows_", "weights_", "intercept_") if hasattr(self, name)}
        if names not in ({"tag_rows_"}, {"weights_", "intercept_"}):
            raise DataError(f"There are {sorted(names)}; expected tag_rows_, or weights_ and intercept_")

    def _scorer(self, x: Matrix, tag: int) -> tuple[Doubles, float]:
        if hasattr(self, "tag_rows_"):
            row = self.tag_rows_[tag].astype(np.float64)
            return row[:-1], float(row[-1])
        return self.weights_[:, tag].astype(np.float64), float(self.intercept_[tag])


def with_ones(X: Matrix) -> Matrix:
    """Append a column of ones, for the bias."""
    ones = np.ones((X.shape[0], 1), np.float32)
    return sp.csr_array(sp.hstack([X, ones], format="csr")) if sp.issparse(X) else np.hstack([X, ones])


def check_weight_size(n_features: int, n_tags: int, name: str) -> None:
    """Raise TooLargeError if weights, with the normal equations to solve for them, would take more than 8 GiB."""
    check_size(
        12 * n_features * n_tags,
        MAX_WEIGHT_BYTES,
        f"{name} weights of {n_features} features × {n_tags} tags, with their products,",
        "Use a model with an embedding (wsabie), or leave out rare tags.",
    )
