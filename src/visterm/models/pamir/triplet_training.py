"""Epochs over triplets (query, relevant image, other image), drawn one after the other, by passive-aggressive steps."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_csr
from visterm.core.types import Matrix
from visterm.kernels.triplets import rank_triplets
from visterm.models.ranking.feature_steps import Floats
from visterm.models.ranking.new_tags import image_rows
from visterm.models.ranking.pair_training import EpochSums


class TripletTraining:
    """The state of one training on queries: what is relevant, and weights.

    Queries without words, and those to which no image or every image is relevant, are left out: they order nothing.

    Parameters
    ----------
    X : array or CSR of float32, shape (n_images, width)
        Features with whatever constant column stands for the bias, which never moves: it is in both images.
    weights : csr_array of float32, shape (n_queries, n_words)
        Weights of the words.
    relevant : csr_array, shape (n_queries, n_images)
        Stored entries say which images are relevant; canonical.
    tag_rows : ndarray of float32, shape (n_words, width)
        Changed in place.
    rng : Generator
        For the key of the draws.

    Attributes
    ----------
    n_pairs : int
        Pairs of a query that is used and an image relevant to it: the triplets of an epoch.
    """

    def __init__(
        self, X: Matrix, weights: sp.csr_array, relevant: sp.csr_array, tag_rows: Floats, *, rng: np.random.Generator
    ) -> None:
        self._take_queries(weights, relevant, rng)
        self._rows, self._n_images, self._W = image_rows(X), X.shape[0], tag_rows
        self._scratch = np.zeros(tag_rows.shape[1], np.float32)

    def run_epoch(self, rate: float) -> EpochSums:
        """Draw as many triplets as there are pairs of query and relevant image; `rate` is the longest step."""
        loss, n_moved = self.run(self.n_pairs, rate)
        n = max(1, self.n_pairs)
        return EpochSums(loss / n, 1.0, n_moved / n)

    def run(self, n_steps: int, rate: float) -> tuple[float, int]:
        """Draw so many triplets; give the sum of their losses and how many made a step."""
        loss, n_moved = self._steps(n_steps, rate)
        self._epoch += 1
        return float(loss), int(n_moved)

    def _take_queries(self, weights: sp.csr_array, relevant: sp.csr_array, rng: np.random.Generator) -> None:
        """Keep the queries that order something, and choose the key of the draws."""
        used = np.flatnonzero(self._orders_something(relevant) & (np.diff(weights.indptr) > 0))
        weights, relevant = as_csr(weights[used]), as_csr(relevant[used])
        self._queries = weights.indptr.astype(np.int64), weights.indices, weights.data
        self._relevant, self._gains = (relevant.indptr.astype(np.int64), relevant.indices), relevant.data
        self.n_pairs = int(relevant.nnz)
        self._seed = int(rng.integers(2**62))
        self._epoch = 0

    def _orders_something(self, relevant: sp.csr_array) -> NDArray[np.bool_]:
        n_relevant = np.diff(relevant.indptr)
        some: NDArray[np.bool_] = (n_relevant > 0) & (n_relevant < relevant.shape[1])
        return some

    def _steps(self, n_steps: int, rate: float) -> tuple[float, int]:
        total, n_moved = rank_triplets(
            n_steps, *self._queries, *self._relevant, self._rows, self._n_images, rate, self._seed, self._epoch,
            self._W, self._scratch,
        )  # fmt: skip
        return total, n_moved
