"""Correlated word vectors: the average word vector, in which tags weigh by how well they go with the image's others."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.models.deep.average_word_vector import AverageWordVector

BLOCK_IMAGES = 4096
"""Images whose tags' correlations with all tags are held at a time."""


class CorrelatedWordVectors(AverageWordVector):
    """A network into the words' space with one target an image: the average of its tags' vectors by their correlation.

    As `AverageWordVector`, but with the target ``t = Σ_p w_p v_p / Σ_p w_p``, where

    ``w_p = Σ_{p'} C_pp'`` over the image's tags p', p among them, and ``C_st = n_st / √(n_s n_t)``

    is the correlation of two tags: n_st images have both, n_t have t. So a tag that is seldom seen with the image's
    others weighs little, and those that confirm each other much. The paper names the method and quotes its figures
    without a formula; this is ours.

    Parameters
    ----------
    hidden, dim, word_vectors, dropout, batch_norm, epochs, batch_size, learning_rate, l2
        As in `DeepTagger`.
    max_gradient, schedule, patience, valid_share, half, checkpoint, checkpoint_batches, device, n_jobs, random_state
        As in `DeepTagger`.
    tag_learning_rate
        Of no effect: no vector moves.

    References
    ----------
    Ni et al.: Sampled image tagging and retrieval methods on user generated content; table on MS COCO.
    """

    def _tag_weights(self, given: sp.csr_array) -> sp.csr_array:
        return correlation_weights(given)


def correlation_weights(Y: sp.csr_array) -> sp.csr_array:
    """Return w of each stored tag; for denied ones the same over the denied tags of the image.

    Parameters
    ----------
    Y : csr_array, shape (n_images, n_tags)
        1 and -1.

    Returns
    -------
    csr_array of float32
        With the same stored places.
    """
    weights = np.empty(Y.nnz, np.float32)
    for sign in (1, -1):
        these = np.sign(Y.data) == sign
        if not these.any():
            continue
        own = _stored(Y, these)
        counts = np.maximum(np.bincount(own.indices, minlength=Y.shape[1]), 1)
        scaled = own @ sp.diags_array(1 / np.sqrt(counts)).tocsr()
        correlations = sp.csr_array(scaled.T @ scaled)
        owner = np.repeat(np.arange(Y.shape[0]), np.diff(own.indptr))
        found = np.empty(own.nnz, np.float32)
        for first in range(0, Y.shape[0], BLOCK_IMAGES):
            sums = sp.csr_array(own[first : first + BLOCK_IMAGES] @ correlations)
            part = slice(own.indptr[first], own.indptr[min(first + BLOCK_IMAGES, Y.shape[0])])
            found[part] = sums[owner[part] - first, own.indices[part]]
        weights[these] = found
    return sp.csr_array((weights, Y.indices, Y.indptr), shape=Y.shape)


def _stored(Y: sp.csr_array, these: NDArray[np.bool_]) -> sp.csr_array:
    """Return some of the stored places of a matrix, as ones."""
    before = np.concatenate([[0], np.cumsum(these)])
    ones = np.ones(int(these.sum()), np.float32)
    return sp.csr_array((ones, Y.indices[these], before[Y.indptr]), shape=Y.shape)
