"""OWPC by plain SGD: WSABIE's loss with the rank computed, not estimated."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from visterm.kernels import PairBatch, move_rows
from visterm.models.ranking import EmbeddingRanker, Objective, PairTraining, UniformDraws, rank_weights
from visterm_research.kernels.owpc import weigh_all

TAG_SHARE = 128  # Number of tags per BLAS call that updates their rows; constant, for the same bytes


class NoDraws(UniformDraws):
    """Draws nothing: all tags are scored."""

    use_tables = False


class ExactRankTraining(PairTraining):
    """Training on pairs in which every tag within the margin makes a step; see `PairTraining` for the parameters."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._scores = np.empty((self._block, len(self._V)), np.float32)
        self._n_tag_shares = -(-len(self._V) // TAG_SHARE)

    def _find_steps(self, pairs: PairBatch, part: int) -> tuple[float, int, int]:
        """Score all tags for a part of the pairs, and weight those that violate the margin."""
        start, stop = part * self._part_size, min(pairs.tags.size, (part + 1) * self._part_size)
        self._side.embed(slice(start, stop))
        scores, steps = self._scores[start:stop], self._side.steps[start:stop]
        np.matmul(self._side.U[start:stop], self._V.T, out=scores)
        sums: tuple[float, int, int]
        sums = weigh_all(tuple(pairs), start, stop, tuple(self._positives), self._rank_loss.weights, self._scores)
        if steps.shape[1]:
            np.matmul(scores, self._V[:, : steps.shape[1]], out=steps)
            steps *= np.float32(self._side.rate)
        return sums

    def _move(self, pairs: PairBatch, position: int) -> None:
        """Update one share of the features, or one share of the tags by all factors of the block."""
        share = self._shares[position]
        if share < self._side.n_shares:
            super()._move(pairs, position)
            return
        start = (share - self._side.n_shares) * TAG_SHARE
        n, tags = pairs.tags.size, slice(start, start + TAG_SHARE)
        factors, U = self._scores[:n, tags], self._side.U[:n]
        change = factors.T @ U
        change *= np.float32(self._rule.rate)
        gradients = counts = self._squares[:0]
        if self._squares.size:
            gradients = np.square(factors).T @ (np.einsum("pc,pc->p", U, U) / np.float32(U.shape[1]))
        if self._rule.keep < 1:
            counts = np.count_nonzero(factors, axis=0).astype(np.float32)
        move_rows(self._V[tags], change, gradients, counts, self._squares[tags], self._rule)


class OwpcSgd(EmbeddingRanker):
    """Joint embedding trained on the exact loss that WARP approximates: all tags are scored for every pair.

    ``rank`` is the number of tags ȳ with ``1 + f_ȳ(x) > f_y(x)``. Each of them makes a step with the weight
    ``(1 + 1/2 + ... + 1/rank) / rank`` (Eq. 6), and the true tag makes a step with the sum of these weights. Each pair
    needs the scores of all tags.

    The settings are those of `EmbeddingRanker`.

    References
    ----------
    Weston, Bengio, Usunier: Large scale image annotation: learning to rank with joint word-image embeddings. Machine
    Learning 81, 2010; Eqs. 6 and 7, Figure 2.
    """

    pair_training: ClassVar[type[PairTraining]] = ExactRankTraining

    def _objective(self, n_tags: int) -> Objective:
        return Objective(rank_weights("harmonic", n_tags), n_tags, negatives=NoDraws)
