"""Measures of search by one word: each tag is a query that ranks the images."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.kernels.ranks import count_irrelevant_above
from visterm.metrics.blocks import ScoreBlocks, Scores
from visterm.metrics.judgements import Judgements
from visterm.metrics.ranks import Ranks


class ImageRanker:
    """Ranks the relevant images of each tag in two passes over blocks of rows, without ever holding a column.

    The first pass (`gather`) takes the scores of the relevant entries; the second (`count`) counts, between
    them, the scores of all the other images. Memory grows with the relevant entries only.

    Parameters
    ----------
    judgements : Judgements
        What is relevant.
    """

    def __init__(self, judgements: Judgements) -> None:
        self._judgements = judgements
        self._scores = np.zeros(judgements.tags.size, np.float64)
        self._n_above = np.zeros(judgements.tags.size, np.int64)
        counts = np.bincount(judgements.tags, minlength=judgements.n_tags)
        self._indptr = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        self._order: NDArray[np.int64] | None = None
        self._images = judgements.images

    def gather(self, rows: slice, block: NDArray[Any]) -> None:
        """Take the scores of the relevant entries of some images."""
        span = self._judgements.span(rows)
        self._scores[span] = block[self._images[span] - rows.start, self._judgements.tags[span]]

    def count(self, rows: slice, block: NDArray[Any]) -> None:
        """Count the irrelevant ones of some images above each relevant entry, once every block is gathered."""
        if self._order is None:
            self._order = np.lexsort((self._images, -self._scores, self._judgements.tags))
            self._scores, self._images = self._scores[self._order], self._images[self._order]
        count_irrelevant_above(block, rows.start, self._indptr, self._scores, self._images, self._n_above)

    def result(self) -> Ranks:
        """Return the ranks, once every block is counted."""
        tags = np.repeat(np.arange(self._judgements.n_tags), np.diff(self._indptr))
        total = np.concatenate(([0], np.cumsum(self._n_above)))
        first = self._indptr[tags]
        place = np.arange(1, tags.size + 1)
        return Ranks(self._judgements.n_tags, tags, self._images, place - first + total[place] - total[first])


def rank_images(scores: Scores, Y: Any, *, exclude: Any = None) -> Ranks:
    """Rank the relevant images of each tag within its column of scores; ties are broken by the smaller image id.

    Parameters and errors are those of `visterm.metrics.ranking.rank_tags`; a one-time iterator of more than 512 MiB
    is refused with `TooLargeError`, because the scores are gone through twice.
    """
    judgements = Judgements.of(Y, exclude)
    blocks, ranker = ScoreBlocks(scores, judgements), ImageRanker(judgements)
    for rows, block in blocks.go_through(again=True):
        ranker.gather(rows, block)
    for rows, block in blocks.go_again():
        ranker.count(rows, block)
    return ranker.result()
