"""What both sides are judged by: MAP over the images that something was held out of, outside every clock."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy.sparse as sp

from visterm.metrics import average_precisions

BLOCK_SCORES = 2**23


class Judge:
    """Ranks the tags of the judged images by ``rows · tagsᵀ`` and gives MAP.

    Parameters
    ----------
    relevant : csr_array, shape (n_judged, n_tags)
    known : csr_array or None
        What the rankings leave out: the tags that these images were learned from with.
    """

    def __init__(self, relevant: sp.csr_array, known: sp.csr_array | None = None) -> None:
        self._relevant, self._known = relevant, known

    def products(self, rows: np.ndarray, tags: np.ndarray) -> float:
        """Judge embedded images and tags."""

        def blocks() -> Iterator[tuple[slice, np.ndarray]]:
            step = max(1, BLOCK_SCORES // len(tags))
            for start in range(0, len(rows), step):
                part = slice(start, min(start + step, len(rows)))
                yield part, rows[part] @ tags.T

        return float(np.nanmean(average_precisions(blocks, self._relevant, exclude=self._known)))

    def scores(self, scores: np.ndarray) -> float:
        """Judge a whole matrix of scores."""
        return float(np.nanmean(average_precisions(scores, self._relevant, exclude=self._known)))
