"""The rows of a catalogue: segments that SQLite knows, appended to, checked by their sums, compacted, indexed if large.

There is a checksum for each block of rows on disk: bytes that flipped give wrong answers and no error of their own.
"""

from __future__ import annotations

import json
import shutil
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import other_width
from visterm.core.errors import CorruptFileError, DataError, StorageError
from visterm.core.types import Matrix
from visterm.core.wording import count_of, json_text
from visterm.store.current_rows import CurrentRows, Part
from visterm.store.database import Database
from visterm.store.images import LISTED, as_list
from visterm.store.lance_rows import DENSE_ONLY, LANCE, LancePlace, LanceSegment, index_that_pays
from visterm.store.lance_table import table_names
from visterm.store.row_index import IndexSettings, build_index, is_installed, settings_of
from visterm.store.segments import (
    DATA,
    DENSE,
    IDS,
    RESTORE,
    Segment,
    SegmentFolder,
    SegmentInMemory,
    StoredIndex,
    StoredSegment,
    checked_places,
    segments_of,
)

ROWS = "rows"

VERSION = "SELECT value FROM meta WHERE key = 'rows'"  # It changes whenever rows do
CURRENT = "SELECT coalesce(rows_of, id) FROM runs WHERE current = 1"  # The run whose rows are searched

# The words CROSS JOIN make SQLite begin with the few images that are gone; else it goes through all rows
HIDDEN = (
    "SELECT row FROM dead_rows WHERE segment_id = ? UNION "
    "SELECT rows.row FROM images CROSS JOIN rows ON rows.run_id = ? AND rows.image_id = images.id "
    "AND rows.segment_id = ? WHERE images.state = 'gone' ORDER BY row"
)

# The frames that searches look at, but for the first of each video, which is its own image, and their videos
FRAMES = (
    "SELECT image_id, video_id FROM frames JOIN images ON images.id = image_id AND state = 'frame' "
    "WHERE EXISTS (SELECT 1 FROM rows WHERE run_id = ? AND rows.image_id = frames.image_id) ORDER BY video_id, at"
)

COPIED = 65536  # Rows written anew at a time
BLOCK_BYTES = 2**20  # Bytes of rows, about, under one checksum: little enough that a few are read at every opening
SAMPLED = 4  # Blocks of a segment that are checked when a catalogue is opened

INDEX_FROM = 100_000  # Rows of a segment from which on an index pays: reading fewer takes a few milliseconds

N_QUERIES = 200  # Queries that an index is measured on: so many that their mean is sure to half a percent
AGAIN = 0.2  # Share of a segment's rows outside its index, from which on it is made anew
OF_THE_CURRENT_RUN = f"run_id = ({CURRENT})"


