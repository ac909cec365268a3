"""The rows of a catalogue's current run as they were committed at one moment: what a search looks at."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import MOST_COLUMNS, check_k
from visterm.core.errors import CorruptFileError, DataError
from visterm.core.products import merged
from visterm.core.types import Matrix, Ranking
from visterm.store.database import Database
from visterm.store.parts import Part
from visterm.store.rows import as_ids, as_queries, stack_rows
from visterm.store.segments import IDS, Segment, StoredIndex, StoredSegment

HIDDEN = (
    "SELECT row FROM dead_rows WHERE segment_id = ? UNION "
    "SELECT rows.row FROM images CROSS JOIN rows ON rows.run_id = ? AND rows.image_id = images.id "
    "AND rows.segment_id = ? WHERE images.state = 'gone' ORDER BY row"
)
"""The words CROSS JOIN make SQLite begin with the few images that are gone; else it goes through all rows."""

QUERY_BLOCK = 64  # Queries whose best rows are found at a time
RESTORE = "Restore the catalogue from a backup, or index the images again into a new one."


class CurrentRows:
    """Rows to search, under the ids of their images.

    `version` is that of the tables: another one means that rows have changed. `parts` are the segments of one run;
    `width` is None where there are no rows.
    """

    def __init__(self, version: str, parts: list[Part], width: int | None) -> None:
        self.version = version
        self.parts = parts
        self.width = width

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    @cached_property
    def ids(self) -> NDArray[np.int64]:
        """Ids of the images, in order."""
        if not self.parts:
            return np.empty(0, np.int64)
        return np.sort(np.concatenate([part.visible_ids for part in self.parts]))

    def search(self, q: Any, k: int = 10, *, among: Any = None) -> Ranking:
        """Find the rows with the largest dot products, among all or those of some ids; see `StoredCatalogue.search`.

        Of equal rows the one with the smaller id comes first. With an index a few of the best may be missed; the scores
        are right. Raises ShapeError if `q` is not as wide as the rows; DataError if `q` is not finite, or `among` are
        no whole numbers.
        """
        Q, k = as_queries(q, self.width), check_k(k, len(self))
        ids = None if among is None else as_ids(among)
        places = [None if ids is None else part.places(ids) for part in self.parts]
        k = min(k, sum(len(part) if at is None else len(at) for part, at in zip(self.parts, places, strict=True)))
        found = Ranking(np.empty((Q.shape[0], k), np.int64), np.empty((Q.shape[0], k), np.float32))
        for start in range(0, Q.shape[0] if k else 0, QUERY_BLOCK):
            queries = slice(start, start + QUERY_BLOCK)
            block = Q[queries]
            dense = block.toarray() if isinstance(block, sp.csr_array) else block
            best = []
            for part, at in zip(self.parts, places, strict=True):
                best.append(part.best(dense, k, at))
            found.ids[queries], found.scores[queries] = merged(best, k)
        return found

    def products(self, q: Any, ids: Any = None) -> NDArray[np.float32]:
        """Return the products of images (None: of all, in order) with query rows, shape (n_images, n_queries)."""
        Q = as_queries(q, self.width)
        queries = Q.toarray() if isinstance(Q, sp.csr_array) else Q
        if ids is None and len(self.parts) == 1 and self.parts[0].ascending:
            return self.parts[0].products(queries)  # all rows where they lie, without a copy
        requested, back = (self.ids, None) if ids is None else np.unique(np.asarray(ids, np.int64), return_inverse=True)
        found = np.empty((len(requested), len(queries)), np.float32)
        for part, places, at in self._placed(requested):
            found[at] = part.products(queries, places)
        return found if back is None else found[back]

    def rows(self, ids: Any) -> Matrix:
        """Return the rows of images, in the order of their ids."""
        requested, back = np.unique(np.asarray(ids, np.int64).ravel(), return_inverse=True)
        placed = self._placed(requested)
        if not placed:
            return np.empty((0, self.width or 0), np.float32)
        stack = stack_rows([part.take(places) for part, places, _ in placed])
        order = np.argsort(np.concatenate([at for _, _, at in placed]))
        return stack[order[back]]

    def _placed(self, requested: NDArray[np.int64]) -> list[tuple[Part, NDArray[np.int64], NDArray[np.int64]]]:
        """Return, part by part, the places of images there, and which of those requested they are."""
        placed = []
        for part in self.parts:
            places = part.places(requested)
            placed.append((part, places, np.searchsorted(requested, part.ids[places])))
        if sum(len(at) for _, _, at in placed) < len(requested):
            missing = np.setdiff1d(requested, self.ids)
            raise DataError(f"The image {missing[0]} has no row of the current run ({len(missing)} have none).")
        return placed


def read_current_rows(database: Database, files: Callable[[StoredSegment], Segment]) -> CurrentRows:
    """Read which rows the current run has now, and map them.

    Raises CorruptFileError if the database names rows that cannot be, or their files are damaged.
    """
    with database.snapshot():
        version = database.value("SELECT value FROM meta WHERE key = 'rows'")
        run_id = database.value("SELECT coalesce(rows_of, id) FROM runs WHERE current = 1")
        last_id = database.value("SELECT max(id) FROM images") or 0
        parts: list[Part] = []
        width = None
        for segment in segments_of(database, "WHERE run_id = ?", run_id):
            if width not in (None, segment.width):
                raise CorruptFileError(f"The rows of one run are {width} and {segment.width} numbers wide. {RESTORE}")
            width = segment.width
            hidden = checked_places(database.rows(HIDDEN, (segment.id, run_id, segment.id)), segment)
            index = database.row("SELECT file, n_rows, facts FROM indexes WHERE segment_id = ?", (segment.id,))
            if index is not None and not 0 <= index[1] <= segment.n_rows:
                raise CorruptFileError(f"An index of {segment.n_rows} rows is noted to cover {index[1]}. {RESTORE}")
            part = files(segment).part(segment.n_rows, hidden, StoredIndex(*index) if index else None)
            if len(part.ids) and not 0 <= int(part.ids.min()) <= int(part.ids.max()) <= last_id:
                raise CorruptFileError(
                    f"{files(segment).where(IDS)}: the rows are of the images {part.ids.min()} to {part.ids.max()}; "
                    f"expected 0 to {last_id}, as the catalogue has no others. {RESTORE}"
                )
            parts.append(part)
    return CurrentRows(version, parts, width)


def checked_places(found: list[Any], segment: StoredSegment) -> NDArray[np.int64]:
    """Return the places of rows of a segment that the database lists, a place each.

    Raises CorruptFileError if the segment has no such row.
    """
    places = np.array([row[0] for row in found], np.int64)
    outside = places[(places < 0) | (places >= segment.n_rows)]
    if outside.size:
        raise CorruptFileError(
            f"The database names row {outside[0]} of segment {segment.id}, which has {segment.n_rows} rows. {RESTORE}"
        )
    return places


def segments_of(database: Database, where: str = "", *values: Any) -> list[StoredSegment]:
    """List segments, in their order: of all runs, or those for which a condition holds.

    Raises CorruptFileError if there can be no such segment.
    """
    found = database.rows(
        f"SELECT id, run_id, kind, width, n_rows, table_version FROM segments {where} ORDER BY id", values
    )
    segments = [StoredSegment(*row) for row in found]
    for segment in segments:
        if segment.kind not in ("dense", "csr") or not 0 <= segment.width <= MOST_COLUMNS or segment.n_rows < 0:
            raise CorruptFileError(
                f"The database says of segment {segment.id} that it has {segment.n_rows} rows of {segment.width} "
                f"numbers, {segment.kind}; expected at most {MOST_COLUMNS:,} numbers, dense or csr. {RESTORE}"
            )
    return segments
