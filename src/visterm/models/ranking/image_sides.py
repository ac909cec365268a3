"""The image's side of a block of pairs: rows to score with, and the steps that they take back, dense or sparse."""

from __future__ import annotations

from typing import Any

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

DENSE_SHARE = 128
"""Features whose weights one BLAS call moves: fixed, so that the bytes do not depend on the number of threads."""


class ImageSide:
    """What training in blocks asks of the image's side; here nothing moves."""

    U: Floats  # shape (block, width) or (0, 0). Image rows of the block, where they are held as an array.
    rows: Rows  # Image rows, for the kernels
    steps: Floats
    """shape (block, width) or (block, 0). Steps of the image rows, for the block to fill; no
    columns where they do not move."""
    rate: float = 0.0  # Learning rate of the steps
    growth: float = 1.0  # Factor of the longest rows
    n_shares: int = 0  # Parts that may be moved at the same time
    grain: int = 1  # How much larger parts are, where a pair is so little work that the calls would count
    squares: Floats  # shape (n_features,) or (0,). What "adagrad" slows the steps of the map down by.
    tabled: bool = False
    """Whether all scores of a few pairs may be made by one product. Not for linear scorers: dense rows have to learn
    the same as sparse ones, from the same draws."""
    marked: bool = False  # Whether it pays to mark the tags that violate: for sparse rows of linear scorers

    def set_rate(self, rate: float) -> None:
        """Take the learning rate of the epochs to come."""

    def take(self, images: Ints) -> Ints:
        """Make a block of images the one that all is about; return which of `rows` each is."""
        raise NotImplementedError

    def embed(self, part: slice) -> None:
        """Bring a part of `U` up to date."""

    def move(self, share: int, active: Ints) -> None:
        """Take one share of the steps of the active images."""


