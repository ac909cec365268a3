"""Measure searches by several words with one or more taggers on the same queries, as in the PAMIR paper."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_csr
from visterm.core.errors import DataError, UserError
from visterm.core.progress import SILENT, Progress
from visterm.core.queries import CONFIDENCE, weigh_words
from visterm.core.types import Matrix, Ranking, Skipped
from visterm.core.vocabulary import Vocabulary
from visterm.data.corpus import Corpus
from visterm.data.tag_queries import QueryRow, judge_images, queries_of_tags, relevant_images
from visterm.evaluation.evaluate import encode_for_all
from visterm.features.training_rows import TRAIN_SPLIT, VALID_SPLIT
from visterm.learning.part_settings import check_combination
from visterm.learning.query_rows import words_of
from visterm.metrics.ranking import Scores
from visterm.metrics.retrieval import Combine, best_images, kinds_of_queries, measure_queries, rank_queries
from visterm.tagging.tagger import Tagger

MIN_COUNT = 2
"""Minimum number of images of a word in queries made from tags (PAMIR, section V-A: 179 words for Corel5k)."""

RECALLS = tuple(step / 10 for step in range(11))  # Recall levels of the precision-recall curves
MAX_CURVE_RANK = 20


@dataclass(frozen=True)
class QueryEvaluation:
    """The measures per query and tagger, and the kinds of the queries."""

    texts: list[str]  # The queries
    n_relevant: NDArray[np.int64]  # shape (n_queries,)
    # Kind -> mask, shape (n_queries,), from `visterm.metrics.retrieval.kinds_of_queries`.
    kinds: dict[str, NDArray[np.bool_]]
    # Per tagger: ``AvgP``, ``BEP`` and ``P10``, and for graded relevance ``nDCG10`` -> values,
    # shape (n_queries,).
    values: list[dict[str, NDArray[np.float64]]]
    skipped: list[Skipped]  # Images that could not be read
    left_out: int  # Number of queries of a file without a word that every tagger knows, or without a relevant image
    corpus: Corpus  # The images that all taggers could read
    relevant: sp.csr_array  # shape (n_queries, n_images): above 0 if an image is relevant
    # Per tagger: mean interpolated precision at the recalls 0, 0.1, ..., 1, shape (11,).
    precision_at_recall: list[NDArray[np.float64]]
    # Per tagger: mean precision of the first 1, 2, ..., 20 images, shape (20,).
    precision_at_rank: list[NDArray[np.float64]]
    searches: list[Searches] = field(repr=False)  # Per tagger, to run single queries

    def mean(self, measure: str, kind: str = "all", tagger: int = 0) -> float:
        """Return the mean of a measure over the queries of a kind; NaN if there are none."""
        values = self.values[tagger][measure][self.kinds[kind]]
        return float(np.nanmean(values)) if (~np.isnan(values)).any() else math.nan

    def best_images(self, queries: Sequence[int], k: int, tagger: int = 0) -> list[Ranking]:
        """Return the best images of the queries, as row numbers of `corpus`."""
        scores, weights, hidden, combine = self.searches[tagger]
        rows = np.asarray(queries, np.int64)
        return best_images(scores, weights[rows], k, exclude=None if hidden is None else hidden[rows], combine=combine)


class Searches(NamedTuple):
    """The data for ranking images for queries by one tagger."""

    scores: Scores  # Yields blocks of the input of `combine`, shape (n_images, n_tags)
    weights: sp.csr_array  # shape (n_queries, n_tags)
    hidden: sp.csr_array | None  # shape (n_queries, n_images): nonzero if an image is left out of a ranking
    combine: Combine  # "sum", "product" or a callable, for `visterm.metrics.retrieval.rank_queries`


def evaluate_queries(
    taggers: Sequence[Tagger],
    corpus: Corpus,
    queries: Sequence[QueryRow] | None = None,
    *,
    learned: Corpus | None = None,
    max_words: int | None = 3,
    min_count: int = MIN_COUNT,
    combine: str | None = None,
    progress: Progress = SILENT,
) -> QueryEvaluation:
    """Rank the images of a corpus for queries, and measure the rankings query by query.

    Several taggers are compared on the same queries and images, from which they have not learned. If a run has a tree
    of tags, images also have the parents of their tags, and a parent is at least as likely as its children. For images
    known by number, an image is left out of the ranking of a query if a tagger has learned all words of the query from
    it.

    `queries` are the rows of a file. None: queries are made from the tags that all taggers know and at least
    `min_count` images have, with at most `max_words` words (None: the number of tags of an image); `learned`, the
    images of the training set, is needed to tell seen queries from new queries. `combine` is "sum", "product",
    "confidence" or None, as in `Catalogue.search`. Raises DataError if there are no images, or no queries with a
    relevant image; UserError if `combine` needs probabilities or confidences that a run does not have.
    """
    combinations = [_combination(combine, tagger) for tagger in taggers]
    tree = next((tagger.tree.words for tagger in taggers if tagger.tree is not None), None)
    rows, readable_corpus, skipped = encode_for_all(taggers, corpus, progress)
    if queries is None:
        if tree is not None:
            readable_corpus = replace(readable_corpus, tags=[tree.with_parents(tags) for tags in readable_corpus.tags])
        texts, tagger_words, relevant, left_out = queries_from_tags(taggers, readable_corpus.tags, max_words, min_count)
    else:
        texts, tagger_words, relevant, left_out = _queries_from_file(taggers, readable_corpus.names, queries)

    if len(texts) == 0:
        advice = "Check that the query file has the same photo names as the tag file, and words that the run knows."
        if queries is None:
            advice = f"Queries of tags use words that the run knows and at least {min_count} of these photos have."
        raise DataError("No query has a relevant photo among the measured photos.", advice=advice)

    hidden_by_tagger = [
        relevant_images(words, known_tags)
        for tagger, X, words in zip(taggers, rows, tagger_words, strict=True)
        if (known_tags := tagger.known_tags(X)) is not None
    ]
    hidden = sum(hidden_by_tagger[1:], start=hidden_by_tagger[0]) if hidden_by_tagger else None
    values, recall_curves, rank_curves, searches = [], [], [], []

    for tagger, X, words, combination in zip(taggers, rows, tagger_words, combinations, strict=True):
        weights = weigh_words(words, tagger.idf)
        scores = partial(_scores, tagger, X, by_confidence=callable(combination))
        ranks = rank_queries(scores, weights, relevant, exclude=hidden, combine=combination)
        if ranks.ranks.size == 0:
            raise DataError("No photo remains to be found: the run learned all these tags. Measure on held-out tags.")
        values.append(measure_queries(ranks, relevant))
        recall_curves.append(np.nanmean(ranks.interpolated_precision(RECALLS), axis=0))
        rank_curves.append(np.array([np.nanmean(ranks.precision(k)) for k in range(1, MAX_CURVE_RANK + 1)]))
        searches.append(Searches(scores, weights, hidden, combination))

    is_seen = None
    if learned is not None and queries is None:
        learned_tags = learned.tags if tree is None else [tree.with_parents(tags) for tags in learned.tags]
        is_seen = np.diff(relevant_images(tagger_words[0], taggers[0].vocabulary.encode(learned_tags)).indptr) > 0
    n_words = np.diff(tagger_words[0].indptr).astype(np.int64)
    n_relevant = np.diff(relevant.indptr).astype(np.int64)
    return QueryEvaluation(
        texts, n_relevant, kinds_of_queries(n_words, n_relevant, is_seen), values, skipped, left_out,
        readable_corpus, relevant, recall_curves, rank_curves, searches,
    )  # fmt: skip


SharedQueries: TypeAlias = tuple[list[str], list[sp.csr_array], sp.csr_array, int]
"""The texts of the queries; per tagger, a matrix of words, shape (n_queries, n_tags), above 0 for a word and below 0
for a `-word`; the relevant images, shape (n_queries, n_images); and the number of queries of a file that were left out,
because they have no word that every tagger knows, or no relevant image."""


def queries_from_tags(
    taggers: Sequence[Tagger], tags: list[list[str]], max_words: int | None, min_count: int
) -> SharedQueries:
    """Make queries from the tags that all taggers know; the matrix of each tagger has the tagger's own columns."""
    vocabulary = Vocabulary.from_lists(tags, min_count=min_count, aliases=taggers[0].vocabulary.aliases)
    columns = (column for column, tag in enumerate(vocabulary) if all(tag in tagger.vocabulary for tagger in taggers))
    shared_tags = vocabulary.subset(columns)
    if len(shared_tags) == 0:
        return [], [], sp.csr_array((0, len(tags))), 0
    queries = queries_of_tags(shared_tags.encode(tags), max_words=max_words)
    words = [as_csr(queries.words @ tagger.vocabulary.encode([[tag] for tag in shared_tags])) for tagger in taggers]
    return queries.texts(shared_tags.tags), words, queries.relevant, 0


