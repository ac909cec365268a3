"""Relations that are not listed, but that most tags like the whole have."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import check_size

MAX_BYTES = 2 << 30


def listed_and_suggested(pairs: NDArray[np.int64], siblings: NDArray[np.int64], n_tags: int, weight: float) -> Any:
    """Return how surely each tag is a part of each whole: 1 where it is known, less where it is only suggested.

    Like a whole are its siblings that have known parts or, where it has none, the wholes with which it shares parts,
    each as far as their lists are alike (their cosine). A part that is not listed gets `weight` times the share of
    those that have it, up to 1.

    Parameters
    ----------
    pairs : ndarray of int64, shape (n, 2)
        Known relations (part, whole), at least one.
    siblings : ndarray of int64, shape (m, 2)
        Tags of the same kind, either way around.
    n_tags : int
    weight : float

    Returns
    -------
    csr_array of float64, shape (n_tags, n_tags)
        Rows are wholes.

    Raises
    ------
    TooLargeError
        If the pairs of like wholes could take more than 2 GiB.
    """
    known = sp.csr_array((np.ones(len(pairs)), (pairs[:, 1], pairs[:, 0])), shape=(n_tags, n_tags))
    suggested = weight * (_nearness(known, siblings) @ known)
    believed = sp.csr_array(suggested.minimum(1.0).maximum(known))
    believed.setdiag(0)
    believed.eliminate_zeros()
    believed.sort_indices()
    return believed


def _nearness(known: Any, siblings: NDArray[np.int64]) -> Any:
    """Return how near others are to each whole, rows that sum to 1, or to 0 if none is like it."""
    n_parts = np.diff(known.indptr)
    n_wholes = np.bincount(known.indices).astype(np.int64)
    check_size(
        16 * int((n_wholes**2).sum()),
        MAX_BYTES,
        f"The likeness of {int((n_parts > 0).sum())} wholes, up to {n_wholes.max()} with the same part,",
        "Leave out the most common parts, or set listed to 0.",
    )
    ends = np.concatenate([siblings, siblings[:, ::-1]])
    ends = np.unique(ends[n_parts[ends[:, 1]] > 0], axis=0)
    alike = sp.csr_array((np.ones(len(ends)), tuple(ends.T)), shape=known.shape)
    scaled = sp.diags_array(1 / np.sqrt(np.maximum(n_parts, 1))) @ known
    sharing = sp.csr_array(scaled @ scaled.T)
    sharing.setdiag(0)
    without = np.diff(alike.indptr) == 0
    near = alike + sp.diags_array(without.astype(np.float64)) @ sharing
    sums = np.asarray(near.sum(axis=1)).ravel()
    return sp.diags_array(np.divide(1, sums, out=np.zeros_like(sums), where=sums > 0)) @ near
