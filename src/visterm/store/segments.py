"""Append-only segments of a run's rows: written after the committed rows, and read with memory maps.

A segment is a folder: ``ids.i64`` (the image id of each row) and ``rows.f32``, or for CSR ``data.f32``, ``indices.i32``
and ``indptr.i64``. Only SQLite has the number of committed rows: later rows in the files are cut off. Rows can also be
stored in a Lance table (`lance_rows`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import MAX_CSR_COLUMNS, checked_csr, stack_rows
from visterm.core.errors import CorruptFileError
from visterm.core.types import Matrix
from visterm.core.writing import check_space, sync, writing
from visterm.store.current_rows import ArrayPart, Part
from visterm.store.database import Database
from visterm.store.row_index import INDEX_SUFFIX, IndexSettings, RowIndex, is_installed, read_index

IDS, DENSE, DATA, INDICES, INDPTR = "ids.i64", "rows.f32", "data.f32", "indices.i32", "indptr.i64"
TYPES = {IDS: np.int64, DENSE: np.float32, DATA: np.float32, INDICES: np.int32, INDPTR: np.int64}
RESTORE = "Restore the catalogue from a backup, or index the images again into a new one."


class StoredSegment(NamedTuple):
    """A segment as stored in the table ``segments``; its folder is ``rows/<id>``."""

    id: int
    run_id: int
    kind: str  # "dense" or "csr"
    width: int
    n_rows: int
    table_version: int | None = None  # Version of the Lance table with its rows; None if the rows are in files


def segments_of(database: Database, where: str = "", *values: object) -> list[StoredSegment]:
    """List segments by id: all, or only those that meet the SQL condition `where`.

    Raises CorruptFileError if the database describes an impossible segment.
    """
    statement = f"SELECT id, run_id, kind, width, n_rows, table_version FROM segments {where} ORDER BY id"
    segments = [StoredSegment(*row) for row in database.rows(statement, values)]
    for segment in segments:
        if segment.kind not in ("dense", "csr") or not 0 <= segment.width <= MAX_CSR_COLUMNS or segment.n_rows < 0:
            raise CorruptFileError(
                f"The database says of segment {segment.id} that it has {segment.n_rows} rows of {segment.width} "
                f"numbers, {segment.kind}; expected at most {MAX_CSR_COLUMNS:,} numbers, dense or csr. {RESTORE}"
            )
    return segments


def checked_positions(rows: Sequence[tuple[int]], segment: StoredSegment) -> NDArray[np.int64]:
    """Convert the positions of a segment's rows from the database to an array.

    Raises CorruptFileError if a position is outside the segment.
    """
    positions = np.array([row[0] for row in rows], np.int64)
    outliers = positions[(positions < 0) | (positions >= segment.n_rows)]
    if outliers.size:
        raise CorruptFileError(
            f"The database names row {outliers[0]} of segment {segment.id}, which has {segment.n_rows} rows. {RESTORE}"
        )
    return positions


class StoredIndex(NamedTuple):
    """An index of the first `settings.n_rows` rows of a segment, as stored in the table ``indexes``."""

    file: str
    settings: IndexSettings


@dataclass(eq=False)
class SegmentInMemory:
    """A segment of a catalogue in memory; `read` joins the appended arrays."""

    kind: str
    width: int
    table_version: None = None
    _parts: list[tuple[NDArray[np.int64], Matrix]] = field(default_factory=list)

    def append(self, n_rows: int, ids: NDArray[np.int64], U: Matrix) -> None:
        """Append rows after the first `n_rows`."""
        self.cut(n_rows)
        self._parts.append((ids, U))

    def read(self, n_rows: int) -> tuple[NDArray[np.int64], Matrix]:
        """Join the appended arrays, and return ids and rows."""
        self.cut(n_rows)
        if not self._parts:
            U: Matrix = np.empty((0, self.width), np.float32)
            return np.empty(0, np.int64), sp.csr_array(U) if self.kind == "csr" else U
        ids, rows = zip(*self._parts, strict=True)
        self._parts = [(np.concatenate(ids), stack_rows(list(rows)))]
        return self._parts[0]

    def part(self, n_rows: int, hidden: NDArray[np.int64], index: StoredIndex | None = None) -> Part:
        """Return the first `n_rows` rows as a part to search, without those at the positions `hidden`."""
        return ArrayPart(*self.read(n_rows), hidden)

    def label(self, name: str) -> str:
        """Return how messages refer to the file `name` of a segment on disk."""
        return name

    def cut(self, n_rows: int) -> None:
        """Drop all rows after the first `n_rows`."""
        while (n_extra := sum(len(ids) for ids, _ in self._parts) - n_rows) > 0:
            ids, U = self._parts.pop()
            if len(ids) > n_extra:
                self._parts.append((ids[:-n_extra], U[:-n_extra]))


@dataclass(eq=False)
class SegmentFolder:
    """A segment on disk: rows of one kind ("dense" or "csr") and width, with the image id of each row."""

    folder: Path
    kind: str
    width: int
    table_version: int | None = None  # Version of the Lance table after the latest write; None for files

    def label(self, name: str) -> str:
        """Return the path of a file."""
        return str(self.folder / name)

    def create(self) -> None:
        """Create the folder with empty files, replacing any leftover of a killed process."""
        with writing(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            for name in self._names():
                (self.folder / name).write_bytes(bytes(8) if name == INDPTR else b"")
            for folder in (self.folder, self.folder.parent):
                sync(folder)

    def append(self, n_rows: int, ids: NDArray[np.int64], U: Matrix) -> None:
        """Write rows after the first `n_rows`, overwriting later rows; wait for the disk."""
        self._write(IDS, n_rows, ids)
        if isinstance(U, np.ndarray):
            self._write(DENSE, n_rows * self.width, U)
            return
        n_values = self._n_values(n_rows)
        self._write(DATA, n_values, U.data)
        self._write(INDICES, n_values, U.indices)
        self._write(INDPTR, n_rows + 1, U.indptr[1:].astype(np.int64) + n_values)

    def read(self, n_rows: int) -> tuple[NDArray[np.int64], Matrix]:
        """Memory-map the ids and rows of the first `n_rows` rows. Raises CorruptFileError if rows are missing."""
        ids = self._map(IDS, n_rows)
        if self.kind == "dense":
            return ids, self._map(DENSE, n_rows * self.width).reshape(n_rows, self.width)
        indptr = self._map(INDPTR, n_rows + 1)
        data, indices = self._map(DATA, int(indptr[-1])), self._map(INDICES, int(indptr[-1]))
        problem = f"The rows in {self.folder} are damaged"
        return ids, checked_csr(
            data, indices, indptr, (n_rows, self.width), problem, unique=False, error=CorruptFileError
        )

    def part(self, n_rows: int, hidden: NDArray[np.int64], index: StoredIndex | None = None) -> Part:
        """Return the first `n_rows` rows as a part to search; with faiss, an index is opened on first use."""
        return ArrayPart(*self.read(n_rows), hidden, self._opened(index))

    def cut(self, n_rows: int) -> None:
        """Shorten the files to the first `n_rows` rows."""
        sizes = {IDS: n_rows}
        if self.kind == "dense":
            sizes[DENSE] = n_rows * self.width
        else:
            n_values = self._n_values(n_rows)
            sizes |= {DATA: n_values, INDICES: n_values, INDPTR: n_rows + 1}
        self._shorten(sizes)

    def _opened(self, index: StoredIndex | None) -> RowIndex | None:
        """Return an index that is useful and can be used here. Raises CorruptFileError if its name is not a file's."""
        if index is None:
            return None
        path = self.folder / index.file
        if path.parent != self.folder or path.suffix != INDEX_SUFFIX:
            raise CorruptFileError(
                f"The catalogue names {index.file!r} as the index of {self.folder}; expected a file "
                f"*{INDEX_SUFFIX} in that folder."
            )
        if not (index.settings.is_useful and is_installed()):
            return None
        return RowIndex(index.settings, partial(read_index, path, index.settings, self.width))

    def _names(self) -> list[str]:
        return [IDS, DENSE] if self.kind == "dense" else [IDS, DATA, INDICES, INDPTR]

    def _shorten(self, sizes: dict[str, int]) -> None:
        for name, count in sizes.items():
            size = count * np.dtype(TYPES[name]).itemsize
            if (self.folder / name).stat().st_size > size:
                with suppress(PermissionError):  # Windows cannot shorten mapped files; the rest is never read
                    os.truncate(self.folder / name, size)

    def _n_values(self, n_rows: int) -> int:
        n_values = int(self._map(INDPTR, n_rows + 1)[-1])
        for name in (DATA, INDICES):
            self._map(name, n_values)
        return n_values

    def _write(self, name: str, start: int, values: NDArray[np.generic]) -> None:
        data = memoryview(np.ascontiguousarray(values, TYPES[name])).cast("B")
        check_space(self.folder, data.nbytes)
        with writing(self.folder), (self.folder / name).open("r+b") as file:
            file.seek(start * np.dtype(TYPES[name]).itemsize)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        self._shorten({name: start + values.size})

    def _map(self, name: str, count: int) -> NDArray[Any]:
        path = self.folder / name
        try:
            n_stored = path.stat().st_size // np.dtype(TYPES[name]).itemsize
            if not 0 <= count <= n_stored:
                raise CorruptFileError(
                    f"{path} holds {n_stored} numbers where {count} are committed: it was cut off or replaced. "
                    f"{RESTORE}"
                )
            return np.asarray(np.memmap(path, TYPES[name], "r", shape=count)) if count else np.empty(0, TYPES[name])
        except OSError as error:
            raise CorruptFileError(f"{path} cannot be read: {error.strerror or error}. {RESTORE}") from error


Segment: TypeAlias = SegmentInMemory | SegmentFolder
