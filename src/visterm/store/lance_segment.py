"""A segment whose rows lie in a Lance table, and only their ids beside the catalogue; where all tables of one lie.

The version of the table that counts stands in SQLite, written in the transaction that commits the rows: what a killed
process added after it is dropped by the next one that writes.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import DataError, UserError
from visterm.core.jsonlines import json_text
from visterm.core.types import Matrix
from visterm.store.current_rows import Part
from visterm.store.lance_rows import LanceIndex, LancePart, LanceRows
from visterm.store.lance_table import LanceTable, table_names
from visterm.store.row_index import settings_of
from visterm.store.segments import IDS, SegmentFolder, StoredIndex

LANCE = "lance"  # The folder of the tables where no other place was named, and the name of their indexes
FILES = "files"

DENSE_ONLY = (
    "The rows are sparse, and a Lance table holds dense ones. Keep them in files, or choose a model whose rows are "
    "dense, such as wsabie."
)


class LancePlace(NamedTuple):
    """Where the tables of a catalogue lie."""

    uri: str  # Of the database; empty: in the catalogue's own folder
    id: str  # Part of the tables' names, so that several catalogues can keep theirs at one place

    @classmethod
    def at(cls, uri: str) -> LancePlace:
        """Choose a place for a new catalogue; the path of a folder is kept in full."""
        whole = uri if not uri or "://" in uri else os.path.abspath(uri)
        return cls(whole, uuid.uuid4().hex[:12])

    @classmethod
    def of(cls, text: str) -> LancePlace:
        """Read what `as_text` gave."""
        return cls(**json.loads(text))

    def as_text(self) -> str:
        """Return it as SQLite keeps it."""
        return json_text(self._asdict())

    def uri_of(self, folder: Path) -> str:
        """Return the place in full, of the catalogue in a folder."""
        return self.uri or str(folder / LANCE)

    def table(self, folder: Path, segment_id: int) -> LanceTable:
        """Return the table of a segment."""
        return LanceTable(self.uri_of(folder), f"{self._prefix}{segment_id}")

    def sweep(self, folder: Path, known: Iterable[int]) -> None:
        """Drop the tables of segments that are no more."""
        if not self.uri and not (folder / LANCE).is_dir():
            return
        kept = {f"{self._prefix}{segment_id}" for segment_id in known}
        for name in table_names(self.uri_of(folder)):
            if name.startswith(self._prefix) and name not in kept:
                LanceTable(self.uri_of(folder), name).drop()

    @property
    def _prefix(self) -> str:
        return f"rows_{self.id}_"


def lance_uri(store: str, option: str = "store") -> str | None:
    """Return where a store keeps its Lance tables; empty: with the catalogue. None for files. Messages name `option`.

    Raises UserError if there is no such store.
    """
    name, colon, uri = store.partition(":")
    if name not in (FILES, LANCE) or (colon and (name == FILES or not uri)):
        raise UserError(
            f"{option} is {store!r}; expected {FILES}, {LANCE} or {LANCE}:URI, such as lance:s3://bucket/rows."
        )
    return None if name == FILES else uri


class LanceSegment(SegmentFolder):
    """A segment of dense rows in a table; `folder` is that of the ids.

    `version` is the table's: the one that counts, and after `create` and `append` the one that has what was written.
    """

    def __init__(self, folder: Path, width: int, table: LanceTable, version: int) -> None:
        super().__init__(folder, "dense", width)
        self.table = table
        self.table_version: int = version

    def create(self) -> None:
        """Make the folder with an empty file of ids, and an empty table."""
        super().create()
        self.table_version = self.table.create(self.width)

    def append(self, n_rows: int, ids: NDArray[np.int64], U: Matrix) -> None:
        """Write rows."""
        if isinstance(U, sp.csr_array):
            raise DataError(DENSE_ONLY)
        self._write(IDS, n_rows, ids)
        self.table_version = self.table.append(self.table_version, n_rows, ids, U)

    def read(self, n_rows: int) -> tuple[NDArray[np.int64], Matrix]:
        """Return the ids and rows of the first `n_rows`, all of them in memory."""
        ids = self._map(IDS, n_rows)
        return ids, self.rows(n_rows).take(np.arange(n_rows))

    def part(self, n_rows: int, hidden: NDArray[np.int64], index: StoredIndex | None = None) -> Part:
        """Return the first `n_rows` to search, with the table's own index."""
        rows = self.rows(n_rows)
        by = None
        if index is not None and settings_of(index.facts).pays:
            by = LanceIndex(rows, settings_of(index.facts), index.n_rows, len(hidden))
        return LancePart(self._map(IDS, n_rows), rows, hidden, by)

    def rows(self, n_rows: int) -> LanceRows:
        """Return the first `n_rows`, which are read when they are asked for."""
        return LanceRows(self.table, self.table_version, n_rows, self.width)

    def cut(self, n_rows: int) -> None:
        """Shorten the file of ids, and drop what was added to the table since."""
        self._shorten({IDS: n_rows})
        self.table.cut(self.table_version)

    def _names(self) -> list[str]:
        return [IDS]
