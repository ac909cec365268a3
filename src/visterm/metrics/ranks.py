"""Measures of ranked lists, from the ranks of the relevant entries alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_ROUNDING = 1e-9
"""Recalls are fractions: 3 / 10 shall count as 0.3."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """Where the relevant entries of some ranked lists stand; all measures follow from it.

    A measure of one list is NaN where the list has no relevant entry. `k` is at least 1 and may be larger than a list.

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
        order = np.lexsort((self.ranks, self.lists))
        n_relevant = self.n_relevant
        first = np.cumsum(n_relevant) - n_relevant
        lists = self.lists[order]
        place = np.arange(1, order.size + 1) - first[lists]
        return ratio(np.bincount(lists, place / self.ranks[order], minlength=self.n_lists), n_relevant)

    def interpolated_precision(self, recalls: Sequence[float]) -> NDArray[np.float64]:
        """Return, at some levels of recall, the best precision of each list that comes with that recall or more.

        Shape (n_lists, n_recalls), NaN where a list has no relevant entry. At 0, 0.1, ..., 1 these are the eleven
        points of a precision-recall curve, which may be averaged over lists.
        """
        order = np.lexsort((self.ranks, self.lists))
        n_relevant = self.n_relevant
        first = np.cumsum(n_relevant) - n_relevant
        lists = self.lists[order]
        place = np.arange(1, order.size + 1) - first[lists]
        precision, recall = place / self.ranks[order], place / n_relevant[lists]
        best = np.zeros((self.n_lists, len(recalls)))
        for column, level in enumerate(recalls):
            enough = recall >= level - _ROUNDING
            np.maximum.at(best[:, column], lists[enough], precision[enough])
        return np.where(n_relevant[:, None] > 0, best, np.nan)

    def reciprocal_rank(self) -> NDArray[np.float64]:
        """One over the rank of the first relevant entry."""
        best = np.zeros(self.n_lists)
        np.maximum.at(best, self.lists, 1 / self.ranks)
        return ratio(best, np.minimum(self.n_relevant, 1))

    def ndcg(self, k: int) -> NDArray[np.float64]:
        """Discounted gain, Σ 1 / log2(1 + rank) over the hits at k, as a share of the largest that is possible."""
        found = self.ranks <= k
        gain = np.bincount(self.lists[found], 1 / np.log2(1 + self.ranks[found]), minlength=self.n_lists)
        n_ideal = np.minimum(self.n_relevant, k)
        ideal = np.concatenate(([0.0], np.cumsum(1 / np.log2(2 + np.arange(n_ideal.max(initial=0))))))
        return ratio(gain, ideal[n_ideal])

    def graded_ndcg(self, k: int, gains: NDArray[np.float64]) -> NDArray[np.float64]:
        """Discounted gain at k as `ndcg`, of relevant entries that have a gain each, shape (n_relevant,)."""
        found = self.ranks <= k
        gain = np.bincount(self.lists[found], gains[found] / np.log2(1 + self.ranks[found]), minlength=self.n_lists)
        order = np.lexsort((-gains, self.lists))
        first = np.cumsum(self.n_relevant) - self.n_relevant
        place = np.arange(1, order.size + 1) - first[self.lists[order]]
        best = np.where(place <= k, gains[order] / np.log2(1 + place), 0.0)
        return ratio(gain, np.bincount(self.lists[order], best, minlength=self.n_lists))


def ratio(numerator: NDArray[Any], denominator: NDArray[Any]) -> NDArray[np.float64]:
    """Divide element by element; NaN where the denominator is 0."""
    result = np.full(numerator.shape, np.nan)
    np.divide(numerator, denominator, out=result, where=denominator > 0)
    return result
