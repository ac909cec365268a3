"""Measure search by several words, of one tagger or of several on the same queries: the PAMIR paper's protocol."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.app.rows import HELD_OUT, LEARNED, source_of_rows
from visterm.app.tagger import Tagger
from visterm.core.checks import as_csr
from visterm.core.errors import DataError, UnknownNameError
from visterm.core.progress import SILENT, Progress
from visterm.core.types import Matrix, Skipped
from visterm.core.vocabulary import Vocabulary
from visterm.data.corpus import Corpus
from visterm.data.query_files import judge_images, read_query_file
from visterm.data.tag_queries import queries_of_tags, relevant_images
from visterm.metrics.queries import kinds_of_queries, measure_queries, rank_queries
from visterm.metrics.significance import (
    Difference,
    Interval,
    SignedRanks,
    bootstrap_mean,
    paired_bootstrap,
    signed_ranks,
)

RESAMPLES = 1000
"""Of the queries, for intervals."""

MIN_COUNT = 2
"""Images that a word must have to be in a query made from tags (PAMIR, section V-A: so Corel5k has 179 words)."""


@dataclass(frozen=True)
class QueryEvaluation:
    """The measures of each query, for each tagger, and the kinds of queries.

    Attributes
    ----------
    texts : list of str
        The queries.
    n_relevant : ndarray of int64, shape (n_queries,)
    kinds : dict of str to ndarray of bool, shape (n_queries,)
        As `visterm.metrics.queries.kinds_of_queries` gives them.
    values : list of dict of str to ndarray of float64, shape (n_queries,)
        ``AvgP``, ``BEP`` and ``P10`` of each tagger.
    skipped : list of Skipped
        Images that could not be read.
    left_out : int
        Queries of a file that have no word that every tagger knows, or no relevant image here.
    """

    texts: list[str]
    n_relevant: NDArray[np.int64]
    kinds: dict[str, NDArray[np.bool_]]
    values: list[dict[str, NDArray[np.float64]]]
    skipped: list[Skipped]
    left_out: int = 0

    def mean(self, measure: str, kind: str = "all", tagger: int = 0) -> float:
        """Give the mean of a measure over the queries of a kind; NaN where there are none."""
        values = self._defined(measure, kind, tagger)
        return float(values.mean()) if values.size else math.nan

    def interval(self, measure: str, kind: str = "all", tagger: int = 0) -> Interval:
        """Give the mean of a measure over the queries of a kind, and its 95 % bootstrap interval over queries.

        A single query has an interval of no width; no query at all is a `DataError`.
        """
        values = self._defined(measure, kind, tagger)
        if values.size == 1:
            return Interval(float(values[0]), float(values[0]), float(values[0]))
        return bootstrap_mean(values, n_resamples=RESAMPLES)

    def difference(self, measure: str, kind: str = "all", taggers: tuple[int, int] = (0, 1)) -> Difference:
        """Give the first tagger's mean minus the second's, and its 95 % bootstrap interval over queries."""
        first, second = (self.values[tagger][measure][self.kinds[kind]] for tagger in taggers)
        return paired_bootstrap(first, second, n_resamples=RESAMPLES)

    def compare(self, measure: str, kind: str = "all", taggers: tuple[int, int] = (0, 1)) -> SignedRanks:
        """Compare two taggers query by query with Wilcoxon's signed rank test."""
        first, second = (self.values[tagger][measure][self.kinds[kind]] for tagger in taggers)
        return signed_ranks(first, second)

    def _defined(self, measure: str, kind: str, tagger: int) -> NDArray[np.float64]:
        values = self.values[tagger][measure][self.kinds[kind]]
        return values[~np.isnan(values)]


class _Asked(NamedTuple):
    """Queries as texts, as weights of words for each tagger, and what is relevant."""

    texts: list[str]
    words: list[sp.csr_array]
    relevant: sp.csr_array
    left_out: int


