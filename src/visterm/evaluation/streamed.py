"""Measure a run on features that are larger than memory: shard by shard, tags joined in files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from visterm.core.errors import DataError
from visterm.core.progress import SILENT, Progress
from visterm.core.types import Matrix, Skipped
from visterm.data.relations import read_relations, sibling_sets
from visterm.data.tag_files import check_in_file
from visterm.evaluation.evaluate import is_mean
from visterm.evaluation.judged_tags import JudgedTags
from visterm.features.streaming.shards import Shards, check_encoder, read_ahead
from visterm.metrics.report import Part, PartMeasures
from visterm.metrics.significance import Interval
from visterm.models.base import Annotator
from visterm.tagging.tagger import Tagger


@dataclass(frozen=True)
class StreamedEvaluation:
    """What was measured of a tagger."""

    values: dict[str, Interval]
    """Of each metric: its value, and its 95 % interval; without width where the metric is no mean."""
    images: int  # Images that were measured on
    # Tags that people gave, and how many of them the run does not know
    given: int
    unknown: int
    learned: int  # Images named as images that the run learned from
    skipped: list[Skipped]  # Images of the table that have no row
    remarks: list[str]  # Tags without an image and images without tags, a line each
    with_siblings: int | None  # Tags that have siblings; None where no relations were given
    undefined: dict[str, str] = field(default_factory=dict)
    """Metrics that were left out because they have nothing to average, and why."""

    def summary(self, run: str, n_tags: int) -> dict[str, Any]:
        """Return the metrics as `visterm.evaluation.summaries.annotation_summary` gives those of one run."""
        figures = {
            name: found._asdict() if is_mean(name) else {"mean": found.mean} for name, found in self.values.items()
        }
        return {"images": self.images, "tags": n_tags, "runs": [{"run": run, "metrics": figures}], "pairs": []}


def evaluate_streamed(
    tagger: Tagger,
    features: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    tags: str | os.PathLike[str],
    metrics: Sequence[str],
    *,
    work: str | os.PathLike[str] | None = None,
    split: str | None = None,
    optional: Sequence[str] = (),
    isa: Path | None = None,
    progress: Progress = SILENT,
    **columns: str | None,
) -> StreamedEvaluation:
    """Measure annotation and search by one word, in memory that does not grow with the number of images.

    The values are those of `evaluate_taggers`, and so are `metrics`, `optional` and `isa`. Images of the very same
    score are ranked in the order of the features, there in that of the table; intervals of means over images are those
    of the normal distribution.

    `features` is what `visterm encode` wrote with the tagger's encoder, in one folder or several; `tags` is a table
    whose names of images are paths inside the image folder, and `columns` are those of `stream_table`. `work` is a
    folder on a disk with room for some 45 bytes an image, 20 a tag given, and 28 more for metrics of words; None: where
    temporary files are. Only the rows of `split` are measured on, "all" is all; None: those of "test", if there are
    splits. Raises EncoderMismatchError if another encoder made the features; DataError if there is nothing to measure
    on.
    """
    check_in_file(tags)
    vocabulary = tagger.vocabulary
    shards = Shards(features)
    check_encoder(tagger.encoder, shards)
    siblings = None if isa is None else sibling_sets(read_relations(isa, vocabulary.tags), vocabulary)
    with tempfile.TemporaryDirectory(dir=work, prefix=".visterm-") as folder:
        judged = JudgedTags(Path(folder), shards, tags, vocabulary, split=split, **columns)
        shape = judged.n_images, len(vocabulary)
        measures = PartMeasures(metrics, shape, judged.counts(), Path(folder), siblings)
        learned = 0
        progress.start("evaluate", shards.n_rows * (1 + measures.twice))
        try:
            for names, part in _parts(tagger.model, shards, judged, progress):
                learned += tagger.learned_images.count(names)
                measures.add(part)
            if measures.twice:
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
            with_siblings=None if siblings is None else int((np.diff(siblings.indptr) > 1).sum()),
            undefined=undefined,
        )  # fmt: skip


def _parts(
    model: Annotator, shards: Shards, judged: JudgedTags, progress: Progress
) -> Iterator[tuple[list[str], Part]]:
    """Yield the images to measure on, shard by shard: their names, and their tags with what scores them."""

    def read(number: int) -> tuple[list[str], Matrix, sp.csr_array]:
        shards.check(number)
        positions = judged.measured(number)
        names, rows = shards.named_rows(number)
        places = positions - shards.starts[number]
        chosen = rows if places.size == len(names) else rows[places]
        return [names[place] for place in places], chosen, judged.rows_at(positions)

    with closing(read_ahead(read, len(shards))) as parts:
        for number, (names, X, Y) in enumerate(parts):
            if names:
                yield names, (Y, partial(model.score_blocks, X))
            progress.advance(int(shards.starts[number + 1] - shards.starts[number]))
