"""Approximate search: large dense parts through an index by faiss, scored exactly; all else as the exact store."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.types import Matrix
from visterm.store.exact import ExactStore
from visterm.store.row_index import RowIndex, build_index

INDEX_FROM = 100_000
"""Rows from which on an index pays: below, reading all of them takes a few milliseconds."""

ASKED = 100
"""Queries that an index is measured on."""


class FaissStore(ExactStore):
    """An exact store that asks an index first where it holds many dense rows.

    An index names rows that may be among the best; they are scored as exact search does. A few of the best may be
    missed: it is measured how many, and where that is more than the index is worth, search stays exact. Searches among
    some ids, and of all rows, are always exact.

    Parameters
    ----------
    queries : array-like, optional
        Query rows such as will be asked, for measuring; None: some of the rows.
    least : int
        Rows of a part from which on an index is tried.
    """

    def __init__(self, queries: Any = None, *, least: int = INDEX_FROM) -> None:
        super().__init__()
        self._queries = queries
        self._least = least

    def _add(self, ids: NDArray[np.int64], U: Matrix) -> None:
        super()._add(ids, U)
        part = self._parts[-1]
        if isinstance(part.rows, np.ndarray) and len(part) >= max(1, self._least):
            part.index = index_that_pays(part.rows, self._queries)


def index_that_pays(U: NDArray[np.float32], queries: Any = None) -> RowIndex | None:
    """Make an index of rows; None where exact search is as good."""
    index = build_index(U, sample(U) if queries is None else np.asarray(queries, np.float32)[:ASKED])
    return index if index.settings.pays else None


def sample(U: NDArray[np.float32]) -> NDArray[np.float32]:
    """Draw some rows, to stand for queries."""
    return U[drawn_places(len(U))]


def drawn_places(n_rows: int) -> NDArray[np.int64]:
    """Draw the places of some rows, ascending."""
    return np.sort(np.random.default_rng(1).permutation(n_rows)[:ASKED])
