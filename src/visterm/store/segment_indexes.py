"""Indexes of a catalogue's large segments: when one is due, whether it pays, and what `visterm info` says of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from visterm.core.jsonlines import json_text
from visterm.core.wording import count_of
from visterm.store.database import Database
from visterm.store.lance_rows import index_that_pays
from visterm.store.lance_segment import LANCE, LanceSegment
from visterm.store.row_index import Settings, build_index, is_installed, settings_of
from visterm.store.segments import SegmentFolder, StoredSegment, segments_of
from visterm.store.stored_rows import StoredRows

INDEX_FROM = 100_000
"""Rows of a segment from which on an index pays: below, reading all of them takes a few milliseconds."""

N_QUERIES = 200  # Queries that an index is measured on: so many that their mean is sure to half a percent
AGAIN = 0.2  # Share of a segment's rows outside its index, from which on it is made anew
OF_THE_CURRENT_RUN = "run_id = (SELECT coalesce(rows_of, id) FROM runs WHERE current = 1)"


def indexes_are_due(database: Database) -> bool:
    """Return whether many rows of the current run are in no index that was tried, and one can be made."""
    measured = "SELECT json_extract(facts, '$.n_rows') FROM indexes WHERE segment_id = ?"
    return any(
        (database.value(measured, (segment.id,)) or 0) < (1 - AGAIN) * segment.n_rows
        and (segment.table_version is not None or is_installed())
        for segment in _large_segments(database)
    )


def build_indexes(rows: StoredRows, queries: Any) -> bool:
    """Index each large segment of the current run, and return whether an index pays; one that does not is not kept.

    The first 200 of `queries`, (n_queries, width), are what an index is measured on; None: some of the rows.
    """
    database, made = rows.database, False
    for segment in _large_segments(database):
        files = rows.files(segment)
        assert isinstance(files, SegmentFolder)
        if queries is None:
            places = np.sort(np.random.default_rng(1).permutation(segment.n_rows)[:N_QUERIES])
            drawn = files.part(segment.n_rows, np.empty(0, np.int64)).take(places)
        sample = np.asarray(drawn if queries is None else queries[:N_QUERIES], np.float32)
        if isinstance(files, LanceSegment):
            name = LANCE
            files.table_version, settings = index_that_pays(
                files.table, files.table_version, segment.n_rows, segment.width, sample
            )
        else:
            name = f"{segment.n_rows}.faiss"
            U = files.read(segment.n_rows)[1]
            assert isinstance(U, np.ndarray)
            index = build_index(U, sample)
            settings = index.settings
            if settings.pays:
                index.write(files.folder / name)
        made = made or settings.pays
        with database.transaction():
            database.write(
                "INSERT INTO indexes (segment_id, file, n_rows, facts) VALUES (?, ?, ?, ?) ON CONFLICT DO "
                "UPDATE SET file = excluded.file, n_rows = excluded.n_rows, facts = excluded.facts",
                (segment.id, name, segment.n_rows, json_text(settings.as_dict())),
            )
            database.write("UPDATE segments SET table_version = ? WHERE id = ?", (files.table_version, segment.id))
            rows.have_changed()
        for old in files.folder.glob("*.faiss"):
            if old.name != name or not settings.pays:
                old.unlink()
    return made


def how_it_searches(database: Database) -> str:
    """Return how searches of the current run go: exactly, or through an index, with what was measured of it."""
    found = database.rows(
        "SELECT facts, segments.n_rows - indexes.n_rows, file FROM indexes "
        f"JOIN segments ON segments.id = segment_id WHERE {OF_THE_CURRENT_RUN} ORDER BY indexes.n_rows DESC LIMIT 1"
    )
    if not found:
        return "exact: every photo is compared"
    facts, later, file = found[0]
    largest = settings_of(facts)
    if not largest.pays:
        return f"exactly: an index does not pay here ({_measured(largest)})"
    if file != LANCE and not is_installed():
        return "exactly: there is an index, but faiss is not installed (pip install 'visterm[faiss]')"
    rest = f"; {count_of(later, 'row')} since then exactly" if later else ""
    by = "LanceDB" if file == LANCE else "faiss"
    return f"{by}, {largest.probed} of {largest.lists} lists of {largest.n_rows:,} rows: {_measured(largest)}{rest}"


def _large_segments(database: Database) -> list[StoredSegment]:
    """Return the current run's segments that are large enough for an index."""
    return segments_of(database, f"WHERE kind = 'dense' AND n_rows >= ? AND {OF_THE_CURRENT_RUN}", INDEX_FROM)


def _measured(settings: Settings) -> str:
    """Return what was measured of an index, in words."""
    return (
        f"{settings.recall:.1%} of the ten best in {1e3 * settings.seconds:.2f} ms, "
        f"exactly in {1e3 * settings.exact_seconds:.2f} ms"
    )
