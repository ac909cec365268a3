"""The rows of a catalogue: segments that SQLite knows, appended to, read as they are committed, compacted."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import CorruptFileError, ShapeError
from visterm.core.types import Matrix
from visterm.store.current_rows import CurrentRows, current_rows
from visterm.store.database import Database
from visterm.store.images import as_list
from visterm.store.segments import Segment, SegmentFolder, SegmentInMemory

ROWS = "rows"


class StoredSegment(NamedTuple):
    """A segment as its table knows it; its folder is ``rows/<id>``."""

    id: int
    run_id: int
    kind: str
    width: int
    n_rows: int


class StoredRows:
    """Segments of rows, on disk or in memory. Who calls what writes holds the writer's lock and a transaction.

    Parameters
    ----------
    database : Database
    folder : Path or None
        Of the catalogue; None: in memory.
    """

    def __init__(self, database: Database, folder: Path | None) -> None:
        self.database = database
        self.folder = folder
        self._in_memory: dict[int, SegmentInMemory] = {}
        self._current: CurrentRows | None = None

    def current(self) -> CurrentRows:
        """Give the rows as they are committed now: the last ones again, while nothing has changed."""
        rows = self._current
        if rows is None or rows.version != self._version():
            rows = self._current = self._read()
        return rows

    def have_changed(self) -> None:
        """Tell searches, of other processes too; drawn and not counted, so that it is new after a rollback as well."""
        self.database.write("UPDATE meta SET value = hex(randomblob(8)) WHERE key = 'rows'")

    def segments(self) -> list[StoredSegment]:
        """List the segments of all runs."""
        found = self.database.rows("SELECT id, run_id, kind, width, n_rows FROM segments ORDER BY id")
        return [StoredSegment(*row) for row in found]

    def files(self, segment_id: int, kind: str, width: int) -> Segment:
        """Give the files, or the arrays, of a segment."""
        if self.folder is not None:
            return SegmentFolder(self.folder / ROWS / str(segment_id), kind, width)
        return self._in_memory.setdefault(segment_id, SegmentInMemory(kind, width))

    def append(self, run_id: int, ids: NDArray[np.int64], U: Matrix) -> None:
        """Keep a row of a run for each of some images, none twice, in place of any that they had.

        Raises
        ------
        ShapeError
            If the rows are not as wide as those that are there.
        """
        kind = "csr" if isinstance(U, sp.csr_array) else "dense"
        segment_id, n_rows = self._segment_for(run_id, kind, U.shape[1])
        self.files(segment_id, kind, U.shape[1]).append(n_rows, ids, U)
        among = "image_id IN (SELECT value FROM json_each(?))"
        self.database.write(
            f"INSERT INTO dead_rows SELECT segment_id, row FROM rows WHERE run_id = ? AND {among}",
            (run_id, as_list(ids)),
        )
        self.database.write_many(
            "INSERT INTO rows (run_id, image_id, segment_id, row) VALUES (?, ?, ?, ?) "
            "ON CONFLICT DO UPDATE SET segment_id = excluded.segment_id, row = excluded.row",
            ((run_id, image_id, segment_id, n_rows + i) for i, image_id in enumerate(ids.tolist())),
        )
        self.database.write("UPDATE segments SET n_rows = n_rows + ? WHERE id = ?", (len(ids), segment_id))
        self.have_changed()

    def compact(self, least: float) -> bool:
        """Write segments anew without their dead rows, where these are at least that share; say whether any was."""
        replaced = []
        with self.database.transaction():
            for segment in self.segments():
                dead = self._dead(segment.id)
                if len(dead) and len(dead) >= least * segment.n_rows:
                    self._write_anew(segment, dead)
                    replaced.append(segment.id)
        for segment_id in replaced:  # searches that are reading it keep their maps
            self._in_memory.pop(segment_id, None)
            if self.folder is not None:
                shutil.rmtree(self.folder / ROWS / str(segment_id), ignore_errors=True)
        return bool(replaced)

    def cut_what_is_not_committed(self) -> None:
        """Shorten files, and remove folders, that a killed process was writing."""
        if self.folder is None:
            return
        segments = self.segments()
        for segment in segments:
            self.files(*segment[:1], segment.kind, segment.width).cut(segment.n_rows)
        known, rows = {str(segment.id) for segment in segments}, self.folder / ROWS
        for left in rows.iterdir() if rows.is_dir() else ():
            if left.name not in known:
                shutil.rmtree(left, ignore_errors=True)

    def copy_to(self, folder: Path) -> None:
        """Write all segments into another catalogue's folder."""
        for segment in self.segments():
            copy = SegmentFolder(folder / ROWS / str(segment.id), segment.kind, segment.width)
            copy.create()
            copy.append(0, *self.files(segment.id, segment.kind, segment.width).read(segment.n_rows))

    def _version(self) -> Any:
        return self.database.value("SELECT value FROM meta WHERE key = 'rows'")

    def _read(self) -> CurrentRows:
        while True:
            version = self._version()
            try:
                return current_rows(self.database, self.files)
            except CorruptFileError:
                if version == self._version():  # else another process compacted just now, and removed what was old
                    raise

    def _segment_for(self, run_id: int, kind: str, width: int) -> tuple[int, int]:
        """Give id and length of the segment to append to: the last one of the run and kind, or a new one."""
        own = [segment for segment in self.segments() if segment.run_id == run_id]
        if own and own[0].width != width:
            raise ShapeError(
                f"U has {width} columns, but the rows of this store have {own[0].width}. "
                "Rows and queries must come from the same model."
            )
        of_kind = [segment for segment in own if segment.kind == kind]
        return (of_kind[-1].id, of_kind[-1].n_rows) if of_kind else (self._new_segment(run_id, kind, width), 0)

    def _new_segment(self, run_id: int, kind: str, width: int) -> int:
        with self.database.transaction() as connection:
            made = connection.execute(
                "INSERT INTO segments (run_id, kind, width, n_rows) VALUES (?, ?, ?, 0)", (run_id, kind, width)
            )
        segment_id = int(made.lastrowid or 0)
        self._in_memory.pop(segment_id, None)  # of a transaction that was rolled back
        files = self.files(segment_id, kind, width)
        if isinstance(files, SegmentFolder):
            files.create()
        return segment_id

    def _dead(self, segment_id: int) -> NDArray[np.int64]:
        found = self.database.rows("SELECT row FROM dead_rows WHERE segment_id = ? ORDER BY row", (segment_id,))
        return np.array([row[0] for row in found], np.int64)

    def _write_anew(self, old: StoredSegment, dead: NDArray[np.int64]) -> None:
        ids, U = self.files(old.id, old.kind, old.width).read(old.n_rows)
        kept = np.delete(np.arange(old.n_rows), dead)
        order = kept[np.argsort(ids[kept], kind="stable")]  # by id again: images that had changed were appended
        new = self._new_segment(old.run_id, old.kind, old.width)
        self.files(new, old.kind, old.width).append(0, ids[order], U[order])
        self.database.write("UPDATE segments SET n_rows = ? WHERE id = ?", (len(order), new))
        self.database.write_many(
            "UPDATE rows SET segment_id = ?, row = ? WHERE run_id = ? AND image_id = ?",
            ((new, row, old.run_id, image_id) for row, image_id in enumerate(ids[order].tolist())),
        )
        self.database.write("DELETE FROM segments WHERE id = ?", (old.id,))
        self.have_changed()
