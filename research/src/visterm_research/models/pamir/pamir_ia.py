"""PAMIR for image annotation: one linear scorer per tag, trained to rank by passive-aggressive steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from visterm.core.types import Matrix
from visterm.kernels import row_squares
from visterm.models import EpochSums, Floats, Weights
from visterm.models.ranking import LinearRanker, Training, TrainingContext, image_rows
from visterm_research.kernels.tag_pairs import rank_in_turn


@dataclass(kw_only=True, eq=False, repr=False)
class PamirIa(LinearRanker):
    """One linear scorer per tag, trained so that an image's tags score higher than other tags: PAMIR for annotation.

    For each pair (image, true tag y), in random order, one other tag ȳ is drawn uniformly. If the loss
    ``l = |1 - f_y(x) + f_ȳ(x)|₊`` is above 0, the smallest step that makes it 0 is taken, up to the length
    `aggressiveness`: ``τ = min(aggressiveness, l / (2 |x|²))``, ``w_y += τ x``, ``w_ȳ -= τ x``. Each step needs the
    weights after the previous step, so training uses one thread: `n_jobs` is for annotation only.

    Parameters
    ----------
    aggressiveness : float
        Maximum step (C), for features of mean length 1. More adapts more to each pair; a maximum of 1 or more is rarely
        reached.
    epochs : int
        Maximum number of passes over all pairs.
    row_length, average, patience, valid_share, schedule, n_jobs, random_state
        As in `EmbeddingRanker`; the schedule changes `aggressiveness`.

    References
    ----------
    Grangier, Bengio: A discriminative kernel-based model to rank images from text queries. PAMI 30, 2008. Weston,
    Bengio, Usunier: Large scale image annotation: learning to rank with joint word-image embeddings. Machine Learning
    81, 2010; section 6.3, Tables 2 and 5.
    """

    test_params: ClassVar[dict[str, Any]] = {"epochs": 20}

    aggressiveness: float = 0.1

    def _rate(self) -> float:
        return self.aggressiveness

    def _training(self, X: Matrix, positives: sp.csr_array, weights: Weights, context: TrainingContext) -> Training:
        return TurnTraining(self._scaled(X), positives, weights[0], rng=context.rng)


class TurnTraining(Training):
    """The state of one training, example after example: the examples and the weights.

    `X` has a constant column for the bias; `tag_rows`, (n_tags, width), are changed in place. `rng` draws the order of
    the examples and the seed of the draws.
    """

    def __init__(self, X: Matrix, positives: sp.csr_array, tag_rows: Floats, *, rng: np.random.Generator) -> None:
        self._rows, self._W, self._rng = image_rows(X), tag_rows, rng
        self._squares = np.empty(X.shape[0], np.float32)
        row_squares(self._rows, self._squares)
        self._positive_start, self._positive_tags = positives.indptr.astype(np.int64), positives.indices
        self._images = np.repeat(np.arange(positives.shape[0]), np.diff(positives.indptr))
        self._tags = positives.indices.astype(np.int64)
        self._seed = int(rng.integers(2**62))
        self._epoch = 0

    def run_epoch(self, rate: float) -> EpochSums:
        """Visit every example once, in a new random order; `rate` is the maximum step."""
        order = self._rng.permutation(self._tags.size)
        sums = rank_in_turn(
            order, self._images[order], self._tags[order], self._positive_start, self._positive_tags, self._rows,
            self._squares, rate, self._seed, self._epoch, self._W,
        )  # fmt: skip
        self._epoch += 1
        n = max(1, order.size)
        return EpochSums(*(float(value) / n for value in sums))
