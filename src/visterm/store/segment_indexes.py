"""Indexes of a catalogue's large segments: when one is due, whether it pays, and what `visterm info` says of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from visterm.core.jsonlines import json_text
from visterm.core.wording import count_of
from visterm.store.database import Database
from visterm.store.faiss_store import ASKED, INDEX_FROM, sample
from visterm.store.row_index import Settings, build_index, is_installed, settings_of
from visterm.store.segments import SegmentFolder
from visterm.store.stored_rows import StoredRows

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
        """Say whether many rows are in no index that was tried."""
        return any(covered < (1 - AGAIN) * n_rows for _, _, n_rows, covered in self._large())

    def build(self, queries: Any) -> bool:
        """Make them, and say whether there is one that pays; of one that does not, what was measured is kept."""
        made = False
        for segment_id, width, n_rows, _ in self._large():
            files = self._rows.files(segment_id, "dense", width)
            assert isinstance(files, SegmentFolder)
            U = files.read(n_rows)[1]
            assert isinstance(U, np.ndarray)
            index = build_index(U, sample(U) if queries is None else np.asarray(queries, np.float32)[:ASKED])
            name = f"{n_rows}.faiss"
            if index.settings.pays:
                index.write(files.folder / name)
                made = True
            with self._database.transaction():
                self._database.write(
                    "INSERT INTO indexes (segment_id, file, n_rows, facts) VALUES (?, ?, ?, ?) ON CONFLICT DO "
                    "UPDATE SET file = excluded.file, n_rows = excluded.n_rows, facts = excluded.facts",
                    (segment_id, name, n_rows, json_text(index.settings.as_dict())),
                )
                self._rows.have_changed()
            for old in files.folder.glob("*.faiss"):
                if old.name != name or not index.settings.pays:
                    old.unlink()
        return made

    def describe(self) -> str:
        """Say how searches go."""
        found = self._database.rows(
            "SELECT facts, segments.n_rows FROM indexes JOIN segments ON segments.id = segment_id "
            f"WHERE {OF_THE_CURRENT_RUN} ORDER BY indexes.n_rows DESC"
        )
        if not found:
            return "exactly: every row is compared"
        largest = settings_of(found[0][0])
        if not largest.pays:
            return f"exactly: an index does not pay here ({_measured(largest)})"
        if not is_installed():
            return "exactly: there is an index, but faiss is not installed (pip install 'visterm[faiss]')"
        later = found[0][1] - largest.n_rows
        rest = f"; {count_of(later, 'row')} since then exactly" if later else ""
        return (
            f"faiss, {largest.probed} of {largest.lists} lists of {largest.n_rows:,} rows: {_measured(largest)}{rest}"
        )

    def _large(self) -> list[Any]:
        """Give id, width, rows, and rows that an index was tried of, of each segment that is large enough."""
        return self._database.rows(
            "SELECT segments.id, width, segments.n_rows, coalesce(indexes.n_rows, 0) FROM segments "
            f"LEFT JOIN indexes ON segment_id = segments.id WHERE kind = 'dense' AND segments.n_rows >= ? "
            f"AND {OF_THE_CURRENT_RUN}",
            (INDEX_FROM,),
        )


def _measured(settings: Settings) -> str:
    return (
        f"{settings.recall:.1%} of the ten best in {1e3 * settings.seconds:.2f} ms, "
        f"exactly in {1e3 * settings.exact_seconds:.2f} ms"
    )
