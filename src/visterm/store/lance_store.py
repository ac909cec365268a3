"""A store whose rows lie in a Lance table, on disk or in an object store: for more rows than memory holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import DataError
from visterm.core.types import Matrix, Ranking
from visterm.store.base import Store
from visterm.store.faiss_store import ASKED, INDEX_FROM, drawn_places
from visterm.store.lance_index import LanceIndex, index_that_pays
from visterm.store.lance_rows import LancePart, LanceRows
from visterm.store.lance_table import LanceTable, batches, table_names
from visterm.store.parts import best_of
from visterm.store.row_index import Settings

DENSE_ONLY = (
    "The rows are sparse, and a Lance table holds dense ones. Keep them in files, or choose a model whose rows are "
    "dense, such as wsabie."
)


class LanceStore(Store):
    """Keeps dense rows in a table, and compares each with the query, or asks an index (IVF_FLAT) first.

    Only the ids are held in memory. Searches are exact, ties by the smaller id, unless an index was built; then too
    among some ids, and where more than a hundred are wanted. The index is not kept in mind between two openings.

    Parameters
    ----------
    uri : str
        Where the tables lie: a folder, or ``s3://bucket/folder``.
    name : str
        Of the table; made by the first `add`.

    Raises
    ------
    MissingExtraError
        If lancedb is not installed.
    StorageError
        If nothing can be read there.
    """

    def __init__(self, uri: str, name: str = "rows") -> None:
        self._table = LanceTable(uri, name)
        self._ids = np.empty(0, np.int64)
        self._width: int | None = None
        self._version = 0
        self._settings: Settings | None = None
        self._part: LancePart | None = None
        if name in table_names(uri):
            self._read()

    def __len__(self) -> int:
        return len(self._ids)

    @property
    def width(self) -> int | None:
        """Columns of the rows; None before the first `add`."""
        return self._width

    def build_index(self, queries: Any = None, *, least: int = INDEX_FROM) -> bool:
        """Make an index where that pays, measured on queries such as will be asked; say whether there is one now.

        Parameters
        ----------
        queries : array-like, optional
            None: some of the rows.
        least : int
            Rows from which on an index is tried.
        """
        self._settings = None
        if self._part is not None and len(self) >= least:
            asked = (
                self._part.take(drawn_places(len(self))) if queries is None else np.asarray(queries, np.float32)[:ASKED]
            )
            self._version, self._settings = index_that_pays(
                self._table, self._version, len(self), self.width or 0, asked
            )
        if self._part is not None:
            self._open()
        return self._settings is not None and self._settings.pays

    def _add(self, ids: NDArray[np.int64], U: Matrix) -> None:
        if isinstance(U, sp.csr_array):
            raise DataError(DENSE_ONLY)
        twice = np.intersect1d(ids, self._ids)
        if twice.size:
            raise DataError(f"The id {twice[0]} is in the store already ({twice.size} of the ids given are).")
        if self._width is None:
            self._version, self._width = self._table.create(U.shape[1]), U.shape[1]
        order = np.argsort(ids)
        self._version = self._table.append(self._version, len(self._ids), ids[order], U[order])
        self._ids = np.concatenate([self._ids, ids[order]])
        self._open()

    def _search(self, Q: Matrix, k: int, among: NDArray[np.int64] | None) -> Ranking:
        return best_of([] if self._part is None else [self._part], Q, k, among)

    def _read(self) -> None:
        self._version = self._table.latest()
        opened = self._table.at(self._version)
        self._width = opened.schema.field("vector").type.list_size
        self._ids = np.empty(opened.count_rows(), np.int64)
        for found in batches(opened.search().limit(len(self._ids)), ["row", "id"]) if len(self._ids) else ():
            self._ids[found["row"]] = found["id"]
        self._open()

    def _open(self) -> None:
        rows = LanceRows(self._table, self._version, len(self), self._width or 0)
        pays = self._settings is not None and self._settings.pays
        index = LanceIndex(rows, self._settings) if pays and self._settings is not None else None
        self._part = LancePart(self._ids, rows, index=index)
