"""Measures of annotation tag by tag: every image is given k tags, as results on Corel are reported."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.kernels.topk import top_k
from visterm.metrics.blocks import Judgements
from visterm.metrics.ranking import ratio


class GivenTags:
    """Gives every image its best k tags and judges tag by tag, as annotation of Corel is reported.

    The means are over the tags that are relevant for at least one of the images. A tag that no image was given has
    precision 0, as in that literature. Images without a relevant tag are given tags too, and all of them are wrong.
    `ks` are the k that will be asked for; where fewer tags are ranked, all of them are given.
    """

    def __init__(self, judgements: Judgements, ks: Iterable[int]) -> None:
        self._judgements = judgements
        self._n_given = {k: np.zeros(judgements.n_tags, np.int64) for k in ks}
        self._n_right = {k: np.zeros(judgements.n_tags, np.int64) for k in self._n_given}
        self._n_relevant = np.bincount(judgements.tags, minlength=judgements.n_tags)

    def add(self, rows: slice, block: NDArray[Any]) -> None:
        """Predict tags of some images by their scores."""
        n_tags = self._judgements.n_tags
        ids, values = top_k(block, min(max(self._n_given), n_tags))
        relevant = np.zeros(block.shape, bool)
        span = self._judgements.span(rows)
        relevant[self._judgements.images[span] - rows.start, self._judgements.tags[span]] = True
        right = np.take_along_axis(relevant, ids, axis=1)
        ranked = np.isfinite(values)  # an excluded tag is given only where nothing else is left
        for k in self._n_given:
            given = ids[:, :k]
            self._n_given[k] += np.bincount(given[ranked[:, :k]], minlength=n_tags)
            self._n_right[k] += np.bincount(given[right[:, :k]], minlength=n_tags)

    def add_counts(self, other: GivenTags) -> None:
        """Add what another counted of other images, for the same tags and numbers of tags."""
        self._n_relevant = self._n_relevant + other._n_relevant
        for k in self._n_given:
            self._n_given[k] += other._n_given[k]
            self._n_right[k] += other._n_right[k]

    def precisions(self, k: int) -> NDArray[np.float64]:
        """Right images over given images of each tag, 0 where never given; NaN for a tag that is nowhere relevant."""
        shares = ratio(self._n_right[k], np.maximum(self._n_given[k], 1))
        return np.where(self._n_relevant > 0, shares, np.nan)

    def recalls(self, k: int) -> NDArray[np.float64]:
        """Right images over relevant images of each tag; NaN for a tag that is nowhere relevant."""
        return ratio(self._n_right[k], self._n_relevant)

    def f1(self, k: int) -> NDArray[np.float64]:
        """Harmonic mean of the mean precision and the mean recall, shape (1,), as the literature reports it."""
        if not self._n_relevant.any():
            return np.full(1, np.nan)
        return f1_of_means(self.precisions(k), self.recalls(k))

    def n_plus(self, k: int) -> NDArray[np.float64]:
        """Count the tags that are right for at least one image, shape (1,)."""
        return np.full(1, np.count_nonzero(self._n_right[k]) if self._n_relevant.any() else np.nan)


def f1_of_means(precisions: NDArray[np.float64], recalls: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the harmonic mean of mean precision and mean recall of some tags, shape (1,), without NaN.

    One of them at least must not be NaN.
    """
    precision, recall = np.nanmean(precisions), np.nanmean(recalls)
    total = precision + recall
    return np.full(1, 2 * precision * recall / total if total > 0 else 0.0)
