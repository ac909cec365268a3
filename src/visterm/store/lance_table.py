"""A versioned, append-only LanceDB table of rows, which is read at one version.

Columns: ``row`` (position, from 0), ``id`` (the image) and ``vector``. The table is in a local folder, or in an object
store (``s3://bucket/folder``) with credentials from the usual environment variables.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import CorruptFileError, MissingExtraError, StorageError
from visterm.core.remote import absolute, check_named, is_remote
from visterm.core.writing import storage_error

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

    def append(self, version: int, n_rows: int, ids: NDArray[np.int64], U: NDArray[np.float32]) -> int:
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

    def compact(self, version: int) -> tuple[int, bool]:
        """Compact files and update the index; return the new version, and whether all rows are indexed."""
        self.cut(version)
        table = self.writable()
        with _convert_errors(f"The table {self.name} at {self.uri} cannot be compacted"):
            table.optimize(cleanup_older_than=NEVER_DELETE)
            indexes = [table.index_stats(index.name) for index in table.list_indices()]
        return int(table.version), bool(indexes) and all(stats.num_unindexed_rows == 0 for stats in indexes)

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
        with _convert_errors(
            f"The table {self.name} of rows cannot be opened at {self.uri}", CorruptFileError, RESTORE
        ):
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
