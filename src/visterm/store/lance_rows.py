"""Rows of one version of a Lance table, and LanceDB's index of them (IVF_FLAT).

Few rows are read once into memory, many block by block. The index puts rows into lists around centres, of which the
nearest are looked into: it names the best rows of these, which are scored anew, as exact search does. How many lists
have to be looked into is measured on queries when the index is made, as it is for faiss (see `row_index`).
"""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections.abc import Iterator
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import CorruptFileError
from visterm.core.products import merged, top_k_products
from visterm.core.types import Ranking
from visterm.store.current_rows import Part
from visterm.store.lance_table import AT_ONCE, LanceTable, arrays_of, batches, schema_of
from visterm.store.row_index import MOST, RECALL, K, Settings, growing, surely_found

Places: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float32]

KEPT_BYTES = 2**28  # Rows up to this size are read once and kept
READ_BYTES = 2**24  # Bytes read at a time: for a query of all rows LanceDB reads gigabytes ahead of what was taken
SPARE = 16  # Rows named in addition: equal ones, and ones that are hidden
ROUNDS = 10  # Rounds of k-means
GATHERED = 16  # If one row in this many is needed, or more, all are read in order: quicker than reading each alone


class LanceRows:
    """The first `n_rows` rows of a table, each of `width`, as one version has them."""

    def __init__(self, table: LanceTable, version: int, n_rows: int, width: int) -> None:
        self._table, self._version = table, version
        self.n_rows, self.width = n_rows, width
        self._opening = threading.Lock()
        self._opened: Any = None

    @property
    def at(self) -> Any:
        """LanceDB's own table, checked out: opened when it is first asked for."""
        with self._opening:
            if self._opened is None:
                table = self._table.at(self._version)
                columns = {field.name: field.type for field in table.schema}
                for field in schema_of(self.width):
                    if columns.get(field.name) != field.type:
                        raise self._damaged(f"a column '{field.name}' of {columns.get(field.name, 'nothing')}")
                there = table.count_rows()
                if there < self.n_rows:
                    raise self._damaged(f"{there} rows")
                self._opened = table
        return self._opened

    @property
    def is_small(self) -> bool:
        """Whether all of them are kept in memory."""
        return 4 * self.n_rows * self.width <= KEPT_BYTES

    @cached_property
    def kept(self) -> Floats:
        """All rows, where they are few."""
        found, filled = np.empty((self.n_rows, self.width), np.float32), np.zeros(self.n_rows, np.bool_)
        for places, block in self._scanned():
            found[places], filled[places] = block, True
        if not filled.all():
            raise self._damaged(f"no row at the place {np.argmin(filled)}")
        found.flags.writeable = False
        return found

    def take(self, places: Places) -> Floats:
        """Return rows by place, in that order."""
        if self.is_small:
            return self.kept[places]
        found = np.empty((len(places), self.width), np.float32)
        filled = np.zeros(len(places), np.bool_)
        requested, back = np.unique(places, return_inverse=True)
        for numbers, block in self.blocks(requested):
            inside = np.zeros(len(requested), np.bool_)
            inside[np.searchsorted(requested, numbers)] = True
            mine = np.flatnonzero(inside[back])
            found[mine] = block[np.searchsorted(numbers, places[mine])]
            filled[mine] = True
        if not filled.all():
            raise self._damaged(f"no row at the place {places[np.argmin(filled)]}")
        return found

    def blocks(self, places: Places | None = None) -> Iterator[tuple[Places, Floats]]:
        """Yield places and rows, block by block: of all, or of some places (ascending)."""
        if places is None:
            yield from self._scanned()
        elif len(places) and len(places) * GATHERED > places[-1] - places[0]:
            first = int(places[0])
            requested = np.zeros(int(places[-1]) + 1 - first, np.bool_)
            requested[places - first] = True
            for numbers, block in self._scanned(first, first + len(requested)):
                inside = requested[numbers - first]
                if inside.any():
                    yield numbers[inside], block[inside]
        else:
            for start in range(0, len(places), AT_ONCE):
                yield self._gathered(places[start : start + AT_ONCE])

    def named(self, q: Floats, n: int, probed: int) -> Places:
        """Return the places, ascending, of the `n` best rows of the lists of the index that are nearest to a query."""
        query = self.at.search(q.ravel(), vector_column_name="vector").distance_type("dot").nprobes(probed)
        found = query.fast_search().limit(n).select(["row"]).to_arrow()
        return np.sort(arrays_of(found, ["row"])["row"])

    def _scanned(self, first: int = 0, stop: int | None = None) -> Iterator[tuple[Places, Floats]]:
        stop = self.n_rows if stop is None else stop
        step = max(1, READ_BYTES // (4 * self.width))
        for start in range(first, stop, step):
            query = self.at.search().offset(start).limit(min(step, stop - start))
            for arrays in batches(query, ["row", "vector"]):
                yield self._in_order(arrays, start, min(start + step, stop))

    def _gathered(self, places: Places) -> tuple[Places, Floats]:
        if len(places) == 0:
            return places, np.empty((0, self.width), np.float32)
        found = self.at.take_offsets(places.tolist()).select(["row", "vector"]).to_arrow()
        numbers, block = self._in_order(arrays_of(found, ["row", "vector"]), 0, self.n_rows)
        if not np.array_equal(numbers, places):
            raise self._damaged("rows at other places than those in their column 'row'")
        return numbers, block

    def _in_order(self, arrays: dict[str, NDArray[Any]], first: int, stop: int) -> tuple[Places, Floats]:
        """Return places and rows by place: a table promises no order within a block, though it keeps one."""
        places, block = arrays["row"], arrays["vector"]
        if places.dtype != np.int64 or block.dtype != np.float32 or block.shape != (len(places), self.width):
            raise self._damaged(f"rows of {block.dtype}, shape {block.shape}, at places of {places.dtype}")
        if not np.isfinite(block).all():
            raise self._damaged("rows with infinite or undefined numbers")
        if not (np.diff(places) > 0).all():
            order = np.argsort(places)
            places, block = places[order], block[order]
        if len(places) and (places[0] < first or places[-1] >= stop or not (np.diff(places) > 0).all()):
            raise self._damaged(f"rows at the places {places[0]} to {places[-1]}, or some twice")
        return places, block

    def _damaged(self, found: str) -> CorruptFileError:
        return CorruptFileError(
            f"The table {self._table.name} at {self._table.uri} holds {found}; expected {self.n_rows} rows of "
            f"{self.width} numbers, one at each place. Restore it from a backup, or index the images again."
        )


class LancePart(Part):
    """Rows with ids, in a Lance table."""

    rows: LanceRows

    def take(self, places: Places) -> Floats:
        """Return the rows at some places, in that order."""
        return self.rows.take(places)

    def products(self, Q: Floats, places: Places | None = None) -> Floats:
        """Return the products of rows (None: of all visible ones) with a few queries, shape (n_rows, n_queries)."""
        if places is None:
            places = self.visible
        if self.rows.is_small:
            return np.asarray(self.rows.kept[places] @ Q.T, np.float32)
        found = np.empty((len(places), len(Q)), np.float32)
        for numbers, block in self.rows.blocks(places):
            found[np.searchsorted(places, numbers)] = block @ Q.T
        return found

    def _best_places(self, Q: Floats, k: int, places: Places | None) -> Ranking:
        if self.rows.is_small:
            return top_k_products(Q, self.rows.kept, k, among=places)
        best = Ranking(np.empty((len(Q), 0), np.int64), np.empty((len(Q), 0), np.float32))
        for numbers, block in self.rows.blocks(places):
            found = top_k_products(Q, block, min(k, len(block)))
            best = merged([best, Ranking(numbers[found.ids], found.scores)], k)
        return best


class LanceIndex:
    """An index and its settings; see `Candidates`.

    `rows` are of a version that has the index. `n_rows` are covered, from the first on; None: as many as when it was
    measured. `spare` more rows are named, because as many are hidden.
    """

    def __init__(self, rows: LanceRows, settings: Settings, n_rows: int | None = None, spare: int = 0) -> None:
        self._rows = rows
        self.settings = settings
        self.n_rows = settings.n_rows if n_rows is None else n_rows
        self._spare = SPARE + min(spare, MOST)

    def candidates(self, q: NDArray[np.float32], k: int) -> NDArray[np.int64] | None:
        """Return places of rows, ascending, that hold most of the `k` best; None where an exact search is better."""
        if k > MOST:
            return None
        found = self._rows.named(q, k + self._spare, self.settings.probed)
        return found[found < self.n_rows]


def index_that_pays(
    table: LanceTable, version: int, n_rows: int, width: int, queries: NDArray[np.float32]
) -> tuple[int, Settings]:
    """Make an index of a table's rows, and measure its settings; one that does not pay is dropped again.

    Returns the version that has the index, or that has none; and what was measured.
    """
    from lancedb.index import IvfFlat

    table.cut(version)
    n_lists = max(1, math.isqrt(n_rows))
    writable = table.writable()
    config = IvfFlat(distance_type="dot", num_partitions=n_lists, max_iterations=ROUNDS)
    writable.create_index("vector", config=config)
    rows = LanceRows(table, int(writable.version), n_rows, width)
    settings = _measured(rows, queries, n_lists)
    if not settings.pays:
        for index in writable.list_indices():
            writable.drop_index(index.name)
    return int(writable.version), settings


def _measured(rows: LanceRows, queries: NDArray[np.float32], n_lists: int) -> Settings:
    """Look into more and more lists, until nearly all of the best are found."""
    exactly = LancePart(np.arange(rows.n_rows), rows)
    k = min(K, rows.n_rows)
    best = exactly.best(queries, k).ids
    exact, _ = _timed(exactly, queries[:1], k)
    settings = Settings(rows.n_rows, n_lists, n_lists, K + SPARE, 1.0, exact, exact)
    for probed in [*growing(max(1, n_lists // 2)), n_lists]:
        trial = Settings(rows.n_rows, n_lists, probed, K + SPARE, 0.0, 0.0, exact)
        by_index = LancePart(exactly.ids, rows, index=LanceIndex(rows, trial))
        seconds, found = _timed(by_index, queries, k)
        recall = surely_found([np.isin(these, those).mean() for these, those in zip(best, found.ids, strict=True)])
        settings = Settings(rows.n_rows, n_lists, probed, K + SPARE, recall, seconds, exact)
        if recall >= RECALL:
            break
    return settings


def _timed(part: LancePart, queries: NDArray[np.float32], k: int) -> tuple[float, Ranking]:
    """Search query by query; return the median of the seconds. A single query is searched three times."""
    seconds, found = [], []
    for q in queries[:, None, :] if len(queries) > 1 else [queries] * 3:
        start = time.perf_counter()
        found.append(part.best(q, k))
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), Ranking(*(np.concatenate(both) for both in zip(*found, strict=True)))
