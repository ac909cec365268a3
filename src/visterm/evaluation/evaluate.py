"""Measure annotation, by one tagger or by several, on photos whose tags are known."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import DataError
from visterm.core.progress import SILENT, Progress
from visterm.core.types import Matrix, Ranking, Skipped
from visterm.core.vocabulary import Vocabulary
from visterm.data.corpus import Corpus
from visterm.data.relations import sibling_sets
from visterm.data.tag_senses import read_relations
from visterm.data.tag_tree import TreeColumns
from visterm.features.training_rows import source_of_rows
from visterm.kernels.topk import top_k
from visterm.learning.run import Run
from visterm.metrics import check_metrics, measure
from visterm.metrics.ranking import Judgements
from visterm.metrics.report import means
from visterm.metrics.significance import Compared, Interval, compare_pairs, interval_of
from visterm.tagging.tagger import Tagger

DEFAULT_METRICS = ("map", "p@1", "p@5", "r@5", "f1@5", "tag_p@5", "tag_r@5", "tag_f1@5", "n_plus@5", "word_map", "auc")

TREE_METRICS = ("hp@5", "hr@5", "hf1@5")  # Likewise, where a run's tags have a tree
SIBLING_METRIC = "psib@5"  # Measured beside the others, if none are named, where it is known which tags are siblings
NO_MEANS = ("tag_f1", "n_plus")  # Metrics of all tags together, which no image and no tag has a value of


@dataclass(frozen=True)
class AnnotationEvaluation:
    """What was measured of each tagger, image by image and tag by tag."""

    corpus: Corpus  # The images that all taggers could read
    vocabulary: Vocabulary  # The tags that all taggers know: those that are ranked
    Y: sp.csr_array  # shape (n_images, n_tags), above 0: given by people
    # shape (n_images, n_tags): not 0 where a tag was left out of the rankings, because a tagger learned it of
    # this image.
    hidden: sp.csr_array | None
    values: list[dict[str, NDArray[np.float64]]]  # As `visterm.metrics.measure` gives them, for each tagger
    # Tags that people gave, and how many of them are not ranked
    given: int
    unknown: int
    learned: list[int]  # For each tagger, images named as images that it learned from
    skipped: list[Skipped]  # Images that could not be read
    rankers: list[Ranker]  # For each tagger, to look at single images
    # Tags that are ranked and have siblings among these; None where no relations were given.
    with_siblings: int | None = None
    # Metrics that were left out because they have nothing to average, and why.
    undefined: dict[str, str] = field(default_factory=dict)

    def mean(self, metric: str, tagger: int = 0) -> float:
        """Return the value of a metric for a tagger."""
        return float(np.nanmean(self.values[tagger][metric]))

    def interval(self, metric: str, tagger: int = 0) -> Interval | None:
        """Return the mean and its 95 % bootstrap interval over images, or over tags; None for what is no mean."""
        return interval_of(self.values[tagger][metric]) if is_mean(metric) else None

    def compare(self, metric: str) -> list[Compared]:
        """Compare every two taggers image by image, or tag by tag; nothing where the metric is no mean."""
        return compare_pairs([values[metric] for values in self.values]) if is_mean(metric) else []

    def best_tags(self, images: Sequence[int], k: int) -> list[Ranking]:
        """Return the first tagger's best tags of a few images, as columns of `vocabulary`, but none left out."""
        rows, ranker = np.asarray(images, np.int64), self.rankers[0]
        scores = np.vstack([block for _, block in ranker._replace(X=ranker.X[rows]).blocks()])
        if self.hidden is not None:
            scores = np.where(self.hidden[rows].toarray() != 0, np.float32(-np.inf), scores)
        ids, values = top_k(np.ascontiguousarray(scores), min(k, scores.shape[1]))
        return [Ranking(i[v > -np.inf], v[v > -np.inf]) for i, v in zip(ids, values, strict=True)]


class Ranker(NamedTuple):
    """The scores that one tagger has for the tags that are ranked."""

    tagger: Tagger
    X: Matrix  # shape (n_images, n_features)
    columns: NDArray[np.int64] | None  # shape (n_tags,): its columns of the ranked tags; None: all, in their order

    def blocks(self) -> Iterator[tuple[slice, NDArray[np.float32]]]:
        """Yield the rows of each block and their scores."""
        for rows, block in self.tagger.score_blocks(self.X):
            yield rows, block if self.columns is None else np.ascontiguousarray(block[:, self.columns])


def is_mean(metric: str) -> bool:
    """Return whether a metric is the mean of values of images or of tags, so that it has an interval."""
    [wanted] = check_metrics(metric).values()
    return wanted.metric.name not in NO_MEANS


