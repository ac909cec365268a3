"""Read feature blocks, which are columns that belong together, and compute squared distances of rows."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from visterm.core.errors import UserError
from visterm.core.products import dense
from visterm.core.types import Doubles, Matrix
from visterm.models.base import Blocks


def read_blocks(blocks: Blocks | None, n_features: int) -> list[slice]:
    """Return the columns of each block of the setting `blocks`.

    None: one block of all features. Integers: the widths of adjacent blocks, whose sum is the number of features.
    Pairs: (start, stop) columns, which may overlap and leave columns out. Raises UserError for other values, or if
    they don't match the features.
    """
    if blocks is None:
        return [slice(0, n_features)]
    check_blocks(blocks)
    bounds = np.asarray(blocks, np.int64)
    if bounds.ndim == 1:
        if bounds.sum() != n_features:
            expected = f"widths with the sum {n_features}, or pairs (start, stop) of columns"
            raise UserError(setting="blocks", value=blocks, expected=expected)
        return [slice(*pair) for pair in pairwise([0, *np.cumsum(bounds).tolist()])]
    if bounds.max() > n_features:
        raise UserError(setting="blocks", value=blocks, expected=f"columns of X, which has {n_features}")
    return [slice(start, stop) for start, stop in bounds.tolist()]


def check_blocks(blocks: object) -> None:
    """Raise UserError if a setting `blocks` is invalid for any number of features."""
    if blocks is None:
        return
    entries = list(blocks) if isinstance(blocks, Iterable) and not isinstance(blocks, str) else []
    are_widths = all(_is_int(entry) and entry > 0 for entry in entries)
    are_pairs = all(
        isinstance(entry, list | tuple) and len(entry) == 2 and all(map(_is_int, entry)) and 0 <= entry[0] < entry[1]
        for entry in entries
    )
    if not entries or not (are_widths or are_pairs):
        expected = "the widths of the blocks, such as (4096, 512), or pairs (start, stop) of columns"
        raise UserError(setting="blocks", value=blocks, expected=expected)


def _is_int(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def row_squares(X: Matrix) -> Doubles:
    """Return the squared length of each row, summed in float64."""
    if isinstance(X, sp.sparray):
        return np.asarray(X.astype(np.float64).power(2).sum(axis=1))
    return np.asarray(np.einsum("ij,ij->i", X, X, dtype=np.float64))


def squared_distances(A: Matrix, B: Matrix) -> Doubles:
    """Return the squared Euclidean distances of rows, shape (n_a, n_b), from products in the dtype of the rows."""
    products = np.asarray(dense(A @ B.T), np.float64)
    distances: Doubles = row_squares(A)[:, None] + row_squares(B)
    distances -= np.multiply(products, 2, out=products)
    return np.maximum(distances, 0, out=distances)
