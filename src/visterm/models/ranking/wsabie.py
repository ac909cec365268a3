"""WSABIE: a joint embedding of images and tags, trained so that the right tags come out on top."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from visterm.core.checks import as_csr
from visterm.core.errors import ShapeError
from visterm.models.base import Limit
from visterm.models.ranking.embedding_ranking import DRAW_LIMITS, OPEN_LIMITS, EmbeddingRanker
from visterm.models.ranking.training import positive_tags
from visterm.models.ranking.warp import Objective, rank_weights
from visterm.models.stopping import OPEN

FEWEST_TRIALS = 100  # Draws for one pair with the schedule "open"; with very many tags more are worth their time


@dataclass(kw_only=True, eq=False, repr=False)
class Wsabie(EmbeddingRanker):
    """Joint embedding of images and tags that puts the right tags on top (WARP loss).

    Training visits pairs (image, true tag y) in random order, and draws other tags until one, ȳ, violates the margin:
    ``f_ȳ(x) > f_y(x) - 1``. If that took N draws of the M tags that the image does not have, the rank of y is about
    ``k = floor(M / N)``, and a gradient step lowers ``(1 + 1/2 + ... + 1/k) · |1 - f_y(x) + f_ȳ(x)|₊``: the sooner a
    violator turns up, the worse the rank and the larger the step. Then the vectors of the features and of the tags are
    brought back to a length of at most `max_norm`.

    This is Algorithm 1 of the paper, with steps in blocks. An image with several tags is as many pairs, and its own
    tags are never drawn; explicit negatives are tags like any other that it does not have. With a single tag there is
    nothing to rank, and nothing is learned.

    With the schedule "open", the default, training finds its own length. Steps keep their size. What changes is how
    long vectors may become: `max_norm` grows with the square of the epochs, so that these lead from too simple a model
    to one that fits its images too well, and the best lies between. The images held out (of images known by number one
    tag each of some) find it: training stops once they have ranked no better for `patience` epochs. It then goes on
    from the best weights for four epochs on all rows, in smaller and smaller steps, with the longest vectors that were
    in the running mean. With nothing to stop by, `max_norm` stays as it is and all `epochs` are run.

    The settings of the paper are
    ``step="sgd", schedule="constant", learning_rate=0.0015, max_norm=0.7, row_length=6, bias=0, standardize=False``.

    Parameters
    ----------
    weight : str
        What a true tag on rank k costs: "harmonic", as above and in the paper; "truncated", the same but nothing more
        after rank `truncate`; "top", 1 wherever it is not the first; "constant", k over the number of tags.
    truncate : int
        See `weight`.
    sampler : str
        "draws" scores tags one by one as they are drawn. "pool" draws by the same law from pools that many pairs share,
        scored in one matrix product: two to three times faster with many tags and a model that is nearly done, when
        dozens of draws are needed.
    max_trials : int, optional
        Draws after which a true tag counts as well ranked. None: as many as there are candidates, as in the paper; with
        the schedule "open" 100, or the root of the number of tags if that is more. Less is faster where there are many.
    tree : array-like of int, shape (n_pairs, 2), or None
        Each tag with each one above it in a tree, directly or not. Then tags under one that an image has are not drawn
        as wrong, unless it has one of them, too, or they are explicitly not there.
    dim, learning_rate, max_norm, row_length, epochs, average, patience, valid_share, step, schedule, l2
        As in `EmbeddingRanker`.
    init_scale, bias, standardize, block, n_jobs, random_state
        As in `EmbeddingRanker`.

    References
    ----------
    Weston, Bengio, Usunier: Large scale image annotation: learning to rank with joint word-image embeddings. Machine
    Learning 81, 2010; sections 2 and 3, Algorithm 1.
    """

    limits: ClassVar[dict[str, Limit]] = DRAW_LIMITS | OPEN_LIMITS

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
    bias: float = 0.7

    start_params: ClassVar[tuple[str, ...]] = ("tree",)
    takes: ClassVar[tuple[str, ...]] = ("tree",)

    def _check_settings(self) -> None:
        if self.tree is not None and (np.ndim(self.tree) != 2 or np.shape(self.tree)[1] != 2):
            expected = "the shape (n_pairs, 2): a tag, and one above it"
            raise ShapeError(setting="tree", value=np.shape(self.tree), expected=expected)

    def _positives(self, Y: sp.csr_array) -> sp.csr_array:
        positives = positive_tags(Y)
        above = self.known("tree")
        if above is None:
            return positives
        tree = np.asarray(above, np.int64)
        if len(tree) and not 0 <= tree.min() <= tree.max() < Y.shape[1]:
            wrong = tree.min() if tree.min() < 0 else tree.max()
            expected = f"0 to {Y.shape[1] - 1}, the columns of Y"
            raise ShapeError(f"`tree` names tag column {wrong}.", setting="tree", value=int(wrong), expected=expected)
        return pass_over_children(positives, Y, tree)

    def _objective(self, n_tags: int) -> Objective:
        most = self.max_trials
        if most is None:
            most = max(FEWEST_TRIALS, math.isqrt(n_tags)) if self.schedule == OPEN else n_tags
        weights = rank_weights(self.weight, max(n_tags, most), self.truncate)
        return Objective(weights, most, pooled=self.sampler == "pool")


def pass_over_children(positives: sp.csr_array, Y: sp.csr_array, tree: NDArray[np.int64]) -> sp.csr_array:
    """Store a zero where an image has a tag and none of those under it: each of these may be right, or wrong.

    `positives` and `Y`, (n_images, n_tags), are ones, and signed as `fit` takes them; what is explicitly not there
    stays wrong. `tree`, (n_pairs, 2), has each tag with each one above it, directly or not.
    """
    n_tags = positives.shape[1]
    ones = np.ones(len(tree), np.float32)
    under = sp.csr_array((ones, (tree[:, 1], tree[:, 0])), shape=(n_tags, n_tags))
    alone = as_csr(positives - positives.multiply(positives @ under.T > 0))
    images, tags = (as_csr(alone @ under > 0) - as_csr(alone @ under > 0).multiply(Y != 0)).nonzero()
    has = positives.tocoo().coords
    values = np.concatenate([np.ones(positives.nnz, np.float32), np.zeros(len(images), np.float32)])
    coords = np.concatenate([has[0], images]), np.concatenate([has[1], tags])
    entries = sp.csr_array((values, coords), shape=positives.shape)
    entries.sort_indices()
    return entries