class EmbeddedImages(ImageSide):
    """Images mapped into the joint space, by a map that learns (unless `moving` is False).

    `image_map`, (n_features, dim), is the matrix V of the WSABIE paper, transposed; it is changed in place. `constant`
    is one more coordinate of each image, for tag rows that have one more; 0 is none. With `scale`, training goes as if
    the features were multiplied by it, without a copy of them: the map is then the paper's times `scale`, so its steps
    are `scale` squared and its norms `scale` times as large.

    Features are of three kinds, whatever they are stored as. Rows with many values that are not 0 take a matrix product
    forward and one back, each in pieces of fixed size. Others take loops over these values; each share is a range of
    features with about as many of them. Rows that are 1 in one place are images known by number (`by_number`): each
    alone moves its row of the map.
    """

    tabled = True

    def __init__(
        self,
        X: Matrix,
        image_map: Floats,
        *,
        block: int,
        l2: float,
        max_norm: float,
        adagrad: bool,
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
            self._taken = np.empty((block, n_features), np.float32)
            n_shares = -(-n_features // DENSE_SHARE)
        else:
            self._features = sparse_rows(csr.data, csr.indices, csr.indptr)
            self._bounds = even_bounds(np.bincount(csr.indices, minlength=n_features), n_jobs)
            self._stamps, self._touched = np.zeros((2, n_features), np.int64)
            n_shares = n_jobs
        self.grain = 4 if self.by_number else 1
        self._stamp = 0
        self._image_map, self._l2, self._max_norm, self._scale = image_map, l2, max_norm * scale, scale
        self.squares = np.ones(n_features if adagrad else 0, np.float32)
        self.U = np.full((block, dim + (constant > 0)), constant, np.float32)
        self.rows = dense_rows(self.U)
        self.steps = np.zeros((block, dim if moving else 0), np.float32)
        self._numbers = np.arange(block)
        self.n_shares = n_shares if moving else 0

    def set_rate(self, rate: float) -> None:
        """Take the learning rate of the epochs to come."""
        self.rate = rate * self._scale**2
        in_the_papers_unit = rate * self._scale
        self._rule = make_rule(in_the_papers_unit, self._l2 / self._scale, self._max_norm * self.growth)

    def take(self, images: Ints) -> Ints:
        """Return the images of the block numbers from 0 on; dense rows are copied together."""
        self._n = images.size
        self._stamp += 1
        if self._dense and sp.issparse(self._X):
            self._X[images].toarray(out=self._taken[: self._n])
        elif self._dense:
            np.take(self._X, images, axis=0, out=self._taken[: self._n])
        else:
            self._images = self._features.cols[images] if self.by_number else images
        return self._numbers[: self._n]

    def embed(self, part: slice) -> None:
        """Map the images of this part."""
        out = self.U[: self._n][part]
        if self._dense:
            np.matmul(self._taken[: self._n][part], self._image_map, out=out[:, : self._image_map.shape[1]])
        elif self.by_number:
            copy_rows(self._image_map, self._images[part], out)
        else:
            embed(self._features, self._images[part], self._image_map, out)

    def move(self, share: int, active: Ints) -> None:
        """Move one share of the map by Σ x · step over the active images of the block; steps are 0 where not active."""
        steps, squares = self._image_steps(), self.squares
        if self._dense:
            self._move_dense(slice(share * DENSE_SHARE, (share + 1) * DENSE_SHARE), active, steps)
            return
        first, last = self._bounds[share : share + 2]
        if self.by_number:
            add_steps(self._images, active, steps, first, last, self._rule, squares, self._image_map)
            return
        add_outer(
            self._features, self._images, active, steps, first, last, self._rule, squares,
            self._image_map, self._stamps, self._stamp, self._touched,
        )  # fmt: skip

    def _move_dense(self, features: slice, active: Ints, steps: Floats) -> None:
        """Multiply these columns of the block's rows by the steps."""
        rows, rule = self._taken[: self._n, features], self._rule
        gradients = counts = self.squares[:0]
        if self.squares.size:
            slopes = steps / np.float32(rule.rate)  # before they are squared, as rates follow the size of features
            lengths = np.einsum("pc,pc->p", slopes, slopes) / np.float32(max(1, steps.shape[1]))
            gradients = np.square(rows).T @ lengths
        if rule.keep < 1:
            counts = (rows != 0).astype(np.float32).T @ (active >= 0).astype(np.float32)
        move_rows(self._image_map[features], rows.T @ steps, gradients, counts, self.squares[features], rule)

    def _image_steps(self) -> Floats:
        """Return the steps of the block's images."""
        return self.steps[: self._n]


class PlainImages(ImageSide):
    """Images as their features, with whatever constant column stands for the bias: nothing on this side learns."""

    def __init__(self, X: Matrix, block: int) -> None:
        self.steps = np.zeros((block, 0), np.float32)
        self.squares = np.empty(0, np.float32)
        self._X = X
        self._dense = not sp.issparse(X)
        self.U = np.empty((block, X.shape[1]) if self._dense else (0, 0), np.float32)
        csr: Any = X
        self.rows = dense_rows(self.U) if self._dense else sparse_rows(csr.data, csr.indices, csr.indptr)
        # Marking reads all weights once a block: it pays if the block's rows have as many values as a tag has weights
        self.marked = not self._dense and block * csr.nnz >= X.shape[0] * X.shape[1]
        self._numbers = np.arange(block)

    def take(self, images: Ints) -> Ints:
        """Copy the rows of the block together; sparse ones stay where they are."""
        if not self._dense:
            return images
        np.take(self._X, images, axis=0, out=self.U[: images.size])
        return self._numbers[: images.size]


def even_bounds(loads: NDArray[Any], n_shares: int) -> Ints:
    """Cut numbered things into ranges of about the same load: where each of the `n_shares` begins, and the end."""
    total = np.cumsum(loads)
    inner = np.searchsorted(total, total[-1] * np.arange(1, n_shares) / n_shares)
    return np.concatenate([[0], inner, [total.size]]).astype(np.int64)
