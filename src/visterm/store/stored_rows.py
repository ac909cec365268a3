"""The rows of a catalogue: appending them to segments, verifying checksums, compacting, and indexing large segments.

Each block of rows on disk has a checksum, because flipped bytes would silently lead to wrong results.
"""

from __future__ import annotations

import json
import shutil
import zlib
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import width_error
from visterm.core.errors import CorruptFileError, DataError, StorageError
from visterm.core.types import Floats, Ints, Matrix
from visterm.core.wording import count_of, json_text
from visterm.store.current_rows import CurrentRows, Part
from visterm.store.database import Database
from visterm.store.history import Runs
from visterm.store.images import LISTED, as_list
from visterm.store.lance_rows import LanceLocation, LanceSegment, table_names
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
    checked_positions,
    segments_of,
)

ROWS = "rows"

VERSION = "SELECT value FROM meta WHERE key = 'rows'"  # Changes whenever rows change
CURRENT = "SELECT coalesce(rows_of, id) FROM runs WHERE current = 1"  # The run whose rows are searched

# CROSS JOIN makes SQLite start with the few images that are gone, instead of scanning all rows
HIDDEN_QUERY = (
    "SELECT row FROM dead_rows WHERE segment_id = ? UNION "
    "SELECT rows.row FROM images CROSS JOIN rows ON rows.run_id = ? AND rows.image_id = images.id "
    "AND rows.segment_id = ? WHERE images.state = 'gone' ORDER BY row"
)

# (frame id, video id) of all frames with a row, except first frames, whose id is the video's id
FRAMES = (
    "SELECT image_id, video_id FROM frames JOIN images ON images.id = image_id AND state = 'frame' "
    "WHERE EXISTS (SELECT 1 FROM rows WHERE run_id = ? AND rows.image_id = frames.image_id) ORDER BY video_id, at"
)

ROWS_PER_COPY = 65536  # Number of rows to copy at a time
BLOCK_BYTES = 2**20  # Approximate number of bytes per checksum; small, as opening a catalogue verifies a few blocks
SAMPLED_BLOCKS = 4  # Number of blocks per segment that are verified when a catalogue is opened

MIN_ROWS_FOR_INDEX = 100_000  # Minimum number of rows for an index; exact search of fewer rows takes milliseconds

MAX_MEASURED_QUERIES = 200  # Maximum number of queries for measuring an index: the standard error is about 0.5 %
INDEXES = "(SELECT * FROM indexes WHERE file <> 'lance')"  # 'lance': LanceDB's own, of earlier versions
MAX_UNINDEXED_SHARE = 0.2  # Rebuild an index if more than this share of the rows is not in it
IN_CURRENT_RUN = f"run_id = ({CURRENT})"


