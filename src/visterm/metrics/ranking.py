"""Measures of ranked lists, from the ranks of the relevant entries alone, and the ranks of the tags of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.kernels.ranks import rank_in_rows
from visterm.metrics.blocks import Judgements, ScoreBlocks, Scores

_ROUNDING = 1e-9  # Recalls are fractions: 3 / 10 counts as 0.3


@dataclass(frozen=True, slots=True)
class Ranks:
    """Where the relevant entries of some ranked lists stand; all measures follow from it.

    A measure of one list is NaN where the list has no relevant entry. `k` is at least 1 and may be larger than a list.
    """

    n_lists: int  # Ranked lists: images, or tags used as queries
    lists: NDArray[np.int64]  # shape (n_relevant,): the list of each relevant entry
    items: NDArray[np.int64]  # shape (n_relevant,): what is relevant in that list: a tag, or an image.
    ranks: NDArray[np.int64]  # shape (n_relevant,): 1 is best; ties are broken by the smaller item

    @property
    def n_relevant(self) -> NDArray[np.int64]:
        """Relevant entries of each list, shape (n_lists,)."""
        return np.bincount(self.lists, minlength=self.n_lists)

    def hits(self, k: int) -> NDArray[np.int64]:
        """Relevant entries among the first k of each list, shape (n_lists,)."""
        return np.bincount(self.lists[self.ranks <= k], minlength=self.n_lists)

    def precision(self, k: int) -> NDArray[np.float64]:
        """Hits over k, also where the list is shorter than k."""
        return ratio(self.hits(k), np.where(self.n_relevant > 0, k, 0))

    def recall(self, k: int) -> NDArray[np.float64]:
        """Hits over the relevant entries."""
        return ratio(self.hits(k), self.n_relevant)

    def r_precision(self) -> NDArray[np.float64]:
        """Share of relevant ones among as many first entries as are relevant: the break-even point, for both agree."""
        n_relevant = self.n_relevant
        inside = self.lists[self.ranks <= n_relevant[self.lists]]
        return ratio(np.bincount(inside, minlength=self.n_lists), n_relevant)

    def f1(self, k: int) -> NDArray[np.float64]:
        """Harmonic mean of precision and recall at k: 2 hits / (k + relevant entries); 0 without hits."""
        n_relevant = self.n_relevant
        return ratio(2 * self.hits(k), np.where(n_relevant > 0, k + n_relevant, 0))

    def average_precision(self) -> NDArray[np.float64]:
        """Mean over the relevant entries of the precision at their ranks."""
        lists, precision, _ = self._curve()
        return ratio(np.bincount(lists, precision, minlength=self.n_lists), self.n_relevant)

    def interpolated_precision(self, recalls: Sequence[float]) -> NDArray[np.float64]:
        """Return, at some levels of recall, the best precision of each list that comes with that recall or more.

        Shape (n_lists, n_recalls), NaN where a list has no relevant entry. At 0, 0.1, ..., 1 these are the eleven
        points of a precision-recall curve, which may be averaged over lists.
        """
        lists, precision, recall = self._curve()
        best = np.zeros((self.n_lists, len(recalls)))
        for column, level in enumerate(recalls):
            enough = recall >= level - _ROUNDING
            np.maximum.at(best[:, column], lists[enough], precision[enough])
        return np.where(self.n_relevant[:, None] > 0, best, np.nan)

    def _curve(self) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """Return the list of each relevant entry, from the first of a list on, and precision and recall down to it."""
        order = np.lexsort((self.ranks, self.lists))
        n_relevant, lists = self.n_relevant, self.lists[order]
        position = np.arange(1, order.size + 1) - (np.cumsum(n_relevant) - n_relevant)[lists]
        return lists, position / self.ranks[order], position / n_relevant[lists]

    def reciprocal_rank(self) -> NDArray[np.float64]:
        """Return 1 over the rank of the first relevant entry."""
        best = np.zeros(self.n_lists)
        np.maximum.at(best, self.lists, 1 / self.ranks)
        return ratio(best, np.minimum(self.n_relevant, 1))

    def ndcg(self, k: int) -> NDArray[np.float64]:
        """Discounted gain, Σ 1 / log2(1 + rank) over the hits at k, as a share of the largest that is possible."""
        return self.graded_ndcg(k, np.ones(self.ranks.size))

    def graded_ndcg(self, k: int, gains: NDArray[np.float64]) -> NDArray[np.float64]:
        """Discounted gain at k as `ndcg`, of relevant entries that have a gain each, shape (n_relevant,)."""
        in_top = self.ranks <= k
        gain = np.bincount(self.lists[in_top], gains[in_top] / np.log2(1 + self.ranks[in_top]), minlength=self.n_lists)
        order = np.lexsort((-gains, self.lists))
        first = np.cumsum(self.n_relevant) - self.n_relevant
        position = np.arange(1, order.size + 1) - first[self.lists[order]]
        best = np.where(position <= k, gains[order] / np.log2(1 + position), 0.0)
        return ratio(gain, np.bincount(self.lists[order], best, minlength=self.n_lists))


def ratio(numerator: NDArray[Any], denominator: NDArray[Any]) -> NDArray[np.float64]:
    """Divide element by element; NaN where the denominator is 0."""
    result = np.full(numerator.shape, np.nan)
    np.divide(numerator, denominator, out=result, where=denominator > 0)
    return result


@dataclass(frozen=True, slots=True)
class TagRanks(Ranks):
    """Ranks of the relevant tags of images, with what AUC needs besides."""

    mid_ranks: NDArray[np.float64]  # shape (n_relevant,): as `ranks`, but equal scores share the mean of their ranks
    n_ranked: NDArray[np.int64]  # shape (n_lists,): tags that are ranked for each image, all but the excluded

    def auc(self) -> NDArray[np.float64]:
        """Share of the pairs (relevant, irrelevant tag) of an image in the right order; a tie counts as half.

        NaN where an image has no such pair. The mid-ranks give it, as in the Mann-Whitney U test.
        """
        n_relevant = self.n_relevant
        beaten = np.bincount(self.lists, self.n_ranked[self.lists] - self.mid_ranks, minlength=self.n_lists)
        among_relevant = n_relevant * (n_relevant - 1) / 2
        return ratio(beaten - among_relevant, n_relevant * (self.n_ranked - n_relevant))


class TagRanker:
    """Ranks the relevant tags of each image, block by block."""

    def __init__(self, judgements: Judgements) -> None:
        self._judgements = judgements
        self._ranks = np.zeros(judgements.tags.size, np.int64)
        self._mid_ranks = np.zeros(judgements.tags.size, np.float64)

    def add(self, rows: slice, block: NDArray[Any]) -> None:
        """Rank the tags of some images by their scores."""
        judgements, span = self._judgements, self._judgements.span(rows)
        indptr = judgements.indptr[rows.start : rows.stop + 1] - span.start
        rank_in_rows(block, indptr, judgements.tags[span], self._ranks[span], self._mid_ranks[span])

    def result(self) -> TagRanks:
        """Return the ranks, once every block is added."""
        judgements = self._judgements
        n_ranked = np.full(judgements.n_images, judgements.n_tags)
        if judgements.excluded is not None:
            n_ranked -= np.diff(judgements.excluded.indptr)
        return TagRanks(judgements.n_images, judgements.images, judgements.tags, self._ranks, self._mid_ranks, n_ranked)


def rank_tags(scores: Scores, Y: Any, *, exclude: Any = None) -> TagRanks:
    """Rank the relevant tags of each image within its row of scores; ties are broken by the smaller tag id.

    Parameters and errors are those of `visterm.metrics.evaluate`.
    """
    judgements = Judgements.of(Y, exclude)
    ranker = TagRanker(judgements)
    for rows, block in ScoreBlocks(scores, judgements).once():
        ranker.add(rows, block)
    return ranker.result()


def average_precisions(scores: Scores, relevant: Any, *, exclude: Any = None) -> NDArray[np.float64]:
    """Return the average precision of the tags of each image; their mean is MAP over images.

    Parameters and errors are those of `rank_tags`.

    Returns
    -------
    ndarray of float64, shape (n_images,)
        NaN where an image has no relevant tag.

    Examples
    --------
    >>> average_precisions(np.array([[0.9, 0.5, 0.1]]), [[0, 1, 1]]).round(3)
    array([0.583])
    """
    return rank_tags(scores, relevant, exclude=exclude).average_precision()
