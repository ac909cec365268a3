"""What models over kernels share: images as values of a kernel with the training images, named or made elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import check_number, check_size
from visterm.core.errors import DataError, ShapeError, UnknownNameError, UserError
from visterm.core.learned import Array, DenseOrCsr, Kind, Number
from visterm.core.registry import unknown
from visterm.core.types import Matrix
from visterm.encoders.landmarks import KERNELS, Landmarks, landmark_columns
from visterm.models.linear.base import LinearAnnotator

if TYPE_CHECKING:
    from sklearn.utils import Tags

KEPT_KERNELS = tuple(name for name in KERNELS if name != "linear")  # Kernels for which the model keeps training images
MAX_KERNEL_BYTES = 2**33

UNEVEN = 1e-3
"""How far a kernel and its transpose may differ, as a share of the largest value: the rounding of other programs."""


@dataclass(kw_only=True, eq=False, repr=False)
class KernelAnnotator(LinearAnnotator):
    """A model that is linear in features, in values of a named kernel with training images, or in such made elsewhere.

    Attributes
    ----------
    gamma_ : float
        ``γ`` of the kernel; 0 for kernels without.
    landmarks_ : array or CSR of float32, shape (n_features, n_support)
        With "rbf" to "hellinger": the support vectors, as the kernel compares them.
    """

    kernel: str = "linear"
    gamma: float | None = None
    n_jobs: int | None = None

    learned: ClassVar[dict[str, Kind]] = {
        "gamma_": Number(least=0, required=False),
        "landmarks_": DenseOrCsr("float32", ("n_features_in_", "n_inputs"), empty=True, required=False),
        "tag_rows_": Array("float32", ("n_tags_", "n_inputs + 1"), required=False),
        "weights_": Array("float32", ("n_inputs", "n_tags_"), empty=True, required=False),
    }

    def _comparison(self, X: Matrix) -> Callable[[Matrix], Matrix]:
        """Return the function from features to what the scores are linear in: themselves, or values with `X`."""
        n = X.shape[0]
        self.gamma_ = 0.0
        if self.kernel == "linear":
            return lambda rows: rows
        check_size(24 * n * n, MAX_KERNEL_BYTES, f"The kernel of {n} training images", 'Use kernel="linear".')
        if self.kernel == "precomputed":
            _check_square(X)
            return _dense
        landmarks = Landmarks(self.kernel, landmark_columns(self.kernel, X))
        if KERNELS[self.kernel].common:
            self.gamma_ = float(self.gamma or landmarks.usual_gamma(X, self.n_jobs))
        return lambda rows: landmarks.values(rows, self.gamma_, self.n_jobs)

    def _keep_support(self, X: Matrix) -> None:
        """Keep the features of the training images that the model compares others with."""
        self.landmarks_ = landmark_columns(self.kernel, X)
        self._support()

    def _kernel_values(self, X: Matrix) -> NDArray[np.float32]:
        """Compare checked features with the support vectors."""
        return self._support().values(X, self.gamma_, self.n_jobs)

    def _support(self) -> Landmarks:
        """Open the support vectors, once for each set of them."""
        if getattr(self, "_opened_columns", None) is not self.landmarks_:
            self._opened = Landmarks(self.kernel, self.landmarks_)
            self._opened_columns = self.landmarks_
        return self._opened

    def _check_learned(self) -> None:
        super()._check_learned()
        kept = self.kernel in KEPT_KERNELS
        if hasattr(self, "landmarks_") != kept or (kept and not hasattr(self, "gamma_")):
            raise DataError(f"landmarks_ and gamma_ do not go with kernel={self.kernel!r}")
        n_inputs = self.tag_rows_.shape[1] - 1 if hasattr(self, "tag_rows_") else len(self.weights_)
        if not kept and n_inputs != self.n_features_in_:
            raise DataError(f"There are weights of {n_inputs} features; expected {self.n_features_in_}")

    def write_steps(self, steps: Any, x: str) -> str:
        """Add the steps from features to scores, as `WritesSteps` says."""
        if self.kernel != "linear":
            raise UserError(f"With kernel='{self.kernel}' scores are no sum over features. Use kernel='linear'.")
        return super().write_steps(steps, x)

    def _scorer(self, x: Matrix, tag: int) -> tuple[NDArray[np.float64], float]:
        if self.kernel in KEPT_KERNELS:
            raise UserError(f"With kernel='{self.kernel}' scores are no sum over features. Use kernel='linear'.")
        return super()._scorer(x, tag)

    def _check_kernel(self) -> None:
        known = ["linear", *KEPT_KERNELS, "precomputed"]
        if self.kernel not in known:
            raise UnknownNameError(unknown("kernel", str(self.kernel), known))
        check_number(self.gamma, "gamma", above=0, otherwise="or None")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags


def _check_square(K: Matrix) -> None:
    """Refuse what cannot be the kernel of the training images with each other."""
    if K.shape[0] != K.shape[1]:
        raise ShapeError(
            f'X is {K.shape[0]} × {K.shape[1]}; with kernel="precomputed" expected the square kernel of the '
            "training images with each other."
        )
    uneven, largest = float(abs(K - K.T).max()), float(abs(K).max())
    if uneven > UNEVEN * largest:
        raise DataError(
            f"X and its transpose differ by {uneven:.3g}, and the largest value is {largest:.3g}; with "
            'kernel="precomputed" expected the kernel of the training images with each other, both in one order.'
        )


def _dense(matrix: Any) -> NDArray[np.float32]:
    array: NDArray[np.float32] = matrix.toarray() if sp.issparse(matrix) else matrix
    return array
