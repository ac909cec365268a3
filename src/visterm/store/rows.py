"""Rows as matrices: what comes into a store and into its searches, checked; stacked, and their lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import all_finite, as_csr
from visterm.core.errors import DataError, ShapeError
from visterm.core.types import Matrix


def as_rows(matrix: Any, name: str) -> Matrix:
    """Return rows as C-contiguous float32 or canonical CSR; what is so already is not copied.

    Raises ShapeError if `matrix` does not have two dimensions; DataError if it is not numeric or not finite.
    """
    if sp.issparse(matrix):
        rows: Matrix = as_csr(matrix)
    else:
        try:
            rows = np.ascontiguousarray(matrix, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"{name} must be numbers, (n, width), not {type(matrix).__name__} of other things."
            ) from error
    if rows.ndim != 2:
        raise ShapeError(f"{name} has {rows.ndim} dimensions; expected 2, (n, width).")
    values: NDArray[np.float32] = rows.data if sp.issparse(rows) else rows  # type: ignore[assignment]
    if not all_finite(values):
        raise DataError(f"{name} contains NaN or infinity. Fit the model anew with a lower learning_rate.")
    return rows


def as_queries(q: Any, width: int | None = None) -> Matrix:
    """Return query rows as `as_rows` does; a vector is one of them.

    Raises ShapeError if they are not as wide as the rows to search (None: that is not known here); DataError if they
    are not numeric or not finite.
    """
    queries = as_rows(q if sp.issparse(q) else np.atleast_2d(np.asarray(q)), "q")
    if width is not None and queries.shape[1] != width:
        raise other_width("q", queries.shape[1], width)
    return queries


def other_width(name: str, n_columns: int, width: int) -> ShapeError:
    """Return the error of rows that are not as wide as those of the store."""
    return ShapeError(
        f"{name} has {n_columns} columns, but the rows of this store have {width}. "
        "Rows and queries must come from the same model."
    )


def as_ids(ids: Any) -> NDArray[np.int64]:
    """Return ids to search among as sorted int64, none twice. Raises DataError if they are no whole numbers."""
    found = np.asarray(ids)
    if found.size and found.dtype.kind not in "iu":
        raise DataError(f"The ids to search among are of {found.dtype}; expected whole numbers.")
    found = found.astype(np.int64, copy=False).ravel()
    return found if (np.diff(found) > 0).all() else np.unique(found)


def stack_rows(parts: Sequence[Matrix]) -> Matrix:
    """Put rows under each other: an array if all parts are, else CSR; (0, 0) if there are none."""
    if not parts:
        return np.empty((0, 0), np.float32)
    if len(parts) == 1:
        return parts[0]
    if any(sp.issparse(part) for part in parts):
        return sp.csr_array(sp.vstack([sp.csr_array(part) for part in parts], format="csr"))
    return np.concatenate(parts)


def row_lengths(rows: Matrix) -> NDArray[np.float32]:
    """Return the Euclidean length of each row."""
    if isinstance(rows, sp.csr_array):
        squares = np.asarray(rows.multiply(rows).sum(axis=1), np.float32).ravel()
    else:
        squares = np.asarray(np.einsum("ij,ij->i", rows, rows), np.float32)
    return np.sqrt(squares)