def evaluate_queries(
    taggers: Sequence[Tagger],
    corpus: Corpus,
    queries: Path | None = None,
    *,
    learned: Corpus | None = None,
    max_words: int | None = 3,
    min_count: int = MIN_COUNT,
    progress: Progress = SILENT,
) -> QueryEvaluation:
    """Rank the images of a corpus for queries, and measure the rankings query by query.

    Of images known by number, those that a tagger learned to have all the words of a query are left out of its ranking
    for this query.

    Parameters
    ----------
    taggers : sequence of Tagger
        One, or several to compare on the same queries and images.
    corpus : Corpus
        Images that were not learned from, with the tags that people gave.
    queries : Path, optional
        A file of queries (`visterm.data.query_files.read_query_file`). None: they are made from the tags of the corpus
        that all taggers know.
    learned : Corpus, optional
        Images that were learned from: says which queries made from tags were seen.
    max_words : int or None
        Words of queries made from tags, at most; None: as many as an image has tags.
    min_count : int
        Images that a word must have to be in a query made from tags.
    progress : Progress
        Told of each image.

    Raises
    ------
    DataError
        If there are no images, or no queries with a relevant image.
    """
    if len(corpus) == 0:
        raise DataError("There are no images to measure on. Check --split and the tag file.")
    features, names, tags, skipped = _encoded(taggers, corpus, progress)
    asked = _from_file(taggers, names, queries) if queries else _from_tags(taggers, tags, max_words, min_count)
    if len(asked.texts) == 0:
        raise DataError(
            "There are no queries with a relevant image among those measured. "
            + (
                f"Made from tags, they have words that at least {min_count} of these images share and that the run "
                "knows."
                if queries is None
                else "Check that the query file names images as the tag file does, and words that are tags of the run."
            )
        )
    values = []
    for tagger, X, words in zip(taggers, features, asked.words, strict=True):
        told = tagger.told(X)
        ranks = rank_queries(
            partial(tagger.model.score_blocks, X),
            tagger.weighed(words),
            asked.relevant,
            exclude=None if told is None else relevant_images(words, told),
        )
        values.append(measure_queries(ranks))
    seen = None
    if learned is not None and queries is None:
        known = taggers[0].vocabulary.encode(learned.tags)
        seen = np.diff(relevant_images(asked.words[0], known).indptr) > 0
    n_words = np.diff(asked.words[0].indptr).astype(np.int64)
    n_relevant = np.diff(asked.relevant.indptr).astype(np.int64)
    kinds = kinds_of_queries(n_words, n_relevant, seen)
    return QueryEvaluation(asked.texts, n_relevant, kinds, values, skipped, asked.left_out)


def learned_part(corpus: Corpus) -> Corpus | None:
    """Give the images of a corpus that its splits say are learned from or stopped by; None where it has no splits."""
    rows = [i for i, split in enumerate(corpus.splits) if split in (LEARNED, HELD_OUT)]
    return corpus.subset(rows) if rows else None


def _encoded(
    taggers: Sequence[Tagger], corpus: Corpus, progress: Progress
) -> tuple[list[Matrix], list[str], list[list[str]], list[Skipped]]:
    """Encode the images for each tagger, and keep those that all could read."""
    features: list[tuple[Matrix, NDArray[np.int64]]] = []
    skipped: dict[str, Skipped] = {}
    for tagger in taggers:
        X, kept, unread = source_of_rows(tagger.encoder, corpus).encode(corpus.images, progress=progress)
        features.append((X, np.asarray(kept)))
        skipped.update({item.image: item for item in unread})
    common = features[0][1]
    for _, kept in features[1:]:
        common = np.intersect1d(common, kept)
    rows = [X[np.searchsorted(kept, common)] for X, kept in features]
    return rows, [corpus.names[i] for i in common], [corpus.tags[i] for i in common], list(skipped.values())


def _from_tags(taggers: Sequence[Tagger], tags: list[list[str]], max_words: int | None, min_count: int) -> _Asked:
    """Make queries of the tags that all taggers know, each tagger with its own columns."""
    there = Vocabulary.from_lists(tags, min_count=min_count)
    shared = Vocabulary([tag for tag in there if all(tag in tagger.vocabulary for tagger in taggers)])
    if len(shared) == 0:
        return _Asked([], [], sp.csr_array((0, len(tags))), 0)
    made = queries_of_tags(shared.encode(tags), max_words=max_words)
    words = [as_csr(made.words @ tagger.vocabulary.encode([[tag] for tag in shared])) for tagger in taggers]
    return _Asked(made.texts(shared.tags), words, made.relevant, 0)


def _from_file(taggers: Sequence[Tagger], names: list[str], path: Path) -> _Asked:
    """Take the queries of a file that have a relevant image here and, for each tagger, a word that it knows."""
    rows = read_query_file(path)
    judged = judge_images(rows, names)
    found: list[list[Any]] = []
    kept: list[int] = []
    for number, text in enumerate(judged.texts):
        try:
            weights = [tagger.vocabulary.query(text).weights for tagger in taggers]
        except UnknownNameError:
            continue
        if all(of_tagger.nnz for of_tagger in weights):
            found.append(weights)
            kept.append(number)
    words = [
        as_csr(sp.vstack([of_query[i] for of_query in found], format="csr")) if found else sp.csr_array((0, 1))
        for i in range(len(taggers))
    ]
    n_texts = len({row.query for row in rows})
    return _Asked([judged.texts[i] for i in kept], words, judged.relevant[kept], n_texts - len(kept))
