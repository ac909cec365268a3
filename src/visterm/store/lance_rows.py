"""Rows of one version of a Lance table: read once into memory where they are few, else block by block."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import CorruptFileError
from visterm.core.products import merged, top_k_products
from visterm.core.types import Ranking
from visterm.store.any_part import AnyPart, Candidates
from visterm.store.lance_table import AT_ONCE, LanceTable, arrays_of, batches

Places: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float32]

KEPT_BYTES = 2**28
"""Rows up to this size are read once and kept."""

READ_BYTES = 2**24
"""Asked for at a time: of a question for all rows LanceDB reads gigabytes ahead of what was taken."""

GATHERED = 16
"""Of so many rows one or more are wanted: all are read, in order, which is quicker than asking for each."""


class LanceRows:
    """The first rows of a table, as one version has them.

    Parameters
    ----------
    table : LanceTable
    version : int
    n_rows, width : int
    """

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
                self._opened = self._table.at(self._version)
                there = self._opened.count_rows()
                if there < self.n_rows:
                    raise CorruptFileError(
                        f"The table {self._table.name} at {self._table.uri} holds {there} rows where "
                        f"{self.n_rows} are committed. Restore it from a backup, or index again."
                    )
        return self._opened

    @property
    def is_small(self) -> bool:
        """Whether all of them are kept in memory."""
        return 4 * self.n_rows * self.width <= KEPT_BYTES

    @cached_property
    def kept(self) -> Floats:
        """All rows, where they are few."""
        found = np.empty((self.n_rows, self.width), np.float32)
        for places, block in self._scanned():
            found[places] = block
        found.flags.writeable = False
        return found

    def take(self, places: Places) -> Floats:
        """Return rows by place, in that order."""
        if self.is_small:
            return self.kept[places]
        found = np.empty((len(places), self.width), np.float32)
        wanted, back = np.unique(places, return_inverse=True)
        for numbers, block in self.blocks(wanted):
            inside = np.zeros(len(wanted), np.bool_)
            inside[np.searchsorted(wanted, numbers)] = True
            mine = np.flatnonzero(inside[back])
            found[mine] = block[np.searchsorted(numbers, places[mine])]
        return found

    def blocks(self, places: Places | None = None) -> Iterator[tuple[Places, Floats]]:
        """Yield places and rows, block by block: of all, or of some places (ascending)."""
        if places is None:
            yield from self._scanned()
        elif len(places) and len(places) * GATHERED > places[-1] - places[0]:
            first = int(places[0])
            wanted = np.zeros(int(places[-1]) + 1 - first, np.bool_)
            wanted[places - first] = True
            for numbers, block in self._scanned(first, first + len(wanted)):
                inside = wanted[numbers - first]
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
                yield self._in_order(arrays)

    def _gathered(self, places: Places) -> tuple[Places, Floats]:
        if len(places) == 0:
            return places, np.empty((0, self.width), np.float32)
        found = self.at.take_offsets(places.tolist()).select(["row", "vector"]).to_arrow()
        return self._in_order(arrays_of(found, ["row", "vector"]))

    def _in_order(self, arrays: dict[str, NDArray[Any]]) -> tuple[Places, Floats]:
        """Return places and rows by place: a table promises no order, though it keeps one."""
        places, block = arrays["row"], arrays["vector"]
        if places.dtype != np.int64 or block.dtype != np.float32 or block.shape != (len(places), self.width):
            raise self._damaged(f"rows of {block.dtype}, shape {block.shape}, at places of {places.dtype}")
        if not (np.diff(places) > 0).all():
            order = np.argsort(places)
            places, block = places[order], block[order]
        if len(places) and (places[0] < 0 or places[-1] >= self.n_rows or not (np.diff(places) > 0).all()):
            raise self._damaged(f"rows at the places {places[0]} to {places[-1]}, or some twice")
        return places, block

    def _damaged(self, found: str) -> CorruptFileError:
        return CorruptFileError(
            f"The table {self._table.name} at {self._table.uri} holds {found}; expected {self.n_rows} rows of "
            f"{self.width} numbers, one at each place. Restore it from a backup, or index the images again."
        )


class LancePart(AnyPart):
    """Rows with ids, in a Lance table.

    Parameters
    ----------
    ids : ndarray of int64, shape (n,)
    rows : LanceRows
    hidden : ndarray of int64
    index : Candidates, optional
    """

    def __init__(
        self, ids: Places, rows: LanceRows, hidden: Places | None = None, index: Candidates | None = None
    ) -> None:
        super().__init__(ids, hidden, index)
        self.rows = rows

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
        best = Ranking(np.empty((len(Q), 0), np.int64), np.empty((len(Q), 0), np.float32))
        if k == 0:
            return best
        if self.rows.is_small:
            return top_k_products(Q, self.rows.kept, k, among=places)
        for numbers, block in self.rows.blocks(places):
            found = top_k_products(Q, block, min(k, len(block)))
            best = merged([best, Ranking(numbers[found.ids], found.scores)], k)
        return best
