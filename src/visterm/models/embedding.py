"""What all embedding models share: a linear map of images and a row a tag, compared in one space of `dim` numbers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from visterm.core.types import Matrix
from visterm.models.base import Annotator


class EmbeddingAnnotator(Annotator):
    """Scores a tag by ``(x · image_map_) · tag_rows_[tag]``; a new model writes `_fit`.

    Attributes
    ----------
    image_map_ : ndarray of float32, shape (n_features, dim)
    tag_rows_ : ndarray of float32, shape (n_tags, dim)
    """

    image_map_: NDArray[np.float32]
    tag_rows_: NDArray[np.float32]

    def _image_rows(self, X: Matrix) -> Matrix:
        return np.asarray(X @ self.image_map_, np.float32)
