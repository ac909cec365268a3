"""WSABIE: a joint embedding of images and tags, trained so that the right tags come out on top."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from visterm.core.errors import ShapeError
from visterm.models.base import Limit
from visterm.models.ranking.base import pass_over_children
from visterm.models.ranking.embedding_ranking import DRAW_LIMITS
from visterm.models.ranking.open_schedule import OpenSchedule
from visterm.models.ranking.recipe import SAMPLERS


@dataclass(kw_only=True, eq=False, repr=False)
class Wsabie(OpenSchedule):
    """Joint embedding of images and tags that puts the right tags on top (WARP loss).

    Training visits pairs (image, true tag y) in random order, and draws other tags until one, ȳ, violates the margin:
    ``f_ȳ(x) > f_y(x) - 1``. If that took N draws of the M tags that the image does not have, the rank of y is about
    ``k = floor(M / N)``, and a gradient step lowers ``(1 + 1/2 + ... + 1/k) · |1 - f_y(x) + f_ȳ(x)|₊``: the sooner a
    violator turns up, the worse the rank and the larger the step. Then the vectors of the features and of the tags are
    brought back to a length of at most `max_norm`.

    This is Algorithm 1 of the paper, with steps in blocks. An image with several tags is as many pairs, and its own
    tags are never drawn; explicit negatives are tags like any other that it does not have. With a single tag there is
    nothing to rank, and nothing is learned.

    With the default settings training finds its own length (`OpenSchedule` says how). The paper's are
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

    limits: ClassVar[dict[str, Limit]] = DRAW_LIMITS

    test_params: ClassVar[dict[str, Any]] = {"dim": 16, "epochs": 8, "block": 128}

    weight: str = "harmonic"
    truncate: int = 10
    sampler: str = "draws"
    max_trials: int | None = None
    tree: Any = None

    start_params: ClassVar[tuple[str, ...]] = ("tree",)
    takes: ClassVar[tuple[str, ...]] = ("tree",)

    def _check_settings(self) -> None:
        super()._check_settings()
        if self.tree is not None and (np.ndim(self.tree) != 2 or np.shape(self.tree)[1] != 2):
            raise ShapeError(f"tree has the shape {np.shape(self.tree)}; expected (n_pairs, 2): a tag, and one above.")

    def _positives(self, Y: sp.csr_array) -> sp.csr_array:
        positives = super()._positives(Y)
        above = self.known("tree")
        if above is None:
            return positives
        tree = np.asarray(above, np.int64)
        if len(tree) and not 0 <= tree.min() <= tree.max() < Y.shape[1]:
            raise ShapeError(f"tree names tag column {tree.max()}; expected 0 to {Y.shape[1] - 1}, the columns of Y.")
        return pass_over_children(positives, Y, tree)

    def _recipe(self) -> dict[str, Any]:
        return {
            "weight": self.weight, "truncate": self.truncate, "negatives": SAMPLERS[self.sampler],
            "max_trials": self._most_trials(self.max_trials),
        }  # fmt: skip
