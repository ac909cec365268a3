"""The image's side of a block of pairs: rows to score with, and the steps that they take back, dense or sparse."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.types import Matrix
from visterm.kernels.row_moves import Rule, make_rule, move_rows
from visterm.kernels.rows import Rows, add_outer, add_steps, copy_rows, dense_rows, embed, sparse_rows
from visterm.models.epochs import Floats

Ints = NDArray[np.int64]

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
    n_shares: int = 0  # Parts that may be moved at the same time
    grain: int = 1  # How much larger parts are, where a pair is so little work that the calls would count
    squares: Floats  # shape (n_features,) or (0,). What "adagrad" slows the steps of the map down by.
    tabled: bool = False
    """Whether all scores of a few pairs may be made by one product. Not for linear scorers: sparse rows would be slower
    by it, and dense ones have to learn the same from the same draws."""

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
        dim = image_map.shape[1]
        self._features = feature_steps(X, block, n_jobs)
        self.grain = self._features.grain
        self._image_map, self._l2, self._max_norm, self._scale = image_map, l2, max_norm * scale, scale
        self.squares = np.ones(image_map.shape[0] if adagrad else 0, np.float32)
        self.U = np.full((block, dim + (constant > 0)), constant, np.float32)
        self.rows = dense_rows(self.U)
        self.steps = np.zeros((block, dim if moving else 0), np.float32)
        self._numbers = np.arange(block)
        self.n_shares = self._features.n_shares if moving else 0

    def set_rate(self, rate: float) -> None:
        """Take the learning rate of the epochs to come."""
        self.rate = rate * self._scale**2
        in_the_papers_unit = rate * self._scale
        self._rule = make_rule(in_the_papers_unit, self._l2 / self._scale, self._max_norm)

    def take(self, images: Ints) -> Ints:
        """Return the images of the block numbers from 0 on."""
        self._features.take(images)
        self._n = images.size
        return self._numbers[: images.size]

    def embed(self, part: slice) -> None:
        """Map the images of this part."""
        self._features.embed(part, self._image_map, self.U[: self._n][part])

    def move(self, share: int, active: Ints) -> None:
        """Move one share of the map."""
        self._features.move(share, active, self._image_steps(), self._rule, self.squares, self._image_map)

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
        self._numbers = np.arange(block)

    def take(self, images: Ints) -> Ints:
        """Copy the rows of the block together; sparse ones stay where they are."""
        if not self._dense:
            return images
        np.take(self._X, images, axis=0, out=self.U[: images.size])
        return self._numbers[: images.size]


class FeatureSteps(ABC):
    """What Algorithm 1 asks of the image features: `embed` a block, and `move` the image map by it."""

    n_shares: int  # Parts of the features whose weights may be moved at the same time
    grain: int = 1  # See `ImageSide`

    @abstractmethod
    def take(self, images: Ints) -> None:
        """Make a block of images the one that `embed` and `move` are about."""

    @abstractmethod
    def embed(self, part: slice, image_map: Floats, out: Floats) -> None:
        """Put the embedded images of one part of the block into the first columns of `out`."""

    @abstractmethod
    def move(self, share: int, active: Ints, steps: Floats, rule: Rule, squares: Floats, image_map: Floats) -> None:
        """Move one share of the map by Σ x · step over the active images of the block, as the rule says.

        `steps` are 0 where not active; `squares` (n_features,) is one plus the mean squares of each row's gradients,
        empty for SGD.
        """


class DenseSteps(FeatureSteps):
    """Dense rows: a matrix product forward and one back, each in pieces of fixed size."""

    def __init__(self, X: Floats, block: int) -> None:
        self._X = X
        self._rows = np.empty((block, X.shape[1]), np.float32)
        self.n_shares = -(-X.shape[1] // DENSE_SHARE)

    def take(self, images: Ints) -> None:
        """Copy the rows of the block together."""
        self._n = images.size
        np.take(self._X, images, axis=0, out=self._rows[: self._n])

    def embed(self, part: slice, image_map: Floats, out: Floats) -> None:
        """Multiply the rows by the map."""
        np.matmul(self._rows[: self._n][part], image_map, out=out[:, : image_map.shape[1]])

    def move(self, share: int, active: Ints, steps: Floats, rule: Rule, squares: Floats, image_map: Floats) -> None:
        """Multiply the rows' columns of this share by the steps; `steps` are 0 where not active."""
        features = slice(share * DENSE_SHARE, (share + 1) * DENSE_SHARE)
        rows = self._rows[: self._n, features]
        gradients = counts = squares[:0]
        if squares.size:
            lengths = np.einsum("pc,pc->p", steps, steps) / np.float32(rule.rate**2 * max(1, steps.shape[1]))
            gradients = np.square(rows).T @ lengths
        if rule.keep < 1:
            counts = (rows != 0).astype(np.float32).T @ (active >= 0).astype(np.float32)
        move_rows(image_map[features], rows.T @ steps, gradients, counts, squares[features], rule)