@dataclass(eq=False)
class RowStore:
    """Segments of rows, in a catalogue's folder or in memory (None).

    Who calls what writes holds the writer's lock and a transaction.
    """

    database: Database
    folder: Path | None
    _in_memory: dict[int, SegmentInMemory] = field(default_factory=dict)

    def read_current(self) -> CurrentRows:
        """Read which rows the current run has now, and map them.

        Raises CorruptFileError if the database names rows that cannot be, or their files are damaged.
        """
        with self.database.transaction(writes=False):
            [(version, run_id, last_id)] = self.database.rows(
                f"SELECT ({VERSION}), ({CURRENT}), (SELECT coalesce(max(id), 0) FROM images)"
            )
            if run_id is None:
                raise no_current_run(self.database)
            parts: list[Part] = []
            width = None
            for segment in segments_of(self.database, "WHERE run_id = ?", run_id):
                if width not in (None, segment.width):
                    raise CorruptFileError(
                        f"The rows of one run are {width} and {segment.width} numbers wide. {RESTORE}"
                    )
                width = segment.width
                hidden = checked_places(self.database.rows(HIDDEN, (segment.id, run_id, segment.id)), segment)
                of_segment = "SELECT file, n_rows, facts FROM indexes WHERE segment_id = ?"
                known = self.database.rows(of_segment, (segment.id,))
                index = StoredIndex(*known[0]) if known else None
                if index is not None and not 0 <= index.n_rows <= segment.n_rows:
                    raise CorruptFileError(
                        f"An index of {segment.n_rows} rows is noted to cover {index.n_rows}. {RESTORE}"
                    )
                files = self.files(segment)
                part = files.part(segment.n_rows, hidden, index)
                first, last = (part.ids.min(), part.ids.max()) if len(part.ids) else (0, 0)
                if not 0 <= first <= last <= last_id:
                    raise CorruptFileError(
                        f"{files.where(IDS)}: the rows are of the images {first} to {last}; expected 0 to {last_id}, "
                        f"as the catalogue has no others. {RESTORE}"
                    )
                parts.append(part)
            frames = np.array(self.database.rows(FRAMES, (run_id,)), np.int64).reshape(-1, 2)
        return CurrentRows(version, parts, width, frames)

    def have_changed(self) -> None:
        """Tell searches, of other processes too; drawn and not counted, so that it is new after a rollback as well."""
        self.database.write("UPDATE meta SET value = hex(randomblob(8)) WHERE key = 'rows'")

    @property
    def lance(self) -> LancePlace | None:
        """Where new rows are kept in Lance tables; None where in files."""
        text = self.database.value("SELECT value FROM meta WHERE key = 'lance'")
        return LancePlace(**json.loads(text)) if text is not None else None

    def keep_in_lance(self, uri: str) -> None:
        """Keep the rows that are to come in Lance tables at a place; empty: in the catalogue's folder.

        Raises StorageError if there are rows already.
        """
        if segments_of(self.database):
            raise StorageError("The catalogue has rows already, and they stay where they are.")
        tables = LancePlace.at(uri)
        assert self.folder is not None
        table_names(tables.uri_of(self.folder))  # fails now, not after the first images were encoded
        self.database.write("INSERT OR REPLACE INTO meta VALUES ('lance', ?)", (json_text(tables._asdict()),))

    def files(self, segment: StoredSegment) -> Segment:
        """Return the files, the table or the arrays of a segment."""
        if self.folder is None:
            return self._in_memory.setdefault(segment.id, SegmentInMemory(segment.kind, segment.width))
        folder = self.folder / ROWS / str(segment.id)
        if segment.table_version is None:
            return SegmentFolder(folder, segment.kind, segment.width)
        tables = self.lance
        if tables is None:
            raise CorruptFileError(f"The catalogue {self.folder} does not say where its Lance tables lie.")
        return LanceSegment(folder, segment.width, tables.table(self.folder, segment.id), segment.table_version)

    def append(self, run_id: int, ids: NDArray[np.int64], U: Matrix) -> None:
        """Keep a row of a run for each of some images, none twice, in place of any that they had.

        Raises ShapeError if the rows are not as wide as those that are there.
        """
        kind, width = "csr" if isinstance(U, sp.csr_array) else "dense", U.shape[1]
        of_run = segments_of(self.database, "WHERE run_id = ?", run_id)
        if of_run and of_run[0].width != width:
            raise other_width("U", width, of_run[0].width)
        of_kind = [segment for segment in of_run if segment.kind == kind]
        segment = of_kind[-1] if of_kind else self._new_segment(run_id, kind, width)
        segment_id, n_rows = segment.id, segment.n_rows
        files = self.files(segment)
        files.append(n_rows, ids, U)
        if segment.table_version is None:
            self._note_sums(segment_id, n_rows, ids, U)

        self.database.write(
            f"INSERT INTO dead_rows SELECT segment_id, row FROM rows WHERE run_id = ? AND image_id {LISTED}",
            (run_id, as_list(ids)),
        )
        self.database.write_many(
            "INSERT INTO rows (run_id, image_id, segment_id, row) VALUES (?, ?, ?, ?) "
            "ON CONFLICT DO UPDATE SET segment_id = excluded.segment_id, row = excluded.row",
            ((run_id, image_id, segment_id, n_rows + i) for i, image_id in enumerate(ids.tolist())),
        )
        self._commit(segment_id, n_rows + len(ids), files)
        self.have_changed()

    def check(self, *, sampled: bool = False) -> None:
        """Compare rows with their checksums: all, or of the current run's segments a few blocks drawn at random.

        Raises CorruptFileError if some differ, or in a check of all some have none.
        """
        version = self.database.rows(VERSION)
        which = f"WHERE {OF_THE_CURRENT_RUN}" if sampled else ""
        try:
            for segment in segments_of(self.database, which):
                blocks = self.database.rows(
                    "SELECT first, n_rows, ids_sum, rows_sum FROM row_sums WHERE segment_id = ? AND first + n_rows <= "
                    f"? {f'ORDER BY random() LIMIT {SAMPLED}' if sampled else 'ORDER BY first'}",
                    (segment.id, segment.n_rows),
                )
                if segment.table_version is not None or (sampled and not blocks):
                    continue
                files = self.files(segment)
                if not sampled and (n_missing := segment.n_rows - sum(n_rows for _, n_rows, *_ in blocks)):
                    raise CorruptFileError(
                        f"{files.where(IDS)}: {n_missing:,} rows have no checksum in {self.database.path}, which "
                        f"another program changed. {RESTORE}"
                    )
                ids, U = files.read(segment.n_rows)
                for first, n_rows, *expected in blocks:
                    sums = _sums(ids, U, first, n_rows)
                    if sums != tuple(expected):
                        name = IDS if sums[0] != expected[0] else DENSE if segment.kind == "dense" else DATA
                        raise CorruptFileError(
                            f"{files.where(name)}: rows {first:,} to {first + n_rows - 1:,} are not what was written; "
                            f"the disk or another program changed them. {RESTORE}"
                        )
        except CorruptFileError:
            if not sampled or version == self.database.rows(VERSION):
                raise  # else another process compacted just now, and removed what was old

    def compact(self, least: float) -> bool:
        """Write segments anew without their dead rows, where these are at least that share; return whether any was."""
        replaced = []
        with self.database.transaction():
            for segment in segments_of(self.database):
                dead = checked_places(
                    self.database.rows("SELECT row FROM dead_rows WHERE segment_id = ? ORDER BY row", (segment.id,)),
                    segment,
                )
                if len(dead) and len(dead) >= least * segment.n_rows:
                    self._write_anew(segment, dead)
                    replaced.append(segment.id)

        for segment_id in replaced:  # searches that are reading it keep their maps
            self._in_memory.pop(segment_id, None)
            if self.folder is not None:
                shutil.rmtree(self.folder / ROWS / str(segment_id), ignore_errors=True)

        for segment in segments_of(self.database):  # the small files of Lance tables, and their indexes
            files = self.files(segment)
            if not isinstance(files, LanceSegment) or not files.table.is_untidy(segment.n_rows):
                continue
            version, all_indexed = files.table.tidy(files.table_version)
            with self.database.transaction():
                self.database.write("UPDATE segments SET table_version = ? WHERE id = ?", (version, segment.id))
                if all_indexed:
                    of_segment = "UPDATE indexes SET n_rows = ? WHERE segment_id = ?"
                    self.database.write(of_segment, (segment.n_rows, segment.id))
                self.have_changed()
            files.table.forget_old_versions()
        return bool(replaced)

    def cut_what_is_not_committed(self) -> None:
        """Shorten files, and remove folders, that a killed process was writing."""
        if self.folder is None:
            return
        segments = segments_of(self.database)
        for segment in segments:
            self.files(segment).cut(segment.n_rows)
        known, rows = {str(segment.id) for segment in segments}, self.folder / ROWS
        for folder in rows.iterdir() if rows.is_dir() else ():
            if folder.name not in known:
                shutil.rmtree(folder, ignore_errors=True)
        if (tables := self.lance) is not None:
            tables.sweep(self.folder, [segment.id for segment in segments])

    def copy_to(self, folder: Path) -> None:
        """Write all segments into another catalogue's folder, as files."""
        for segment in segments_of(self.database):
            copy = SegmentFolder(folder / ROWS / str(segment.id), segment.kind, segment.width)
            copy.create()
            _copy(self.files(segment).part(segment.n_rows, np.empty(0, np.int64)), np.arange(segment.n_rows), copy)

    def _note_sums(self, segment_id: int, first: int, ids: NDArray[np.int64], U: Matrix) -> None:
        """Keep the checksums of rows that are written from one row of a segment on, block by block."""
        n_bytes = U.nbytes if isinstance(U, np.ndarray) else U.data.nbytes + U.indices.nbytes
        step = max(1, BLOCK_BYTES * max(1, U.shape[0]) // max(1, n_bytes))
        blocks = ((start, min(step, len(ids) - start)) for start in range(0, len(ids), step))
        self.database.write_many(
            "INSERT OR REPLACE INTO row_sums (segment_id, first, n_rows, ids_sum, rows_sum) VALUES (?, ?, ?, ?, ?)",
            ((segment_id, first + start, n, *_sums(ids, U, start, n)) for start, n in blocks),
        )

    def _new_segment(self, run_id: int, kind: str, width: int) -> StoredSegment:
        in_lance = self.folder is not None and self.lance is not None
        if in_lance and kind != "dense":
            raise DataError(DENSE_ONLY)
        segment_id = self.database.insert(
            "INSERT INTO segments (run_id, kind, width, n_rows) VALUES (?, ?, ?, 0)", (run_id, kind, width)
        )
        self._in_memory.pop(segment_id, None)  # of a transaction that was rolled back
        segment = StoredSegment(segment_id, run_id, kind, width, 0, 0 if in_lance else None)
        files = self.files(segment)
        if isinstance(files, SegmentFolder):
            files.create()
        self._commit(segment_id, 0, files)
        return segment._replace(table_version=files.table_version)

    def _commit(self, segment_id: int, n_rows: int, files: Segment) -> None:
        self.database.write(
            "UPDATE segments SET n_rows = ?, table_version = ? WHERE id = ?", (n_rows, files.table_version, segment_id)
        )

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
            self._note_sums(new.id, 0, *files.read(len(order)))
        self.database.write_many(
            "UPDATE rows SET segment_id = ?, row = ? WHERE run_id = ? AND image_id = ?",
            ((new.id, row, old.run_id, image_id) for row, image_id in enumerate(ids[order].tolist())),
        )
        self.database.write("DELETE FROM segments WHERE id = ?", (old.id,))
        self.have_changed()


def _copy(part: Part, places: NDArray[np.int64], files: Segment) -> None:
    for start in range(0, len(places), COPIED):
        block = places[start : start + COPIED]
        files.append(start, part.ids[block], part.take(block))


def _sums(ids: NDArray[np.int64], U: Matrix, first: int, n_rows: int) -> tuple[int, int]:
    """Return the checksums of the ids and of the values of some rows, as files hold them."""
    end = first + n_rows
    ids_sum = zlib.crc32(np.ascontiguousarray(ids[first:end], np.int64))
    if isinstance(U, np.ndarray):
        return ids_sum, zlib.crc32(np.ascontiguousarray(U[first:end], np.float32))
    pointers = np.asarray(U.indptr[first : end + 1], np.int64)
    start, stop = int(pointers[0]), int(pointers[-1])
    rows_sum = zlib.crc32(np.ascontiguousarray(np.diff(pointers), np.int64))
    rows_sum = zlib.crc32(np.ascontiguousarray(U.indices[start:stop], np.int32), rows_sum)
    return ids_sum, zlib.crc32(np.ascontiguousarray(U.data[start:stop], np.float32), rows_sum)


def no_current_run(database: Database) -> CorruptFileError:
    """Return the error of a database that names no current run."""
    return CorruptFileError(f"{database.path} names no current run. Index the images again.")


def indexes_are_due(database: Database) -> bool:
    """Return whether many rows of the current run are in no index that was tried, and one can be made."""
    measured = "SELECT json_extract(facts, '$.n_rows') FROM indexes WHERE segment_id = ?"
    return any(
        (database.value(measured, (segment.id,)) or 0) < (1 - AGAIN) * segment.n_rows
        and (segment.table_version is not None or is_installed())
        for segment in _large_segments(database)
    )


def build_indexes(rows: RowStore, queries: NDArray[np.float32]) -> bool:
    """Index each large segment of the current run, and return whether an index pays; one that does not is not kept.

    The first 200 of `queries`, (n_queries, width), are what an index is measured on.
    """
    database, made = rows.database, False
    for segment in _large_segments(database):
        files = rows.files(segment)
        assert isinstance(files, SegmentFolder)
        sample = np.asarray(queries[:N_QUERIES], np.float32)
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
                (segment.id, name, segment.n_rows, json_text(asdict(settings))),
            )
            database.write("UPDATE segments SET table_version = ? WHERE id = ?", (files.table_version, segment.id))
            rows.have_changed()
        for old in files.folder.glob("*.faiss"):
            if old.name != name or not settings.pays:
                old.unlink()
    return made


