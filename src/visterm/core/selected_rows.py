"""Some rows of an array, which are copied only in the parts that are read."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.types import Floats, Ints


class SelectedRows:
    """The rows of an array at some positions: an index copies some of them, and `np.asarray` all.

    There are no products, as those with parts of the rows would round differently on some processors.
    """

    def __init__(self, X: Floats, positions: Ints) -> None:
        self.X, self.positions, self.shape = X, positions, (positions.size, X.shape[1])

    def __getitem__(self, key: Any) -> NDArray[Any]:
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        positions = self.positions[rows]
        return self.X[positions if isinstance(columns, slice) else positions[:, None], columns]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self.X[self.positions], dtype)


def selected(X: Any, positions: Ints) -> Any:
    """Return rows of an array or of `SelectedRows` without a copy, and those of CSR as CSR."""
    if isinstance(X, SelectedRows):
        return SelectedRows(X.X, X.positions[positions])
    return SelectedRows(X, positions) if isinstance(X, np.ndarray) else X[positions]


def copied(X: Any) -> Any:
    """Return a copy of `SelectedRows`, and any other matrix as it is."""
    return np.asarray(X) if isinstance(X, SelectedRows) else X
