"""WARP with one linear scorer a tag: what WSABIE's embedding is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import scipy.sparse as sp

from visterm.core.types import Matrix
from visterm.models import Limit, Weights
from visterm.models.ranking import (
    DRAW_LIMITS,
    PAIR_LIMITS,
    STEPS,
    LinearRanker,
    PairTraining,
    PlainImages,
    Recipe,
    Setup,
    StreamedFit,
    Training,
    block_size,
)


@dataclass(kw_only=True, eq=False, repr=False)
class WarpLinear(LinearRanker, StreamedFit):
    """One linear scorer a tag, ``f_t(x) = w_t · x + b_t``, trained so that the right tags come out on top (WARP loss).

    The training is WSABIE's Algorithm 1 with another scorer: pairs in random order, tags drawn until one violates the
    margin, steps weighed by the rank that this betrays. It has as many weights as there are tags times features, so it
    fits more, and costs more, than the embedding.

    Parameters
    ----------
    learning_rate : float
        Size of the steps.
    max_norm : float
        Longest weight vector (bias included) of a tag.
    row_length : float
        The features are taken times one factor that brings the training rows to this length (in the mean square).
    epochs, max_trials, average, patience, valid_share, step, schedule, l2, block, n_jobs, random_state
        As in `EmbeddingRanker`.

    References
    ----------
    Weston, Bengio, Usunier: Large scale image annotation: learning to rank with joint word-image embeddings. Machine
    Learning 81, 2010; Table 5.
    """

    limits: ClassVar[dict[str, Limit]] = PAIR_LIMITS | DRAW_LIMITS

    test_params: ClassVar[dict[str, Any]] = {"epochs": 20, "learning_rate": 0.02, "block": 64}

    learning_rate: float = 0.01
    max_norm: float = 3.0
    row_length: float = 3.0
    max_trials: int | None = None
    step: str = "sgd"
    l2: float = 0.0
    block: int | None = None

    def _rate(self) -> float:
        return self.learning_rate

    def _training(self, X: Matrix, positives: sp.csr_array, weights: Weights, setup: Setup) -> Training:
        recipe = Recipe(
            weight="harmonic",
            step=STEPS[self.step],
            l2=self.l2,
            max_norm=self.max_norm,
            max_trials=self.max_trials,
            block=self.block or setup.block,
        )
        side = PlainImages(self._scaled(X), block_size(recipe.block, positives.nnz))
        return PairTraining(side, positives, weights[0], recipe, rng=setup.rng, team=setup.team)
