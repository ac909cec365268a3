"""Distances of images to training images in feature blocks, by several kinds of distances."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_csr
from visterm.core.errors import UnknownNameError, UserError
from visterm.core.registry import unknown
from visterm.core.types import Matrix
from visterm.models import row_squares, unit_rows
from visterm_research.kernels.landmarks import Landmarks, landmark_columns

TILE_ROWS = 2048  # Number of training rows that are converted to float64 at a time


def read_distances(distances: Any, blocks: Any) -> list[str]:
    """Return the distance of each block from the setting `distances`: one name for all, or a list of names."""
    n_blocks = 1 if blocks is None else len(list(blocks))
    names = [distances] * n_blocks if isinstance(distances, str) else []
    if isinstance(distances, Iterable) and not isinstance(distances, str):
        names = list(distances)
    if len(names) != n_blocks:
        raise UserError(f"distances is {distances!r}; expected one name, or a list of {n_blocks}, one for each block.")
    for name in names:
        if not isinstance(name, str) or name not in DISTANCES:
            raise UnknownNameError(unknown("distance", str(name), list(DISTANCES)))
    return names


class Distance(Protocol):
    """Training rows of one block, in the form for comparing other rows with them."""

    def __init__(self, rows: Matrix) -> None:
        """Prepare the training rows."""

    def to(self, X: Matrix) -> NDArray[Any]:
        """Return the distances of the rows of `X` to all training rows, shape (n, n_training)."""


class Cosine:
    """``1 - cos(x, y)``; 1 for a row of zeros."""

    def __init__(self, rows: Matrix) -> None:
        self._rows = unit_rows(rows)

    def to(self, X: Matrix) -> NDArray[Any]:
        """Return the distances to all training rows."""
        distances: NDArray[Any] = np.maximum(1 - _products(unit_rows(X), self._rows), 0)
        return distances


class Euclidean:
    """``|x - y|``, from products in float64: in float32 the distances of near rows would be rounding errors."""

    def __init__(self, rows: Matrix) -> None:
        self._rows = rows
        self._squares = row_squares(rows)

    def to(self, X: Matrix) -> NDArray[Any]:
        """Return the distances to all training rows."""
        distances = np.empty((X.shape[0], self._rows.shape[0]))
        exact = X.astype(np.float64)
        for start in range(0, distances.shape[1], TILE_ROWS):
            tile = slice(start, start + TILE_ROWS)
            distances[:, tile] = _products(exact, self._rows[tile].astype(np.float64))
        distances *= -2
        distances += row_squares(X)[:, None]
        distances += self._squares
        return np.sqrt(np.maximum(distances, 0, out=distances), out=distances)


class Manhattan:
    """``Σ |x - y| = Σ |x| + Σ |y| - 2 Σ min(|x|, |y|)``, the last sum over features of equal sign."""

    def __init__(self, rows: Matrix) -> None:
        self._signs = Signs(rows)
        compared, _ = self._signs.split(rows)
        self._landmarks = Landmarks("intersection", landmark_columns("intersection", compared))
        self._lengths = compared.sum(axis=1, dtype=np.float64)

    def to(self, X: Matrix) -> NDArray[Any]:
        """Return the distances to all training rows."""
        compared, rest = self._signs.split(X)
        size_sums = (compared.sum(axis=1, dtype=np.float64) + rest)[:, None] + self._lengths
        distances: NDArray[Any] = np.maximum(size_sums - 2 * self._landmarks.values(compared, 0.0, 1), 0)
        return distances


class ChiSquare:
    """``Σ (x - y)² / (|x| + |y|)``."""

    def __init__(self, rows: Matrix) -> None:
        self._signs = Signs(rows)
        self._landmarks = Landmarks("chi2", landmark_columns("chi2", self._signs.split(rows)[0]))

    def to(self, X: Matrix) -> NDArray[Any]:
        """Return the distances to all training rows."""
        compared, rest = self._signs.split(X)
        return self._landmarks.distances(compared, 1) + rest[:, None]


class Signs:
    """Splits rows by sign: the distance of numbers with different signs is the sum of their absolute values.

    If no training row has a number below 0, negative numbers have nothing in common with training rows.
    """

    def __init__(self, rows: Matrix) -> None:
        self._has_negatives = float(rows.min()) < 0

    def split(self, X: Matrix) -> tuple[sp.csr_array, NDArray[np.float64]]:
        """Return non-negative rows to compare, and for each row the sum of the absolute values that they leave out."""
        rows = as_csr(X)
        positive, negative = as_csr(rows.maximum(0)), as_csr((-rows).maximum(0))
        if self._has_negatives:
            return as_csr(sp.hstack([positive, negative], format="csr")), np.zeros(rows.shape[0])
        return positive, np.asarray(negative.sum(axis=1, dtype=np.float64))


DISTANCES: dict[str, type[Distance]] = {"l1": Manhattan, "l2": Euclidean, "chi2": ChiSquare, "cosine": Cosine}


class BlockDistances:
    """The distances to training `rows` in several feature blocks: `names` are the distances of the blocks."""

    def __init__(self, rows: Matrix, blocks: Sequence[slice], names: Sequence[str]) -> None:
        self._blocks = blocks
        self._n_rows = rows.shape[0]
        self._parts = [DISTANCES[name](_columns(rows, block)) for name, block in zip(names, blocks, strict=True)]

    def to(self, X: Matrix) -> NDArray[np.float32]:
        """Return the distances of the rows of `X` in each block, shape (n_blocks, n, n_training)."""
        distances = np.empty((len(self._blocks), X.shape[0], self._n_rows), np.float32)
        for b, (part, block) in enumerate(zip(self._parts, self._blocks, strict=True)):
            distances[b] = part.to(_columns(X, block))
        return distances


def _columns(X: Matrix, block: slice) -> Matrix:
    is_all = block == slice(0, X.shape[1])
    if sp.issparse(X):
        return X if is_all else sp.csr_array(X[:, block])
    return X if is_all else np.ascontiguousarray(X[:, block])


def _products(X: Any, rows: Any) -> NDArray[Any]:
    products = X @ rows.T
    return np.asarray(products.toarray() if sp.issparse(products) else products)
