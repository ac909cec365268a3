"""Two models to compare others with: the most frequent tags whatever the image shows, and least squares."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.learned import Array, Kind
from visterm.core.threads import one_blas_thread
from visterm.core.types import Matrix
from visterm.models.base import Annotator
from visterm.models.linear.base import LinearAnnotator, check_weight_size
from visterm.models.linear.normal_equations import fit_ridge


class Prior(Annotator):
    """Scores every tag by the share of training images that have it.

    A model whose figures are not above these has learned nothing from the images. Explicit negatives count as
    not given.

    Attributes
    ----------
    tag_rows_ : ndarray of float32, shape (n_tags, 1)
        Share of the training images that have each tag; the row of every image is a 1.
    """

    tag_rows_: NDArray[np.float32]

    learned: ClassVar[dict[str, Kind]] = {"tag_rows_": Array("float32", ("n_tags_", 1), least=0, most=1)}

    test_params: ClassVar[dict[str, Any]] = {}

    def _fit(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator) -> None:
        counts = np.bincount(Y.indices[Y.data > 0], minlength=Y.shape[1])
        self.tag_rows_ = (counts[:, None] / Y.shape[0]).astype(np.float32)

    def _image_rows(self, X: Matrix) -> Matrix:
        return np.ones((X.shape[0], 1), np.float32)


class LeastSquares(LinearAnnotator):
    """Predicts for each tag 1 where it is given and 0 where not, by least squares with an intercept.

    `Ridge` without its penalty: minimises ``Σ (x · w + b - y)²`` for all tags at once, and where many weights do, takes
    the shortest. Where features are as many as images it learns the noise too; it is there to compare with. Explicit
    negatives count as not given.

    Attributes
    ----------
    tag_rows_, weights_, intercept_
        As in `LinearAnnotator`.
    """

    test_params: ClassVar[dict[str, Any]] = {}

    def _fit(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator) -> None:
        check_weight_size(X.shape[1], Y.shape[1], "Least-squares")
        with one_blas_thread():
            fitted = fit_ridge(X, sp.csr_array(Y > 0, dtype=np.float32), 0.0)
        self._keep(fitted.weights, fitted.intercept, X)