@dataclass(eq=False)
class RowStore:
    """The segments of rows in a catalogue's folder, or in memory (`folder` None).

    Callers of writing methods must have the writer lock and an open transaction.
    """

    database: Database
    folder: Path | None
    _in_memory: dict[int, SegmentInMemory] = field(default_factory=dict)

    def read_current(self) -> CurrentRows:
        """Return the current run's committed rows, memory-mapped.

        Raises CorruptFileError if the database describes impossible rows, or the row files are damaged.
        """
        with self.database.transaction(writes=False):
            run_id = Runs(self.database).current().rows_of
            [(version, last_id)] = self.database.rows(f"SELECT ({VERSION}), (SELECT coalesce(max(id), 0) FROM images)")
            parts: list[Part] = []
            width = None
            for segment in segments_of(self.database, "WHERE run_id = ?", run_id):
                if width not in (None, segment.width):
                    raise CorruptFileError(f"The rows of a run are {width} and {segment.width} numbers wide. {RESTORE}")
                width = segment.width
                hidden = checked_positions(self.database.rows(HIDDEN_QUERY, (segment.id, run_id, segment.id)), segment)
                index, index_query = None, f"SELECT file, n_rows, facts FROM {INDEXES} WHERE segment_id = ?"
                for file, n_rows, facts in self.database.rows(index_query, (segment.id,)):
                    if not 0 <= n_rows <= segment.n_rows:
                        raise CorruptFileError(f"An index of {segment.n_rows} rows claims to cover {n_rows}. {RESTORE}")
                    index = StoredIndex(file, replace(settings_of(facts), n_rows=n_rows))
                files = self.files(segment)
                part = files.part(segment.n_rows, hidden, index)
                first, last = (part.ids.min(), part.ids.max()) if len(part.ids) else (0, 0)
                if not 0 <= first <= last <= last_id:
                    raise CorruptFileError(
                        f"{files.label(IDS)}: the rows are of the images {first} to {last}; expected 0 to {last_id}, "
                        f"as the catalogue has no others. {RESTORE}"
                    )
                parts.append(part)
            frames = np.array(self.database.rows(FRAMES, (run_id,)), np.int64).reshape(-1, 2)
        return CurrentRows(version, parts, width, frames)

    def mark_changed(self) -> None:
        """Change the version of the rows, so all processes reload them; it is random, and new even after a rollback."""
        self.database.write("UPDATE meta SET value = hex(randomblob(8)) WHERE key = 'rows'")

    @property
    def lance(self) -> LanceLocation | None:
        """Location of the Lance tables for new rows; None if rows are stored in files."""
        text = self.database.value("SELECT value FROM meta WHERE key = 'lance'")
        return LanceLocation(**json.loads(text)) if text is not None else None

    def keep_in_lance(self, uri: str) -> None:
        """Store future rows in Lance tables at `uri`; empty: in the catalogue's folder.

        Raises StorageError if the catalogue already has rows.
        """
        if segments_of(self.database):
            raise StorageError("The catalogue already has rows, which cannot be moved to Lance tables.")
        tables = LanceLocation.at(uri)
        assert self.folder is not None
        table_names(tables.uri_of(self.folder))  # fail now instead of after encoding the first images
        self.database.write("INSERT OR REPLACE INTO meta VALUES ('lance', ?)", (json_text(tables._asdict()),))

    def files(self, segment: StoredSegment) -> Segment:
        """Return access to a segment's storage: files, Lance table or arrays in memory."""
        if self.folder is None:
            return self._in_memory.setdefault(segment.id, SegmentInMemory(segment.kind, segment.width))
        folder = self.folder / ROWS / str(segment.id)
        if segment.table_version is None:
            return SegmentFolder(folder, segment.kind, segment.width)
        tables = self.lance
        if tables is None:
            raise CorruptFileError(f"The catalogue {self.folder} does not say where its Lance tables are.")
        return LanceSegment(folder, segment.width, tables.table(self.folder, segment.id), segment.table_version)

    def append(self, run_id: int, ids: Ints, U: Matrix) -> None:
        """Store one row of a run per image id (no duplicates), replacing any previous rows.

        Raises ShapeError if `U` has another width than the stored rows.
        """
        kind, width = "csr" if isinstance(U, sp.csr_array) else "dense", U.shape[1]
        run_segments = segments_of(self.database, "WHERE run_id = ?", run_id)
        if run_segments and run_segments[0].width != width:
            raise width_error("U", width, run_segments[0].width)
        kind_segments = [segment for segment in run_segments if segment.kind == kind]
        segment = kind_segments[-1] if kind_segments else self._new_segment(run_id, kind, width)
        segment_id, n_rows = segment.id, segment.n_rows
        files = self.files(segment)
        files.append(n_rows, ids, U)
        if segment.table_version is None:
            self._store_sums(segment_id, n_rows, ids, U)

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
        self.mark_changed()

    def check(self, *, sampled: bool = False) -> None:
        """Compare rows with their checksums: all rows, or a few random blocks of the current run's segments.

        Raises CorruptFileError if a checksum differs, or in a full check if one is missing.
        """
        version = self.database.rows(VERSION)
        try:
            for segment in segments_of(self.database, f"WHERE {IN_CURRENT_RUN}" if sampled else ""):
                blocks = self.database.rows(
                    "SELECT first, n_rows, ids_sum, rows_sum FROM row_sums WHERE segment_id = ? AND first + n_rows <= "
                    f"? {f'ORDER BY random() LIMIT {SAMPLED_BLOCKS}' if sampled else 'ORDER BY first'}",
                    (segment.id, segment.n_rows),
                )
                if segment.table_version is not None or (sampled and not blocks):
                    continue
                files = self.files(segment)
                if not sampled and (n_missing := segment.n_rows - sum(n_rows for _, n_rows, *_ in blocks)):
                    raise CorruptFileError(
                        f"{files.label(IDS)}: {n_missing:,} rows have no checksum in {self.database.path}, which "
                        f"another program changed. {RESTORE}"
                    )
                ids, U = files.read(segment.n_rows)
                for first, n_rows, *expected in blocks:
                    sums = _sums(ids, U, first, n_rows)
                    if sums != tuple(expected):
                        name = IDS if sums[0] != expected[0] else DENSE if segment.kind == "dense" else DATA
                        raise CorruptFileError(
                            f"{files.label(name)}: rows {first:,} to {first + n_rows - 1:,} are not what was written; "
                            f"the disk or another program changed them. {RESTORE}"
                        )
        except CorruptFileError:
            if not sampled or version == self.database.rows(VERSION):
                raise  # otherwise another process has just compacted the rows and deleted the old files

    def compact(self, least: float) -> bool:
        """Rewrite segments whose share of dead rows is at least `least`; return whether a segment was rewritten."""
        replaced_ids = []
        with self.database.transaction():
            for segment in segments_of(self.database):
                dead_rows = checked_positions(
                    self.database.rows("SELECT row FROM dead_rows WHERE segment_id = ? ORDER BY row", (segment.id,)),
                    segment,
                )
                if len(dead_rows) and len(dead_rows) >= least * segment.n_rows:
                    self._rewrite(segment, dead_rows)
                    replaced_ids.append(segment.id)

        for segment_id in replaced_ids:  # running searches keep their memory maps
            self._in_memory.pop(segment_id, None)
            if self.folder is not None:
                shutil.rmtree(self.folder / ROWS / str(segment_id), ignore_errors=True)

        for segment in segments_of(self.database):  # compact Lance tables
            files = self.files(segment)
            if not isinstance(files, LanceSegment) or not files.table.needs_compaction(segment.n_rows):
                continue
            version = files.table.compact(files.table_version)
            with self.database.transaction():
                self.database.write("UPDATE segments SET table_version = ? WHERE id = ?", (version, segment.id))
                self.mark_changed()
            files.table.delete_old_versions()
        return bool(replaced_ids)

    def remove_uncommitted(self) -> None:
        """Cut off uncommitted rows, and delete uncommitted segments, of a killed process."""
        if self.folder is None:
            return
        segments = segments_of(self.database)
        for segment in segments:
            self.files(segment).cut(segment.n_rows)
        segment_names, rows = {str(segment.id) for segment in segments}, self.folder / ROWS
        for folder in rows.iterdir() if rows.is_dir() else ():
            if folder.name not in segment_names:
                shutil.rmtree(folder, ignore_errors=True)
        if (tables := self.lance) is not None:
            tables.sweep(self.folder, [segment.id for segment in segments])

    def copy_to(self, folder: Path) -> None:
        """Copy all segments into another catalogue's folder, as files."""
        for segment in segments_of(self.database):
            copy = SegmentFolder(folder / ROWS / str(segment.id), segment.kind, segment.width)
            copy.create()
            _copy(self.files(segment).part(segment.n_rows, np.empty(0, np.int64)), np.arange(segment.n_rows), copy)

    def _store_sums(self, segment_id: int, first: int, ids: Ints, U: Matrix) -> None:
        """Store the checksums of new rows, block by block; `first` is the position of the first new row."""
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
            raise DataError(
                "The rows are sparse, and a Lance table holds dense ones. Keep them in files, or choose a model whose "
                "rows are dense, such as wsabie."
            )
        segment_id = self.database.insert(
            "INSERT INTO segments (run_id, kind, width, n_rows) VALUES (?, ?, ?, 0)", (run_id, kind, width)
        )
        self._in_memory.pop(segment_id, None)  # left over from a transaction that was rolled back
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

    def _rewrite(self, old_segment: StoredSegment, dead_rows: Ints) -> None:
        part = self.files(old_segment).part(old_segment.n_rows, np.empty(0, np.int64))
        ids = part.ids
        positions = np.delete(np.arange(old_segment.n_rows), dead_rows)
        order = positions[np.argsort(ids[positions], kind="stable")]  # by id: rows of changed images were appended
        new_segment = self._new_segment(old_segment.run_id, old_segment.kind, old_segment.width)
        files = self.files(new_segment)
        _copy(part, order, files)
        self._commit(new_segment.id, len(order), files)
        if new_segment.table_version is None:
            self._store_sums(new_segment.id, 0, *files.read(len(order)))
        self.database.write_many(
            "UPDATE rows SET segment_id = ?, row = ? WHERE run_id = ? AND image_id = ?",
            ((new_segment.id, row, old_segment.run_id, image_id) for row, image_id in enumerate(ids[order].tolist())),
        )
        self.database.write("DELETE FROM segments WHERE id = ?", (old_segment.id,))
        self.mark_changed()


