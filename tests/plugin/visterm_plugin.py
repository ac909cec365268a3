"""A package with parts of its own, as `docs/add_a_model.md` has it: what none of visterm's own parts is."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.learned import Array, Kind
from visterm.core.types import Matrix
from visterm.encoders import Encoder
from visterm.models import Annotator


class MeanColour(Encoder):
    """Mean red, green and blue of a photo, each 0 to 1: three numbers that know no places, quick to compute."""

    test_params: ClassVar[dict[str, Any]] = {}

    def _encode_batch(self, batch: list[NDArray[np.uint8]]) -> NDArray[np.float32]:
        return np.stack([pixels.mean(axis=(0, 1)) / 255 for pixels in batch]).astype(np.float32)


class LikelyTags(Annotator):
    """The chance of each tag among training photos, weighted by how near they are: scores that are probabilities.

    Attributes
    ----------
    photos_ : ndarray of float32, shape (n_photos, n_features)
        Rows of training photos, each of length 1.
    tag_rows_ : ndarray of float32, shape (n_tags, n_photos)
        1 where a photo has the tag.
    """

    photos_: NDArray[np.float32]
    tag_rows_: NDArray[np.float32]

    probabilities: ClassVar[bool] = True
    learned: ClassVar[dict[str, Kind]] = {
        "photos_": Array("float32", (None, "n_features_in_")),
        "tag_rows_": Array("float32", ("n_tags_", None), least=0, most=1),
    }
    test_params: ClassVar[dict[str, Any]] = {}

    def _fit(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator) -> None:
        self.photos_ = _of_length_1(X)
        self.tag_rows_ = (Y.toarray().T > 0).astype(np.float32)

    def _image_rows(self, X: Matrix) -> Matrix:
        weights = np.exp(20 * (_of_length_1(X) @ self.photos_.T))
        return (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)


def _of_length_1(X: Matrix) -> NDArray[np.float32]:
    rows = X.toarray() if sp.issparse(X) else np.asarray(X)
    return (rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)).astype(np.float32)
