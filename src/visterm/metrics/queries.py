"""Measures of search by several words: AvgP, BEP and P10, for each query and each kind of queries."""

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
from visterm.core.types import Ranking
from visterm.kernels.topk import top_k
from visterm.metrics.blocks import Block, Scores
from visterm.metrics.ranking import Ranks
from visterm.metrics.retrieval import rank_images

EASY_FROM = 3  # Relevant images from which on a query is easy (PAMIR, Table X)
TOP = 10  # Images of a list that people look at: for P10 and nDCG10
BLOCK_BYTES = 2**25

Combine: TypeAlias = str | Callable[[NDArray[Any], NDArray[Any], NDArray[Any]], NDArray[Any]]
"""How words are put together: by a name, or by a function of scores, tags and weights."""


def rank_queries(scores: Scores, Q: Any, R: Any, *, exclude: Any = None, combine: Combine = "sum") -> Ranks:
    """Rank the relevant images of each query by ``Σ weight of word · score of the image for the word``.

    Raises ShapeError if the shapes do not fit; DataError if a score is NaN or infinite, or there are no queries.

    Parameters
    ----------
    scores : ndarray (n_images, n_tags), or callable that gives blocks (slice of images, array)
        Of the images for each tag; higher is better.
    Q : array-like or sparse, shape (n_queries, n_tags)
        Weights of the words.
    R : array-like or sparse, shape (n_queries, n_images)
        Above 0: relevant.
    exclude : array-like or sparse, shape (n_queries, n_images), optional
        Not 0: the image is left out of the ranking of this query.
    combine : {"sum", "product"} or callable
        "product", of scores that are probabilities: rank by ``Σ weight of word · log P(word | image)`` instead, with
        the log of ``1 - P`` for words of negative weight (`visterm.core.queries`). A callable is given the scores
        of images for the words of one query, (n, n_words), their tags and weights, and gives what to rank by, (n,).

    Returns
    -------
    Ranks
        Its lists are the queries; ties are broken by the smaller image number.
    """
    Q, R = as_csr(Q), as_csr(R)
    if Q.shape[0] == 0:
        raise DataError("There are no queries to rank images for. Pass one or more.")
    if Q.shape[0] != R.shape[0]:
        raise ShapeError(f"Q has {Q.shape[0]} queries, but R {R.shape[0]}; expected a row of each for every query.")
    hidden = None if exclude is None else sp.csr_array(as_csr(exclude).T)
    return rank_images(partial(_query_blocks, scores, Q, combine), sp.csr_array(R.T), exclude=hidden)


def best_images(scores: Scores, Q: Any, k: int, *, exclude: Any = None, combine: Combine = "sum") -> list[Ranking]:
    """Return the best images of a few queries; all scores for these queries are held at once.

    Parameters are those of `rank_queries`. One `Ranking` a query, its arrays of shape (at most k,): as many as there
    are that are not excluded.
    """
    Q = as_csr(Q)
    parts = [(rows.start, block) for rows, block in _query_blocks(scores, Q, combine)]
    found = np.vstack([block for _, block in sorted(parts, key=lambda part: part[0])]).T
    if exclude is not None:
        hidden = as_csr(exclude)
        found[np.repeat(np.arange(hidden.shape[0]), np.diff(hidden.indptr)), hidden.indices] = -np.inf
    ids, values = top_k(np.ascontiguousarray(found), min(k, found.shape[1]))
    return [Ranking(i[v > -np.inf], v[v > -np.inf]) for i, v in zip(ids, values, strict=True)]


def is_graded(R: Any) -> bool:
    """Return whether some images are more relevant than others: whether values above 0 differ."""
    values = as_csr(R).data
    values = values[values > 0]
    return bool(values.size and np.ptp(values) > 0)


def gains_of(ranks: Ranks, R: Any) -> NDArray[np.float64]:
    """Return the relevance, in R (n_queries, n_images), of each relevant image of rankings that `rank_queries` gave."""
    found = sp.csr_array(as_csr(R))[ranks.lists, ranks.items]
    return np.asarray(found.todense() if sp.issparse(found) else found, np.float64).ravel()


def measure_queries(ranks: Ranks, R: Any = None) -> dict[str, NDArray[np.float64]]:
    """Return the measures that the PAMIR paper reports, query by query (section V-A), NaN where nothing is relevant.

    These are ``AvgP``, average precision; ``BEP``, precision among as many images as are relevant; ``P10``, precision
    among the first ten: float64 of shape (n_queries,). With `R`, (n_queries, n_images), which `rank_queries` ranked
    for, also ``nDCG10`` if it is graded: the discounted gain of the first ten as a share of the largest possible, with
    the relevances as gains (Järvelin, Kekäläinen 2002; trec_eval's ndcg_cut).
    """
    found = {"AvgP": ranks.average_precision(), "BEP": ranks.r_precision(), "P10": ranks.precision(TOP)}
    return found if R is None or not is_graded(R) else {**found, "nDCG10": ranks.graded_ndcg(TOP, gains_of(ranks, R))}


def kinds_of_queries(
    n_words: NDArray[np.int64], n_relevant: NDArray[np.int64], seen: NDArray[np.bool_] | None = None
) -> dict[str, NDArray[np.bool_]]:
    """Return which queries are of which kind (PAMIR, Tables X, XI and XII), each as bool of shape (n_queries,).

    The kinds are ``all``; ``easy`` (3 or more relevant images) and ``difficult`` (fewer); ``one word`` and ``several
    words``; with `seen` also ``seen`` and ``test only``: it says whether an image that was learned from is relevant to
    the query too. Kinds without a query are there too.
    """
    kinds = {
        "all": np.ones(n_words.size, np.bool_),
        "easy": n_relevant >= EASY_FROM,
        "difficult": n_relevant < EASY_FROM,
        "one word": n_words == 1,
        "several words": n_words > 1,
    }
    return kinds if seen is None else {**kinds, "seen": seen, "test only": ~seen}


def _query_blocks(scores: Scores, Q: sp.csr_array, combine: Combine) -> Iterator[Block]:
    """Turn the scores of images for tags into those for queries, no more than 32 MiB at a time."""
    given: Any = [(slice(0, len(scores)), scores)] if isinstance(scores, np.ndarray) else scores
    words = np.unique(Q.indices)
    signs = part_signs(as_csr(Q[:, words]))
    step = max(1, BLOCK_BYTES // (4 * max(1, Q.shape[0], 2 * words.size)))
    for rows, block in given() if callable(given) else given:
        if block.shape[1] != Q.shape[1]:
            raise ShapeError(f"The scores are those of {block.shape[1]} tags, but Q has {Q.shape[1]} columns.")
        for start in range(0, len(block), step):
            part = block[start : start + step]
            first = rows.start + start
            if callable(combine):
                spans = [slice(a, b) for a, b in pairwise(Q.indptr)]
                found = np.vstack([combine(part[:, Q.indices[q]], Q.indices[q], Q.data[q]) for q in spans])
                found = found.astype(np.float32)
            else:
                found = signs @ log_probabilities(part[:, words]).T if combine == "product" else Q @ part.T
            yield slice(first, first + len(part)), np.ascontiguousarray(found.T)
