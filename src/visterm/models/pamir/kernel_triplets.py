"""Epochs over triplets of a query and two images that are known only by their kernel with all training images."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.kernels.kernel_triplets import rank_triplets_by_kernel
from visterm.models.pamir.triplet_training import TripletTraining
from visterm.models.ranking.feature_steps import Floats


class KernelTripletTraining(TripletTraining):
    """`TripletTraining` in the dual: weights of training images, and all their scores beside the kernel.

    Parameters
    ----------
    K : ndarray of float32, shape (n_images, n_images)
        The kernel of the training images, symmetric.
    images : ndarray of int64, shape (n,)
        Those learned from; the others, held out, get no weight. As the weights of both are columns of one array, what
        is learned applies to rows of K as they are.
    weights : csr_array of float32, shape (n_queries, n_words)
        Weights of the words.
    relevant : csr_array, shape (n_queries, n)
        Stored entries say which of `images` are relevant, by their place there; canonical.
    tag_rows : ndarray of float32, shape (n_words, n_images + 1)
        Zeros at the start; changed in place, but for the last column.
    scale : float
        The kernel meant is `scale` times K.
    rng : Generator
        For the key of the draws.
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
        self._take_queries(weights, relevant, rng)
        self._K, self._images, self._scale, self._A = np.ascontiguousarray(K), images, scale, tag_rows
        self._F = np.zeros((len(tag_rows), len(K)), np.float32)

    def _steps(self, n_steps: int, rate: float) -> tuple[float, int]:
        total, n_moved = rank_triplets_by_kernel(
            n_steps, *self._queries, *self._relevant, self._K, self._images, self._scale, rate, self._seed, self._epoch,
            self._A, self._F,
        )  # fmt: skip
        return total, n_moved
