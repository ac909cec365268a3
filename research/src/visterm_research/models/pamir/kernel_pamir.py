"""PAMIR over a kernel: weights of training images, trained on queries like linear PAMIR."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import check_choice
from visterm.core.errors import DataError, UserError
from visterm.core.learned import Array, Kind
from visterm.core.threads import one_blas_thread
from visterm.core.types import Matrix
from visterm.data import Queries
from visterm.models import Floats, JudgedImages, Pamir, TripletTraining, check_weight_size, with_ones
from visterm_research.kernels.kernel_triplets import rank_triplets_by_kernel
from visterm_research.models.kernel_rows import (
    KEPT_KERNELS,
    KERNEL_LEARNED,
    check_kernel,
    check_support,
    keep_support,
    kernel_values,
    kernel_with,
    refuse_kernel,
)


@dataclass(kw_only=True, eq=False, repr=False)
class KernelPamir(Pamir):
    """PAMIR with ``w_t = Σ_j α_tj p_j`` over the training images: ``w_t · p`` is ``Σ_j α_tj k(p_j, p)``.

    A step changes two numbers for each word of the query (section III-E). The space is that of the kernel values, ``u =
    [k(p_1, p), ..., k(p_n, p), 1]`` and ``v = [α, b]``, with a column for each training image with a weight, so
    `partial_fit` is not available. The loss is "triplet".

    Parameters
    ----------
    kernel : {"rbf", "chi2", "intersection", "hellinger", "precomputed"}
        How images are compared; "chi2", "intersection" and "hellinger" are for histograms. "precomputed": `X` is the
        kernel with the training images, (n, n_images), and symmetric in `fit`. The kernel of n training images takes
        4 n² bytes in training.
    gamma : float, optional
        ``γ`` of "rbf" and "chi2". None: 1 / mean distance between training images.
    others
        As in `Pamir`; `aggressiveness` is for a kernel with the mean 1 on the diagonal.

    Attributes
    ----------
    tag_rows_ : ndarray of float32, shape (n_tags, n_support + 1)
        Weights of training images, followed by the bias.
    scale_ : float
        The factor of the kernel for `row_length`.
    gamma_, landmarks_
        As in `Svm`.

    References
    ----------
    Grangier, Bengio: A discriminative kernel-based model to rank images from text queries. PAMI 30, 2008; section
    III-E.
    """

    test_params: ClassVar[Mapping[str, object]] = {"epochs": 20, "gamma": 2.0}

    learned: ClassVar[dict[str, Kind]] = KERNEL_LEARNED | {"tag_rows_": Array("float32", ("n_tags_", "n_inputs + 1"))}

    kernel: str = "rbf"
    gamma: float | None = None

    partial_fit: ClassVar[None] = None  # type: ignore[assignment]  # each training image is a coordinate of all rows

    def _learn(
        self, X: Matrix, positives: sp.csr_array, queries: Queries, rng: Any, validation: Any, *others: Any
    ) -> None:
        """Learn from the kernel of the images, and keep the images with a weight."""
        with one_blas_thread():
            kernel_inputs = kernel_with(self, X)
            K = kernel_inputs(X)
            if validation is not None:
                validation = JudgedImages(kernel_inputs(validation.X), validation.queries)
        super()._learn(K, positives, queries, rng, validation, *others)
        if self.kernel in KEPT_KERNELS:
            support = np.flatnonzero(self.tag_rows_[:, :-1].any(axis=0))
            keep_support(self, X[support])
            self.tag_rows_ = np.ascontiguousarray(self.tag_rows_[:, [*support, -1]])

    def _triplets(self, X: Matrix, images: Any, queries: Queries, weights: Floats, rng: Any) -> TripletTraining:
        rows = np.arange(X.shape[0]) if images is None else images
        K = np.asarray(X)
        return KernelTripletTraining(K, rows, queries.words, queries.relevant, weights, scale=self.scale_, rng=rng)

    def _scale_features(self, X: Matrix) -> None:
        check_weight_size(X.shape[1], self.n_tags_, "PAMIR")
        square = float(np.trace(np.asarray(X), dtype=np.float64)) / X.shape[0]
        if square < 0:
            raise DataError(
                f"The diagonal of the training images' kernel is {square:.3g} on average; expected squared lengths, "
                "0 or more."
            )
        self.scale_ = self.row_length**2 / (square or 1.0)

    def _image_rows(self, X: Matrix) -> Matrix:
        return with_ones(kernel_values(self, X) if self.kernel in KEPT_KERNELS else X)

    def write_steps(self, steps: Any, x: str) -> str:
        """Raise UserError: scores are not sums over features."""
        refuse_kernel(self)
        return x

    def _scorer(self, x: Matrix, tag: int) -> tuple[NDArray[np.float64], float]:
        refuse_kernel(self, "precomputed")
        return super()._scorer(x, tag)

    def _check_learned(self) -> None:
        super()._check_learned()
        check_support(self, self.tag_rows_.shape[1] - 1)

    def _check_settings(self) -> None:
        check_choice(self.kernel, "kernel", [*KEPT_KERNELS, "precomputed"])
        check_kernel(self)
        if self.loss != "triplet":
            expected, advice = "triplet", "Or use the model pamir, which has the other losses."
            raise UserError(setting="loss", value=self.loss, expected=expected, advice=advice)


class KernelTripletTraining(TripletTraining):
    """`TripletTraining` in the dual form: weights of training images, with all their scores in memory.

    `K` is the symmetric kernel of all images, which is multiplied by `scale`. `images` are the rows of the training
    images, and columns of `relevant` are positions in `images`. Held-out images have columns of weights that stay 0, so
    the weights match the rows of K. `tag_rows`, (n_words, n_images + 1), are zeros at the start, and are changed in
    place except for the last column.
    """

    def __init__(
        self,
        K: Floats,
        images: NDArray[np.int64],
        weights: sp.csr_array,
        relevant: sp.csr_array,
        tag_rows: Floats,
        *,
        scale: float,
        rng: np.random.Generator,
    ) -> None:
        self._store_queries(weights, relevant, rng)
        self._K, self._images, self._scale, self._A = np.ascontiguousarray(K), images, scale, tag_rows
        self._F = np.zeros((len(tag_rows), len(K)), np.float32)

    def _steps(self, n_steps: int, rate: float) -> tuple[float, int]:
        total, n_moved = rank_triplets_by_kernel(
            n_steps,
            self._queries,
            self._K,
            self._images,
            self._scale,
            rate,
            (self._seed, self._epoch),
            self._A,
            self._F,
        )
        return total, n_moved