def _queries_from_file(taggers: Sequence[Tagger], names: list[str], rows: Sequence[QueryRow]) -> SharedQueries:
    """Return the queries of a file that have a relevant image and, for each tagger, a known word."""
    judged = judge_images(rows, names)
    words, known = zip(*(words_of(judged.texts, tagger.vocabulary) for tagger in taggers), strict=True)
    numbers = reduce(np.intersect1d, known)
    n_left_out = len({row.query for row in rows}) - numbers.size
    return [judged.texts[i] for i in numbers], [part[numbers] for part in words], judged.relevant[numbers], n_left_out


def learned_part(corpus: Corpus) -> Corpus | None:
    """Return the training and validation images of a corpus by its splits; None if it has no such splits."""
    rows = [i for i, split in enumerate(corpus.splits) if split in (TRAIN_SPLIT, VALID_SPLIT)]
    return corpus.subset(rows) if rows else None


def _combination(combine: str | None, tagger: Tagger) -> Combine:
    """Return the combination of the scores of words. Raises UserError if it is unknown, or the run cannot use it."""
    if combine is not None:
        check_combination(combine, tagger.model)
    calibration = tagger.calibration
    if combine == CONFIDENCE and calibration is None:
        raise UserError(
            f"`combine` '{combine}' needs a run with confidences, and {tagger.path or 'this run'} has none.",
            setting="combine", value=combine, advice="Fit a run with at least 20 tagged photos, or use 'sum'.",
        )  # fmt: skip
    if calibration is None or combine not in (None, CONFIDENCE):
        return combine or "sum"
    if tagger.tree is None:
        return lambda scores, tags, signs: calibration.log_confidences(calibration.log_odds(scores, tags), signs)
    return lambda log_odds, tags, signs: calibration.log_confidences(log_odds, signs)


def _scores(tagger: Tagger, X: Matrix, *, by_confidence: bool) -> Iterator[tuple[slice, NDArray[np.floating]]]:
    """Yield scores of all tags; for confidences with a tree, log odds, where parents are not below their children."""
    for rows, block in tagger.model.score_blocks(X):
        if by_confidence and tagger.tree is not None and tagger.calibration is not None:
            yield rows, tagger.tree.raised(tagger.calibration.log_odds(block))
        else:
            yield rows, block
