"""The image's side of a block of pairs: rows to score with, and the steps that they take back, dense or sparse."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.types import Matrix
from visterm.kernels.row_moves import make_rule, move_rows
from visterm.kernels.rows import Rows, add_outer, add_steps, copy_rows, dense_rows, embed, sparse_rows
from visterm.models.epochs import Floats

Ints = NDArray[np.int64]

FILLED = 0.1
"""Share of values that are not 0 from which on features are multiplied as arrays, however they are stored: sums have
one order, so that dense and sparse rows of the same values learn the same."""

DENSE_SHARE = 128  # Features whose weights one BLAS call moves: fixed, so that the bytes depend on no number of threads


class StepSettings(NamedTuple):
    """How weights move on both sides of a pair."""

    block: int  # Pairs that share one state of the weights
    max_norm: float = math.inf  # Longest row
    l2: float = 0.0  # Factor of ½ |row|² for the rows that a step moves
    adagrad: bool = False  # Whether the rate is divided by the root of one plus the mean squares that a row has seen


class EmbeddedImages:
    """Images mapped into the joint space, by a map that learns (unless `moving` is False).

    `image_map`, (n_features, dim), is the projection A; it is changed in place. `constant` is one more coordinate of
    each image, for tag rows that have one more; 0 is none. With `scale`, training goes as if the features were
    multiplied by it, without a copy of them: the map is then the paper's times `scale`, so its steps are `scale`
    squared and its norms `scale` times as large.

    Features are of three kinds, whatever they are stored as. Rows with many values that are not 0 take a matrix product
    forward and one back, each in pieces of fixed size. Others take loops over these values; each share is a range of
    features with about as many of them. Rows that are 1 in one place are images known by number (`by_number`): each
    alone moves its row of the map.

    Attributes
    ----------
    U : ndarray of float32, shape (block, width)
        Image rows of the block; `rows` are the same for the kernels.
    steps : ndarray of float32, shape (block, dim) or (block, 0)
        Steps of the image rows, for the block to fill; no columns where they do not move.
    n_shares : int
        Parts that may be moved at the same time.
    grain : int
        How much larger parts are, where a pair is so little work that the calls would count.
    squares : ndarray of float32, shape (n_features,) or (0,)
        What "adagrad" slows the steps of the map down by.
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
        moving: bool = True,
    ) -> None:
        n_features, dim = image_map.shape
        n_values = np.count_nonzero(X.data if sp.issparse(X) else X)
        filled = n_values >= FILLED * X.shape[0] * n_features
        csr: Any = X if sp.issparse(X) or (filled and n_values != X.shape[0]) else sp.csr_array(X)
        self.by_number = sp.issparse(csr) and bool(np.all(np.diff(csr.indptr) == 1) and np.all(csr.data == 1))
        self._X, self._dense = csr, filled and not self.by_number
        if self._dense:
            self._block_features = np.empty((steps.block, n_features), np.float32)
            n_shares = -(-n_features // DENSE_SHARE)
        else:
            self._features = sparse_rows(csr.data, csr.indices, csr.indptr)
            self._bounds = even_bounds(np.bincount(csr.indices, minlength=n_features), n_jobs)
            self._stamps, self._touched = np.zeros((2, n_features), np.int64)
            n_shares = n_jobs

        self.grain = 4 if self.by_number else 1
        self._stamp = 0
        self._A, self._l2, self._max_norm, self._scale = image_map, steps.l2, steps.max_norm * scale, scale
        self.squares = np.ones(n_features if steps.adagrad else 0, np.float32)
        self.U = np.full((steps.block, dim + (constant > 0)), constant, np.float32)
        self.rows = dense_rows(self.U)
        self.steps = np.zeros((steps.block, dim if moving else 0), np.float32)
        self._numbers = np.arange(steps.block)
        self.n_shares = n_shares if moving else 0

    def set_rate(self, rate: float, growth: float = 1.0) -> None:
        """Set the learning rate of the epochs to come, and the factor of their longest rows."""
        self.rate = rate * self._scale**2
        self._rule = make_rule(rate * self._scale, self._l2 / self._scale, self._max_norm * growth)

    def take(self, images: Ints) -> Ints:
        """Choose the images of the block that comes next; return which of `rows` each is, numbers from 0 on."""
        self._n = images.size
        self._stamp += 1
        if self._dense and sp.issparse(self._X):
            self._X[images].toarray(out=self._block_features[: self._n])
        elif self._dense:
            np.take(self._X, images, axis=0, out=self._block_features[: self._n])
        else:
            self._images = self._features.cols[images] if self.by_number else images
        return self._numbers[: self._n]

    def embed(self, part: slice) -> None:
        """Bring a part of `U` up to date: map its images."""
        out = self.U[: self._n][part]
        if self._dense:
            np.matmul(self._block_features[: self._n][part], self._A, out=out[:, : self._A.shape[1]])
        elif self.by_number:
            copy_rows(self._A, self._images[part], out)
        else:
            embed(self._features, self._images[part], self._A, out)

    def move(self, share: int, active: Ints) -> None:
        """Move one share of the map by Σ x · step over the active images of the block; steps are 0 where not active."""
        steps, squares = np.ascontiguousarray(self.steps[: self._n, : self._A.shape[1]]), self.squares
        if self._dense:
            features = slice(share * DENSE_SHARE, (share + 1) * DENSE_SHARE)
            rows, rule = self._block_features[: self._n, features], self._rule
            gradients = counts = squares[:0]
            if squares.size:
                slopes = steps / np.float32(rule.rate)  # before they are squared, as rates follow the size of features
                lengths = np.einsum("pc,pc->p", slopes, slopes) / np.float32(max(1, steps.shape[1]))
                gradients = np.square(rows).T @ lengths
            if rule.keep < 1:
                counts = (rows != 0).astype(np.float32).T @ (active >= 0).astype(np.float32)
            move_rows(self._A[features], rows.T @ steps, gradients, counts, squares[features], rule)
            return
        first, last = self._bounds[share : share + 2]
        if self.by_number:
            add_steps(self._images, active, steps, first, last, self._rule, squares, self._A)
            return
        add_outer(
            self._features, self._images, active, steps, first, last, self._rule, squares,
            self._A, self._stamps, self._stamp, self._touched,
        )  # fmt: skip


def even_bounds(loads: NDArray[np.floating | np.integer], n_shares: int) -> Ints:
    """Cut numbered things into ranges of about the same load: where each of the `n_shares` begins, and the end."""
    total = np.cumsum(loads)
    inner = np.searchsorted(total, total[-1] * np.arange(1, n_shares) / n_shares)
    return np.concatenate([[0], inner, [total.size]]).astype(np.int64)