def _copy(part: Part, positions: Ints, files: Segment) -> None:
    for start in range(0, len(positions), ROWS_PER_COPY):
        block = positions[start : start + ROWS_PER_COPY]
        files.append(start, part.ids[block], part.take(block))


def _sums(ids: Ints, U: Matrix, first: int, n_rows: int) -> tuple[int, int]:
    """Return the checksums of ids and values of `n_rows` rows from row `first`, in the format of the files."""
    end = first + n_rows
    ids_sum = zlib.crc32(np.ascontiguousarray(ids[first:end], np.int64))
    if isinstance(U, np.ndarray):
        return ids_sum, zlib.crc32(np.ascontiguousarray(U[first:end], np.float32))
    pointers = np.asarray(U.indptr[first : end + 1], np.int64)
    start, stop = int(pointers[0]), int(pointers[-1])
    rows_sum = zlib.crc32(np.ascontiguousarray(np.diff(pointers), np.int64))
    rows_sum = zlib.crc32(np.ascontiguousarray(U.indices[start:stop], np.int32), rows_sum)
    return ids_sum, zlib.crc32(np.ascontiguousarray(U.data[start:stop], np.float32), rows_sum)


def indexes_are_due(database: Database) -> bool:
    """Return whether many rows of the current run were not yet considered for an index, and one can be built."""
    n_rows_query = f"SELECT json_extract(facts, '$.n_rows') FROM {INDEXES} WHERE segment_id = ?"
    return is_installed() and any(
        (database.value(n_rows_query, (segment.id,)) or 0) < (1 - MAX_UNINDEXED_SHARE) * segment.n_rows
        for segment in _large_segments(database)
    )


