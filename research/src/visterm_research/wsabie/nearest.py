"""What it costs to lose the true nearest neighbour, worked out from the exact ones (WSABIE, section 6.4)."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.threads import one_blas_thread
from visterm.core.types import Matrix
from visterm.kernels.topk import top_k
from visterm_research.comparison.image_problems import unit_rows
from visterm_research.comparison.problem import Problem

NEIGHBOURS = 50
"""Neighbours that are looked at: the chance to lose all of them is below 0.6 % where each is found 1 time in 10."""

BLOCK_BYTES = 2**25


def neighbour_hits(problem: Problem, k: int = NEIGHBOURS) -> NDArray[np.float64]:
    """Return the precision of annotating a test image with the tags of its j-th nearest training image, by cosine.

    Returns
    -------
    ndarray of float64, shape (k,)
        For each j, the mean over test images of the share of that neighbour's tags that the image has: p@1 where ties
        between the tags of one neighbour are broken at random.
    """
    trained, sought = _unit(problem.train.X), _unit(problem.test.X)
    given = sp.csr_array(problem.train.Y > 0, dtype=np.float32)
    right = sp.csr_array(problem.test.Y > 0, dtype=np.float32)
    tagged = np.flatnonzero(np.diff(right.indptr))
    counts = np.maximum(np.diff(given.indptr), 1)
    k = min(k, trained.shape[0])
    total = np.zeros(k)
    step = max(1, BLOCK_BYTES // (4 * trained.shape[0]))
    for start in range(0, tagged.size, step):
        rows = tagged[start : start + step]
        with one_blas_thread():
            cosines: Any = sought[rows] @ trained.T
            shared = (right[rows] @ given.T).toarray() / counts
        dense = cosines.toarray() if sp.issparse(cosines) else cosines
        ids, _ = top_k(np.ascontiguousarray(dense, np.float32), k)
        total += np.take_along_axis(shared, ids, axis=1).sum(axis=0)
    return np.asarray(total / max(1, tagged.size))


def first_lost(hits: NDArray[np.float64], chance: float) -> float:
    """Return the precision if the first neighbour is found with some chance, and the second without fail."""
    second = hits[min(1, hits.size - 1)]
    return float(chance * hits[0] + (1 - chance) * second)


def any_lost(hits: NDArray[np.float64], chance: float) -> float:
    """Return the precision of the nearest that is found if each neighbour is found with some chance, all independently.

    If none of those that are looked at is found, nothing is right.
    """
    return float(np.sum(chance * (1 - chance) ** np.arange(hits.size) * hits))


def _unit(X: Matrix) -> Matrix:
    if sp.issparse(X):
        return unit_rows(X)
    return np.asarray(X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-12), np.float32)
