"""Indexes of a catalogue's large segments: when one is due, whether it pays, and what `visterm info` says of it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.jsonlines import json_text
from visterm.core.wording import count_of
from visterm.store.current_rows import segments_of
from visterm.store.database import Database
from visterm.store.lance_index import index_that_pays
from visterm.store.lance_segment import LANCE, LanceSegment
from visterm.store.row_index import Settings, build_index, is_installed, settings_of
from visterm.store.segments import SegmentFolder, StoredSegment
from visterm.store.stored_rows import StoredRows

INDEX_FROM = 100_000
"""Rows of a segment from which on an index pays: below, reading all of them takes a few milliseconds."""

ASKED = 100
"""Queries that an index is measured on."""

AGAIN = 0.2
"""Share of a segment's rows outside its index, from which on it is made anew."""

OF_THE_CURRENT_RUN = "run_id = (SELECT coalesce(rows_of, id) FROM runs WHERE current = 1)"


class SegmentIndexes:
    """The indexes of the current run's segments.

    Parameters
    ----------
    database : Database
    rows : StoredRows
    """

    def __init__(self, database: Database, rows: StoredRows) -> None:
        self._database = database
        self._rows = rows

    def are_due(self) -> bool:
        """Return whether many rows are in no index that was tried, and one can be made."""
        return any(
            covered < (1 - AGAIN) * segment.n_rows and (segment.table_version is not None or is_installed())
            for segment, covered in self._large()
        )

    def build(self, queries: Any) -> bool:
        """Make them, and say whether there is one that pays; of one that does not, what was measured is kept."""
        made = False
        for segment, _ in self._large():
            files = self._rows.files(segment)
            assert isinstance(files, SegmentFolder)
            if isinstance(files, LanceSegment):
                name, settings = LANCE, self._in_the_table(files, segment, queries)
            else:
                name = f"{segment.n_rows}.faiss"
                settings = self._beside_the_rows(files, segment, queries, name)
            made = made or settings.pays
            with self._database.transaction():
                self._database.write(
                    "INSERT INTO indexes (segment_id, file, n_rows, facts) VALUES (?, ?, ?, ?) ON CONFLICT DO "
                    "UPDATE SET file = excluded.file, n_rows = excluded.n_rows, facts = excluded.facts",
                    (segment.id, name, segment.n_rows, json_text(settings.as_dict())),
                )
                self._database.write(
                    "UPDATE segments SET table_version = ? WHERE id = ?", (files.table_version, segment.id)
                )
                self._rows.have_changed()
            for old in files.folder.glob("*.faiss"):
                if old.name != name or not settings.pays:
                    old.unlink()
        return made

    def _beside_the_rows(self, files: SegmentFolder, segment: StoredSegment, queries: Any, name: str) -> Settings:
        U = files.read(segment.n_rows)[1]
        assert isinstance(U, np.ndarray)
        index = build_index(U, U[drawn_places(len(U))] if queries is None else np.asarray(queries, np.float32)[:ASKED])
        if index.settings.pays:
            index.write(files.folder / name)
        return index.settings

    def _in_the_table(self, files: LanceSegment, segment: StoredSegment, queries: Any) -> Settings:
        if queries is None:
            queries = files.rows(segment.n_rows).take(drawn_places(segment.n_rows))
        asked = np.asarray(queries, np.float32)[:ASKED]
        files.table_version, settings = index_that_pays(
            files.table, files.table_version, segment.n_rows, segment.width, asked
        )
        return settings

    def describe(self) -> str:
        """Say how searches go."""
        found = self._database.rows(
            "SELECT facts, segments.n_rows - indexes.n_rows, file FROM indexes "
            f"JOIN segments ON segments.id = segment_id WHERE {OF_THE_CURRENT_RUN} ORDER BY indexes.n_rows DESC"
        )
        if not found:
            return "exactly: every row is compared"
        facts, later, file = found[0]
        largest = settings_of(facts)
        if not largest.pays:
            return f"exactly: an index does not pay here ({_measured(largest)})"
        if file != LANCE and not is_installed():
            return "exactly: there is an index, but faiss is not installed (pip install 'visterm[faiss]')"
        rest = f"; {count_of(later, 'row')} since then exactly" if later else ""
        by = "LanceDB" if file == LANCE else "faiss"
        return f"{by}, {largest.probed} of {largest.lists} lists of {largest.n_rows:,} rows: {_measured(largest)}{rest}"

    def _large(self) -> list[tuple[StoredSegment, int]]:
        """Return each segment that is large enough, with how many of its rows an index was measured on."""
        large = segments_of(
            self._database, f"WHERE kind = 'dense' AND n_rows >= ? AND {OF_THE_CURRENT_RUN}", INDEX_FROM
        )
        measured = "SELECT json_extract(facts, '$.n_rows') FROM indexes WHERE segment_id = ?"
        return [(segment, self._database.value(measured, (segment.id,)) or 0) for segment in large]


def drawn_places(n_rows: int) -> NDArray[np.int64]:
    """Draw the places of some rows, ascending, to stand for queries."""
    return np.sort(np.random.default_rng(1).permutation(n_rows)[:ASKED])


def _measured(settings: Settings) -> str:
    return (
        f"{settings.recall:.1%} of the ten best in {1e3 * settings.seconds:.2f} ms, "
        f"exactly in {1e3 * settings.exact_seconds:.2f} ms"
    )
