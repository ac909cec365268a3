"""WARP with one linear scorer a tag: what WSABIE's embedding is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.types import Matrix
from visterm.kernels import PairBatch, dense_rows, sparse_rows
from visterm.models import Floats, Limit, Weights
from visterm.models.ranking import (
    DRAW_LIMITS,
    PAIR_LIMITS,
    EmbeddedImages,
    LinearRanker,
    Objective,
    PairTraining,
    StepSettings,
    Training,
    TrainingContext,
    UniformDraws,
    rank_weights,
)
from visterm_research.kernels.violator_marks import draw_marked, mark_violators, score_own_tags

Ints = NDArray[np.int64]

MARKS = 2**26  # Pairs of a block times tags, at most, one byte each: with more of them, each tag is scored when drawn
MARKS_FROM = 0.05  # Mean draws a pair in the epoch before, as a share of the tags, from which on marks pay
MARK_TAGS = 256  # Tags that a thread marks at a time


@dataclass(kw_only=True, eq=False, repr=False)
class WarpLinear(LinearRanker):
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

    def _norm_growth(self, weights: Weights) -> float:
        longest = float(np.sqrt(np.einsum("rc,rc->r", weights[0], weights[0]).max()))
        return max(1.0, longest / self.max_norm) if self.chooses_epochs else 1.0

    def _training(self, X: Matrix, positives: sp.csr_array, weights: Weights, context: TrainingContext) -> Training:
        V, n_tags = weights[0], len(weights[0])
        block = min(self.block or context.block, max(1, positives.nnz))
        steps = StepSettings(block, self.max_norm, self.l2, self.step == "adagrad")
        side = PlainImages(self._scaled(X), block)
        draws = MarkedDraws if side.marked and block * n_tags <= MARKS else PlainDraws
        most = self.max_trials or n_tags
        objective = Objective(rank_weights("harmonic", max(n_tags, most)), most, negatives=draws)
        return PairTraining(side, positives, V, objective, steps, rng=context.rng, team=context.team)


class PlainImages(EmbeddedImages):
    """Images as their features, with whatever constant column stands for the bias: nothing on this side learns.

    `marked` says whether it pays to mark the tags that violate.
    """

    grain = 1
    n_shares = 0

    def __init__(self, X: Matrix, block: int) -> None:
        self.steps = np.zeros((block, 0), np.float32)
        self.squares = np.empty(0, np.float32)
        self._X = X
        self._dense = not sp.issparse(X)
        self.U = np.empty((block, X.shape[1]) if self._dense else (0, 0), np.float32)
        csr: Any = X
        self.rows = dense_rows(self.U) if self._dense else sparse_rows(csr.data, csr.indices, csr.indptr)
        # Marking reads all weights once a block: it pays if the block's rows have as many values as a tag has weights
        self.marked = not self._dense and block * csr.nnz >= X.shape[0] * X.shape[1]
        self._numbers = np.arange(block)

    def take(self, images: Ints) -> Ints:
        """Copy the rows of the block together; sparse ones stay where they are."""
        if not self._dense:
            return images
        np.take(self._X, images, axis=0, out=self.U[: images.size])
        return self._numbers[: images.size]

    def set_rate(self, rate: float, growth: float = 1.0) -> None:
        """Do nothing: these images learn nothing."""

    def embed(self, part: slice) -> None:
        """Leave the rows as they are."""


class PlainDraws(UniformDraws):
    """Scores each tag when it is drawn: dense rows have to learn the same as sparse ones, from the same draws."""

    use_tables = False


class MarkedDraws(PlainDraws):
    """The same draws for sparse rows of a linear scorer: if pairs need many, first the tags that violate are marked.

    Parameters are those of `UniformDraws`.
    """

    def __init__(
        self, objective: Objective, side: Any, positives: Any, tag_rows: Floats, *, block: int, **given: Any
    ) -> None:
        super().__init__(objective, side, positives, tag_rows, block=block, **given)
        self._marks = np.empty((block, len(tag_rows)), np.bool_)

    def begin_block(self, pairs: PairBatch, epoch: int) -> None:
        """Mark the tags that violate, if these draws are by marks."""
        super().begin_block(pairs, epoch)
        if not self.methods[1]:
            return
        block, n_tags = tuple(pairs), len(self._V)
        score_own_tags(block, self._side.rows, self._V)

        def mark(share: int) -> None:
            first, last = share * MARK_TAGS, min(n_tags, (share + 1) * MARK_TAGS)
            mark_violators(block, self._margin, self._side.rows, first, last, self._V, self._marks)

        self._team.run(mark, -(-n_tags // MARK_TAGS))

    def end_epoch(self, n_draws: float, n_pairs: int) -> None:
        """Choose the way of the next epoch, by the draws that this one needed."""
        self.methods = (False, bool(n_draws >= MARKS_FROM * len(self._V) * n_pairs))

    def load_methods(self, methods: Sequence[bool]) -> None:
        """Draw as a training before did."""
        self.methods = (False, methods[1])

    def draw(self, pairs: PairBatch, first: int, last: int) -> None:
        """Draw for the pairs first .. last-1."""
        if not self.methods[1]:
            super().draw(pairs, first, last)
            return
        block, positives, draws = tuple(pairs), tuple(self._positives), tuple(self._draws)
        draw_marked(block, first, last, positives, self._side.rows, self._V, self._marks, draws)
