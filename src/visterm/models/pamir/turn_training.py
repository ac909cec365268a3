"""Epochs over (image, tag) pairs one after the other, by passive-aggressive steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.types import Matrix
from visterm.kernels.passive_aggressive import rank_in_turn
from visterm.kernels.rows import row_squares
from visterm.models.ranking.feature_steps import Floats
from visterm.models.ranking.new_tags import image_rows
from visterm.models.ranking.pair_training import EpochSums


class TurnTraining:
    """The state of one training in turn: examples and weights.

    Parameters
    ----------
    X : array or CSR of float32, shape (n_images, width)
        Features with whatever constant column stands for the bias.
    own : csr_array, shape (n_images, n_tags)
        Stored entries are the tags that images have; canonical.
    tag_rows : ndarray of float32, shape (n_tags, width)
        Changed in place.
    rng : Generator
        For the order of the examples and the key of the draws.
    """

    def __init__(self, X: Matrix, own: sp.csr_array, tag_rows: Floats, *, rng: np.random.Generator) -> None:
        self._rows, self._W, self._rng = image_rows(X), tag_rows, rng
        self._squares = np.empty(X.shape[0], np.float32)
        row_squares(self._rows, self._squares)
        self._own_start, self._own_tags = own.indptr.astype(np.int64), own.indices
        self._images = np.repeat(np.arange(own.shape[0]), np.diff(own.indptr))
        self._tags = own.indices.astype(np.int64)
        self._seed = int(rng.integers(2**62))
        self._epoch = 0

    def run_epoch(self, rate: float) -> EpochSums:
        """Visit every example once, in an order drawn anew; `rate` is the longest step."""
        order = self._rng.permutation(self._tags.size)
        sums = rank_in_turn(
            order, self._images[order], self._tags[order], self._own_start, self._own_tags, self._rows,
            self._squares, rate, self._seed, self._epoch, self._W,
        )  # fmt: skip
        self._epoch += 1
        n = max(1, order.size)
        return EpochSums(*(float(value) / n for value in sums))

    def carried(self) -> dict[str, NDArray[Any]]:
        """Return what training on other rows shall go on with: nothing but the weights."""
        return {}

    def go_on(self, carried: dict[str, NDArray[Any]]) -> None:
        """Take over nothing."""
