"""What all embedding models share: a linear map of images and a row a tag, compared in one space of `dim` numbers."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import DataError
from visterm.core.learned import Array, Kind, Number
from visterm.core.types import Matrix
from visterm.models.explaining import LinearScores


class EmbeddingAnnotator(LinearScores):
    """Scores a tag by ``(x · image_map_) · tag_rows_[tag]``; a new model writes `_fit`.

    Attributes
    ----------
    image_map_ : ndarray of float32, shape (n_features, dim)
    tag_rows_ : ndarray of float32, shape (n_tags, dim) or (n_tags, dim + 1)
    constant_ : float
        One more coordinate of all image rows, where tag rows have one more.
    """

    image_map_: NDArray[np.float32]
    tag_rows_: NDArray[np.float32]
    constant_: float = 0.0

    learned: ClassVar[dict[str, Kind]] = {
        "image_map_": Array("float32", ("n_features_in_", "dim")),
        "tag_rows_": Array("float32", ("n_tags_", "width")),
        "constant_": Number(least=0, required=False),
    }

    def _check_learned(self) -> None:
        super()._check_learned()
        dim, width = self.image_map_.shape[1], self.tag_rows_.shape[1]
        if width not in (dim, dim + 1):
            raise DataError(f"tag_rows_ has {width} columns and image_map_ {dim}; expected as many, or one more")

    def _image_rows(self, X: Matrix) -> Matrix:
        rows = np.asarray(X @ self.image_map_, np.float32)
        if self.tag_rows_.shape[1] == rows.shape[1]:
            return rows
        return np.hstack([rows, np.full((len(rows), 1), self.constant_, np.float32)])

    def _scorer(self, tag: int) -> tuple[NDArray[np.float64], float]:
        dim = self.image_map_.shape[1]
        row = self.tag_rows_[tag].astype(np.float64)
        return self.image_map_.astype(np.float64) @ row[:dim], self.constant_ * float(row[dim:].sum())
