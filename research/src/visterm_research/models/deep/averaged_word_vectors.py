"""Networks that are taught a mean of the vectors of an image's tags: of all alike, or by how well they go together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.models.deep import DeepTagger

BLOCK_IMAGES = 4096  # Images whose tags' correlations with all tags are held at a time


@dataclass(kw_only=True, eq=False, repr=False)
class AverageWordVector(DeepTagger):
    """A network into the words' space with one target an image: the average of its tags' vectors ("Avg WV").

    Minimises ``½ |f - t|²`` with ``t = mean of v_p over the tags given - mean of v_d over those denied``; the second is
    not in the paper, which knows of none. The word vectors stay as they are, so that words that are alike in text are
    taken to look alike. Random vectors (``word_vectors=None``) make a random projection of tag space.

    Settings are those of `DeepTagger`, but `tag_learning_rate`.

    References
    ----------
    Ni et al.: Sampled image tagging and retrieval methods on user generated content; section 4 and table 3.
    """

    tag_learning_rate: ClassVar[float] = 0.1  # type: ignore[misc]

    def _objective(self, Y: sp.csr_array) -> Any:
        from visterm_research.models.deep.objectives import TargetObjective  # torch

        return TargetObjective(share_rows(Y, self._tag_weights(Y)))

    def _tag_weights(self, given: sp.csr_array) -> sp.csr_array:
        """Return a weight of 0 or more for each stored tag of each image, in the same places."""
        return sp.csr_array((np.ones(given.nnz, np.float32), given.indices, given.indptr), shape=given.shape)


class CorrelatedWordVectors(AverageWordVector):
    """A network into the words' space with one target an image: the average of its tags' vectors by their correlation.

    As `AverageWordVector`, but with the target ``t = Σ_p w_p v_p / Σ_p w_p``, where

    ``w_p = Σ_{p'} C_pp'`` over the image's tags p', p among them, and ``C_st = n_st / √(n_s n_t)``

    is the correlation of two tags: n_st images have both, n_t have t. So a tag that is seldom seen with the image's
    others weighs little, and those that confirm each other much. The paper names the method and quotes its figures
    without a formula; this is ours.

    Settings are those of `DeepTagger`, but `tag_learning_rate`.

    References
    ----------
    Ni et al.: Sampled image tagging and retrieval methods on user generated content; table on MS COCO.
    """

    def _tag_weights(self, given: sp.csr_array) -> sp.csr_array:
        return correlation_weights(given)


def share_rows(Y: sp.csr_array, weights: sp.csr_array) -> sp.csr_array:
    """Scale weights so that those of an image's given tags sum to 1, and those of its denied tags to -1.

    `Y` has 1 and -1, and the weights have the same stored places.
    """
    owner = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    data = np.zeros(Y.nnz, np.float32)
    for sign in (1, -1):
        these = np.sign(Y.data) == sign
        sums = np.bincount(owner[these], weights.data[these], minlength=Y.shape[0])
        data[these] = sign * weights.data[these] / sums[owner[these]]
    return sp.csr_array((data, Y.indices, Y.indptr), shape=Y.shape)


def correlation_weights(Y: sp.csr_array) -> sp.csr_array:
    """Return w of each stored tag (1 or -1); for denied ones the same over the denied tags of the image."""
    weights = np.empty(Y.nnz, np.float32)
    for sign in (1, -1):
        these = np.sign(Y.data) == sign
        if not these.any():
            continue
        ones = _stored(Y, these)
        counts = np.maximum(np.bincount(ones.indices, minlength=Y.shape[1]), 1)
        scaled = ones @ sp.diags_array(1 / np.sqrt(counts)).tocsr()
        correlations = sp.csr_array(scaled.T @ scaled)
        owner = np.repeat(np.arange(Y.shape[0]), np.diff(ones.indptr))
        found = np.empty(ones.nnz, np.float32)
        for first in range(0, Y.shape[0], BLOCK_IMAGES):
            sums = sp.csr_array(ones[first : first + BLOCK_IMAGES] @ correlations)
            part = slice(ones.indptr[first], ones.indptr[min(first + BLOCK_IMAGES, Y.shape[0])])
            found[part] = sums[owner[part] - first, ones.indices[part]]
        weights[these] = found
    return sp.csr_array((weights, Y.indices, Y.indptr), shape=Y.shape)


def _stored(Y: sp.csr_array, these: NDArray[np.bool_]) -> sp.csr_array:
    """Return some of the stored places of a matrix, as ones."""
    before = np.concatenate([[0], np.cumsum(these)])
    return sp.csr_array((np.ones(int(these.sum()), np.float32), Y.indices[these], before[Y.indptr]), shape=Y.shape)
