"""What comes into rows and into searches of them, checked: matrices, queries and ids."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import all_finite, as_csr, check_k
from visterm.core.errors import DataError, ShapeError
from visterm.core.types import Matrix


class Question(NamedTuple):
    """What a search is asked, checked.

    Attributes
    ----------
    Q : array or CSR, shape (n_queries, width)
    k : int
        At most as many as there are rows.
    among : ndarray of int64 or None
        Sorted, none twice.
    """

    Q: Matrix
    k: int
    among: NDArray[np.int64] | None


def checked_question(q: Any, k: int, among: Any, n_rows: int, width: int | None) -> Question:
    """Check the arguments of a search among so many rows of a width; None: each shard looks whether a query fits it.

    Raises
    ------
    ShapeError
        If `q` is not as wide as the rows.
    DataError
        If `q` is not finite, or `among` are no whole numbers.
    """
    Q = as_queries(q)
    check_width(Q, width, "q")
    return Question(Q, check_k(k, n_rows), None if among is None else as_ids(among))


def check_width(rows: Matrix, width: int | None, name: str) -> None:
    """Refuse rows of another width than those that are there."""
    if width is not None and rows.shape[1] != width:
        raise ShapeError(
            f"{name} has {rows.shape[1]} columns, but the rows of this store have {width}. "
            "Rows and queries must come from the same model."
        )


def as_rows(matrix: Any, name: str) -> Matrix:
    """Return rows as C-contiguous float32 or canonical CSR; what is so already is not copied.

    Raises
    ------
    ShapeError
        If `matrix` does not have two dimensions.
    DataError
        If it is not numeric or not finite.
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


def as_queries(q: Any) -> Matrix:
    """Return query rows as `as_rows` does; a vector is one of them."""
    return as_rows(q if sp.issparse(q) else np.atleast_2d(np.asarray(q)), "q")


def as_ids(among: Any) -> NDArray[np.int64]:
    """Return ids as sorted int64, none twice.

    Raises
    ------
    DataError
        If they are no whole numbers.
    """
    ids = np.asarray(among)
    if ids.size and ids.dtype.kind not in "iu":
        raise DataError(f"The ids to search among are of {ids.dtype}; expected whole numbers.")
    ids = ids.astype(np.int64, copy=False).ravel()
    return ids if (np.diff(ids) > 0).all() else np.unique(ids)