class SparseSteps(FeatureSteps):
    """CSR rows: loops over the stored values; each share is a range of features with about as many of them."""

    def __init__(self, X: sp.csr_array, n_shares: int) -> None:
        self._rows = sparse_rows(X.data, X.indices, X.indptr)
        self._bounds = _even_bounds(X, n_shares)
        self._stamps = np.zeros(X.shape[1], np.int64)
        self._touched = np.empty(X.shape[1], np.int64)
        self._stamp = 0
        self.n_shares = n_shares

    def take(self, images: Ints) -> None:
        """Remember the block; its rows stay where they are."""
        self._images = images
        self._stamp += 1

    def embed(self, part: slice, image_map: Floats, out: Floats) -> None:
        """Sum the map's rows of each image's features."""
        embed(self._rows, self._images[part], image_map, out)

    def move(self, share: int, active: Ints, steps: Floats, rule: Rule, squares: Floats, image_map: Floats) -> None:
        """Add to the map's rows of this range of features."""
        first, last = self._bounds[share], self._bounds[share + 1]
        add_outer(
            self._rows, self._images, active, steps, first, last, rule, squares,
            image_map, self._stamps, self._stamp, self._touched,
        )  # fmt: skip


class NumberedSteps(FeatureSteps):
    """Rows that are 1 in one place: images known by number, each the only one that moves its row of the map."""

    grain = 4

    def __init__(self, X: sp.csr_array, n_shares: int) -> None:
        self._number_of = X.indices
        self._bounds = _even_bounds(X, n_shares)
        self.n_shares = n_shares

    def take(self, images: Ints) -> None:
        """Look up the numbers of the block."""
        self._numbers = self._number_of[images]

    def embed(self, part: slice, image_map: Floats, out: Floats) -> None:
        """Copy the rows of the map together."""
        copy_rows(image_map, self._numbers[part], out)

    def move(self, share: int, active: Ints, steps: Floats, rule: Rule, squares: Floats, image_map: Floats) -> None:
        """Add to the map's rows of this range of numbers."""
        first, last = self._bounds[share], self._bounds[share + 1]
        add_steps(self._numbers, active, steps, first, last, rule, squares, image_map)


def feature_steps(X: Matrix, block: int, n_jobs: int) -> FeatureSteps:
    """Choose the products that fit the features."""
    if not sp.issparse(X):
        return DenseSteps(X, block)
    rows = sp.csr_array(X)
    by_number = np.all(np.diff(rows.indptr) == 1) and np.all(rows.data == 1)
    return NumberedSteps(rows, n_jobs) if by_number else SparseSteps(rows, n_jobs)


def _even_bounds(X: sp.csr_array, n_shares: int) -> Ints:
    """Cut the features into ranges with about as many stored values."""
    n_features = X.shape[1]
    stored = np.cumsum(np.bincount(X.indices, minlength=n_features))
    inner = np.searchsorted(stored, X.nnz * np.arange(1, n_shares) / n_shares)
    return np.concatenate([[0], inner, [n_features]]).astype(np.int64)
