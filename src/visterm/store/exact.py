"""Exact search: every row is compared with the query, block by block, in memory or memory-mapped."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import DataError
from visterm.core.types import Matrix, Ranking
from visterm.store.base import Store
from visterm.store.parts import Part, best_of


class ExactStore(Store):
    """Keeps rows as they come, dense or CSR, and compares each with the query.

    Only the best are kept, of dense rows as they are scored and of sparse ones block by block. Rows in a memory map are
    read from there, search after search.
    """

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._width: int | None = None

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    @property
    def width(self) -> int | None:
        """Columns of the rows; None before the first `add`."""
        return self._width

    def _add(self, ids: NDArray[np.int64], U: Matrix) -> None:
        for part in self._parts:
            twice = np.intersect1d(ids, part.ids, assume_unique=True)
            if twice.size:
                raise DataError(f"The id {twice[0]} is in the store already ({twice.size} of the ids given are).")
        if (np.diff(ids) < 0).any():  # rows in the order of their ids: equal scores then fall to the smaller id
            order = np.argsort(ids)
            ids, U = ids[order], U[order]
        self._parts.append(Part(ids, U))
        self._width = U.shape[1]

    def _search(self, Q: Matrix, k: int, among: NDArray[np.int64] | None) -> Ranking:
        return best_of(self._parts, Q, k, among)
