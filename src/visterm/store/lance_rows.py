"""Rows in a Lance table: segments of such rows, and access to one version of a table.

The current version of a table is stored in SQLite, in the transaction that commits the rows. If a process is killed
before that, the next writer drops the rows. Its columns are ``row`` (position, from 0), ``id`` (the image) and
``vector``. The ids of a segment are also stored in a file of the catalogue.

Small tables are read into memory once, large ones block by block. An index (see `row_index`) is a file beside the ids.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import CorruptFileError, MissingExtraError, StorageError, UserError
from visterm.core.products import merged, top_k_products
from visterm.core.remote import absolute, check_named, is_remote
from visterm.core.types import Floats, Ints, Matrix, Ranking
from visterm.core.writing import storage_error
from visterm.store.current_rows import Part
from visterm.store.segments import IDS, SegmentFolder, StoredIndex

Positions: TypeAlias = Ints

LANCE = "lance"  # Default folder of the tables
FILES = "files"

MAX_CACHED_BYTES = 2**28  # Tables up to this size are cached in memory
BYTES_PER_READ = 2**24  # Size of the rows of a query: LanceDB would read gigabytes ahead for a query of all rows
SCAN_RATIO = 16  # If more than 1 of 16 rows is requested, scanning all rows is faster

ROWS_PER_BATCH = 2**15  # Maximum number of rows to read or write at a time
VERSIONS_PER_COMPACTION = 128
"""A table's files are compacted after this number of versions: each addition is a file that all versions list."""

MAX_UNTIDY_FILES = 8
ROWS_PER_FILE = 2**20  # LanceDB's target when it compacts files
# LanceDB's own default sizes are six times as large
CACHE_SIZES = {"index_cache_size_bytes": 2**30, "metadata_cache_size_bytes": 2**28}

RESTORE = " Restore it from a backup, or index the images again."
NEVER_DELETE = timedelta(days=36500)
MIN_AGE_TO_DELETE = timedelta(hours=1)  # No search still reads versions that are older than this


class LanceTable:
    """One table, which may not exist yet, of the database at `uri`: a folder, local or in an object store.

    Raises MissingExtraError if lancedb is not installed.
    """

    def __init__(self, uri: str, name: str) -> None:
        self.uri, self.name = uri, name
        self._database = _connected(str(absolute(uri)))

    def create(self, width: int) -> int:
        """Create an empty table, replacing any leftover of a killed process, and return its version."""
        with _convert_errors(f"The table {self.name} at {self.uri} cannot be created"):
            return int(self._database.create_table(self.name, schema=schema_of(width), mode="overwrite").version)

    def append(self, version: int, n_rows: int, ids: Ints, U: Floats) -> int:
        """Add rows after the `n_rows` rows of a version, dropping later additions; return the new version."""
        pa = _arrow()
        self.cut(version)
        table = self.writable()
        for start in range(0, len(ids), ROWS_PER_BATCH):
            positions = np.arange(n_rows + start, n_rows + min(start + ROWS_PER_BATCH, len(ids)))
            block = np.ascontiguousarray(U[start : start + ROWS_PER_BATCH], np.float32)
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(block.ravel()), U.shape[1])
            columns = {"row": positions, "id": ids[start : start + ROWS_PER_BATCH], "vector": vectors}
            with _convert_errors(f"Rows cannot be written to the table {self.name} at {self.uri}"):
                table.add(pa.table(columns))
                if table.version % VERSIONS_PER_COMPACTION == 0:
                    table.optimize(cleanup_older_than=NEVER_DELETE)
        return int(table.version)

    def cut(self, version: int) -> None:
        """Drop all additions after a version: the newest version then equals this version."""
        if self.writable().version != version:
            self.at(version).restore()

    def needs_compaction(self, n_rows: int) -> bool:
        """Return whether the table has far more files than `n_rows` rows need."""
        n_files = int(self.writable().stats()["fragment_stats"]["num_fragments"])
        return n_files > MAX_UNTIDY_FILES + n_rows // ROWS_PER_FILE

    def compact(self, version: int) -> int:
        """Compact files, and return the new version."""
        self.cut(version)
        table = self.writable()
        with _convert_errors(f"The table {self.name} at {self.uri} cannot be compacted"):
            table.optimize(cleanup_older_than=NEVER_DELETE)
        return int(table.version)

    def delete_old_versions(self) -> None:
        """Delete the files of versions that no search still reads; the current version must be the newest version."""
        self.writable().optimize(cleanup_older_than=MIN_AGE_TO_DELETE)

    def drop(self) -> None:
        """Delete the table if it exists."""
        self._database.drop_table(self.name, ignore_missing=True)

    def at(self, version: int) -> Any:
        """Return LanceDB's table object at one version. Raises CorruptFileError if that version does not exist."""
        table = self.writable()
        problem = f"The table {self.name} of rows at {self.uri} does not have its current version {version} any more"
        with _convert_errors(problem, CorruptFileError, RESTORE):
            table.checkout(version)
        return table

    def writable(self) -> Any:
        """Return LanceDB's table object for writing. Raises CorruptFileError if it cannot be opened."""
        with _convert_errors(f"The table {self.name} cannot be opened at {self.uri}", CorruptFileError, RESTORE):
            return self._database.open_table(self.name)


