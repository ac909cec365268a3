"""What training asks of feature rows, a product forward and one back: dense ones through BLAS, sparse ones fused."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.types import Matrix
from visterm.kernels.numbered import add_steps, copy_rows
from visterm.kernels.rows import add_outer, embed, sparse_rows
from visterm.kernels.rules import Rule, move_rows

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

DENSE_SHARE = 128
"""Features whose weights one BLAS call moves: fixed, so that the bytes do not depend on the number of threads."""


class FeatureSteps(Protocol):
    """What Algorithm 1 asks of the image features: `embed` a block, and `move` the image map by it.

    Attributes
    ----------
    n_shares : int
        Parts of the features whose weights may be moved at the same time.
    grain : int
        See `ImageSide`.
    """

    n_shares: int
    grain: int

    def take(self, images: Ints) -> None:
        """Make a block of images the one that `embed` and `move` are about."""

    def embed(self, part: slice, image_map: Floats, out: Floats) -> None:
        """Put the embedded images of one part of the block into the first columns of `out`."""

    def move(self, share: int, active: Ints, steps: Floats, rule: Rule, squares: Floats, image_map: Floats) -> None:
        """Move one share of the map by Σ x · step over the active images of the block, as the rule says.

        `squares` (n_features,) is one plus the mean squares of each row's gradients; empty for SGD.
        """


class DenseSteps:
    """Dense rows: a matrix product forward and one back, each in pieces of fixed size."""

    grain = 1

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
        own = slice(share * DENSE_SHARE, (share + 1) * DENSE_SHARE)
        rows = self._rows[: self._n, own]
        gradients = counts = squares[:0]
        if squares.size:
            lengths = np.einsum("pc,pc->p", steps, steps) / np.float32(rule.rate**2 * max(1, steps.shape[1]))
            gradients = np.square(rows).T @ lengths
        if rule.keep < 1:
            counts = (rows != 0).astype(np.float32).T @ (active >= 0).astype(np.float32)
        move_rows(image_map[own], rows.T @ steps, gradients, counts, squares[own], rule)


class SparseSteps:
    """CSR rows: loops over the stored values; each share is a range of features with about as many of them."""

    grain = 1

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


class NumberedSteps:
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
