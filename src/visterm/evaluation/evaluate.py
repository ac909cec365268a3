"""Measure how well one or more taggers annotate photos whose tags are known."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from visterm.core.errors import DataError
from visterm.core.progress import SILENT, Progress
from visterm.core.types import Doubles, Floats, Ints, Matrix, Ranking, Skipped
from visterm.core.vocabulary import Vocabulary
from visterm.data.corpus import Corpus
from visterm.data.relations import IS_A_FILE, read_related, sibling_sets
from visterm.data.tag_tree import TreeColumns
from visterm.features.training_rows import source_of_rows
from visterm.kernels.topk import top_k
from visterm.learning.run import Run
from visterm.metrics import check_metrics, measure
from visterm.metrics.report import means
from visterm.metrics.significance import interval_of
from visterm.tagging.tagger import Tagger

DEFAULT_METRICS = ("map", "p@1", "p@5", "r@5", "f1@5", "tag_p@5", "tag_r@5", "tag_f1@5", "n_plus@5", "word_map", "auc")

TREE_METRICS = ("hp@5", "hr@5", "hf1@5")  # Additional default metrics for runs with a tree of tags
SIBLING_METRIC = "psib@5"  # Additional default metric if siblings of tags are known
JOINT_METRICS = ("tag_f1", "n_plus")  # Metrics of all tags together, without values per image or tag


@dataclass(frozen=True)
class AnnotationEvaluation:
    """The results of each tagger, per image and per tag."""

    corpus: Corpus  # The images that all taggers could read
    vocabulary: Vocabulary  # The ranked tags, which all taggers know
    Y: sp.csr_array  # shape (n_images, n_tags), above 0: given by people
    # shape (n_images, n_tags): nonzero if a tag is left out of the ranking, because a tagger learned it from this
    # image.
    hidden: sp.csr_array | None
    values: list[dict[str, Doubles]]  # Per tagger, the output of `visterm.metrics.measure`
    n_given: int  # Number of tags that people gave
    n_unknown: int  # Number of given tags that are not ranked
    n_learned: list[int]  # Per tagger, number of images whose names it learned from
    skipped: list[Skipped]  # Images that could not be read
    rankers: list[Ranker]  # Per tagger, to rank the tags of single images
    # Number of ranked tags with siblings; None without relations of tags.
    n_with_siblings: int | None = None
    # Metric that was left out because it has no values to average -> the reason.
    undefined: dict[str, str] = field(default_factory=dict)

    def mean(self, metric: str, tagger: int = 0) -> float:
        """Return the value of a metric for a tagger."""
        return float(np.nanmean(self.values[tagger][metric]))

    def best_tags(self, images: Sequence[int], k: int) -> list[Ranking]:
        """Return the first tagger's best tags of the images, as columns of `vocabulary`, without hidden tags."""
        rows, ranker = np.asarray(images, np.int64), self.rankers[0]
        scores = np.vstack([block for _, block in ranker._replace(X=ranker.X[rows]).blocks()])
        if self.hidden is not None:
            scores = np.where(self.hidden[rows].toarray() != 0, np.float32(-np.inf), scores)
        ids, values = top_k(np.ascontiguousarray(scores), min(k, scores.shape[1]))
        return [Ranking(i[v > -np.inf], v[v > -np.inf]) for i, v in zip(ids, values, strict=True)]


class Ranker(NamedTuple):
    """Computes one tagger's scores of the ranked tags."""

    tagger: Tagger
    X: Matrix  # shape (n_images, n_features)
    columns: Ints | None  # shape (n_tags,): the tagger's column of each ranked tag; None: same columns

    def blocks(self) -> Iterator[tuple[slice, Floats]]:
        """Yield the rows of each block with their scores."""
        for rows, block in self.tagger.score_blocks(self.X):
            yield rows, block if self.columns is None else np.ascontiguousarray(block[:, self.columns])


def is_mean(metric: str) -> bool:
    """Return whether a metric is a mean over images or tags, and so has an interval."""
    [requested] = check_metrics(metric).values()
    return requested.metric.name not in JOINT_METRICS


def figures_of(values: dict[str, Doubles]) -> dict[str, dict[str, float]]:
    """Return the value of each metric and, for means, the 95 % bootstrap interval over images or tags."""
    return {
        metric: interval_of(array)._asdict() if is_mean(metric) else {"mean": float(array[0])}
        for metric, array in values.items()
    }