def how_it_searches(database: Database) -> str:
    """Return how searches of the current run go: exactly, or through an index, with what was measured of it."""
    indexes = database.rows(
        "SELECT facts, segments.n_rows - indexes.n_rows, file FROM indexes "
        f"JOIN segments ON segments.id = segment_id WHERE {OF_THE_CURRENT_RUN} ORDER BY indexes.n_rows DESC LIMIT 1"
    )
    if not indexes:
        return "exact: every photo is compared"
    facts, later, file = indexes[0]
    largest = settings_of(facts)
    if not largest.pays:
        return f"exactly: an index does not pay here ({_measured(largest)})"
    if file != LANCE and not is_installed():
        return "exactly: there is an index, but faiss is not installed (pip install 'visterm[faiss]')"
    rest = f"; {count_of(later, 'row')} since then exactly" if later else ""
    by = "LanceDB" if file == LANCE else "faiss"
    return f"{by}, {largest.probed} of {largest.lists} lists of {largest.n_rows:,} rows: {_measured(largest)}{rest}"


def _large_segments(database: Database) -> list[StoredSegment]:
    return segments_of(database, f"WHERE kind = 'dense' AND n_rows >= ? AND {OF_THE_CURRENT_RUN}", INDEX_FROM)


def _measured(settings: IndexSettings) -> str:
    return (
        f"{settings.recall:.1%} of the ten best in {1e3 * settings.seconds:.2f} ms, "
        f"exactly in {1e3 * settings.exact_seconds:.2f} ms"
    )
