"""Checksums of the rows on disk, block by block: bytes that flipped give wrong answers and no error of their own."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import CorruptFileError
from visterm.core.types import Matrix
from visterm.store.database import Database
from visterm.store.segments import DATA, DENSE, IDS, Segment, StoredSegment

BLOCK_BYTES = 2**20  # Bytes of rows, about, under one checksum: little enough that a few are read at every opening
SAMPLED = 4  # Blocks of a segment that are checked when a catalogue is opened


class Block(NamedTuple):
    """Some rows of a segment, and the CRC-32 of their ids and of their values."""

    first: int
    n_rows: int
    ids_sum: int
    rows_sum: int


class RowSums:
    """The table of checksums; `files` returns the files of a segment."""

    def __init__(self, database: Database, files: Callable[[StoredSegment], Segment]) -> None:
        self._database = database
        self._files = files

    def note(self, segment_id: int, first: int, ids: NDArray[np.int64], U: Matrix) -> None:
        """Keep the checksums of rows that are written from one row of a segment on."""
        self._database.write_many(
            "INSERT OR REPLACE INTO row_sums (segment_id, first, n_rows, ids_sum, rows_sum) VALUES (?, ?, ?, ?, ?)",
            ((segment_id, first + start, n, *_sums(ids, U, start, n)) for start, n in _blocks(0, len(ids), U)),
        )

    def add_missing(self, segments: Sequence[StoredSegment]) -> int:
        """Keep checksums of rows that have none, as they are now; return how many rows those are."""
        n_rows = 0
        for segment in segments:
            gaps = self._gaps(segment)
            if gaps:
                ids, U = self._files(segment).read(segment.n_rows)
                for first, end in gaps:
                    self.note(segment.id, first, ids[first:end], U[first:end])
                    n_rows += end - first
        return n_rows

    def n_missing(self, segments: Sequence[StoredSegment]) -> int:
        """Return how many rows have no checksum: an earlier visterm wrote them."""
        return sum(end - first for segment in segments for first, end in self._gaps(segment))

    def check(self, segment: StoredSegment, *, sampled: bool = False) -> None:
        """Compare the rows of a segment with their checksums: all, or a few blocks drawn at random.

        Raises CorruptFileError if some differ.
        """
        found = self._database.rows(
            "SELECT first, n_rows, ids_sum, rows_sum FROM row_sums WHERE segment_id = ? AND first + n_rows <= ? "
            f"{f'ORDER BY random() LIMIT {SAMPLED}' if sampled else 'ORDER BY first'}",
            (segment.id, segment.n_rows),
        )
        if not found:
            return
        files = self._files(segment)
        ids, U = files.read(segment.n_rows)
        for block in map(Block._make, found):
            sums = _sums(ids, U, block.first, block.n_rows)
            if sums != (block.ids_sum, block.rows_sum):
                name = IDS if sums[0] != block.ids_sum else DENSE if segment.kind == "dense" else DATA
                raise CorruptFileError(
                    f"{files.where(name)}: rows {block.first:,} to {block.first + block.n_rows - 1:,} are not what was "
                    "written; the disk or another program changed them. Restore the catalogue from a backup, or index "
                    "the images again into a new one."
                )

    def _gaps(self, segment: StoredSegment) -> list[tuple[int, int]]:
        """Return the first and the end of each stretch of rows without checksums; rows in Lance tables need none."""
        if segment.table_version is not None:
            return []
        found = self._database.rows(
            "SELECT first, n_rows FROM row_sums WHERE segment_id = ? ORDER BY first", (segment.id,)
        )
        gaps: list[tuple[int, int]] = []
        end = 0
        for first, n_rows in [*found, (segment.n_rows, 0)]:
            if first > end:
                gaps.append((end, first))
            end = first + n_rows
        return gaps


def _blocks(first: int, end: int, U: Matrix) -> list[tuple[int, int]]:
    """Part rows into blocks: the first row of each, and how many they are."""
    n_bytes = U.nbytes if isinstance(U, np.ndarray) else U.data.nbytes + U.indices.nbytes
    step = max(1, BLOCK_BYTES * max(1, U.shape[0]) // max(1, n_bytes))
    return [(start, min(step, end - start)) for start in range(first, end, step)]


def _sums(ids: NDArray[np.int64], U: Matrix, first: int, n_rows: int) -> tuple[int, int]:
    """Return the checksums of the ids and of the values of some rows, as files hold them."""
    end = first + n_rows
    ids_sum = zlib.crc32(_bytes(ids[first:end], np.int64))
    if isinstance(U, np.ndarray):
        return ids_sum, zlib.crc32(_bytes(U[first:end], np.float32))
    pointers = np.asarray(U.indptr[first : end + 1], np.int64)
    start, stop = int(pointers[0]), int(pointers[-1])
    rows_sum = zlib.crc32(_bytes(np.diff(pointers), np.int64))
    rows_sum = zlib.crc32(_bytes(U.indices[start:stop], np.int32), rows_sum)
    return ids_sum, zlib.crc32(_bytes(U.data[start:stop], np.float32), rows_sum)


def _bytes(values: NDArray[Any], kind: Any) -> NDArray[np.uint8]:
    return np.ascontiguousarray(values, kind).reshape(-1).view(np.uint8)
