"""Measure a run on features that are larger than memory: shard by shard, with the tags in temporary files."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import DataError, UnknownNameError
from visterm.core.progress import SILENT, Progress
from visterm.core.remote import as_path
from visterm.core.threads import map_ahead
from visterm.core.types import Matrix, Skipped
from visterm.core.vocabulary import Vocabulary, tag_key
from visterm.core.wording import count_of
from visterm.core.writing import Place
from visterm.data.image_folders import plain_name
from visterm.data.relations import read_is_a, sibling_sets
from visterm.data.tag_formats.record import TagRecord, contradiction_remarks, split_name
from visterm.data.tag_formats.tables import check_in_file, stream_table
from visterm.features.streaming.joining import (
    BATCH_ROWS,
    NO_SPLIT,
    OTHER,
    TRAIN,
    JoinedTable,
    batches_of,
    tag_hash,
    unmatched_remark,
)
from visterm.features.streaming.shards import Shards
from visterm.features.training_rows import check_fingerprint
from visterm.metrics.report import Part, PartMeasures
from visterm.metrics.significance import Interval
from visterm.models.base import Annotator
from visterm.tagging.tagger import Tagger

MEASURED = TRAIN  # The bit that marks images of the split to measure on
DEFAULT_SPLIT = "test"


@dataclass(frozen=True)
class StreamedEvaluation:
    """The results of a tagger."""

    # Metric -> its value with a 95 % interval, which has zero width if the metric is not a mean.
    values: dict[str, Interval]
    n_images: int  # Number of images that were measured
    # Number of tags that people gave, and how many of them the run does not know
    n_given: int
    n_unknown: int
    n_learned: int  # Number of images whose names the run learned from
    skipped: list[Skipped]  # Images in the tag file without features
    remarks: list[str]  # Lines about tags without an image and images without tags
    n_with_siblings: int | None  # Number of tags with siblings; None without relations of tags
    undefined: dict[str, str] = field(default_factory=dict)
    """Metric that was left out because it has no values to average -> the reason."""


def evaluate_streamed(
    tagger: Tagger,
    features: Place | Sequence[Place],
    tags: Place,
    metrics: Sequence[str],
    *,
    work: Place | None = None,
    split: str | None = None,
    optional: Sequence[str] = (),
    isa: Path | None = None,
    progress: Progress = SILENT,
    **columns: str | None,
) -> StreamedEvaluation:
    """Measure annotation and one-word search, with memory that does not depend on the number of images.

    The values, `metrics`, `optional` and `isa` are as in `evaluate_taggers`. The differences: images with equal scores
    are ranked in the order of the features, not of the table, and intervals of means over images use the normal
    distribution.

    `features` is one or more folders that `visterm encode` wrote with the tagger's encoder; `tags` is a table whose
    image names are paths inside the image folder, and `columns` are the options of `stream_table`. `work` is a folder
    for temporary files, with space for 45 bytes per image, 20 bytes per given tag, and 28 more for metrics of words;
    None: the system's folder. `split` selects the rows to measure on, "all" for all; None: "test", if there are splits.
    Raises EncoderMismatchError if another encoder made the features; DataError if there are no images to measure on.
    """
    check_in_file(tags)
    vocabulary = tagger.vocabulary
    shards = Shards(features)
    check_fingerprint(tagger.encoder, shards.contents)
    siblings = None if isa is None else sibling_sets(read_is_a(isa), vocabulary)

    with tempfile.TemporaryDirectory(dir=work, prefix=".visterm-") as folder:
        judged = MeasuredTags(Path(folder), shards, tags, vocabulary, split=split, **columns)
        measures = PartMeasures(metrics, (judged.n_images, len(vocabulary)), judged.counts(), Path(folder), siblings)
        learned = 0
        progress.start("evaluate", shards.n_rows * (1 + measures.needs_second_pass))
        try:
            for names, part in _parts(tagger.model, shards, judged, progress):
                learned += tagger.learned_images.count(names)
                measures.add(part)
            if measures.needs_second_pass:
                measures.add_again(part for _, part in _parts(tagger.model, shards, judged, progress))
        finally:
            progress.finish()
        values: dict[str, Interval] = {}
        undefined: dict[str, str] = {}
        for name in metrics:
            try:
                values[name] = measures.interval(name)
            except DataError as error:
                if name not in optional or (len(undefined) + 1 == len(metrics)):
                    raise
                undefined[name] = str(error)
        return StreamedEvaluation(
            values, judged.n_images, judged.n_given, judged.n_unknown, learned, judged.skipped, judged.remarks,
            n_with_siblings=None if siblings is None else int((np.diff(siblings.indptr) > 1).sum()),
            undefined=undefined,
        )  # fmt: skip


def _parts(
    model: Annotator, shards: Shards, judged: MeasuredTags, progress: Progress
) -> Iterator[tuple[list[str], Part]]:
    """Yield per shard the names of the images to measure on, and a part: their tags and a function for their scores."""

    def read(number: int) -> tuple[list[str], Matrix, sp.csr_array]:
        shards.check(number)
        positions = judged.measured_positions(number)
        names, _, rows = shards.read(number)
        numbers = positions - shards.starts[number]
        selected = rows if numbers.size == len(names) else rows[numbers]
        return [names[n] for n in numbers], selected, judged.rows_at(positions)

    with closing(map_ahead(read, range(len(shards)))) as parts:
        for number, (names, X, Y) in enumerate(parts):
            if names:
                yield names, (Y, partial(model.score_blocks, X))
            progress.advance(int(shards.starts[number + 1] - shards.starts[number]))


class MeasuredTags(JoinedTable):
    """The tags of the images of a features folder, as columns of a vocabulary.

    `split` and `columns` are as in `evaluate_streamed`; `folder` is for temporary files. Raises TagFileError if the
    table cannot be parsed, no row matches an image, or an image is in two splits; UnknownNameError if no image is in
    the requested split.

    Attributes: the number of images to measure on (`n_images`), of their tags from people (`n_given`), and of given
    tags that are not in the vocabulary (`n_unknown`); the images to measure on without features (`skipped`); and lines
    about tags and images that do not match (`remarks`).
    """

    def __init__(
        self,
        folder: Path,
        shards: Shards,
        table: Place,
        vocabulary: Vocabulary,
        *,
        split: str | None = None,
        **columns: str | None,
    ) -> None:
        super().__init__(folder, shards)
        self._vocabulary, self.n_tags = vocabulary, len(vocabulary)
        self._column_of = np.append(np.arange(self.n_tags), -1)
        self._splits: Counter[str] = Counter()
        unread: list[tuple[int, Skipped]] = []
        requested = None if split is None else split_name(split)
        self._read(stream_table(as_path(table), **columns), requested, unread)
        self._bit = NO_SPLIT if requested is None and not self._splits else MEASURED
        if requested is None and self._splits:
            split = DEFAULT_SPLIT
        self.skipped = [item for bit, item in unread if bit == self._bit]
        self._pairs.sort([tag_key(tag) for tag in vocabulary])
        self.n_images = self.n_given = self.n_unknown = 0

        for number in range(len(shards)):
            positions = self.measured_positions(number)
            tags, _ = self._pairs.at(positions)
            self.n_images += positions.size
            self.n_given += tags.size
            self.n_unknown += int((tags < 0).sum())

        if self.n_images == 0:
            names = ", ".join(f"'{name}' ({count_of(count, 'row')})" for name, count in sorted(self._splits.items()))
            problem, advice = "The tags have no column 'split'.", "Leave `split` out, or add the column."
            if names:
                problem, advice = f"No image is in the split '{split}'.", f"The tags name these: {names}; or 'all'."
            raise UnknownNameError(problem, setting="split", value=split, advice=advice)

    def measured_positions(self, number: int) -> NDArray[np.int64]:
        """Return positions of a shard's images to measure on. Raises TagFileError if an image is in two splits."""
        positions: NDArray[np.int64] = self.shards.starts[number] + np.flatnonzero(self.bits_of(number) & self._bit)
        return positions

    def counts(self) -> NDArray[np.int64]:
        """Return the number of images to measure on per tag, shape (n_tags,)."""
        counts = np.zeros(self.n_tags, np.int64)
        for number in range(len(self.shards)):
            counts += np.bincount(self.rows_at(self.measured_positions(number)).indices, minlength=counts.size)
        return counts

    def _read(self, records: Iterable[TagRecord], requested: str | None, unread: list[tuple[int, Skipped]]) -> None:
        """Read the table: store the splits and tags of images; append images without features to `unread`."""
        n_missing, n_matched, example = 0, 0, ""
        without_row = {item.image: item for item in self.shards.skipped()}
        vocabulary = self._vocabulary

        @lru_cache(maxsize=BATCH_ROWS)
        def hash_of(tag: str) -> int:
            column = vocabulary.get(tag)
            return tag_hash(tag_key(tag if column is None else vocabulary.tags[column]))

        def bit_of(split: str | None) -> int:
            if requested == "all" or (split is not None and split == (requested or DEFAULT_SPLIT)):
                return MEASURED
            return NO_SPLIT if split is None else OTHER

        for batch in batches_of(records):
            self._splits.update(row.split for row in batch if row.split is not None)
            matched, missing = self.match(batch, [bit_of(row.split) for row in batch])
            self._pairs.add([(position, hash_of(tag)) for row, position in matched for tag in row.tags])
            n_matched += len(matched)
            for row, bit in missing:
                item = without_row.get(row.image) or without_row.get(plain_name(row.image))
                if item is None:
                    n_missing += 1
                    example = example or row.image
                else:
                    unread.append((bit, item))

        self.remarks += unmatched_remark(self.shards, n_matched, n_missing, example)
        self.remarks += contradiction_remarks(self._contradictions)
