"""Sibling precision, p_sib@k: a predicted tag counts if it shares a parent with a right one (WSABIE, section 4)."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_csr
from visterm.core.errors import ShapeError, UserError
from visterm.kernels.topk import top_k
from visterm.metrics.blocks import Judgements, ScoreBlocks, Scores
from visterm.metrics.ranking import ratio


class SiblingTags:
    """Gives every image its best k tags and counts those that are right or a sibling of a right one.

    With one right tag y an image this is the paper's ``p_sib@k = Σ_{i≤k} S(y_i, y) / k``, where S is 1 for equal tags
    and for siblings. With several, a predicted tag counts 1 if it is equal to or a sibling of any of them: the largest
    S, so that with no siblings p_sib@k is precision at k.

    `siblings`, (n_tags, n_tags), is not 0 where two tags are siblings; every tag counts as its own. `ks` are the k that
    will be asked for.
    """

    def __init__(self, judgements: Judgements, siblings: Any, ks: Iterable[int]) -> None:
        n_tags = judgements.n_tags
        near = as_csr(siblings)
        if near.shape != (n_tags, n_tags):
            raise ShapeError(f"siblings has the shape {near.shape}; expected {(n_tags, n_tags)} (tags, tags).")
        near = as_csr(near + sp.eye_array(n_tags, format="csr"))
        self._near = sp.csr_array((np.ones(near.nnz, np.float32), near.indices, near.indptr), shape=near.shape)
        self._judgements = judgements
        self._n_near = {k: np.zeros(judgements.n_images, np.int64) for k in ks}

    def of_others(self, judgements: Judgements) -> SiblingTags:
        """Return what does the same for other images."""
        other = copy(self)
        other._judgements = judgements
        other._n_near = {k: np.zeros(judgements.n_images, np.int64) for k in self._n_near}
        return other

    def add(self, rows: slice, block: NDArray[Any]) -> None:
        """Predict tags of some images by their scores."""
        judgements = self._judgements
        ids, values = top_k(block, min(max(self._n_near), judgements.n_tags))
        reached = as_csr(judgements.relevant(rows) @ self._near.T)
        near = np.zeros(block.shape, bool)
        near[np.repeat(np.arange(block.shape[0]), np.diff(reached.indptr)), reached.indices] = True
        counts = np.take_along_axis(near, ids, axis=1) & np.isfinite(values)  # an excluded tag is not given
        for k, n_near in self._n_near.items():
            n_near[rows] = counts[:, :k].sum(axis=1)

    def precisions(self, k: int) -> NDArray[np.float64]:
        """Tags that count over k, for each image; NaN where no tag is relevant."""
        return ratio(self._n_near[k], np.where(np.diff(self._judgements.indptr) > 0, k, 0))


def sibling_precisions(scores: Scores, Y: Any, siblings: Any, k: int, *, exclude: Any = None) -> NDArray[np.float64]:
    """Return p_sib@k of each image; their mean is the paper's.

    Raises UserError if `k` is no such number; DataError if shapes do not fit, or a score is NaN or infinite.

    Parameters
    ----------
    scores, Y, exclude
        As in `visterm.metrics.evaluate`.
    siblings : array-like or sparse, shape (n_tags, n_tags)
        Not 0 where the tag of the row is a sibling of the tag of the column.
    k : int
        At least 1; where fewer tags are ranked, the division is by k all the same.

    Returns
    -------
    ndarray of float64, shape (n_images,)
        NaN where an image has no relevant tag.

    Examples
    --------
    >>> sibling_precisions(np.array([[0.9, 0.5, 0.1]]), [[0, 1, 0]], [[0, 1, 0], [1, 0, 0], [0, 0, 0]], k=1)
    array([1.])
    """
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise UserError(f"k is {k!r}; expected a whole number of 1 or more.")
    judgements = Judgements.of(Y, exclude)
    near = SiblingTags(judgements, siblings, [int(k)])
    for rows, block in ScoreBlocks(scores, judgements).once():
        near.add(rows, block)
    return near.precisions(int(k))
