"""The image side of a block of pairs: compute image rows, and apply their steps, for dense or sparse features."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.types import Floats, Ints, Matrix
from visterm.kernels.row_moves import make_rule, move_rows
from visterm.kernels.rows import Rows, add_outer, add_steps, dense_rows, embed, sparse_rows

MIN_DENSITY = 0.1
"""Minimum share of values other than 0 to multiply features as dense arrays. Their storage does not matter, so that
dense and sparse rows with the same values are summed in the same order, and learn the same weights."""

SHARE_FEATURES = 128  # Features per BLAS call that updates weights; constant, for the same bytes on any threads


class StepSettings(NamedTuple):
    """How weights change on both sides of a pair."""

    block: int  # Number of pairs that use the same weights
    max_norm: float = math.inf  # Maximum norm of a row
    l2: float = 0.0  # Factor of ½ |row|² for the rows that a step changes
    adagrad: bool = False  # Whether to divide the rate by the root of 1 plus the row's summed mean squared gradients


class EmbeddedImages:
    """Images mapped into the joint space by a trained map (which is fixed if `trainable` is False).

    `image_map`, (n_features, dim), is the projection A; it is changed in place. `constant` is an additional coordinate
    of each image, for the bias in tag rows; 0 means no such coordinate. Training is equivalent to features multiplied
    by `scale`, without copying them: the map is the paper's times `scale`, so its steps are `scale`² times and its
    norms `scale` times as large.

    There are three kinds of features, independent of their storage. Dense rows use a matrix product for the image rows
    and another for the steps, each in pieces of fixed size. Sparse rows use loops over their values; each share is a
    range of features with about the same number of values. Rows with a single 1 are images known by number
    (`by_number`): each changes only its own row of the map.

    Attributes
    ----------
    U : ndarray of float32, shape (block, width)
        Image rows of the block; `rows` has the same rows in the form for kernels.
    steps : ndarray of float32, shape (block, dim) or (block, 0)
        Steps of the image rows, which the caller fills; without columns if the map is fixed.
    n_shares : int
        Number of parts that can be updated at the same time.
    grain : int
        Factor of the size of parts, larger if a pair is so little work that the overhead of calls matters.
    squares : ndarray of float32, shape (n_features,) or (0,)
        Sums of squared gradients for "adagrad".
    """

    rate: float = 0.0  # Learning rate of the steps
    U: Floats
    rows: Rows

    def __init__(
        self,
        X: Matrix,
        image_map: Floats,
        steps: StepSettings,
        *,
        scale: float,
        constant: float = 0.0,
        n_jobs: int,
        trainable: bool = True,
    ) -> None:
        n_features, dim = image_map.shape
        n_values = np.count_nonzero(X.data if sp.issparse(X) else X)
        is_dense = n_values >= MIN_DENSITY * X.shape[0] * n_features
        rows: Any = X if sp.issparse(X) or (is_dense and n_values != X.shape[0]) else sp.csr_array(X)
        self.by_number = sp.issparse(rows) and bool(np.all(np.diff(rows.indptr) == 1) and np.all(rows.data == 1))
        self._X, self._dense = rows, is_dense and not self.by_number
        if self._dense:
            self._block_features = np.empty((steps.block, n_features), np.float32)
            n_shares = -(-n_features // SHARE_FEATURES)
        else:
            self._sparse_features = sparse_rows(rows.data, rows.indices, rows.indptr)
            self._bounds = even_bounds(np.bincount(rows.indices, minlength=n_features), n_jobs)
            self._stamps, self._touched = np.zeros((2, n_features), np.int64)
            n_shares = n_jobs

        self.grain = 4 if self.by_number else 1
        self._stamp = 0
        self._A, self._l2, self._max_norm, self._scale = image_map, steps.l2, steps.max_norm * scale, scale
        self.squares = np.ones(n_features if steps.adagrad else 0, np.float32)
        self.U = np.full((steps.block, dim + (constant > 0)), constant, np.float32)
        self.rows = dense_rows(self.U)
        self.steps = np.zeros((steps.block, dim if trainable else 0), np.float32)
        self._numbers = np.arange(steps.block)
        self.n_shares = n_shares if trainable else 0

    def set_rate(self, rate: float, growth: float = 1.0) -> None:
        """Set the learning rate of the next epochs, and the factor of the maximum norm."""
        self.rate = rate * self._scale**2
        self._rule = make_rule(rate * self._scale, self._l2 / self._scale, self._max_norm * growth)

    def take(self, images: Ints) -> Ints:
        """Set the images of the next block; return their positions in `rows`, 0, 1, 2 and so on."""
        self._n = images.size
        self._stamp += 1
        if self._dense and sp.issparse(self._X):
            self._X[images].toarray(out=self._block_features[: self._n])
        elif self._dense:
            np.take(self._X, images, axis=0, out=self._block_features[: self._n])
        else:
            self._images = self._sparse_features.cols[images] if self.by_number else images
        return self._numbers[: self._n]

    def embed(self, part: slice) -> None:
        """Compute a part of `U`: map its images."""
        out = self.U[: self._n][part]
        if self._dense:
            np.matmul(self._block_features[: self._n][part], self._A, out=out[:, : self._A.shape[1]])
        elif self.by_number:
            out[:, : self._A.shape[1]] = self._A[self._images[part]]
        else:
            embed(self._sparse_features, self._images[part], self._A, out)

    def move(self, share: int, active: Ints) -> None:
        """Update one share of the map by Σ x · step over the block's images with `active` >= 0; other steps are 0."""
        steps, squares = np.ascontiguousarray(self.steps[: self._n, : self._A.shape[1]]), self.squares
        if self._dense:
            features = slice(share * SHARE_FEATURES, (share + 1) * SHARE_FEATURES)
            rows, rule = self._block_features[: self._n, features], self._rule
            gradients = counts = squares[:0]
            if squares.size:
                slopes = steps / np.float32(rule.rate)  # without the rate, which depends on the scale of features
                lengths = np.einsum("pc,pc->p", slopes, slopes) / np.float32(max(1, steps.shape[1]))
                gradients = np.square(rows).T @ lengths
            if rule.keep < 1:
                counts = (rows != 0).astype(np.float32).T @ (active >= 0).astype(np.float32)
            move_rows(self._A[features], rows.T @ steps, gradients, counts, squares[features], rule)
            return

        start, stop = self._bounds[share : share + 2]
        if self.by_number:
            add_steps(self._images, active, steps, start, stop, self._rule, squares, self._A)
            return
        add_outer(
            self._sparse_features, self._images, active, steps, start, stop, self._rule, squares,
            self._A, self._stamps, self._stamp, self._touched,
        )  # fmt: skip


def even_bounds(loads: NDArray[np.floating | np.integer], n_shares: int) -> Ints:
    """Split items into `n_shares` ranges of about the same load; return the start of each range, and the end."""
    cumulated = np.cumsum(loads)
    inner_bounds = np.searchsorted(cumulated, cumulated[-1] * np.arange(1, n_shares) / n_shares)
    return np.concatenate([[0], inner_bounds, [cumulated.size]]).astype(np.int64)
