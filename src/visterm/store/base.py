"""What every search of rows promises: ids in, the k best rows for a query row out; and the checks of what comes in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import all_finite, as_csr, check_k
from visterm.core.errors import DataError, ShapeError
from visterm.core.types import Matrix, Ranking


class SearchedRows(ABC):
    """Rows under ids, of which those with the largest dot products are found. `_search` gets checked arguments."""

    def search(self, q: Any, k: int = 10, *, among: Any = None) -> Ranking:
        """Find the rows with the largest dot products.

        Parameters
        ----------
        q : array-like or CSR, shape (width,) or (n_queries, width)
            Query rows, as `Annotator.query_rows` gives them.
        k : int
            How many; 0 means all.
        among : array-like of int, optional
            Ids: only their rows are searched, each exactly. Those that are not in the store are left out.

        Returns
        -------
        Ranking
            Ids of rows and scores, shape (n_queries, min(k, n_rows)) with n_rows those searched, best first, ties by
            the smaller id. A store that searches approximately may miss a few; the scores are right.

        Raises
        ------
        ShapeError
            If `q` is not as wide as the rows.
        DataError
            If `q` is not finite, or `among` are no whole numbers.
        """
        Q = as_queries(q)
        self._check_width(Q, "q")
        return self._search(Q, check_k(k, len(self)), None if among is None else as_ids(among))

    @abstractmethod
    def __len__(self) -> int:
        """Give the number of rows."""

    @property
    @abstractmethod
    def width(self) -> int | None:
        """Columns of the rows; None before the first `add`."""

    @abstractmethod
    def _search(self, Q: Matrix, k: int, among: NDArray[np.int64] | None) -> Ranking:
        """Find the `k` best for each checked query row, `k` at most ``len(self)``; `among` is sorted, none twice."""

    def _check_width(self, rows: Matrix, name: str) -> None:
        if self.width is not None and rows.shape[1] != self.width:
            raise ShapeError(
                f"{name} has {rows.shape[1]} columns, but the rows of this store have {self.width}. "
                "Rows and queries must come from the same model."
            )


def as_rows(matrix: Any, name: str) -> Matrix:
    """Give rows as C-contiguous float32 or canonical CSR; what is so already is not copied.

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
    """Give query rows as `as_rows` does; a vector is one of them."""
    return as_rows(q if sp.issparse(q) else np.atleast_2d(np.asarray(q)), "q")


def as_ids(among: Any) -> NDArray[np.int64]:
    """Give ids as sorted int64, none twice.

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