def build_indexes(rows: RowStore, queries: Floats) -> bool:
    """Index each large segment of the current run if searches get faster, and return whether an index is used.

    The first 200 of `queries`, shape (n_queries, width), are used to measure an index.
    """
    database, has_index = rows.database, False
    for segment in _large_segments(database):
        files = rows.files(segment)
        assert isinstance(files, SegmentFolder)
        part = files.part(segment.n_rows, np.empty(0, np.int64))
        index = build_index(replace(part, ids=np.arange(segment.n_rows)), queries[:MAX_MEASURED_QUERIES])
        name, settings = f"{segment.n_rows}.faiss", index.settings
        if settings.is_useful:
            index.write(files.folder / name)

        has_index = has_index or settings.is_useful
        with database.transaction():
            database.write(
                "INSERT INTO indexes (segment_id, file, n_rows, facts) VALUES (?, ?, ?, ?) ON CONFLICT DO "
                "UPDATE SET file = excluded.file, n_rows = excluded.n_rows, facts = excluded.facts",
                (segment.id, name, segment.n_rows, json_text(asdict(settings))),
            )
            rows.mark_changed()
        for file in files.folder.glob("*.faiss"):
            if file.name != name or not settings.is_useful:
                file.unlink()
    return has_index


def how_it_searches(database: Database) -> str:
    """Describe how the current run is searched: exactly, or with an index and its measured speed and recall."""
    indexes = database.rows(
        f"SELECT facts, segments.n_rows - indexes.n_rows FROM {INDEXES} AS indexes "
        f"JOIN segments ON segments.id = segment_id WHERE {IN_CURRENT_RUN} ORDER BY indexes.n_rows DESC LIMIT 1"
    )
    if not indexes:
        return "exact: every photo is compared"
    facts, n_unindexed = indexes[0]
    index = settings_of(facts)
    if not index.is_useful:
        return f"exactly: an index does not pay here ({_performance(index)})"
    if not is_installed():
        return "exactly: there is an index, but faiss is not installed (pip install 'visterm[faiss]')"
    others = f"; {count_of(n_unindexed, 'row')} since then exactly" if n_unindexed else ""
    return f"faiss, {index.probed} of {index.lists} lists of {index.n_rows:,} rows: {_performance(index)}{others}"


def _large_segments(database: Database) -> list[StoredSegment]:
    return segments_of(database, f"WHERE kind = 'dense' AND n_rows >= ? AND {IN_CURRENT_RUN}", MIN_ROWS_FOR_INDEX)


def _performance(settings: IndexSettings) -> str:
    return (
        f"{settings.recall:.1%} of the ten best in {1e3 * settings.seconds:.2f} ms, "
        f"exactly in {1e3 * settings.exact_seconds:.2f} ms"
    )
