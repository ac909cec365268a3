"""Measure a tagger on photos whose tags are known."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from visterm.app.rows import encode_corpus
from visterm.app.tagger import Tagger
from visterm.core.errors import DataError
from visterm.core.progress import SILENT, Progress
from visterm.core.types import Skipped
from visterm.data.corpus import Corpus
from visterm.data.relations import sibling_sets
from visterm.data.wordnet import read_relations
from visterm.metrics import check_metrics, evaluate

DEFAULT_METRICS = ("map", "p@1", "p@5", "r@5", "f1@5", "tag_p@5", "tag_r@5", "tag_f1@5", "n_plus@5", "word_map", "auc")


class Evaluation(NamedTuple):
    """Metric values, and what to know of them.

    Attributes
    ----------
    values : dict of str to float
    given, unknown : int
        Tags that people gave, and how many of them the run does not know.
    learned : int
        Images named as images that the run learned from; 0 where images are known by number, as all are then.
    skipped : list of Skipped
        The images that could not be read.
    """

    values: dict[str, float]
    given: int
    unknown: int
    learned: int
    skipped: list[Skipped]


def evaluate_tagger(
    tagger: Tagger,
    corpus: Corpus,
    metrics: Sequence[str] = DEFAULT_METRICS,
    *,
    isa: Path | None = None,
    progress: Progress = SILENT,
) -> Evaluation:
    """Measure annotation and search of a tagger on a corpus that it has not learned from.

    Of images known by number it has learned other tags: those are left out of the rankings.

    Parameters
    ----------
    tagger : Tagger
        A fitted one.
    corpus : Corpus
        Images with the tags that people gave.
    metrics : sequence of str
        Names from ``visterm metrics``.
    isa : Path, optional
        Which tags are siblings, for ``psib@k``: a CSV of child,parent, or the folder of WordNet's database files.
    progress : Progress
        Told of each image.

    Raises
    ------
    DataError
        If there is nothing to measure on, or the relations cannot be used.
    """
    check_metrics(metrics, siblings=isa is not None)
    siblings = None if isa is None else sibling_sets(read_relations(isa, tagger.vocabulary.tags), tagger.vocabulary)
    if len(corpus) == 0:
        raise DataError("There are no images to measure on. Check --split and the tag file.")
    X, Y, skipped = encode_corpus(tagger.encoder, corpus, tagger.vocabulary, progress)
    scores = partial(tagger.model.score_blocks, X)
    values = evaluate(scores, Y, list(metrics), exclude=tagger.told(X), siblings=siblings)
    given = [tag for tags in corpus.tags for tag in tags]
    unknown = sum(tag not in tagger.vocabulary for tag in given)
    learned = 0 if tagger.encoder.by_number else tagger.learned_images.count(corpus.names)
    return Evaluation(values, len(given), unknown, learned, skipped)