def evaluate_taggers(
    taggers: Sequence[Tagger],
    corpus: Corpus,
    metrics: Sequence[str] = DEFAULT_METRICS,
    *,
    optional: Sequence[str] = (),
    ranked_tags: Collection[str] | None = None,
    isa: Path | None = None,
    progress: Progress = SILENT,
) -> AnnotationEvaluation:
    """Measure annotation and one-word search on photos that the taggers have not learned from.

    Several taggers are compared on the images that all can read and the tags that all know. For images known by number,
    tags that any tagger has learned are left out of the rankings.

    `metrics` are names from ``visterm metrics``; `optional` metrics are left out if they have no values to average,
    unless no metric has values. `ranked_tags` are the tags to rank, from `join_library`; None: all tags that all
    taggers know. `isa` defines siblings for ``psib@k``: a CSV of child,parent. If a run has a tree, photos with a child
    tag also have its parents, for all taggers. Raises DataError if there are no photos to measure on, or the relations
    are invalid.
    """
    vocabulary = shared_vocabulary(taggers)
    if ranked_tags is not None:
        vocabulary = vocabulary.subset(column for column, tag in enumerate(vocabulary) if tag in ranked_tags)
    tag_tree = next((tagger.tree.words for tagger in taggers if tagger.tree is not None), None)
    tree_columns = None if tag_tree is None else TreeColumns(tag_tree, vocabulary)
    check_metrics(metrics, siblings=isa is not None, tree=tree_columns is not None)
    if len(vocabulary) == 0:
        raise DataError("The runs, or the runs and these photos, have no tag in common. Measure each run separately.")
    siblings = None if isa is None else sibling_sets(read_related(isa, IS_A_FILE), vocabulary)
    nodes_above = None if tree_columns is None else tree_columns.above
    rows, readable_corpus, skipped = encode_for_all(taggers, corpus, progress)
    given_tags = [tag for tags in corpus.tags for tag in tags]
    if tree_columns is not None:
        tags, negatives = tree_columns.words.completed(readable_corpus.tags, readable_corpus.negatives)
        readable_corpus = replace(readable_corpus, tags=tags, negatives=negatives)

    Y = vocabulary.encode(readable_corpus.tags, readable_corpus.negatives)
    hidden = _learned_tags(taggers, rows, vocabulary)
    rankers = []
    for tagger, X in zip(taggers, rows, strict=True):
        columns = np.array([tagger.vocabulary.index(tag) for tag in vocabulary], np.int64)
        are_same = np.array_equal(columns, np.arange(len(tagger.vocabulary)))
        rankers.append(Ranker(tagger, X, None if are_same else columns))
    values: list[dict[str, Doubles]] = []
    undefined: dict[str, str] = {}  # optional metric without values to average -> the reason

    for ranker in rankers:
        tagger_values = measure(ranker.blocks, Y, list(metrics), exclude=hidden, siblings=siblings, tree=nodes_above)
        tagger_values, undefined = without_undefined(tagger_values, optional)
        values.append(tagger_values)

    return AnnotationEvaluation(
        readable_corpus, vocabulary, Y, hidden, values,
        n_given=len(given_tags),
        n_unknown=sum(tag not in vocabulary for tag in given_tags),
        n_learned=[count_learned(run, corpus) for run in taggers],
        skipped=skipped,
        rankers=rankers,
        n_with_siblings=None if siblings is None else int((np.diff(siblings.indptr) > 1).sum()),
        undefined=undefined,
    )  # fmt: skip


def count_learned(run: Run, corpus: Corpus) -> int:
    """Count the images that a run has learned from, by their names; pixels and images known by number don't count."""
    if run.encoder.by_number:
        return 0
    pairs = zip(corpus.names, corpus.images, strict=True)
    return run.learned_images.count([name for name, image in pairs if isinstance(image, str | os.PathLike)])


def without_undefined(values: dict[str, Doubles], optional: Sequence[str]) -> tuple[dict[str, Doubles], dict[str, str]]:
    """Leave out optional metrics without values to average, unless no metric has any; return the others, and reasons.

    Raises DataError for another metric without values to average.
    """
    undefined: dict[str, str] = {}
    for name in optional:
        try:
            means({name: values[name]})
        except DataError as error:
            undefined[name] = str(error)
    if len(undefined) < len(values):
        values = {name: array for name, array in values.items() if name not in undefined}
    means(values)
    return values, undefined


def encode_for_all(
    taggers: Sequence[Run], corpus: Corpus, progress: Progress = SILENT
) -> tuple[list[Matrix], Corpus, list[Skipped]]:
    """Encode the images for each tagger, once per different encoder.

    Returns the rows, shape (n_images, n_features), for each tagger; the corpus of the images that all encoders can
    read; and the skipped images, which an encoder cannot read or whose names it does not know. Raises DataError if
    there are no images, or an encoder by name knows none of them.
    """
    if len(corpus) == 0:
        raise DataError("There are no photos to measure on. Check the splits of the tag file.")
    rows_by_encoder: dict[str, tuple[Matrix, Ints]] = {}
    skipped = {item.image: item for item in corpus.skipped}
    shared_positions = np.arange(len(corpus))
    for tagger in taggers:
        encoder = tagger.encoder
        if encoder.fingerprint not in rows_by_encoder:
            if corpus.encoded is None:
                encoder.refuse_unknown(corpus.images, only_if_all=True)
            X, readable, unreadable = source_of_rows(encoder, corpus).encode(corpus.images, progress=progress)
            rows_by_encoder[encoder.fingerprint] = X, np.asarray(readable)
            skipped.update({item.image: item for item in unreadable})
            shared_positions = np.intersect1d(shared_positions, readable)

    rows = {
        name: X if readable.size == shared_positions.size else X[np.searchsorted(readable, shared_positions)]
        for name, (X, readable) in rows_by_encoder.items()
    }
    shared_corpus = corpus.subset(shared_positions)
    return [rows[tagger.encoder.fingerprint] for tagger in taggers], shared_corpus, list(skipped.values())


def shared_vocabulary(taggers: Sequence[Run]) -> Vocabulary:
    """Return the tags that all taggers know, in the order of the first one."""
    first = taggers[0].vocabulary
    columns = [column for column, tag in enumerate(first) if all(tag in other.vocabulary for other in taggers[1:])]
    return first.subset(columns)


def _learned_tags(taggers: Sequence[Run], rows: Sequence[Matrix], vocabulary: Vocabulary) -> sp.csr_array | None:
    """Return (n_images, n_tags), nonzero for tags that a tagger learned from images known by number; None if no tag."""
    learned_tags = [
        sp.csr_array(abs(known_tags)[:, [tagger.vocabulary.index(tag) for tag in vocabulary]])
        for tagger, X in zip(taggers, rows, strict=True)
        if (known_tags := tagger.known_tags(X)) is not None
    ]
    return sp.csr_array(sum(learned_tags[1:], start=learned_tags[0])) if learned_tags else None
