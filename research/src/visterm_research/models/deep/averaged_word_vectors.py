"""Networks that learn the mean of the vectors of an image's tags: equally weighted, or weighted by correlations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.models.deep import DeepTagger

BLOCK_IMAGES = 4096  # Number of images whose tags' correlations with all tags are in memory at a time


@dataclass(kw_only=True, eq=False, repr=False)
class AverageWordVector(DeepTagger):
    """A network into the words' space with one target per image: the average of its tags' vectors ("Avg WV").

    Minimises ``½ |f - t|²`` with ``t = mean of v_p over the image's tags - mean of v_d over its denied tags``; the
    paper has no denied tags. The word vectors are fixed, so words that are similar in texts are assumed to look
    similar. Random vectors (``word_vectors=None``) make a random projection of tag space.

    Settings are those of `DeepTagger` except `tag_learning_rate`.

    References
    ----------
    Ni et al.: Sampled image tagging and retrieval methods on user generated content; section 4 and table 3.
    """

    tag_learning_rate: ClassVar[float] = 0.1  # type: ignore[misc]

    def _objective(self, Y: sp.csr_array) -> Any:
        from visterm_research.models.deep.objectives import TargetObjective  # torch

        return TargetObjective(share_rows(Y, self._tag_weights(Y)))

    def _tag_weights(self, Y: sp.csr_array) -> sp.csr_array:
        """Return a weight of 0 or more for each stored entry of `Y`, in the same order."""
        return sp.csr_array((np.ones(Y.nnz, np.float32), Y.indices, Y.indptr), shape=Y.shape)


class CorrelatedWordVectors(AverageWordVector):
    """A network into the words' space with one target per image: the mean of its tags' vectors by correlation.

    Like `AverageWordVector`, but with the target ``t = Σ_p w_p v_p / Σ_p w_p``, where

    ``w_p = Σ_{p'} C_pp'`` over the image's tags p', including p, and ``C_st = n_st / √(n_s n_t)``

    is the correlation of two tags: n_st images have both, n_t have t. So tags that often occur together have large
    weights, and a tag that rarely occurs with the image's other tags has a small one. The paper names the method and
    quotes its figures without a formula; this formula is ours.

    Settings are those of `DeepTagger` except `tag_learning_rate`.

    References
    ----------
    Ni et al.: Sampled image tagging and retrieval methods on user generated content; table on MS COCO.
    """

    def _tag_weights(self, given: sp.csr_array) -> sp.csr_array:
        return correlation_weights(given)


def share_rows(Y: sp.csr_array, weights: sp.csr_array) -> sp.csr_array:
    """Scale weights so that those of an image's tags sum to 1, and those of its denied tags to -1.

    `Y` has 1 and -1; `weights` has the same stored entries.
    """
    owner = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    data = np.zeros(Y.nnz, np.float32)
    for sign in (1, -1):
        has_sign = np.sign(Y.data) == sign
        sums = np.bincount(owner[has_sign], weights.data[has_sign], minlength=Y.shape[0])
        data[has_sign] = sign * weights.data[has_sign] / sums[owner[has_sign]]
    return sp.csr_array((data, Y.indices, Y.indptr), shape=Y.shape)


def correlation_weights(Y: sp.csr_array) -> sp.csr_array:
    """Return w of each stored tag (1 or -1); sums for a denied tag are over the denied tags of the image."""
    weights = np.empty(Y.nnz, np.float32)
    for sign in (1, -1):
        has_sign = np.sign(Y.data) == sign
        if not has_sign.any():
            continue
        ones = _ones_at(Y, has_sign)
        counts = np.maximum(np.bincount(ones.indices, minlength=Y.shape[1]), 1)
        scaled = ones @ sp.diags_array(1 / np.sqrt(counts)).tocsr()
        correlations = sp.csr_array(scaled.T @ scaled)
        owner = np.repeat(np.arange(Y.shape[0]), np.diff(ones.indptr))
        sign_weights = np.empty(ones.nnz, np.float32)
        for start in range(0, Y.shape[0], BLOCK_IMAGES):
            sums = sp.csr_array(ones[start : start + BLOCK_IMAGES] @ correlations)
            part = slice(ones.indptr[start], ones.indptr[min(start + BLOCK_IMAGES, Y.shape[0])])
            sign_weights[part] = sums[owner[part] - start, ones.indices[part]]
        weights[has_sign] = sign_weights
    return sp.csr_array((weights, Y.indices, Y.indptr), shape=Y.shape)


def _ones_at(Y: sp.csr_array, selected: NDArray[np.bool_]) -> sp.csr_array:
    """Return a matrix with ones at the `selected` stored entries of a matrix."""
    n_selected = np.concatenate([[0], np.cumsum(selected)])
    return sp.csr_array(
        (np.ones(int(selected.sum()), np.float32), Y.indices[selected], n_selected[Y.indptr]), shape=Y.shape
    )
