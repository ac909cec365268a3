"""A table of LanceDB that holds rows in versions: added to at the end, read as one version has them, never changed.

Columns: ``row`` (the place, from 0 on), ``id`` (the image) and ``vector``. The table lies in a folder, or in an object
store (``s3://bucket/folder``), where the usual environment says who may read it.
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
from visterm.core.remote import check_named, in_full, is_remote
from visterm.core.writing import storage_error

AT_ONCE = 2**15  # Rows that are read or written at a time
TIDIED_EVERY = 128
"""Versions: each names all files of the table, and each addition is a file of its own until they are put together."""

MANY_FILES = 8
ROWS_PER_FILE = 2**20  # Rows that LanceDB puts together in a file
# Of the lists of indexes, kept by LanceDB, which would take six times as much
CACHED = {"index_cache_size_bytes": 2**30, "metadata_cache_size_bytes": 2**28}

NEVER = timedelta(days=36500)
READERS_NEED = timedelta(hours=1)  # Age of versions that no search reads any more: each looks first which one counts


class LanceTable:
    """One table, which need not be there yet, of the database at `uri`: a folder, or a folder of an object store.

    Raises MissingExtraError if lancedb is not installed.
    """

    def __init__(self, uri: str, name: str) -> None:
        self.uri, self.name = uri, name
        self._database = _connected(str(in_full(uri)))

    def create(self, width: int) -> int:
        """Make it empty, in place of one that a kill left, and return its version."""
        with _translated(f"The table {self.name} at {self.uri} cannot be made"):
            return int(self._database.create_table(self.name, schema=schema_of(width), mode="overwrite").version)

    def append(self, version: int, n_rows: int, ids: NDArray[np.int64], U: NDArray[np.float32]) -> int:
        """Add rows after the `n_rows` of a version, whatever was added since; return the version that has them."""
        pa = _arrow()
        self.cut(version)
        table = self.writable()
        for start in range(0, len(ids), AT_ONCE):
            numbers = np.arange(n_rows + start, n_rows + min(start + AT_ONCE, len(ids)))
            block = np.ascontiguousarray(U[start : start + AT_ONCE], np.float32)
            vectors = pa.FixedSizeListArray.from_arrays(pa.array(block.ravel()), U.shape[1])
            columns = {"row": numbers, "id": ids[start : start + AT_ONCE], "vector": vectors}
            with _translated(f"Rows cannot be written to the table {self.name} at {self.uri}"):
                table.add(pa.table(columns))
                if table.version % TIDIED_EVERY == 0:
                    table.optimize(cleanup_older_than=NEVER)
        return int(table.version)

    def cut(self, version: int) -> None:
        """Drop what came after a version: what it held is the newest version then."""
        if self.writable().version != version:
            self.at(version).restore()

    def is_untidy(self, n_rows: int) -> bool:
        """Return whether the table has many more files than this many rows need."""
        n_files = int(self.writable().stats()["fragment_stats"]["num_fragments"])
        return n_files > MANY_FILES + n_rows // ROWS_PER_FILE

    def tidy(self, version: int) -> tuple[int, bool]:
        """Put small files together and bring the index up to date; return the version and if all rows are indexed."""
        self.cut(version)
        table = self.writable()
        with _translated(f"The table {self.name} at {self.uri} cannot be put in order"):
            table.optimize(cleanup_older_than=NEVER)
            indexes = [table.index_stats(index.name) for index in table.list_indices()]
        return int(table.version), bool(indexes) and all(stats.num_unindexed_rows == 0 for stats in indexes)

    def forget_old_versions(self) -> None:
        """Remove the files of versions that no search reads any more; what counts must be the newest version."""
        self.writable().optimize(cleanup_older_than=READERS_NEED)

    def drop(self) -> None:
        """Remove the table, if it is there."""
        self._database.drop_table(self.name, ignore_missing=True)

    def at(self, version: int) -> Any:
        """Return LanceDB's own table as one version has it. Raises CorruptFileError if there is no such version."""
        table = self.writable()
        try:
            table.checkout(version)
        except (ValueError, OSError, RuntimeError) as error:
            raise CorruptFileError(
                f"The table {self.name} of rows at {self.uri} has no version {version} any more, but that is the one "
                "which counts. Restore it from a backup, or index the images again."
            ) from error
        return table

    def writable(self) -> Any:
        """Return LanceDB's own table, to write. Raises CorruptFileError if it cannot be opened."""
        try:
            return self._database.open_table(self.name)
        except (ValueError, OSError, RuntimeError) as error:
            raise CorruptFileError(
                f"The table {self.name} of rows cannot be opened at {self.uri}: {_first_line(error)}. "
                "Restore it from a backup, or index the images again."
            ) from error


def schema_of(width: int) -> Any:
    """Return the columns of a table of rows, for Arrow."""
    pa = _arrow()
    return pa.schema([("row", pa.int64()), ("id", pa.int64()), ("vector", pa.list_(pa.float32(), width))])


def table_names(uri: str) -> list[str]:
    """List the tables of a database; none where there is no database."""
    database = _connected(str(in_full(uri)))
    with _translated(f"The tables at {uri} cannot be listed"):
        names: list[str] = []
        page = database.list_tables()
        while True:
            names += page.tables
            if not page.page_token:
                return names
            page = database.list_tables(page_token=page.page_token)


def arrays_of(batch: Any, columns: list[str]) -> dict[str, NDArray[Any]]:
    """Return the columns of a batch or a table of Arrow as arrays; vectors as (n, width)."""
    pa = _arrow()
    arrays = {}
    for name in columns:
        column = batch.column(name)
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        array = (column.flatten() if name == "vector" else column).to_numpy(zero_copy_only=False)
        arrays[name] = array.reshape(len(column), -1) if name == "vector" else array
    return arrays


def _arrow() -> ModuleType:
    import pyarrow  # takes long, and most catalogues have no tables

    module: ModuleType = pyarrow
    return module


@cache
def _connected(uri: str) -> Any:
    if is_remote(uri):
        check_named(uri)
    os.environ.setdefault("LANCEDB_LOG", "error")  # it warns of tables that are new
    try:
        import lancedb
    except ImportError as error:
        raise MissingExtraError(
            "Rows in a Lance table need the package 'lancedb'. Install it with: pip install 'visterm[lance]'"
        ) from error
    plain = {"allow_http": "true"} if os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://") else None
    with _translated(f"No tables can be kept at {uri}"):
        return lancedb.connect(uri, storage_options=plain, session=lancedb.Session(**CACHED))


@contextmanager
def _translated(what: str) -> Iterator[None]:
    """Turn errors of LanceDB into ours, with the first line of the reason."""
    try:
        yield
    except (ValueError, OSError, RuntimeError) as error:
        full = storage_error(error)
        if full is not None:
            raise full from error
        raise StorageError(f"{what}: {_first_line(error)}.") from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
