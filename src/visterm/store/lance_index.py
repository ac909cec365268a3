"""LanceDB's index (IVF_FLAT) of a table's rows: rows in lists around centres, of which the nearest are looked into.

The index names the best rows of those lists; they are scored anew, as exact search does. How many lists have to be
looked into is measured on queries when the index is made, as it is for faiss (see `row_index`).
"""

from __future__ import annotations

import math
import statistics
import time

import numpy as np
from numpy.typing import NDArray

from visterm.core.types import Ranking
from visterm.store.lance_rows import LancePart, LanceRows
from visterm.store.lance_table import LanceTable
from visterm.store.row_index import MOST, RECALL, K, Settings, growing

SPARE = 16
"""Rows named beyond those wanted: equal ones, and ones that are hidden."""

ROUNDS = 10
"""Of k-means."""


class LanceIndex:
    """An index and how it is asked; see `Candidates`.

    Parameters
    ----------
    rows : LanceRows
        Of a version that has the index.
    settings : Settings
    n_rows : int, optional
        Rows covered, from the first on; None: as many as when it was measured.
    spare : int
        Hidden rows: so many more are named.
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
    """Make an index of a table's rows, and find out how it has to be asked; one that does not pay is dropped again.

    Returns
    -------
    (int, Settings)
        The version that has the index, or that has none; and what was measured.
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
        tried = Settings(rows.n_rows, n_lists, probed, K + SPARE, 0.0, 0.0, exact)
        by_index = LancePart(exactly.ids, rows, index=LanceIndex(rows, tried))
        seconds, found = _timed(by_index, queries, k)
        recall = np.mean([np.isin(these, those).mean() for these, those in zip(best, found.ids, strict=True)])
        settings = Settings(rows.n_rows, n_lists, probed, K + SPARE, float(recall), seconds, exact)
        if recall >= RECALL:
            break
    return settings


def _timed(part: LancePart, queries: NDArray[np.float32], k: int) -> tuple[float, Ranking]:
    """Ask query by query, and give the median of the seconds; one query three times."""
    seconds, found = [], []
    for q in queries[:, None, :] if len(queries) > 1 else [queries] * 3:
        start = time.perf_counter()
        found.append(part.best(q, k))
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), Ranking(*(np.concatenate(both) for both in zip(*found, strict=True)))
