"""Measure a run on features that are larger than memory: shard by shard."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from visterm.core.errors import UnknownNameError
from visterm.core.progress import SILENT, Progress, reported
from visterm.core.remote import as_path
from visterm.core.threads import map_ahead
from visterm.core.types import Doubles, Ints, Matrix, Place, Skipped
from visterm.core.vocabulary import Vocabulary
from visterm.core.wording import count_of
from visterm.data.image_folders import plain_name
from visterm.data.relations import IS_A_FILE, read_related, sibling_sets
from visterm.data.tag_formats.record import TagRecord, contradiction_remarks, split_name
from visterm.data.tag_formats.tables import check_in_file, stream_table
from visterm.evaluation.evaluate import without_undefined
from visterm.features.streaming.joining import BATCH_ROWS, NO_SPLIT, OTHER, TRAIN, JoinedTable, batches_of
from visterm.features.streaming.shards import Shards
from visterm.features.training_rows import check_fingerprint
from visterm.metrics import check_metrics, measure
from visterm.metrics.ranking import Block
from visterm.models.base import Annotator
from visterm.tagging.tagger import Tagger

MEASURED = TRAIN  # The bit that marks images of the split to measure on
DEFAULT_SPLIT = "test"


@dataclass(frozen=True)
class StreamedEvaluation:
    """The results of a tagger."""

    values: dict[str, Doubles]  # The output of `visterm.metrics.measure`
    n_images: int  # Number of images that were measured
    # Number of tags that people gave, and how many of them the run does not know
    n_given: int
    n_unknown: int
    n_learned: int  # Number of images whose names the run learned from
    skipped: list[Skipped]  # Images in the tag file without features
    remarks: list[str]  # Lines about tags without an image and images without tags
    n_with_siblings: int | None  # Number of tags with siblings; None without relations of tags
    undefined: dict[str, str]  # Metric that was left out because it has no values to average -> the reason


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
    """Measure annotation and one-word search, reading features shard by shard.

    The values, `metrics`, `optional` and `isa` are as in `evaluate_taggers`, except that images with equal scores are
    ranked in the order of the features, not of the table. Memory holds the numbers of the given tags and their ranks,
    about 150 bytes per given tag, and 24 bytes per image, but neither features, names nor scores.

    `features` is one or more folders that `visterm encode` wrote with the tagger's encoder; `tags` is a table whose
    image names are paths inside the image folder, and `columns` are the options of `stream_table`. `work` is a folder
    for temporary files, with space for 8 bytes per given tag; None: the system's folder.
    `split` selects the rows to measure on, "all" for all; None: "test", if there are splits. Raises
    EncoderMismatchError if another encoder made the features; DataError if there are no images to measure on.
    """
    check_in_file(tags)
    vocabulary = tagger.vocabulary
    shards = Shards(features)
    check_fingerprint(tagger.encoder, shards.contents)
    siblings = None if isa is None else sibling_sets(read_related(isa, IS_A_FILE), vocabulary)
    n_passes = 1 + any(requested.metric.kind == "word" for requested in check_metrics(list(metrics)).values())

    with tempfile.TemporaryDirectory(dir=work, prefix=".visterm-") as folder:
        judged = MeasuredTags(Path(folder), shards, tags, vocabulary, split=split, **columns)
        numbers = range(len(shards))
        Y = sp.csr_array(sp.vstack([judged.rows_at(judged.measured_positions(n)) for n in numbers], format="csr"))
        n_learned = sum(tagger.learned_images.count(judged.names(n)) for n in numbers)
        with reported(progress, "evaluate", shards.n_rows * n_passes):
            values = measure(ShardScores(tagger.model, shards, judged, progress), Y, list(metrics), siblings=siblings)
        values, undefined = without_undefined(values, optional)
        return StreamedEvaluation(
            values, judged.n_images, judged.n_given, judged.n_unknown, n_learned, judged.skipped, judged.remarks,
            n_with_siblings=None if siblings is None else int((np.diff(siblings.indptr) > 1).sum()),
            undefined=undefined,
        )  # fmt: skip


class ShardScores:
    """The scores of the images to measure on, block by block, computed from the shards in each iteration."""

    def __init__(self, model: Annotator, shards: Shards, judged: MeasuredTags, progress: Progress) -> None:
        self._model, self._shards, self._judged, self._progress = model, shards, judged, progress

    def __iter__(self) -> Iterator[Block]:
        start = 0
        with closing(map_ahead(self._read, range(len(self._shards)))) as parts:
            for number, X in enumerate(parts):
                for rows, block in self._model.score_blocks(X) if X.shape[0] else ():
                    yield slice(start + rows.start, start + rows.stop), block
                start += X.shape[0]
                self._progress.advance(int(self._shards.starts[number + 1] - self._shards.starts[number]))

    def _read(self, number: int) -> Matrix:
        """Read the rows of a shard's images to measure on. Raises CorruptFileError if the shard has changed."""
        self._shards.check(number)
        selected = self._judged.measured_positions(number) - self._shards.starts[number]
        rows = self._shards.read(number).rows
        return rows if selected.size == rows.shape[0] else rows[selected]


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
        self._column_of = np.append(np.arange(self.n_tags), -1)  # the last number is that of all other tags
        self._splits: Counter[str] = Counter()
        unread: list[tuple[int, Skipped]] = []
        requested = None if split is None else split_name(split)
        self._read(stream_table(as_path(table), **columns), requested, unread)
        self._bit = NO_SPLIT if requested is None and not self._splits else MEASURED
        if requested is None and self._splits:
            split = DEFAULT_SPLIT
        self.skipped = [item for bit, item in unread if bit == self._bit]
        self._pairs.sort()
        self.n_images = self.n_given = self.n_unknown = 0

        for number in range(len(shards)):
            positions = self.measured_positions(number)
            tags, _ = self._pairs.at(positions)
            self.n_images += positions.size
            self.n_given += tags.size
            self.n_unknown += int((tags == self.n_tags).sum())

        if self.n_images == 0:
            names = ", ".join(f"'{name}' ({count_of(count, 'row')})" for name, count in sorted(self._splits.items()))
            problem, advice = "The tags have no column 'split'.", "Leave `split` out, or add the column."
            if names:
                problem, advice = f"No image is in the split '{split}'.", f"The tags name these: {names}; or 'all'."
            raise UnknownNameError(problem, setting="split", value=split, advice=advice)

    def measured_positions(self, number: int) -> Ints:
        """Return positions of a shard's images to measure on. Raises TagFileError if an image is in two splits."""
        positions: Ints = self.shards.starts[number] + np.flatnonzero(self.bits_of(number) & self._bit)
        return positions

    def names(self, number: int) -> list[str]:
        """Return the names of a shard's images to measure on."""
        selected = self.measured_positions(number) - self.shards.starts[number]
        names = self.shards.names(number) if selected.size else []
        return [names[n] for n in selected]

    def _read(self, records: Iterable[TagRecord], requested: str | None, unread: list[tuple[int, Skipped]]) -> None:
        """Read the table: store the splits and tags of images; append images without features to `unread`."""
        without_row = {item.image: item for item in self.shards.skipped()}
        vocabulary = self._vocabulary

        @lru_cache(maxsize=BATCH_ROWS)
        def number_of(tag: str) -> int:
            column = vocabulary.get(tag)
            return len(vocabulary) if column is None else column

        def bit_of(split: str | None) -> int:
            if requested == "all" or (split is not None and split == (requested or DEFAULT_SPLIT)):
                return MEASURED
            return NO_SPLIT if split is None else OTHER

        for batch in batches_of(records):
            self._splits.update(row.split for row in batch if row.split is not None)
            matched, missing = self.match(batch, [bit_of(row.split) for row in batch])
            self._pairs.add([(position, number_of(tag)) for row, position in matched for tag in row.tags])
            for row, bit in missing:
                item = without_row.get(row.image) or without_row.get(plain_name(row.image))
                if item is None:
                    self.miss(row.image)
                else:
                    unread.append((bit, item))

        self.remark_unmatched()
        self.remarks += contradiction_remarks(self._contradictions)
