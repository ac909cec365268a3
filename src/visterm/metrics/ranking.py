"""Measures of ranked lists, from the ranks of the relevant entries alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_csr
from visterm.core.errors import DataError, ShapeError
from visterm.kernels.ranks import first_non_finite_row, rank_in_rows


@dataclass(frozen=True, slots=True)
class Ranks:
    """Where the relevant entries of some ranked lists stand; all measures follow from it.

    A measure of one list is NaN where the list has no relevant entry.

    Attributes
    ----------
    n_lists : int
        Ranked lists: images, or tags used as queries.
    lists : ndarray of int64, shape (n_relevant,)
        The list of each relevant entry.
    items : ndarray of int64, shape (n_relevant,)
        What is relevant in that list: a tag, or an image.
    ranks : ndarray of int64, shape (n_relevant,)
        1 is best; ties are broken by the smaller item.
    """

    n_lists: int
    lists: NDArray[np.int64]
    items: NDArray[np.int64]
    ranks: NDArray[np.int64]

    @property
    def n_relevant(self) -> NDArray[np.int64]:
        """Relevant entries of each list, shape (n_lists,)."""
        return np.bincount(self.lists, minlength=self.n_lists)

    def hits(self, k: int) -> NDArray[np.int64]:
        """Relevant entries among the first k of each list, shape (n_lists,)."""
        return np.bincount(self.lists[self.ranks <= k], minlength=self.n_lists)

    def precision(self, k: int) -> NDArray[np.float64]:
        """Hits over k, also where the list is shorter than k."""
        return _ratio(self.hits(k), np.where(self.n_relevant > 0, k, 0))

    def recall(self, k: int) -> NDArray[np.float64]:
        """Hits over the relevant entries."""
        return _ratio(self.hits(k), self.n_relevant)

    def f1(self, k: int) -> NDArray[np.float64]:
        """Harmonic mean of precision and recall at k: 2 hits / (k + relevant entries); 0 without hits."""
        n_relevant = self.n_relevant
        return _ratio(2 * self.hits(k), np.where(n_relevant > 0, k + n_relevant, 0))

    def average_precision(self) -> NDArray[np.float64]:
        """Mean over the relevant entries of the precision at their ranks."""
        order = np.lexsort((self.ranks, self.lists))
        n_relevant = self.n_relevant
        first = np.cumsum(n_relevant) - n_relevant
        lists = self.lists[order]
        place = np.arange(1, order.size + 1) - first[lists]
        return _ratio(np.bincount(lists, place / self.ranks[order], minlength=self.n_lists), n_relevant)

    def reciprocal_rank(self) -> NDArray[np.float64]:
        """One over the rank of the first relevant entry."""
        best = np.zeros(self.n_lists)
        np.maximum.at(best, self.lists, 1 / self.ranks)
        return _ratio(best, np.minimum(self.n_relevant, 1))

    def ndcg(self, k: int) -> NDArray[np.float64]:
        """Discounted gain, Σ 1 / log2(1 + rank) over the hits at k, as a share of the largest that is possible."""
        found = self.ranks <= k
        gain = np.bincount(self.lists[found], 1 / np.log2(1 + self.ranks[found]), minlength=self.n_lists)
        n_ideal = np.minimum(self.n_relevant, k)
        ideal = np.concatenate(([0.0], np.cumsum(1 / np.log2(2 + np.arange(n_ideal.max(initial=0))))))
        return _ratio(gain, ideal[n_ideal])


@dataclass(frozen=True, slots=True)
class TagRanks(Ranks):
    """Ranks of the relevant tags of images, with what AUC needs besides.

    Attributes
    ----------
    mid_ranks : ndarray of float64, shape (n_relevant,)
        As `ranks`, but equal scores share the mean of their ranks.
    n_ranked : ndarray of int64, shape (n_lists,)
        Tags that were ranked for each image: all but the excluded.
    """

    mid_ranks: NDArray[np.float64]
    n_ranked: NDArray[np.int64]

    def auc(self) -> NDArray[np.float64]:
        """Share of the pairs (relevant, irrelevant tag) of an image in the right order; a tie counts as half.

        NaN where an image has no such pair. The sum of mid-ranks gives it, as in the Mann-Whitney U test.
        """
        n_relevant = self.n_relevant
        beaten = np.bincount(self.lists, self.n_ranked[self.lists] - self.mid_ranks, minlength=self.n_lists)
        among_relevant = n_relevant * (n_relevant - 1) / 2
        return _ratio(beaten - among_relevant, n_relevant * (self.n_ranked - n_relevant))


def relevant_entries(Y: Any, exclude: Any = None) -> sp.csr_array:
    """Give the pattern of what is relevant: entries of `Y` above 0 that are not excluded.

    Unknown tags (0) and explicit negatives (below 0) are alike not relevant.

    Parameters
    ----------
    Y : array-like or sparse, shape (n_images, n_tags)
    exclude : array-like or sparse, shape (n_images, n_tags), optional
        Every entry that is not 0 is left out of the rankings.

    Returns
    -------
    csr_array of float32, shape (n_images, n_tags)
        Ones, with int64 indices as the kernels take them.
    """
    given = as_csr(Y)
    kept = as_csr((given > 0).astype(np.float32))
    if exclude is not None:
        left_out = as_csr(exclude)
        if left_out.shape != kept.shape:
            raise ShapeError(f"exclude has the shape {left_out.shape}; expected that of Y, {kept.shape}.")
        kept = as_csr(kept - kept.multiply(as_csr(left_out != 0)))
    parts = (kept.data, kept.indices.astype(np.int64), kept.indptr.astype(np.int64))
    return sp.csr_array(parts, shape=kept.shape)


def rank_tags(scores: NDArray[Any], relevant: sp.csr_array) -> TagRanks:
    """Rank the relevant tags of each image within its row of scores, by counting the scores above each.

    Parameters
    ----------
    scores : ndarray, shape (n_images, n_tags)
        Finite; higher is better.
    relevant : csr_array, shape (n_images, n_tags)
        What `relevant_entries` gives.

    Raises
    ------
    ShapeError
        If the shapes differ.
    DataError
        If a score is NaN or infinite.
    """
    scores = check_scores(scores, relevant.shape)
    ranks, mid_ranks = np.empty(relevant.nnz, np.int64), np.empty(relevant.nnz)
    rank_in_rows(scores, relevant.indptr, relevant.indices, ranks, mid_ranks)
    lists = np.repeat(np.arange(scores.shape[0]), np.diff(relevant.indptr))
    n_ranked = np.full(scores.shape[0], scores.shape[1])
    return TagRanks(scores.shape[0], lists, relevant.indices, ranks, mid_ranks, n_ranked)


def average_precisions(scores: NDArray[Any], relevant: Any) -> NDArray[np.float64]:
    """Give the average precision of the tags of each image; their mean is MAP over images.

    Parameters
    ----------
    scores : ndarray, shape (n_images, n_tags)
        Finite; higher is better; ties are broken by the smaller tag id.
    relevant : array-like or sparse, shape (n_images, n_tags)
        Above 0: relevant.

    Returns
    -------
    ndarray of float64, shape (n_images,)
        NaN where an image has no relevant tag.

    Examples
    --------
    >>> average_precisions(np.array([[0.9, 0.5, 0.1]]), [[0, 1, 1]]).round(3)
    array([0.583])
    """
    return rank_tags(scores, relevant_entries(relevant)).average_precision()


def check_scores(scores: Any, shape: tuple[int, int]) -> NDArray[Any]:
    """Give scores as the kernels take them (C order, float32 or float64), or say what is wrong with them."""
    scores = np.asarray(scores)
    if scores.shape != shape:
        raise ShapeError(f"The scores have the shape {scores.shape}; the tags have {shape} (images, tags).")
    scores = np.ascontiguousarray(scores, np.float32 if scores.dtype == np.float32 else np.float64)
    row = first_non_finite_row(scores)
    if row >= 0:
        raise DataError(f"The scores of image {row} hold NaN or infinity, which have no rank. Fit the model anew.")
    return scores


def _ratio(numerator: NDArray[Any], denominator: NDArray[Any]) -> NDArray[np.float64]:
    """Divide; NaN where the denominator is 0."""
    result = np.full(numerator.shape, np.nan)
    np.divide(numerator, denominator, out=result, where=denominator > 0)
    return result
