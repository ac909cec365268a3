"""The tags of each image ranked by their scores, and how well: what training stops by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.kernels.ranks import rank_in_rows
from visterm.metrics.blocks import ScoreBlocks, Scores
from visterm.metrics.judgements import Judgements
from visterm.metrics.ranks import Ranks, ratio


@dataclass(frozen=True, slots=True)
class TagRanks(Ranks):
    """Ranks of the relevant tags of images, with what AUC needs besides.

    Attributes
    ----------
    mid_ranks : ndarray of float64, shape (n_relevant,)
        As `ranks`, but equal scores share the mean of their ranks.
    n_ranked : ndarray of int64, shape (n_lists,)
        Tags that are ranked for each image: all but the excluded.
    """

    mid_ranks: NDArray[np.float64]
    n_ranked: NDArray[np.int64]

    def auc(self) -> NDArray[np.float64]:
        """Share of the pairs (relevant, irrelevant tag) of an image in the right order; a tie counts as half.

        NaN where an image has no such pair. The mid-ranks give it, as in the Mann-Whitney U test.
        """
        n_relevant = self.n_relevant
        beaten = np.bincount(self.lists, self.n_ranked[self.lists] - self.mid_ranks, minlength=self.n_lists)
        among_relevant = n_relevant * (n_relevant - 1) / 2
        return ratio(beaten - among_relevant, n_relevant * (self.n_ranked - n_relevant))


class TagRanker:
    """Ranks the relevant tags of each image, block by block.

    Parameters
    ----------
    judgements : Judgements
        What is relevant.
    """

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

    Parameters
    ----------
    scores : ndarray (n_images, n_tags), blocks, or callable that gives blocks
        As `ScoreBlocks` takes them.
    Y : array-like or sparse, shape (n_images, n_tags)
        Above 0: relevant.
    exclude : array-like or sparse, shape (n_images, n_tags), optional
        Entries that are not 0 are left out of the rankings.

    Raises
    ------
    ShapeError
        If the shapes differ.
    DataError
        If a score is NaN or infinite.
    """
    judgements = Judgements.of(Y, exclude)
    ranker = TagRanker(judgements)
    for rows, block in ScoreBlocks(scores, judgements).go_through(again=False):
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
