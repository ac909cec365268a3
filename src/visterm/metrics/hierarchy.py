"""Hierarchical precision, recall and F1: a tag that is wrong, but under a right parent, counts in part.

Kiritchenko, Matwin, Nock and Famili 2006, "Learning and evaluation in the presence of class hierarchies".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_csr
from visterm.core.errors import ShapeError
from visterm.kernels.topk import top_k
from visterm.metrics.blocks import Judgements
from visterm.metrics.ranking import ratio


class TreeTags:
    """Gives every image its best k tags, adds all tags above them, and compares with the right ones and all above them.

    With P the first set and T the second, ``hp = |P ∩ T| / |P|``, ``hr = |P ∩ T| / |T|`` and ``hf1`` their harmonic
    mean. The paper sums over all images before it divides; here each image has its own, as in the other metrics of
    images.

    `above`, (n_tags, n_nodes), is not 0 where the tag of the column is that of the row, or lies above it; the tree may
    have nodes that are no tags. `ks` are the k that will be asked for. Raises ShapeError if `above` has other rows.
    """

    def __init__(self, judgements: Judgements, above: Any, ks: Iterable[int]) -> None:
        above = as_csr(above)
        if above.shape[0] != judgements.n_tags:
            raise ShapeError(f"tree has {above.shape[0]} rows; expected one for each of {judgements.n_tags} tags.")
        self._above = sp.csr_array((np.ones(above.nnz, np.float32), above.indices, above.indptr), shape=above.shape)
        self._judgements = judgements
        # Of each image, how many nodes are in P, and in P and T
        self._counts = {k: np.zeros((2, judgements.n_images), np.int64) for k in ks}
        self._n_right = np.zeros(judgements.n_images, np.int64)

    def add(self, rows: slice, block: NDArray[Any]) -> None:
        """Predict tags of some images by their scores."""
        judgements = self._judgements
        ids, values = top_k(block, min(max(self._counts), judgements.n_tags))
        right = as_csr(judgements.relevant(rows) @ self._above) != 0
        self._n_right[rows] = np.diff(right.indptr)
        for k, counts in self._counts.items():
            given = np.isfinite(values[:, :k])  # an excluded tag is not given
            starts = np.concatenate([[0], np.cumsum(given.sum(axis=1))])
            ones = np.ones(starts[-1], np.float32)
            tags = sp.csr_array((ones, ids[:, :k][given], starts), shape=block.shape)
            predicted = as_csr(tags @ self._above) != 0
            counts[:, rows] = np.diff(predicted.indptr), np.diff(as_csr(predicted.multiply(right)).indptr)

    def precisions(self, k: int) -> NDArray[np.float64]:
        """Return hp of each image; NaN where no tag is relevant."""
        return self._shares(k, self._counts[k][0])

    def recalls(self, k: int) -> NDArray[np.float64]:
        """Return hr of each image; NaN where no tag is relevant."""
        return self._shares(k, self._n_right)

    def f1(self, k: int) -> NDArray[np.float64]:
        """Return the harmonic mean of hp and hr of each image; NaN where no tag is relevant."""
        return self._shares(k, (self._counts[k][0] + self._n_right) / 2)

    def _shares(self, k: int, of: NDArray[Any]) -> NDArray[np.float64]:
        return ratio(self._counts[k][1], np.where(self._n_right > 0, of, 0))
