"""WSABIE: a joint embedding of images and tags, trained to rank the right tags on top."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from visterm.core.checks import as_csr
from visterm.models.base import Limit
from visterm.models.parts.relations import check_relations
from visterm.models.ranking.embedding_ranking import DRAW_LIMITS, EmbeddingRanker
from visterm.models.ranking.warp import Objective, rank_weights
from visterm.models.stopping import OPEN

MIN_MAX_TRIALS = 100  # Minimum of `max_trials` with the schedule "open"; with very many tags, more draws are worthwhile


@dataclass(kw_only=True, eq=False, repr=False)
class Wsabie(EmbeddingRanker):
    """Joint embedding of images and tags that puts the right tags on top (WARP loss).

    Training visits pairs (image, true tag y) in random order, and draws other tags until one, ȳ, violates the margin:
    ``f_ȳ(x) > f_y(x) - 1``. If that took N draws of the M tags that the image does not have, the rank of y is about
    ``k = floor(M / N)``, and a gradient step lowers ``(1 + 1/2 + ... + 1/k) · |1 - f_y(x) + f_ȳ(x)|₊``: the fewer draws
    it takes, the worse the rank and the larger the step. Then the vectors of the features and of the tags are scaled
    down to a norm of at most `max_norm`.

    This is Algorithm 1 of the paper, with steps in blocks. An image with several tags is several pairs, and its own
    tags are never drawn; explicit negatives are treated like other tags that it does not have. With a single tag there
    is nothing to rank, and nothing is learned.

    With the schedule "open", the default, training chooses its number of epochs. The learning rate is constant, but
    `max_norm` grows with the square of the epochs, from a model that is too simple to a model that overfits, and the
    best model is in between. Held-out images (or held-out tags of images known by number) choose it: training stops
    after `patience` epochs without a better MAP. Then it continues from the best weights for four epochs on all rows,
    with a falling learning rate and the `max_norm` of the epochs in the running mean. Without held-out images,
    `max_norm` is constant, and all `epochs` are run.

    The settings of the paper are
    ``step="sgd", schedule="constant", learning_rate=0.0015, max_norm=0.7, row_length=6, bias=0, standardize=False``.

    Parameters
    ----------
    weight : str
        The cost of a true tag on rank k: "harmonic", as above and in the paper; "truncated", the same but constant
        above rank `truncate`; "top", 1 if it is not the first; "constant", k divided by the number of tags.
    truncate : int
        See `weight`.
    sampler : str
        "draws" draws and scores tags one at a time. "pool" draws with the same distribution from pools that many pairs
        share, scored in one matrix product: two to three times faster if dozens of draws are needed, with many tags
        late in training.
    max_trials : int, optional
        Number of draws after which a true tag counts as well ranked. None: the number of candidates, as in the paper;
        with the schedule "open" 100, or the root of the number of tags if it is larger. Fewer: faster with many tags.
    tree : array-like of int, shape (n_pairs, 2), or None
        Pairs of a tag and one of its ancestors in a tree. Descendants of an image's tag are then not drawn as wrong
        tags, unless the image has one of these descendants, or they are explicit negatives.
    dim, learning_rate, max_norm, row_length, epochs, average, patience, valid_share, step, schedule, l2
        As in `EmbeddingRanker`.
    init, init_scale, bias, standardize, block, n_jobs, random_state
        As in `EmbeddingRanker`.

    References
    ----------
    Weston, Bengio, Usunier: Large scale image annotation: learning to rank with joint word-image embeddings. Machine
    Learning 81, 2010; sections 2 and 3, Algorithm 1.
    """

    limits: ClassVar[dict[str, Limit]] = DRAW_LIMITS

    test_params: ClassVar[Mapping[str, object]] = {"dim": 16, "epochs": 8, "block": 128}

    weight: str = "harmonic"
    truncate: int = 10
    sampler: str = "draws"
    max_trials: int | None = None
    tree: ArrayLike | None = None
    learning_rate: float = 0.2
    max_norm: float = 1.15
    row_length: float = 1.0
    average: int = 6
    patience: int = 5
    step: str = "adagrad"
    schedule: str = "open"
    init: str = "ridge"
    bias: float = 0.7

    start_params: ClassVar[tuple[str, ...]] = ("tree",)
    takes: ClassVar[tuple[str, ...]] = ("tree",)

    def _positives(self, Y: sp.csr_array) -> sp.csr_array:
        positives = super()._positives(Y)
        pairs = self.known("tree")
        if pairs is None:
            return positives
        return store_unknown_descendants(positives, Y, check_relations(pairs, Y.shape[1], "tree"))

    def _objective(self, n_tags: int) -> Objective:
        max_draws = self.max_trials
        if max_draws is None:
            max_draws = max(MIN_MAX_TRIALS, math.isqrt(n_tags)) if self.schedule == OPEN else n_tags
        weights = rank_weights(self.weight, max(n_tags, max_draws), self.truncate)
        return Objective(weights, max_draws, use_pools=self.sampler == "pool")


def store_unknown_descendants(positives: sp.csr_array, Y: sp.csr_array, tree: NDArray[np.int64]) -> sp.csr_array:
    """Store zeros for the descendants of an image's tag if the image has none of them: they may be right or wrong.

    `positives`, (n_images, n_tags), has ones for tags; `Y`, of the same shape, has signs as in `fit`: explicit
    negatives stay wrong. `tree`, (n_pairs, 2), has pairs of a tag and one of its ancestors.
    """
    n_tags = positives.shape[1]
    ones = np.ones(len(tree), np.float32)
    descendants = sp.csr_array((ones, (tree[:, 1], tree[:, 0])), shape=(n_tags, n_tags))
    lowest = as_csr(positives - positives.multiply(positives @ descendants.T > 0))
    images, tags = (as_csr(lowest @ descendants > 0) - as_csr(lowest @ descendants > 0).multiply(Y != 0)).nonzero()
    tag_coords = positives.tocoo().coords
    values = np.concatenate([np.ones(positives.nnz, np.float32), np.zeros(len(images), np.float32)])
    coords = np.concatenate([tag_coords[0], images]), np.concatenate([tag_coords[1], tags])
    entries = sp.csr_array((values, coords), shape=positives.shape)
    entries.sort_indices()
    return entries
