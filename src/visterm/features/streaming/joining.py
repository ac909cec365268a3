"""Joining a table of tags with images by name in one pass, and choosing the frequent tags, with the tags in a file.

The table is read row by row. For each image, the splits are stored as bits, and each tag as a pair of the image's
position and the tag's number, in a file. Then the pairs are sorted, and the images of each tag are counted.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import TagFileError, UnknownNameError
from visterm.core.remote import as_path
from visterm.core.vocabulary import Vocabulary, clean_tag, tag_key
from visterm.core.wording import count_of
from visterm.core.writing import writing
from visterm.data.tag_formats.record import (
    TagCounts,
    TagRecord,
    contradiction_remarks,
    split_name,
    without_contradictions,
)
from visterm.data.tag_formats.tables import stream_table
from visterm.features.streaming.shards import Shards
from visterm.features.training_rows import too_rare, unused_rows_remark

NO_SPLIT, TRAIN, VALID, OTHER = 1, 2, 4, 8
"""Bits of an image for the splits of its rows in the table; 0 if it has no rows."""

_SPLITS = {None: NO_SPLIT, "train": TRAIN, "valid": VALID}

BATCH_ROWS = 2**14  # Number of table rows per batch
TAG_BITS = 32  # Lower bits of a pair, which have the tag's number; the upper bits have the image's position


class JoinedTable:
    """The images of a features folder joined by name with the splits and tags in a table.

    A subclass defines the bits other than `NO_SPLIT` (larger powers of two for splits), numbers the tags, adds those of
    the rows from `match` to `_pairs`, and sets `n_tags` and `_column_of`: the column of each tag by number, or -1.
    `bits` is uint8 (n_images,); `remarks` are lines for people.
    """

    n_tags: int
    _column_of: NDArray[np.int64]

    def __init__(self, folder: Path, shards: Shards) -> None:
        self.shards = shards
        self.index = shards.index()
        self.bits = np.zeros(shards.n_rows, np.uint8)
        self.remarks: list[str] = []
        self._pairs = TagPairs(folder / "pairs.bin")
        self._contradictions: list[str] = []
        self._n_matched = self._n_missing = 0  # Rows of images with features, and of others
        self._example = ""  # An image without features

    def match(
        self, rows: Sequence[TagRecord], bits: Sequence[int]
    ) -> tuple[list[tuple[TagRecord, int]], list[tuple[TagRecord, int]]]:
        """Find the images of rows and set their bits; return (row, position) if matched, else (row, bits).

        Tags that are both positive and negative in a row are left out.
        """
        positions = self.index.find([row.image for row in rows])
        is_matched = positions >= 0
        np.bitwise_or.at(self.bits, positions[is_matched], np.array(bits, np.uint8)[is_matched])
        in_folder = [(row, position) for row, position in zip(rows, positions.tolist(), strict=True) if position >= 0]
        matched = [(without_contradictions(row, self._contradictions), position) for row, position in in_folder]
        self._n_matched += len(matched)
        return matched, [(rows[n], bits[n]) for n in np.flatnonzero(~is_matched).tolist()]

    def miss(self, image: str) -> None:
        """Count a row of an image without features."""
        self._n_missing += 1
        self._example = self._example or image

    def remark_unmatched(self) -> None:
        """Add a line that counts the rows of images without features, if there are any.

        Raises TagFileError if no row is of an image with features.
        """
        n_missing, example = self._n_missing, self._example
        if not self._n_matched:
            example_name = self.shards.names(0)[0] if len(self.shards) else "nothing"
            raise TagFileError(
                f"No row of the tags ({n_missing:,}) is for an image with features: the tags name "
                f"'{example}', the features '{example_name}'. With streamed features both must name the same paths."
            )
        if n_missing:
            self.remarks.append(
                f"{count_of(n_missing, 'row')} of the tags (such as of '{example}') "
                f"{'is' if n_missing == 1 else 'are'} of images without features; left out."
            )

    def bits_of(self, number: int) -> NDArray[np.uint8]:
        """Return the bits of the images of a shard. Raises TagFileError if an image is in two splits."""
        start, stop = self.shards.starts[number : number + 2].tolist()
        bits = self.bits[start:stop]
        ambiguous = np.flatnonzero(np.bitwise_count(bits & ~np.uint8(NO_SPLIT)) > 1)
        if ambiguous.size:
            raise TagFileError(f"The image {self.shards.names(number)[ambiguous[0]]} is in two splits; expected one.")
        return bits

    def rows_at(self, positions: NDArray[np.int64]) -> sp.csr_array:
        """Return the tags of the images at these positions as ones in a float32 CSR matrix (n_positions, n_tags)."""
        tags, images = self._pairs.at(positions)
        columns = self._column_of[tags]
        is_known = columns >= 0
        cells = np.unique(images[is_known] * self.n_tags + columns[is_known])  # a table may give a tag twice
        starts = np.searchsorted(cells, np.arange(positions.size + 1) * self.n_tags).astype(np.int32)
        ones = np.ones(cells.size, np.float32)
        return sp.csr_array((ones, (cells % self.n_tags).astype(np.int32), starts), (positions.size, self.n_tags))


class TagsOnDisk(JoinedTable):
    """The tags of the images of a features folder that are in the vocabulary.

    Only the rows of `split` are used for training, or all rows for "all"; None is "train" if there are splits.
    `min_count` and `aliases` are as in `Vocabulary.from_lists`, `columns` as in `stream_table`. `bits` are the splits
    of each image; `learned` is the bit of the training images; `remarks` say which rows did not match, and how the tags
    were understood.

    Raises TagFileError if the table cannot be parsed, no row matches an image, or an image is in two splits;
    UnknownNameError if no row is in the requested split; DataError if no tag is left.
    """

    def __init__(
        self,
        folder: Path,
        shards: Shards,
        table: str | os.PathLike[str],
        *,
        min_count: int = 1,
        aliases: Mapping[str, str] | None = None,
        split: str | None = None,
        **columns: str | None,
    ) -> None:
        super().__init__(folder, shards)
        tag_of = {tag_key(alias): clean_tag(tag) for alias, tag in (aliases or {}).items()}
        words: Counter[str] = Counter()
        self._numbers: dict[str, int] = {}
        self._read(stream_table(as_path(table), **columns), words, tag_of, split)
        self._pairs.sort()
        self.understood = TagCounts.of(words)
        self.understood.check(columns.get("separator"))
        self.remarks.append(self.understood.line())
        self.learned = NO_SPLIT
        if split is None and self.count(TRAIN | VALID | OTHER):
            self.learned = TRAIN
        self.vocabulary = self._choose(words, min_count, aliases or {}, tag_of)
        self.n_tags = len(self.vocabulary)

    def _read(
        self, records: Iterable[TagRecord], words: Counter[str], tag_of: Mapping[str, str], split: str | None
    ) -> None:
        """Read the table once: set the bits of images, number the tags, store the pairs, and count the words."""
        requested = None if split is None else split_name(split)
        n_skipped = 0
        splits: Counter[str | None] = Counter()

        @lru_cache(maxsize=BATCH_ROWS)
        def word_of(tag: str) -> tuple[str, int]:
            word = tag_of.get(tag_key(tag), tag)
            return word, self._numbers.setdefault(tag_key(word), len(self._numbers))

        for batch in batches_of(records):
            rows = [row for row in batch if requested in (None, "all") or row.split == requested]
            n_skipped += len(batch) - len(rows)
            if not rows:
                continue
            bits = [_SPLITS.get(row.split, OTHER) if requested is None else NO_SPLIT for row in rows]
            matched, missing = self.match(rows, bits)
            for row, _ in missing:
                self.miss(row.image)
            splits.update(row.split for row, _ in matched if requested is None)
            pairs = []
            for row, position in matched:
                given = [word_of(tag) for tag in row.tags]
                if requested is not None or row.split in (None, "train"):
                    words.update(word for word, _ in given)
                pairs += [(position, tag) for _, tag in given]
            self._pairs.add(pairs)

        if n_skipped and not (self._n_missing or self._n_matched):
            raise UnknownNameError(f"No row is in the split '{split}'. Use another split, or 'all'.")
        self.remark_unmatched()
        self.remarks += [*unused_rows_remark(splits), *contradiction_remarks(self._contradictions)]

    def _choose(
        self, words: Counter[str], min_count: int, aliases: Mapping[str, str], tag_of: Mapping[str, str]
    ) -> Vocabulary:
        """Return the vocabulary of the tags on at least `min_count` images, and assign their columns."""
        keys, n_learned = list(self._numbers), 0
        counts = np.zeros(len(keys), np.int64)
        for number, start in enumerate(self.shards.starts[:-1].tolist()):
            positions = start + np.flatnonzero(self.bits_of(number) & self.learned)
            n_learned += positions.size
            tags, images = self._pairs.at(positions)
            cells = np.unique(images * max(1, len(keys)) + tags)
            counts += np.bincount(cells % max(1, len(keys)), minlength=len(keys))

        chosen = sorted(np.flatnonzero(counts >= min_count).tolist(), key=keys.__getitem__)
        if not chosen:
            raise too_rare(min_count, n_learned)
        self._column_of = np.full(len(keys), -1, np.int64)
        self._column_of[chosen] = np.arange(len(chosen))
        canonical = {tag_key(tag): tag for tag in tag_of.values()}
        spellings: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
        for word, count in words.items():
            spellings[tag_key(word)].append((-count, word))

        chosen_keys = dict.fromkeys(keys[number] for number in chosen)
        names = [canonical.get(key) or min(spellings[key])[1] for key in chosen_keys]
        chosen_aliases = {alias: tag for alias, tag in aliases.items() if tag_key(tag) in chosen_keys}
        return Vocabulary(names, counts[chosen], chosen_aliases)

    def learned_among(self, start: int, stop: int) -> NDArray[np.bool_]:
        """Return which images from `start` to `stop` are training images."""
        return (self.bits[start:stop] & self.learned) > 0

    def count(self, bit: int) -> int:
        """Count the images with a bit."""
        return int(np.count_nonzero(self.bits & bit))


def batches_of(records: Iterable[TagRecord]) -> Iterator[list[TagRecord]]:
    """Yield the rows of a table in non-empty lists."""
    records = iter(records)
    return iter(lambda: list(islice(records, BATCH_ROWS)), [])


class TagPairs:
    """Pairs of an image and a tag in a file, 8 bytes each: see `TAG_BITS`. `at` finds them after `sort`."""

    def __init__(self, file: Path) -> None:
        self._file = file
        file.write_bytes(b"")
        self._sorted = np.empty(0, np.uint64)

    def add(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Add pairs of an image's position and a tag's number."""
        block = np.array(pairs, np.uint64).reshape(-1, 2)
        with writing(self._file), self._file.open("ab") as file:
            file.write((block[:, 0] << TAG_BITS | block[:, 1]).tobytes())

    def sort(self) -> None:
        """Sort the pairs by position and tag, in the file."""
        if self._file.stat().st_size:  # an empty file cannot be mapped
            self._sorted = np.memmap(self._file, np.uint64, "r+")
            self._sorted.sort()

    def at(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the tags of the images at these positions, and for each tag the index of its image in `positions`."""
        first = positions.astype(np.uint64)
        starts, stops = (np.searchsorted(self._sorted, key << TAG_BITS) for key in (first, first + 1))
        counts = stops - starts
        targets = np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        tags = (self._sorted[targets] & (2**TAG_BITS - 1)).astype(np.int64)
        return tags, np.repeat(np.arange(positions.size), counts)
