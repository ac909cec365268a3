"""The average word vector: a network that is taught the mean of the vectors of an image's tags."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from visterm.models.deep.base import DeepTagger


class AverageWordVector(DeepTagger):
    """A network into the words' space with one target an image: the average of its tags' vectors ("Avg WV").

    Minimises ``½ |f - t|²`` with ``t = mean of v_p over the tags given - mean of v_d over those denied``; the second is
    not in the paper, which knows of none. The word vectors stay as they are, so that words that are alike in text are
    taken to look alike. Random vectors (``word_vectors=None``) make a random projection of tag space.

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
    Ni et al.: Sampled image tagging and retrieval methods on user generated content; section 4 and table 3.
    """

    def _objective(self, Y: sp.csr_array) -> Any:
        from visterm.models.deep.target_objective import TargetObjective  # torch

        return TargetObjective(share_rows(Y, self._tag_weights(Y)))

    def _tag_weights(self, given: sp.csr_array) -> sp.csr_array:
        """Return a weight of 0 or more for each stored tag of each image, in the same places."""
        return sp.csr_array((np.ones(given.nnz, np.float32), given.indices, given.indptr), shape=given.shape)


def share_rows(Y: sp.csr_array, weights: sp.csr_array) -> sp.csr_array:
    """Scale weights so that those of an image's given tags sum to 1, and those of its denied tags to -1.

    Parameters
    ----------
    Y : csr_array, shape (n_images, n_tags)
        1 and -1.
    weights : csr_array
        With the same stored places.
    """
    owner = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    data = np.zeros(Y.nnz, np.float32)
    for sign in (1, -1):
        these = np.sign(Y.data) == sign
        sums = np.bincount(owner[these], weights.data[these], minlength=Y.shape[0])
        data[these] = sign * weights.data[these] / sums[owner[these]]
    return sp.csr_array((data, Y.indices, Y.indptr), shape=Y.shape)