def evaluate_taggers(
    taggers: Sequence[Tagger],
    corpus: Corpus,
    metrics: Sequence[str] = DEFAULT_METRICS,
    *,
    optional: Sequence[str] = (),
    only: Collection[str] | None = None,
    isa: Path | None = None,
    progress: Progress = SILENT,
) -> AnnotationEvaluation:
    """Measure annotation and search by one word, on a corpus that the taggers have not learned from.

    Several taggers are compared on the images that all could read and on the tags that all know. Of images known by
    number they have learned other tags: what any of them learned is left out of the rankings.

    `metrics` are names from ``visterm metrics``; the `optional` ones of them are left out where they have nothing to
    average, unless no other has either. `only` are the tags to rank, as `join_library` finds them; None: all that all
    taggers know. `isa` says which tags are siblings, for ``psib@k``: a CSV of child,parent, or
    the folder of WordNet's database files. If a run has a tree, a photo of a child has its parents for all of them.
    Raises DataError if there is nothing to measure on, or the relations cannot be used.
    """
    vocabulary = shared_vocabulary(taggers)
    if only is not None:
        vocabulary = vocabulary.subset(column for column, tag in enumerate(vocabulary) if tag in only)
    words = next((tagger.tree.words for tagger in taggers if tagger.tree is not None), None)
    tree = None if words is None else TreeColumns(words, vocabulary)
    check_metrics(metrics, siblings=isa is not None, tree=tree is not None)
    if len(vocabulary) == 0:
        raise DataError("The runs, or they and these photos, have no tag in common. Measure each on its own.")
    siblings = None if isa is None else sibling_sets(read_relations(isa, vocabulary.tags), vocabulary)
    above = None if tree is None else tree.above
    rows, read, skipped = encode_for_all(taggers, corpus, progress)
    given_tags = [tag for tags in corpus.tags for tag in tags]
    if tree is not None:
        tags, negatives = tree.words.completed(read.tags, read.negatives)
        read = replace(read, tags=tags, negatives=negatives)

    Y = vocabulary.encode(read.tags, read.negatives)
    hidden = _learned_tags(taggers, rows, vocabulary)
    judgements = Judgements.of(Y, hidden)
    rankers = []
    for tagger, X in zip(taggers, rows, strict=True):
        columns = np.array([tagger.vocabulary.index(tag) for tag in vocabulary], np.int64)
        in_order = np.array_equal(columns, np.arange(len(tagger.vocabulary)))
        rankers.append(Ranker(tagger, X, None if in_order else columns))
    values: list[dict[str, NDArray[np.float64]]] = []
    undefined: dict[str, str] = {}

    for ranker in rankers:
        measured = measure(ranker.blocks, Y, list(metrics), exclude=hidden, siblings=siblings, tree=above)
        undefined = {}  # of the metrics that may be left out, those that have nothing to average, and why
        for name in optional:
            try:
                means({name: measured[name]}, judgements)
            except DataError as error:
                undefined[name] = str(error)
        if len(undefined) < len(measured):
            measured = {name: array for name, array in measured.items() if name not in undefined}
        means(measured, judgements)  # refuses what has nothing to average
        values.append(measured)

    return AnnotationEvaluation(
        read, vocabulary, Y, hidden, values,
        given=len(given_tags),
        unknown=sum(tag not in vocabulary for tag in given_tags),
        learned=[0 if run.encoder.by_number else run.learned_images.count(corpus.names) for run in taggers],
        skipped=skipped,
        rankers=rankers,
        with_siblings=None if siblings is None else int((np.diff(siblings.indptr) > 1).sum()),
        undefined=undefined,
    )  # fmt: skip


def encode_for_all(
    taggers: Sequence[Run], corpus: Corpus, progress: Progress = SILENT
) -> tuple[list[Matrix], Corpus, list[Skipped]]:
    """Encode the images for each tagger, once for those whose encoders are the same.

    Returns the rows, (n_images, n_features), for each tagger; the images that all could read, with what is known of
    them; and those that one of them could not read, or whose names one does not know. Raises DataError if there are no
    images, or an encoder reads names, and knows none of them.
    """
    if len(corpus) == 0:
        raise DataError("There are no photos to measure on. Check the splits of the tag file.")
    encoded: dict[str, tuple[Matrix, NDArray[np.int64]]] = {}
    skipped = {item.image: item for item in corpus.skipped}
    common = np.arange(len(corpus))
    for tagger in taggers:
        encoder = tagger.encoder
        if encoder.fingerprint not in encoded:
            if corpus.encoded is None:
                encoder.refuse_unknown(corpus.images, only_if_all=True)
            X, readable, unread = source_of_rows(encoder, corpus).encode(corpus.images, progress=progress)
            encoded[encoder.fingerprint] = X, np.asarray(readable)
            skipped.update({item.image: item for item in unread})
            common = np.intersect1d(common, readable)

    rows = {
        name: X if readable.size == common.size else X[np.searchsorted(readable, common)]
        for name, (X, readable) in encoded.items()
    }
    return [rows[tagger.encoder.fingerprint] for tagger in taggers], corpus.subset(common), list(skipped.values())


def shared_vocabulary(taggers: Sequence[Run]) -> Vocabulary:
    """Return the tags that all taggers know, in the order of the first."""
    first = taggers[0].vocabulary
    known = [column for column, tag in enumerate(first) if all(tag in other.vocabulary for other in taggers[1:])]
    return first.subset(known)


def _learned_tags(taggers: Sequence[Run], rows: Sequence[Matrix], vocabulary: Vocabulary) -> sp.csr_array | None:
    """Return (n_images, n_tags), not 0 where a tagger learned a tag of an image known by number; None if none did."""
    learned = [
        sp.csr_array(abs(known_tags)[:, [tagger.vocabulary.index(tag) for tag in vocabulary]])
        for tagger, X in zip(taggers, rows, strict=True)
        if (known_tags := tagger.known_tags(X)) is not None
    ]
    return sp.csr_array(sum(learned[1:], start=learned[0])) if learned else None
