"""Measures of search: rankings of images for each tag, and for queries of several words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_csr
from visterm.core.errors import DataError, ShapeError
from visterm.core.queries import log_probabilities, part_signs
from visterm.core.types import MatrixLike, Ranking
from visterm.kernels.topk import count_irrelevant_above, top_k
from visterm.metrics.ranking import Block, Judgements, Ranks, ScoreBlocks, Scores

MIN_EASY_IMAGES = 3  # Minimum number of relevant images of an easy query (PAMIR, Table X)
TOP_IMAGES = 10  # Number of first images for P10 and nDCG10
BLOCK_BYTES = 2**25

Combine: TypeAlias = str | Callable[..., NDArray[np.floating]]
"""How the scores of words are combined: a name, or a function of scores, tags and weights."""


class ImageRanker:
    """Ranks the relevant images of each tag in two passes over blocks of rows, without storing whole columns.

    The first pass (`add`) stores the scores of the relevant entries; the second (`count`) counts the scores of all
    other images between them. Memory grows with the relevant entries only.
    """

    def __init__(self, judgements: Judgements) -> None:
        self._judgements = judgements
        self._scores = np.zeros(judgements.tags.size, np.float64)
        self._n_above = np.zeros(judgements.tags.size, np.int64)
        counts = np.bincount(judgements.tags, minlength=judgements.n_tags)
        self._indptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        self._order: NDArray[np.int64] | None = None
        self._images = judgements.images

    def add(self, rows: slice, block: NDArray[np.floating]) -> None:
        """Store the scores of the relevant entries of the images `rows`."""
        span = self._judgements.span(rows)
        self._scores[span] = block[self._images[span] - rows.start, self._judgements.tags[span]]

    def count(self, rows: slice, block: NDArray[np.floating]) -> None:
        """Count the irrelevant images of `rows` above each relevant entry, after all blocks were added."""
        if self._order is None:
            self._order = np.lexsort((self._images, -self._scores, self._judgements.tags))
            self._scores, self._images = self._scores[self._order], self._images[self._order]
        count_irrelevant_above(block, rows.start, self._indptr, self._scores, self._images, self._n_above)

    def result(self) -> Ranks:
        """Return the ranks, after all blocks were counted."""
        tags = np.repeat(np.arange(self._judgements.n_tags), np.diff(self._indptr))
        total = np.concatenate(([0], np.cumsum(self._n_above)))
        first = self._indptr[tags]
        position = np.arange(1, tags.size + 1)
        return Ranks(self._judgements.n_tags, tags, self._images, position - first + total[position] - total[first])


def rank_images(scores: Scores, Y: MatrixLike, *, exclude: MatrixLike | None = None) -> Ranks:
    """Rank the relevant images of each tag within its column of scores; ties are broken by the smaller image id.

    Parameters and errors are those of `visterm.metrics.ranking.rank_tags`; also raises TooLargeError for a one-time
    iterator of more than 512 MiB, because the scores are read twice.
    """
    judgements = Judgements.of(Y, exclude)
    blocks, ranker = ScoreBlocks(scores, judgements), ImageRanker(judgements)
    for rows, block in blocks.first_pass():
        ranker.add(rows, block)
    for rows, block in blocks.second_pass():
        ranker.count(rows, block)
    return ranker.result()


def rank_queries(
    scores: Scores, Q: MatrixLike, R: MatrixLike, *, exclude: MatrixLike | None = None, combine: Combine = "sum"
) -> Ranks:
    """Rank the relevant images of each query by ``Σ weight of word · score of the image for the word``.

    Raises ShapeError if the shapes do not fit; DataError if a score is NaN or infinite, or there are no queries.

    Parameters
    ----------
    scores : ndarray (n_images, n_tags), or callable that returns blocks (slice of images, array)
        Scores of the images for each tag; higher is better.
    Q : array-like or sparse, shape (n_queries, n_tags)
        Weights of the words.
    R : array-like or sparse, shape (n_queries, n_images)
        Relevant images are above 0.
    exclude : array-like or sparse, shape (n_queries, n_images), optional
        Not 0: the image is excluded from the ranking of this query.
    combine : {"sum", "product"} or callable
        "product", for scores that are probabilities: rank by ``Σ weight of word · log P(word | image)``, with the log
        of ``1 - P`` for words of negative weight (`visterm.core.queries`). A callable gets the scores of images for the
        words of a query, (n, n_words), the words' tags and weights, and returns the scores to rank by, (n,).

    Returns
    -------
    Ranks
        The ranked lists are the queries; ties are broken by the smaller image number.
    """
    Q, R = as_csr(Q), as_csr(R)
    if Q.shape[0] == 0:
        raise DataError("There are no queries to rank images for. Pass at least one.")
    if Q.shape[0] != R.shape[0]:
        raise ShapeError(f"Q has {Q.shape[0]} queries, but R {R.shape[0]}; expected one row of each per query.")
    excluded_images = None if exclude is None else sp.csr_array(as_csr(exclude).T)
    return rank_images(partial(_query_blocks, scores, Q, combine), sp.csr_array(R.T), exclude=excluded_images)


def best_images(
    scores: Scores, Q: MatrixLike, k: int, *, exclude: MatrixLike | None = None, combine: Combine = "sum"
) -> list[Ranking]:
    """Return the best images of a few queries; all scores of these queries are in memory at once.

    Parameters are as in `rank_queries`. Returns one `Ranking` per query; its arrays have at most k entries, fewer if
    images are excluded.
    """
    Q = as_csr(Q)
    parts = [(rows.start, block) for rows, block in _query_blocks(scores, Q, combine)]
    query_scores = np.vstack([block for _, block in sorted(parts, key=lambda part: part[0])]).T
    if exclude is not None:
        query_scores[as_csr(exclude).nonzero()] = -np.inf
    ids, values = top_k(np.ascontiguousarray(query_scores), min(k, query_scores.shape[1]))
    return [Ranking(i[v > -np.inf], v[v > -np.inf]) for i, v in zip(ids, values, strict=True)]


def gains_of(ranks: Ranks, R: MatrixLike) -> NDArray[np.float64]:
    """Return the relevance, from R (n_queries, n_images), of each entry of ranks from `rank_queries`."""
    gains = sp.csr_array(as_csr(R))[ranks.lists, ranks.items]
    return np.asarray(gains.todense() if sp.issparse(gains) else gains, np.float64).ravel()


def measure_queries(ranks: Ranks, R: MatrixLike | None = None) -> dict[str, NDArray[np.float64]]:
    """Return the measures of the PAMIR paper for each query (section V-A); NaN if nothing is relevant.

    These are ``AvgP``, average precision; ``BEP``, precision at the number of relevant images; ``P10``, precision among
    the first ten: float64 of shape (n_queries,). If `R`, (n_queries, n_images), the relevances passed to
    `rank_queries`, is graded, also return ``nDCG10``: the discounted gain of the first ten divided by the maximum
    possible, with the relevances as gains (Järvelin, Kekäläinen 2002; trec_eval's ndcg_cut).
    """
    measures = {"AvgP": ranks.average_precision(), "BEP": ranks.r_precision(), "P10": ranks.precision(TOP_IMAGES)}
    gains = np.empty(0) if R is None else as_csr(R).data
    if np.unique(gains[gains > 0]).size > 1:
        measures["nDCG10"] = ranks.graded_ndcg(TOP_IMAGES, gains_of(ranks, R))
    return measures


def kinds_of_queries(
    n_words: NDArray[np.int64], n_relevant: NDArray[np.int64], seen: NDArray[np.bool_] | None = None
) -> dict[str, NDArray[np.bool_]]:
    """Return masks of the queries of each kind (PAMIR, Tables X, XI and XII), bool of shape (n_queries,).

    The kinds are ``all``; ``easy`` (3 or more relevant images) and ``difficult`` (fewer); ``one word`` and ``several
    words``; with `seen` also ``seen`` and ``test only``: `seen` says whether a training image is relevant to the
    query. Kinds without queries are included.
    """
    kinds = {
        "all": np.ones(n_words.size, np.bool_),
        "easy": n_relevant >= MIN_EASY_IMAGES,
        "difficult": n_relevant < MIN_EASY_IMAGES,
        "one word": n_words == 1,
        "several words": n_words > 1,
    }
    return kinds if seen is None else {**kinds, "seen": seen, "test only": ~seen}


def _query_blocks(scores: Scores, Q: sp.csr_array, combine: Combine) -> Iterator[Block]:
    """Yield the scores of images for queries, computed from their scores for tags, at most 32 MiB at a time."""
    blocks: Any = [(slice(0, len(scores)), scores)] if isinstance(scores, np.ndarray) else scores
    words = np.unique(Q.indices)
    signs = part_signs(as_csr(Q[:, words]))
    step = max(1, BLOCK_BYTES // (4 * max(1, Q.shape[0], 2 * words.size)))
    for rows, block in blocks() if callable(blocks) else blocks:
        if block.shape[1] != Q.shape[1]:
            raise ShapeError(f"The scores are those of {block.shape[1]} tags, but Q has {Q.shape[1]} columns.")
        for start in range(0, len(block), step):
            part = block[start : start + step]
            first = rows.start + start
            if callable(combine):
                spans = [slice(a, b) for a, b in pairwise(Q.indptr)]
                query_scores = np.vstack([combine(part[:, Q.indices[q]], Q.indices[q], Q.data[q]) for q in spans])
                query_scores = query_scores.astype(np.float32)
            else:
                query_scores = signs @ log_probabilities(part[:, words]).T if combine == "product" else Q @ part.T
            yield slice(first, first + len(part)), np.ascontiguousarray(query_scores.T)
