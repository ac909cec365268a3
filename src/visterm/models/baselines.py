"""A baseline for other models: the most frequent tags, the same for all images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from visterm.core.learned import Array, Kind
from visterm.core.types import Floats, Matrix
from visterm.models.base import Annotator


class Prior(Annotator):
    """Scores every tag by the share of training images that have it.

    A model that is not better than this baseline has learned nothing from the images. Explicit negatives are ignored.

    Attributes
    ----------
    tag_rows_ : ndarray of float32, shape (n_tags, 1)
        Share of the training images that have each tag; the row of every image is a 1.
    """

    tag_rows_: Floats

    learned: ClassVar[dict[str, Kind]] = {"tag_rows_": Array("float32", ("n_tags_", 1), least=0, most=1)}

    test_params: ClassVar[Mapping[str, object]] = {}

    def _fit(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator) -> None:
        counts = np.bincount(Y.indices[Y.data > 0], minlength=Y.shape[1])
        self.tag_rows_ = (counts[:, None] / Y.shape[0]).astype(np.float32)

    def _image_rows(self, X: Matrix) -> Matrix:
        return np.ones((X.shape[0], 1), np.float32)