def schema_of(width: int) -> Any:
    """Return the Arrow schema of a table of rows with `width` values."""
    pa = _arrow()
    return pa.schema([("row", pa.int64()), ("id", pa.int64()), ("vector", pa.list_(pa.float32(), width))])


def table_names(uri: str) -> list[str]:
    """List the tables of a database; empty if it does not exist."""
    database = _connected(str(absolute(uri)))
    with _convert_errors(f"The tables at {uri} cannot be listed"):
        names: list[str] = []
        page = database.list_tables()
        while True:
            names += page.tables
            if not page.page_token:
                return names
            page = database.list_tables(page_token=page.page_token)


def rows_of(batch: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return positions and vectors of an Arrow batch or table as arrays, of shapes (n,) and (n, width)."""
    vectors = batch.column("vector")
    if isinstance(vectors, _arrow().ChunkedArray):
        vectors = vectors.combine_chunks()
    positions = batch.column("row").to_numpy(zero_copy_only=False)
    return positions, vectors.flatten().to_numpy(zero_copy_only=False).reshape(len(vectors), -1)


def _arrow() -> ModuleType:
    import pyarrow  # slow to import, and most catalogues have no Lance tables

    module: ModuleType = pyarrow
    return module


@cache
def _connected(uri: str) -> Any:
    if is_remote(uri):
        check_named(uri)
    os.environ.setdefault("LANCEDB_LOG", "error")  # otherwise LanceDB warns about new tables
    try:
        import lancedb
    except ImportError as error:
        raise MissingExtraError(
            "Rows in a Lance table need the package 'lancedb'. Install it with: pip install 'visterm[lance]'"
        ) from error
    options = {"allow_http": "true"} if os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://") else None
    with _convert_errors(f"No tables can be kept at {uri}"):
        return lancedb.connect(uri, storage_options=options, session=lancedb.Session(**CACHE_SIZES))


@contextmanager
def _convert_errors(problem: str, kind: type[StorageError] = StorageError, advice: str = "") -> Iterator[None]:
    """Convert errors of LanceDB into visterm's of a kind, with the first line of their message."""
    try:
        yield
    except (ValueError, OSError, RuntimeError) as error:
        disk_error = storage_error(error)
        if disk_error is not None:
            raise disk_error from error
        first_line = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise kind(f"{problem}: {first_line}.{advice}") from error


@dataclass(eq=False)
class LanceRows:
    """The first `n_rows` rows, each with `width` values, of one version of a table."""

    table: LanceTable
    version: int
    n_rows: int
    width: int

    @cached_property
    def open_table(self) -> Any:
        """LanceDB's table object at this version; opened on first use."""
        table = self.table.at(self.version)
        columns = {column.name: column.type for column in table.schema}
        for column in schema_of(self.width):
            if columns.get(column.name) != column.type:
                raise self._damaged(f"a column '{column.name}' of {columns.get(column.name, 'nothing')}")
        if (n_rows := table.count_rows()) < self.n_rows:
            raise self._damaged(f"{n_rows} rows")
        return table

    @property
    def is_small(self) -> bool:
        """Whether all rows are cached in memory."""
        return 4 * self.n_rows * self.width <= MAX_CACHED_BYTES

    @cached_property
    def cached(self) -> Floats:
        """All rows, cached in memory; only for small tables."""
        rows = self._collect(np.arange(self.n_rows), self._scan())
        rows.flags.writeable = False
        return rows

    def take(self, positions: Positions) -> Floats:
        """Return the rows at `positions`, in that order."""
        if self.is_small:
            return self.cached[positions]
        requested, inverse = np.unique(positions, return_inverse=True)
        return self._collect(requested, self.blocks(requested))[inverse]

    def _collect(self, positions: Positions, blocks: Iterable[tuple[Positions, Floats]]) -> Floats:
        """Join blocks of (positions, rows) into the rows at all of the ascending `positions`."""
        rows, is_filled = np.empty((len(positions), self.width), np.float32), np.zeros(len(positions), np.bool_)
        for block_positions, block in blocks:
            targets = np.searchsorted(positions, block_positions)
            rows[targets], is_filled[targets] = block, True
        if not is_filled.all():
            raise self._damaged(f"no row at position {positions[np.argmin(is_filled)]}")
        return rows

    def blocks(self, positions: Positions | None = None) -> Iterator[tuple[Positions, Floats]]:
        """Yield blocks of (positions, rows): of all rows, or of those at the ascending `positions`."""
        if positions is None:
            yield from self._scan()
        elif len(positions) and len(positions) * SCAN_RATIO > positions[-1] - positions[0]:
            first = int(positions[0])
            requested = np.zeros(int(positions[-1]) + 1 - first, np.bool_)
            requested[positions - first] = True
            for block_positions, block in self._scan(first, first + len(requested)):
                is_requested = requested[block_positions - first]
                if is_requested.any():
                    yield block_positions[is_requested], block[is_requested]
        else:
            for start in range(0, len(positions), ROWS_PER_BATCH):
                chunk = positions[start : start + ROWS_PER_BATCH]
                batch = self.open_table.take_offsets(chunk.tolist()).select(["row", "vector"]).to_arrow()
                block_positions, block = self._sorted_rows(batch, 0, self.n_rows)
                if not np.array_equal(block_positions, chunk):
                    raise self._damaged("rows at other positions than those in their column 'row'")
                yield block_positions, block

    def _scan(self, first: int = 0, stop: int | None = None) -> Iterator[tuple[Positions, Floats]]:
        stop = self.n_rows if stop is None else stop
        step = max(1, BYTES_PER_READ // (4 * self.width))
        for start in range(first, stop, step):
            query = self.open_table.search().offset(start).limit(min(step, stop - start)).select(["row", "vector"])
            for batch in query.to_batches(ROWS_PER_BATCH):
                yield self._sorted_rows(batch, start, min(start + step, stop))

    def _sorted_rows(self, batch: Any, first: int, stop: int) -> tuple[Positions, Floats]:
        """Return positions and rows of an Arrow batch, sorted by position: LanceDB does not guarantee an order."""
        positions, block = rows_of(batch)
        if positions.dtype != np.int64 or block.dtype != np.float32 or block.shape != (len(positions), self.width):
            raise self._damaged(f"rows of {block.dtype}, shape {block.shape}, at positions of {positions.dtype}")
        if not np.isfinite(block).all():
            raise self._damaged("rows with infinite or undefined numbers")
        if not (np.diff(positions) > 0).all():
            order = np.argsort(positions)
            positions, block = positions[order], block[order]
        if len(positions) and (positions[0] < first or positions[-1] >= stop or not (np.diff(positions) > 0).all()):
            raise self._damaged(f"rows at the positions {positions[0]} to {positions[-1]}, or some twice")
        return positions, block

    def _damaged(self, content: str) -> CorruptFileError:
        return CorruptFileError(
            f"The table {self.table.name} at {self.table.uri} holds {content}; expected {self.n_rows} rows of "
            f"{self.width} numbers, one per position. Restore it from a backup, or index the images again."
        )


class LancePart(Part):
    """A part of the rows to search that is stored in a Lance table."""

    rows: LanceRows

    def take(self, positions: Positions) -> Floats:
        """Return the rows at `positions`, in that order."""
        return self.rows.take(positions)

    def products(self, Q: Floats, positions: Positions | None = None) -> Floats:
        """Return the products of rows (None: all visible rows) with a few queries, shape (n_rows, n_queries)."""
        if positions is None:
            positions = self.visible
        if self.rows.is_small:
            return np.asarray(self.rows.cached[positions] @ Q.T, np.float32)
        products = np.empty((len(positions), len(Q)), np.float32)
        for block_positions, block in self.rows.blocks(positions):
            products[np.searchsorted(positions, block_positions)] = block @ Q.T
        return products

    def _best_of_blocks(self, Q: Floats, k: int, positions: Positions | None) -> Ranking:
        if self.rows.is_small:
            return top_k_products(Q, self.rows.cached, k, among=positions)
        best = Ranking(np.empty((len(Q), 0), np.int64), np.empty((len(Q), 0), np.float32))
        for block_positions, block in self.rows.blocks(positions):
            ranking = top_k_products(Q, block, min(k, len(block)))
            best = merged([best, Ranking(block_positions[ranking.ids], ranking.scores)], k)
        return best


class LanceLocation(NamedTuple):
    """The location of the Lance tables of a catalogue."""

    uri: str  # URI of the Lance database; empty: in the catalogue's own folder
    id: str  # Part of the tables' names, with which several catalogues can share a database

    @classmethod
    def at(cls, uri: str) -> LanceLocation:
        """Return the location of a new catalogue's tables, with a local path made absolute."""
        return cls((uri if not uri or "://" in uri else os.path.abspath(uri)), uuid.uuid4().hex[:12])

    def uri_of(self, folder: Path) -> str:
        """Return the full URI of the tables, for a catalogue in `folder`."""
        return self.uri or str(folder / LANCE)

    def table(self, folder: Path, segment_id: int) -> LanceTable:
        """Return the table of a segment."""
        return LanceTable(self.uri_of(folder), f"{self._prefix}{segment_id}")

    def sweep(self, folder: Path, segment_ids: Iterable[int]) -> None:
        """Drop the tables of segments that are not in `segment_ids`."""
        if not self.uri and not (folder / LANCE).is_dir():
            return
        names = {f"{self._prefix}{segment_id}" for segment_id in segment_ids}
        for name in table_names(self.uri_of(folder)):
            if name.startswith(self._prefix) and name not in names:
                LanceTable(self.uri_of(folder), name).drop()

    @property
    def _prefix(self) -> str:
        return f"rows_{self.id}_"


def lance_uri(store: str) -> str | None:
    """Return the URI of the Lance tables of `store` (empty: in the catalogue's folder); None for files.

    Raises UserError if `store` is not a valid name.
    """
    name, colon, uri = store.partition(":")
    if name not in (FILES, LANCE) or (colon and (name == FILES or not uri)):
        expected = f"{FILES}, {LANCE} or {LANCE}:URI, such as lance:s3://bucket/rows"
        raise UserError(setting="store", value=store, expected=expected)
    return None if name == FILES else uri


class LanceSegment(SegmentFolder):
    """A segment of dense rows in a Lance table; `folder` has the file of ids.

    `table_version` is the current version of the table; `create` and `append` update it.
    """

    def __init__(self, folder: Path, width: int, table: LanceTable, version: int) -> None:
        super().__init__(folder, "dense", width)
        self.table = table
        self.table_version: int = version

    def create(self) -> None:
        """Create the folder with an empty file of ids, and an empty table."""
        super().create()
        self.table_version = self.table.create(self.width)

    def append(self, n_rows: int, ids: Ints, U: Matrix) -> None:
        """Write rows after the first `n_rows`."""
        assert isinstance(U, np.ndarray)
        self._write(IDS, n_rows, ids)
        self.table_version = self.table.append(self.table_version, n_rows, ids, U)

    def part(self, n_rows: int, hidden: Ints, index: StoredIndex | None = None) -> Part:
        """Return the first `n_rows` rows as a part to search, read on demand; an index is opened on first use."""
        rows = LanceRows(self.table, self.table_version, n_rows, self.width)
        return LancePart(self._map(IDS, n_rows), rows, hidden, self._opened(index))

    def cut(self, n_rows: int) -> None:
        """Shorten the file of ids to `n_rows`, and reset the table to its current version."""
        self._shorten({IDS: n_rows})
        self.table.cut(self.table_version)

    def _names(self) -> list[str]:
        return [IDS]
