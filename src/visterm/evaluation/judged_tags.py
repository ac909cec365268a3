"""A table of tags joined with images by name, to measure a run by: in files, as long as the tags given."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import TagFileError, UnknownNameError
from visterm.core.remote import as_path
from visterm.core.types import Skipped
from visterm.core.vocabulary import Vocabulary, tag_key
from visterm.core.wording import count_of
from visterm.core.writing import new_map
from visterm.data.image_names import plain_name
from visterm.data.tag_formats.record import Contradictions, TagRecord, split_name
from visterm.data.tag_formats.tables import stream_table
from visterm.features.streaming.joining import ROWS, TagPairs, batches_of, check_met, ones_at, tag_hash
from visterm.features.streaming.shards import Shards, index_names

MEASURED, NO_SPLIT, OTHER = 1, 2, 4  # Bits of an image: what its rows in the table say of splits; 0 where it has none
USUAL_SPLIT = "test"


class JudgedTags:
    """Tags of the images of a features folder in the columns of a vocabulary.

    Only the rows of `split` are measured on, "all" is all; None: those of "test", if there are splits. `columns` are
    those of `stream_table`; `folder` is for its files. Raises TagFileError if the table cannot be understood, none of
    its rows is of an image, or an image is in two splits; UnknownNameError if no image is of the requested split.

    It counts the images to measure on (`n_images`), the tags that people gave them (`n_given`), and how many of these
    are not in the vocabulary (`n_unknown`); lists the images to measure on that have no row (`skipped`), and what did
    not meet, a line each (`remarks`).
    """

    def __init__(
        self,
        folder: Path,
        shards: Shards,
        table: str | os.PathLike[str],
        vocabulary: Vocabulary,
        *,
        split: str | None = None,
        **columns: str | None,
    ) -> None:
        self._shards, self._vocabulary = shards, vocabulary
        self._index = index_names(folder, shards)
        self._bits = new_map(folder / "bits.npy", np.uint8, (shards.n_rows,))
        self._pairs = TagPairs(folder, shards.n_rows)
        self._unread = {item.image: item for item in shards.skipped()}
        self._splits: Counter[str] = Counter()
        unread: list[tuple[int, Skipped]] = []
        self.remarks: list[str] = []
        requested = None if split is None else split_name(split)
        self._read(stream_table(as_path(table), **columns), requested, unread)
        self._bit = NO_SPLIT if requested is None and not self._splits else MEASURED
        if requested is None and self._splits:
            split = USUAL_SPLIT
        self.skipped = [item for bit, item in unread if bit == self._bit]
        self._pairs.sort([tag_key(tag) for tag in vocabulary])
        self.n_images = self.n_given = self.n_unknown = 0
        for number in range(len(shards)):
            positions = self.measured(number)
            tags, _ = self._pairs.at(positions)
            self.n_images += positions.size
            self.n_given += tags.size
            self.n_unknown += int((tags < 0).sum())
        if self.n_images == 0:
            there = ", ".join(f"'{name}' ({count_of(count, 'row')})" for name, count in sorted(self._splits.items()))
            raise UnknownNameError(
                f"No image is in the split '{split}'. The tags name these: {there}; or 'all'."
                if there
                else "The tags have no column 'split'. Leave split out, or add the column."
            )

    def measured(self, number: int) -> NDArray[np.int64]:
        """Return the positions of the images of a shard to measure on. Raises TagFileError if one is in two splits."""
        first, last = self._shards.starts[number : number + 2].tolist()
        bits = np.asarray(self._bits[first:last])
        twice = np.flatnonzero((bits & MEASURED > 0) & (bits & OTHER > 0))
        if twice.size:
            raise TagFileError(f"The image {self._shards.names(number)[twice[0]]} is in two splits; expected one.")
        found: NDArray[np.int64] = first + np.flatnonzero(bits & self._bit)
        return found

    def rows_at(self, positions: NDArray[np.int64]) -> sp.csr_array:
        """Return the tags of images at some positions: ones, shape (n_positions, n_tags)."""
        columns, images = self._pairs.at(positions)
        known = columns >= 0
        return ones_at(images[known], columns[known], (positions.size, len(self._vocabulary)))

    def counts(self) -> NDArray[np.int64]:
        """Count the images to measure on that have each tag, shape (n_tags,)."""
        found = np.zeros(len(self._vocabulary), np.int64)
        for number in range(len(self._shards)):
            found += np.bincount(self.rows_at(self.measured(number)).indices, minlength=found.size)
        return found

    def _read(self, records: Iterable[TagRecord], requested: str | None, unread: list[tuple[int, Skipped]]) -> None:
        """Go through the table once: bits of images, pairs, and images that could not be read."""
        n_missing, n_found, example = 0, 0, ""
        contradictions = Contradictions()
        vocabulary = self._vocabulary

        @lru_cache(maxsize=ROWS)
        def hash_of(tag: str) -> int:
            column = vocabulary.get(tag)
            return tag_hash(tag_key(tag if column is None else vocabulary.tags[column]))

        for batch in batches_of(records):
            self._splits.update(row.split for row in batch if row.split is not None)
            positions = self._index.find([row.image for row in batch])
            bits = np.array([self._bit_of(row.split, requested) for row in batch], np.uint8)
            there = positions >= 0
            np.bitwise_or.at(self._bits, positions[there], bits[there])
            self._pairs.add(
                [
                    (position, hash_of(tag))
                    for row, position in zip(batch, positions.tolist(), strict=True)
                    if position >= 0
                    for tag in contradictions.left_out(row).tags
                ]
            )
            n_found += int(there.sum())
            for number in np.flatnonzero(~there).tolist():
                name = batch[number].image
                item = self._unread.get(name) or self._unread.get(plain_name(name))
                if item is None:
                    n_missing += 1
                    example = example or name
                else:
                    unread.append((int(bits[number]), item))
        self.remarks += [*check_met(self._shards, n_found, n_missing, example), *contradictions.remarks()]

    @staticmethod
    def _bit_of(split: str | None, requested: str | None) -> int:
        if requested == "all" or (split is not None and split == (requested or USUAL_SPLIT)):
            return MEASURED
        return NO_SPLIT if split is None else OTHER
