"""Training objectives besides `SampledObjective`: all tags, ranks of drawn tags, or one target per image."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import softplus

from visterm.models.deep import WordTable

Ints = NDArray[np.int64]


class FullObjective:
    """A cost of all tags for each image: time and memory grow with the number of tags.

    With `rank`, it is equation (5) over all pairs, otherwise the cross-entropy. Denied tags of `Y` count like all other
    tags that the image does not have.
    """

    def __init__(self, Y: sp.csr_array, *, rank: bool = False) -> None:
        self._given = sp.csr_array(Y > 0)
        self._cost = full_rank_cost if rank else full_cross_entropy

    def start_epoch(self, rng: np.random.Generator) -> None:
        """Do nothing: nothing is drawn per epoch."""

    def loss(self, f: Tensor, images: Ints, table: WordTable, rng: np.random.Generator) -> Tensor:
        """Return the cost of a batch, with the rows of all tags."""
        given = self._given[images]
        owners = np.repeat(np.arange(images.size), np.diff(given.indptr))
        pairs = (torch.from_numpy(array.astype(np.int64)).to(f.device) for array in (owners, given.indices))
        return self._cost(f, table.take(np.arange(len(table.rows))), *pairs)


class TargetObjective:
    """The squared distance to the weighted sum of word vectors, by `weights` (n_images, n_tags); words don't move."""

    def __init__(self, weights: sp.csr_array) -> None:
        self._weights = weights

    def start_epoch(self, rng: np.random.Generator) -> None:
        """Do nothing: nothing is drawn per epoch."""

    def loss(self, f: Tensor, images: Ints, table: WordTable, rng: np.random.Generator) -> Tensor:
        """Make the targets of a batch, and return the cost."""
        weights = self._weights[images]
        tags, positions = np.unique(weights.indices, return_inverse=True)
        batch_weights = sp.csr_array((weights.data, positions, weights.indptr), shape=(images.size, tags.size))
        targets = np.asarray(batch_weights @ table.rows[tags], np.float32)
        return squared_distance(f, torch.from_numpy(targets).to(f.device))


def full_cross_entropy(f: Tensor, V: Tensor, images: Tensor, tags: Tensor) -> Tensor:
    """Return the cross-entropy over all tags, as the mean over images: ``Σ_t log(1 + exp(f · v_t)) - Σ_p f · v_p``.

    It is (1) with all tags of an image as positives and all other tags as negatives. `f` is (n_images, dim), `V`
    (n_tags, dim); `images` and `tags` are the pairs of an image and one of its tags.
    """
    S = f @ V.T
    return (softplus(S).sum() - S[images, tags].sum()) / len(f)


def sampled_rank_cost(s_p: Tensor, s_n: Tensor, is_positive: Tensor, is_negative: Tensor) -> Tensor:
    """Return ``- β Σ_p Σ_n log σ(f · (v_p - v_n))``, equation (5) over drawn tags; β is one over the number of pairs.

    Parameters are those of `sampled_cross_entropy`.
    """
    pairs = is_positive[:, :, None] * is_negative[:, None, :]
    n_pairs = pairs.sum((1, 2)).clamp(min=1)
    costs = softplus(s_n[:, None, :] - s_p[:, :, None])
    return ((costs * pairs).sum((1, 2)) / n_pairs).mean()


def full_rank_cost(f: Tensor, V: Tensor, images: Tensor, tags: Tensor) -> Tensor:
    """Return ``- β Σ_p Σ_n log σ(f · (v_p - v_n))``, equation (5) over all pairs of a tag of the image and another tag.

    Parameters are those of `full_cross_entropy`.
    """
    S = f @ V.T
    absent = torch.ones_like(S)
    absent[images, tags] = 0
    n_absent = absent.sum(1)
    n_pairs = (S.shape[1] - n_absent) * n_absent
    differences = S[images, tags][:, None] - S[images]
    costs = (softplus(-differences) * absent[images]).sum(1)
    return (costs / n_pairs[images].clamp(min=1)).sum() / len(f)


def squared_distance(f: Tensor, targets: Tensor) -> Tensor:
    """Return ``½ |f - target|²``, as the mean over images."""
    return 0.5 * (f - targets).square().sum() / len(f)
