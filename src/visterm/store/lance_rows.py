"""Rows in a Lance table: segments of such rows, access to one version of a table, and LanceDB's index (IVF_FLAT).

The current version of a table is stored in SQLite, in the transaction that commits the rows. If a process is killed
before that, the next writer drops the rows. The ids of a segment are also stored in a file of the catalogue.

Small tables are read into memory once, large ones block by block. The index divides rows into lists around centroids
and searches only the nearest lists for candidates, which are then scored exactly. The number of lists to search is
measured on sample queries when the index is built, as for faiss (see `row_index`).
"""

from __future__ import annotations

import math
import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import CorruptFileError, UserError
from visterm.core.products import merged, top_k_products
from visterm.core.types import Matrix, Ranking
from visterm.store.current_rows import Part
from visterm.store.lance_table import ROWS_PER_BATCH, LanceTable, rows_of, schema_of, table_names
from visterm.store.row_index import IndexSettings, K, best_settings, median_seconds, probe_counts
from visterm.store.segments import IDS, SegmentFolder, StoredIndex

Positions: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float32]

LANCE = "lance"  # Default folder of the tables, and the name of their indexes
FILES = "files"

MAX_CACHED_BYTES = 2**28  # Tables up to this size are cached in memory
BYTES_PER_READ = 2**24  # Size of the rows of a query: LanceDB would read gigabytes ahead for a query of all rows
N_SPARE, MAX_SPARE = 16, 100  # Additional candidates, to make up for ties, and at most for hidden rows
ROUNDS = 10  # Maximum number of iterations of k-means
SCAN_RATIO = 16  # If more than 1 of 16 rows is requested, scanning all rows is faster


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


class LanceIndex:
    """An index of a Lance table and its settings; see `Candidates`.

    `rows` have a version of the table with the index. It proposes `spare` additional candidates, to make up for this
    number of hidden rows.
    """

    def __init__(self, rows: LanceRows, settings: IndexSettings, spare: int = 0) -> None:
        self._rows, self.settings, self.n_rows = rows, settings, settings.n_rows
        self._spare = N_SPARE + min(spare, MAX_SPARE)

    def candidates(self, q: NDArray[np.float32], k: int) -> NDArray[np.int64]:
        """Return ascending positions of rows that include most of the `k` best."""
        query = self._rows.open_table.search(q.ravel(), vector_column_name="vector").distance_type("dot")
        query = query.nprobes(self.settings.n_probed(k)).fast_search().limit(k + self._spare)
        positions = np.sort(query.select(["row"]).to_arrow().column("row").to_numpy())
        return positions[positions < self.n_rows]


def build_lance_index(
    table: LanceTable, version: int, n_rows: int, width: int, queries: NDArray[np.float32]
) -> tuple[int, IndexSettings]:
    """Build an index of a table's rows, and measure its best settings; drop the index if it is too slow or inaccurate.

    Returns the resulting version of the table, with or without the index, and the measured settings.
    """
    from lancedb.index import IvfFlat

    table.cut(version)
    n_lists = max(1, math.isqrt(n_rows))
    writable = table.writable()
    writable.create_index("vector", config=IvfFlat(distance_type="dot", num_partitions=n_lists, max_iterations=ROUNDS))
    rows = LanceRows(table, int(writable.version), n_rows, width)
    exact_part, k = LancePart(np.arange(n_rows), rows), min(K, n_rows)
    exact_time = median_seconds(lambda: exact_part.best(queries[:1], k), 3)

    def search(q: Floats, trial: IndexSettings) -> Positions:
        return LancePart(exact_part.ids, rows, index=LanceIndex(rows, trial)).best(q, k).ids

    probes = [*probe_counts(max(1, n_lists // 2)), n_lists]
    trials = [[IndexSettings(n_rows, n_lists, probed, K + N_SPARE, 0.0, 0.0, exact_time) for probed in probes]]
    settings = best_settings(search, trials, queries, exact_part.best(queries, k).ids)

    if not settings.is_useful:
        for index in writable.list_indices():
            writable.drop_index(index.name)
    return int(writable.version), settings


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

    def append(self, n_rows: int, ids: NDArray[np.int64], U: Matrix) -> None:
        """Write rows after the first `n_rows`."""
        assert isinstance(U, np.ndarray)
        self._write(IDS, n_rows, ids)
        self.table_version = self.table.append(self.table_version, n_rows, ids, U)

    def part(self, n_rows: int, hidden: NDArray[np.int64], index: StoredIndex | None = None) -> Part:
        """Return the first `n_rows` rows as a part to search, read on demand, with the table's own index."""
        rows = LanceRows(self.table, self.table_version, n_rows, self.width)
        lance_index = None
        if index is not None and index.settings.is_useful:
            lance_index = LanceIndex(rows, index.settings, len(hidden))
        return LancePart(self._map(IDS, n_rows), rows, hidden, lance_index)

    def cut(self, n_rows: int) -> None:
        """Shorten the file of ids to `n_rows`, and reset the table to its current version."""
        self._shorten({IDS: n_rows})
        self.table.cut(self.table_version)

    def _names(self) -> list[str]:
        return [IDS]
