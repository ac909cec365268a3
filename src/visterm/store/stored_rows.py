"""The rows of a catalogue: segments that SQLite knows, appended to, read as they are committed, compacted."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import CorruptFileError, DataError, StorageError
from visterm.core.types import Matrix
from visterm.store.current_rows import CurrentRows, checked_places, read_current_rows, segments_of
from visterm.store.database import Database
from visterm.store.images import as_list
from visterm.store.lance_segment import DENSE_ONLY, LancePlace, LanceSegment
from visterm.store.lance_table import table_names
from visterm.store.parts import Part
from visterm.store.row_sums import RowSums
from visterm.store.rows import other_width
from visterm.store.segments import Segment, SegmentFolder, SegmentInMemory, StoredSegment

ROWS = "rows"

COPIED = 65536  # Rows written anew at a time


class StoredRows:
    """Segments of rows, in a catalogue's folder or in memory (None).

    Who calls what writes holds the writer's lock and a transaction.
    """

    def __init__(self, database: Database, folder: Path | None) -> None:
        self.database = database
        self.folder = folder
        self.sums = RowSums(database, self.files)
        self._in_memory: dict[int, SegmentInMemory] = {}
        self._current: CurrentRows | None = None

    def current(self) -> CurrentRows:
        """Return the rows as they are committed now: the last ones again, while nothing has changed.

        Raises ReplacedError if the catalogue was removed or replaced since it was opened: the maps are of files that
        are gone.
        """
        self.database.check_in_place()
        rows, version = self._current, self._version()
        while rows is None or rows.version != version:
            try:
                rows = self._current = read_current_rows(self.database, self.files)
                break
            except CorruptFileError:
                before, version = version, self._version()
                if version == before:  # else another process compacted just now, and removed what was old
                    raise
        return rows

    def have_changed(self) -> None:
        """Tell searches, of other processes too; drawn and not counted, so that it is new after a rollback as well."""
        self.database.write("UPDATE meta SET value = hex(randomblob(8)) WHERE key = 'rows'")

    def segments(self) -> list[StoredSegment]:
        """List the segments of all runs."""
        return segments_of(self.database)

    @property
    def lance(self) -> LancePlace | None:
        """Where new rows are kept in Lance tables; None where in files."""
        found = self.database.value("SELECT value FROM meta WHERE key = 'lance'")
        return LancePlace.of(found) if found is not None else None

    def keep_in_lance(self, uri: str) -> None:
        """Keep the rows that are to come in Lance tables at a place; empty: in the catalogue's folder.

        Raises StorageError if there are rows already.
        """
        if self.segments():
            raise StorageError("The catalogue has rows already, and they stay where they are.")
        place = LancePlace.at(uri)
        assert self.folder is not None
        table_names(place.uri_of(self.folder))  # fails now, not after the first images were encoded
        self.database.write("INSERT OR REPLACE INTO meta VALUES ('lance', ?)", (place.as_text(),))

    def files(self, segment: StoredSegment) -> Segment:
        """Return the files, the table or the arrays of a segment."""
        if self.folder is None:
            return self._in_memory.setdefault(segment.id, SegmentInMemory(segment.kind, segment.width))
        folder = self.folder / ROWS / str(segment.id)
        if segment.table_version is None:
            return SegmentFolder(folder, segment.kind, segment.width)
        place = self.lance
        if place is None:
            raise CorruptFileError(f"The catalogue {self.folder} does not say where its Lance tables lie.")
        return LanceSegment(folder, segment.width, place.table(self.folder, segment.id), segment.table_version)

    def append(self, run_id: int, ids: NDArray[np.int64], U: Matrix) -> None:
        """Keep a row of a run for each of some images, none twice, in place of any that they had.

        Raises ShapeError if the rows are not as wide as those that are there.
        """
        kind = "csr" if isinstance(U, sp.csr_array) else "dense"
        segment = self._segment_for(run_id, kind, U.shape[1])
        segment_id, n_rows = segment.id, segment.n_rows
        files = self.files(segment)
        files.append(n_rows, ids, U)
        if segment.table_version is None:
            self.sums.note(segment_id, n_rows, ids, U)
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
        self._commit(segment_id, n_rows + len(ids), files)
        self.have_changed()

    def check_sample(self) -> None:
        """Compare a few blocks of the current run's rows with their checksums.

        Raises CorruptFileError if some differ.
        """
        version = self._version()
        try:
            run_id = self.database.value("SELECT coalesce(rows_of, id) FROM runs WHERE current = 1")
            for segment in segments_of(self.database, "WHERE run_id = ?", run_id):
                self.sums.check(segment, sampled=True)
        except CorruptFileError:
            if version == self._version():  # else another process compacted just now, and removed what was old
                raise

    def compact(self, least: float) -> bool:
        """Write segments anew without their dead rows, where these are at least that share; return whether any was."""
        replaced = []
        with self.database.transaction():
            for segment in self.segments():
                dead = self._dead(segment)
                if len(dead) and len(dead) >= least * segment.n_rows:
                    self._write_anew(segment, dead)
                    replaced.append(segment.id)
        for segment_id in replaced:  # searches that are reading it keep their maps
            self._in_memory.pop(segment_id, None)
            if self.folder is not None:
                shutil.rmtree(self.folder / ROWS / str(segment_id), ignore_errors=True)
        self._tidy()
        return bool(replaced)

    def cut_what_is_not_committed(self) -> None:
        """Shorten files, and remove folders, that a killed process was writing."""
        if self.folder is None:
            return
        segments = self.segments()
        for segment in segments:
            self.files(segment).cut(segment.n_rows)
        known, rows = {str(segment.id) for segment in segments}, self.folder / ROWS
        for left in rows.iterdir() if rows.is_dir() else ():
            if left.name not in known:
                shutil.rmtree(left, ignore_errors=True)
        if (place := self.lance) is not None:
            place.sweep(self.folder, [segment.id for segment in segments])

    def copy_to(self, folder: Path) -> None:
        """Write all segments into another catalogue's folder, as files."""
        for segment in self.segments():
            copy = SegmentFolder(folder / ROWS / str(segment.id), segment.kind, segment.width)
            copy.create()
            _copy(self.files(segment).part(segment.n_rows, np.empty(0, np.int64)), np.arange(segment.n_rows), copy)

    def _version(self) -> Any:
        return self.database.keep("rows", lambda: self.database.value("SELECT value FROM meta WHERE key = 'rows'"))

    def _segment_for(self, run_id: int, kind: str, width: int) -> StoredSegment:
        """Return the segment to append to: the last one of the run and kind, or a new one."""
        own = [segment for segment in self.segments() if segment.run_id == run_id]
        if own and own[0].width != width:
            raise other_width("U", width, own[0].width)
        of_kind = [segment for segment in own if segment.kind == kind]
        return of_kind[-1] if of_kind else self._new_segment(run_id, kind, width)

    def _new_segment(self, run_id: int, kind: str, width: int) -> StoredSegment:
        in_lance = self.folder is not None and self.lance is not None
        if in_lance and kind != "dense":
            raise DataError(DENSE_ONLY)
        with self.database.transaction() as connection:
            made = connection.execute(
                "INSERT INTO segments (run_id, kind, width, n_rows) VALUES (?, ?, ?, 0)", (run_id, kind, width)
            )
        segment_id = int(made.lastrowid or 0)
        self._in_memory.pop(segment_id, None)  # of a transaction that was rolled back
        segment = StoredSegment(segment_id, run_id, kind, width, 0, 0 if in_lance else None)
        files = self.files(segment)
        if isinstance(files, SegmentFolder):
            files.create()
        self._commit(segment_id, 0, files)
        return segment._replace(table_version=files.table_version)

    def _commit(self, segment_id: int, n_rows: int, files: Segment) -> None:
        """Note how many rows of a segment count, and in which version of its table."""
        self.database.write(
            "UPDATE segments SET n_rows = ?, table_version = ? WHERE id = ?", (n_rows, files.table_version, segment_id)
        )

    def _tidy(self) -> None:
        """Put the small files of Lance tables together, and bring their indexes up to date."""
        for segment in self.segments():
            files = self.files(segment)
            if not isinstance(files, LanceSegment) or not files.table.is_untidy(segment.n_rows):
                continue
            version, all_indexed = files.table.tidy(files.table_version)
            with self.database.transaction():
                self.database.write("UPDATE segments SET table_version = ? WHERE id = ?", (version, segment.id))
                if all_indexed:
                    self.database.write(
                        "UPDATE indexes SET n_rows = ? WHERE segment_id = ?", (segment.n_rows, segment.id)
                    )
                self.have_changed()
            files.table.forget_old_versions()

    def _dead(self, segment: StoredSegment) -> NDArray[np.int64]:
        statement = "SELECT row FROM dead_rows WHERE segment_id = ? ORDER BY row"
        return checked_places(self.database.rows(statement, (segment.id,)), segment)

    def _write_anew(self, old: StoredSegment, dead: NDArray[np.int64]) -> None:
        part = self.files(old).part(old.n_rows, np.empty(0, np.int64))
        ids = part.ids
        kept = np.delete(np.arange(old.n_rows), dead)
        order = kept[np.argsort(ids[kept], kind="stable")]  # by id again: images that had changed were appended
        new = self._new_segment(old.run_id, old.kind, old.width)
        files = self.files(new)
        _copy(part, order, files)
        self._commit(new.id, len(order), files)
        if new.table_version is None:
            self.sums.add_missing([new._replace(n_rows=len(order))])
        self.database.write_many(
            "UPDATE rows SET segment_id = ?, row = ? WHERE run_id = ? AND image_id = ?",
            ((new.id, row, old.run_id, image_id) for row, image_id in enumerate(ids[order].tolist())),
        )
        self.database.write("DELETE FROM segments WHERE id = ?", (old.id,))
        self.have_changed()


def _copy(part: Part, places: NDArray[np.int64], files: Segment) -> None:
    """Write rows of a part, by place, into an empty segment."""
    for start in range(0, len(places), COPIED):
        block = places[start : start + COPIED]
        files.append(start, part.ids[block], part.take(block))
