"""Measures of search: rankings of images for each tag, in memory or in files, and for queries of several words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_csr
from visterm.core.errors import DataError, ShapeError, TooLargeError
from visterm.core.queries import log_probabilities, part_signs
from visterm.core.types import MatrixLike, Ranking
from visterm.core.writing import new_map
from visterm.kernels.topk import count_irrelevant_above, top_k
from visterm.metrics.ranking import Block, Judgements, Ranks, ScoreBlocks, Scores, ratio

ENTRIES_PER_STEP = 2**20
MAX_IMAGES = 2**32  # An entry has 4 bytes for the score and 4 bytes for the number of the image
_SIGN_BIT = np.uint32(2**31)

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
        excluded = as_csr(exclude)
        query_scores[np.repeat(np.arange(excluded.shape[0]), np.diff(excluded.indptr)), excluded.indices] = -np.inf
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


class StoredImageRanker:
    """Ranks the relevant images of each tag in two passes over the images, like `ImageRanker`, but in files.

    First `gather` is called for all images: the key of an entry orders by score, best first, then by image. `sort`
    sorts the keys of each tag in place. Then `count` is called for all images. Files in `folder` take 28 bytes per
    relevant entry; `n_relevant`, int64 of shape (n_tags,), has each tag's number of relevant images. Raises
    TooLargeError if image numbers do not fit into four bytes.
    """

    def __init__(self, folder: Path, n_relevant: NDArray[np.int64], n_images: int) -> None:
        if n_images > MAX_IMAGES:
            raise TooLargeError(
                f"word_map and word_p support at most {MAX_IMAGES:,} images, not {n_images:,}. Omit them."
            )
        self._indptr = np.concatenate(([0], np.cumsum(n_relevant))).astype(np.int64)
        self._next = self._indptr[:-1].copy()
        shape = (max(1, int(self._indptr[-1])),)
        self._keys = np.asarray(new_map(folder / "keys.npy", np.uint64, shape))
        self._scores = np.asarray(new_map(folder / "scores.npy", np.float32, shape))
        self._images = np.asarray(new_map(folder / "images.npy", np.int64, shape))
        self._n_above = np.asarray(new_map(folder / "above.npy", np.int64, shape))

    def gather(self, first_image: int, block: NDArray[np.float32], relevant: sp.csr_array) -> None:
        """Store the relevant entries of a block of images; the first image has the number `first_image`."""
        rows = np.repeat(np.arange(block.shape[0]), np.diff(relevant.indptr))
        order = np.argsort(relevant.indices, kind="stable")
        rows, tags = rows[order], relevant.indices[order]
        distinct, starts, counts = np.unique(tags, return_index=True, return_counts=True)
        positions = np.repeat(self._next[distinct] - starts, counts) + np.arange(tags.size)
        self._next[distinct] += counts
        keys = _descending(block[rows, tags]).astype(np.uint64) << np.uint64(32)
        self._keys[positions] = keys | (rows + first_image).astype(np.uint64)

    def sort(self) -> None:
        """Sort the entries of each tag, after all images were gathered."""
        for start, stop in zip(self._indptr[:-1].tolist(), self._indptr[1:].tolist(), strict=True):
            self._keys[start:stop].sort()
        for start in range(0, int(self._indptr[-1]), ENTRIES_PER_STEP):
            chunk = slice(start, min(start + ENTRIES_PER_STEP, int(self._indptr[-1])))
            self._images[chunk] = self._keys[chunk] & np.uint64(MAX_IMAGES - 1)
            bits = (self._keys[chunk] >> np.uint64(32)).astype(np.uint32)  # the scores' bits from `_descending`
            self._scores[chunk] = np.where(bits < _SIGN_BIT, ~bits ^ _SIGN_BIT, bits).astype(np.uint32).view(np.float32)

    def count(self, first_image: int, block: NDArray[np.float32]) -> None:
        """Count the irrelevant images of a block above each relevant entry, after the entries were sorted."""
        count_irrelevant_above(block, first_image, self._indptr, self._scores, self._images, self._n_above)

    def average_precision(self) -> NDArray[np.float64]:
        """Return the average precision of each tag as a query, shape (n_tags,); NaN if no image is relevant."""
        return ratio(self._sums_over_entries(lambda position, rank: position / rank), np.diff(self._indptr))

    def precision(self, k: int) -> NDArray[np.float64]:
        """Return the precision at k of each tag as a query, shape (n_tags,); NaN if no image is relevant."""
        return ratio(self._sums_over_entries(lambda _, rank: rank <= k), np.where(np.diff(self._indptr) > 0, k, 0))

    def _sums_over_entries(
        self, measure: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.floating | np.bool_]]
    ) -> NDArray[np.float64]:
        """Sum ``measure(position among relevant entries, rank among all)`` over the entries of each tag."""
        n_tags = self._indptr.size - 1
        sums = np.zeros(n_tags)
        last_tag, n_above_last = -1, 0  # the tag of the previous chunk's last entry, and the irrelevant images above it
        for start in range(0, int(self._indptr[-1]), ENTRIES_PER_STEP):
            stop = min(start + ENTRIES_PER_STEP, int(self._indptr[-1]))
            entries = np.arange(start, stop)
            tags = np.searchsorted(self._indptr, entries, side="right") - 1
            total = np.concatenate(([0], np.cumsum(self._n_above[start:stop])))
            n_above = total[1:] - total[np.maximum(self._indptr[tags] - start, 0)]
            n_above[tags == last_tag] += n_above_last
            last_tag, n_above_last = int(tags[-1]), int(n_above[-1])
            position = entries - self._indptr[tags] + 1
            sums += np.bincount(tags, measure(position, position + n_above), minlength=n_tags)
        return sums


def _descending(scores: NDArray[np.float32]) -> NDArray[np.uint32]:
    """Map scores to uint32 in reverse order: larger scores have smaller results, and 0 and -0 have the same."""
    bits = (scores.astype(np.float32) + np.float32(0)).view(np.uint32)
    return np.where(bits < _SIGN_BIT, ~(bits | _SIGN_BIT), bits).astype(np.uint32)
