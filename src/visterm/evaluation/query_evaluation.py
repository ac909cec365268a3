"""Measure search by several words, of one tagger or of several on the same queries: the PAMIR paper's protocol."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
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
from visterm.data.query_files import QueryRow, judge_images, read_query_file
from visterm.data.tag_queries import queries_of_tags, relevant_images
from visterm.evaluation.evaluate import encode_for_all
from visterm.features.training_rows import HELD_OUT, LEARNED
from visterm.learning.part_settings import check_combination
from visterm.metrics.ranking import Scores
from visterm.metrics.retrieval import Combine, best_images, kinds_of_queries, measure_queries, rank_queries
from visterm.metrics.significance import Compared, Interval, compare_pairs, interval_of
from visterm.tagging.tagger import Tagger

MIN_COUNT = 2
"""Images that a word must have to be in a query made from tags (PAMIR, section V-A: so Corel5k has 179 words)."""

RECALLS = tuple(step / 10 for step in range(11))  # Levels of recall of the precision-recall curves
CURVE_RANKS = 20  # Ranks up to which the curves of precision go


@dataclass(frozen=True)
class QueryEvaluation:
    """The measures of each query, for each tagger, and the kinds of queries."""

    texts: list[str]  # The queries
    n_relevant: NDArray[np.int64]  # shape (n_queries,)
    # Arrays of shape (n_queries,), as `visterm.metrics.retrieval.kinds_of_queries` gives them.
    kinds: dict[str, NDArray[np.bool_]]
    # ``AvgP``, ``BEP`` and ``P10`` of each tagger, of shape (n_queries,);
    # ``nDCG10`` too where some images are more relevant than others.
    values: list[dict[str, NDArray[np.float64]]]
    skipped: list[Skipped]  # Images that could not be read
    left_out: int  # Queries of a file that have no word that every tagger knows, or no relevant image here
    corpus: Corpus  # The images that all taggers could read
    relevant: sp.csr_array  # shape (n_queries, n_images): above 0 where an image is relevant
    # Interpolated, at the recalls 0, 0.1, ..., 1, averaged over the queries: of each tagger, shape (11,).
    precision_at_recall: list[NDArray[np.float64]]
    # Among the first 1, 2, ..., 20 images, averaged over the queries: of each tagger, shape (20,).
    precision_at_rank: list[NDArray[np.float64]]
    searches: list[Searches] = field(repr=False)  # For each tagger, to look at single queries

    def mean(self, measure: str, kind: str = "all", tagger: int = 0) -> float:
        """Return the mean of a measure over the queries of a kind; NaN where there are none."""
        values = self.values[tagger][measure][self.kinds[kind]]
        return float(np.nanmean(values)) if (~np.isnan(values)).any() else math.nan

    def interval(self, measure: str, kind: str = "all", tagger: int = 0) -> Interval:
        """Return the mean of a measure over the queries of a kind, and its 95 % bootstrap interval over queries.

        A single query has an interval of no width; no query at all is a `DataError`.
        """
        return interval_of(self.values[tagger][measure][self.kinds[kind]])

    def compare(self, measure: str) -> list[Compared]:
        """Compare every two taggers over all queries, with p-values corrected for the number of pairs."""
        return compare_pairs([values[measure] for values in self.values])

    def best_images(self, queries: Sequence[int], k: int, tagger: int = 0) -> list[Ranking]:
        """Return the best images of a few queries, as numbers in `corpus`."""
        scores, weights, hidden, combine = self.searches[tagger]
        rows = np.asarray(queries, np.int64)
        return best_images(scores, weights[rows], k, exclude=None if hidden is None else hidden[rows], combine=combine)


class Searches(NamedTuple):
    """What one tagger ranks images by."""

    scores: Scores  # Yields blocks of what `combine` takes, (n_images, n_tags)
    weights: sp.csr_array  # shape (n_queries, n_tags)
    hidden: sp.csr_array | None  # shape (n_queries, n_images): not 0 where an image is left out of a ranking
    combine: Combine  # "sum", "product" or callable, as `visterm.metrics.retrieval.rank_queries` takes it


def evaluate_queries(
    taggers: Sequence[Tagger],
    corpus: Corpus,
    queries: Path | Sequence[QueryRow] | None = None,
    *,
    learned: Corpus | None = None,
    max_words: int | None = 3,
    min_count: int = MIN_COUNT,
    combine: str = "sum",
    progress: Progress = SILENT,
) -> QueryEvaluation:
    """Rank the images of a corpus for queries, and measure the rankings query by query.

    Several taggers are compared on the same queries and images, which they have not learned from; if the tags of one
    have a tree, an image has all tags above its own, and no word is less likely than those under it. Of images known by
    number, those that a tagger learned to have all the words of a query are left out of the rankings for this query.

    `queries` are a file (`visterm.data.query_files.read_query_file`) or its lines. None: they are made from the tags of
    the corpus that all taggers know, of `max_words` at most (None: as many as an image has tags), each on `min_count`
    images or more; with `learned`, the images that were learned from, it is known which of them were seen. `combine`
    says how the scores of words are combined, as in `Catalogue.search`: "sum", "product" or "confidence". Raises
    DataError if there are no images, or no queries with a relevant image; UserError if the product is requested and a
    model's scores are no probabilities, or confidences and a run has none.
    """
    ways = [_combination(combine, tagger) for tagger in taggers]
    tree = next((tagger.tree.words for tagger in taggers if tagger.tree is not None), None)
    rows, read, skipped = encode_for_all(taggers, corpus, progress)
    if queries is None:
        if tree is not None:
            read = replace(read, tags=[tree.with_parents(tags) for tags in read.tags])
        texts, of_taggers, relevant, left_out = queries_from_tags(taggers, read.tags, max_words, min_count)
    else:
        texts, of_taggers, relevant, left_out = _queries_from_file(taggers, read.names, queries)
    if len(texts) == 0:
        advice = "Check that the query file names photos as the tag file does, with words that are tags of the run."
        if queries is None:
            advice = f"Queries of tags use words that the run knows and at least {min_count} of these photos have."
        raise DataError("No query has a relevant photo among those measured.", advice=advice)

    learned_to_have = [
        relevant_images(words, known_tags)
        for tagger, X, words in zip(taggers, rows, of_taggers, strict=True)
        if (known_tags := tagger.known_tags(X)) is not None
    ]
    hidden = sum(learned_to_have[1:], start=learned_to_have[0]) if learned_to_have else None
    values, at_recall, at_rank, searches = [], [], [], []

    for tagger, X, words, way in zip(taggers, rows, of_taggers, ways, strict=True):
        weights = weigh_words(words, tagger.idf)
        scores = partial(_scores, tagger, X, combine)
        ranks = rank_queries(scores, weights, relevant, exclude=hidden, combine=way)
        if ranks.ranks.size == 0:
            raise DataError("Nothing is left to find: the run learned all these tags. Measure on held-out tags.")
        values.append(measure_queries(ranks, relevant))
        at_recall.append(np.nanmean(ranks.interpolated_precision(RECALLS), axis=0))
        at_rank.append(np.array([np.nanmean(ranks.precision(k)) for k in range(1, CURVE_RANKS + 1)]))
        searches.append(Searches(scores, weights, hidden, way))

    seen = None
    if learned is not None and queries is None:
        of_learned = learned.tags if tree is None else [tree.with_parents(tags) for tags in learned.tags]
        seen = np.diff(relevant_images(of_taggers[0], taggers[0].vocabulary.encode(of_learned)).indptr) > 0
    n_words = np.diff(of_taggers[0].indptr).astype(np.int64)
    n_relevant = np.diff(relevant.indptr).astype(np.int64)
    return QueryEvaluation(
        texts, n_relevant, kinds_of_queries(n_words, n_relevant, seen), values, skipped, left_out,
        read, relevant, at_recall, at_rank, searches,
    )  # fmt: skip


SharedQueries: TypeAlias = tuple[list[str], list[sp.csr_array], sp.csr_array, int]
"""Queries as texts; as words in the columns of each tagger, (n_queries, n_tags), above 0 for a word, below 0 for a
`-word`; what is relevant, (n_queries, n_images); and how many queries of a file have no word that every tagger knows,
or no relevant image here."""


def queries_from_tags(
    taggers: Sequence[Tagger], tags: list[list[str]], max_words: int | None, min_count: int
) -> SharedQueries:
    """Make queries of the tags that all taggers know, each tagger with its own columns."""
    vocabulary = Vocabulary.from_lists(tags, min_count=min_count, aliases=taggers[0].vocabulary.aliases)
    known = (column for column, tag in enumerate(vocabulary) if all(tag in tagger.vocabulary for tagger in taggers))
    shared = vocabulary.subset(known)
    if len(shared) == 0:
        return [], [], sp.csr_array((0, len(tags))), 0
    queries = queries_of_tags(shared.encode(tags), max_words=max_words)
    words = [as_csr(queries.words @ tagger.vocabulary.encode([[tag] for tag in shared])) for tagger in taggers]
    return queries.texts(shared.tags), words, queries.relevant, 0


def _queries_from_file(
    taggers: Sequence[Tagger], names: list[str], queries: Path | Sequence[QueryRow]
) -> SharedQueries:
    """Take the queries of a file that have a relevant image here and, for each tagger, a word that it knows."""
    rows = read_query_file(queries) if isinstance(queries, Path) else queries
    judged = judge_images(rows, names)
    words: list[list[sp.csr_array]] = [[] for _ in taggers]
    numbers: list[int] = []
    for number, text in enumerate(judged.texts):
        try:
            weights = [tagger.vocabulary.query(text).weights for tagger in taggers]
        except UserError:
            continue
        if all(of_tagger.nnz for of_tagger in weights):
            numbers.append(number)
            for queries_of_tagger, of_query in zip(words, weights, strict=True):
                queries_of_tagger.append(of_query)
    stacked = [as_csr(sp.vstack(of_tagger, format="csr")) if numbers else sp.csr_array((0, 1)) for of_tagger in words]
    n_texts = len({row.query for row in rows})
    return [judged.texts[i] for i in numbers], stacked, judged.relevant[numbers], n_texts - len(numbers)


def learned_part(corpus: Corpus) -> Corpus | None:
    """Return the images of a corpus that its splits say are learned from or stopped by; None where it has no splits."""
    rows = [i for i, split in enumerate(corpus.splits) if split in (LEARNED, HELD_OUT)]
    return corpus.subset(rows) if rows else None


def _combination(combine: str, tagger: Tagger) -> Combine:
    """Return how to combine the scores of words; refuse what does not exist, or what a run does not allow."""
    check_combination(combine, tagger.model)
    if combine != CONFIDENCE:
        return combine
    if tagger.calibration is None:
        raise UserError(
            f"`combine` '{combine}' needs a run with confidences, and {tagger.path or 'this run'} has none.",
            setting="combine", value=combine, advice="Fit it again with at least 20 tagged photos, or use 'sum'.",
        )  # fmt: skip
    if tagger.tree is None:
        return tagger.calibration.log_confidences
    of_odds = tagger.calibration.log_of_odds
    return lambda odds, tags, signs: of_odds(odds, signs)


def _scores(tagger: Tagger, X: Matrix, combine: str) -> Iterator[tuple[slice, NDArray[np.floating]]]:
    """Yield scores of all tags, or for confidences by a tree log odds, none below those of the tags under it."""
    for rows, block in tagger.model.score_blocks(X):
        if combine == CONFIDENCE and tagger.tree is not None and tagger.calibration is not None:
            yield rows, tagger.tree.raised(tagger.calibration.odds(block))
        else:
            yield rows, block
