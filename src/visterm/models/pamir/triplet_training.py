"""Train on triplets (query, relevant image, other image) with passive-aggressive steps."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_csr
from visterm.core.types import Matrix
from visterm.kernels.passive_aggressive import JudgedQueries, rank_triplets, rank_violators
from visterm.models.epochs import EpochSums, Floats
from visterm.models.ranking.training import Training, image_rows

P10_RANKS = 10  # Number of ranks that count for "p10"
TOP_LOSSES = ("p10", "warp", "ndcg")


class TripletTraining(Training):
    """The state of one training on queries: the relevant images, and the weights.

    `X` has a constant column for the bias, which never changes because both images have it. `weights`, (n_queries,
    n_words), are the weights of words; stored entries of the canonical `relevant`, (n_queries, n_images), are relevant
    images; `tag_rows`, (n_words, width), are changed in place; `rng` draws the seed of the draws. `n_pairs`, the number
    of pairs of a usable query and a relevant image, is the number of triplets per epoch.

    Queries without words, without relevant images, or with only relevant images are not usable: they rank nothing.
    """

    def __init__(
        self, X: Matrix, weights: sp.csr_array, relevant: sp.csr_array, tag_rows: Floats, *, rng: np.random.Generator
    ) -> None:
        self._store_queries(weights, relevant, rng)
        self._rows, self._n_images, self._W = image_rows(X), X.shape[0], tag_rows
        self._scratch = np.zeros(tag_rows.shape[1], np.float32)

    def run_epoch(self, rate: float) -> EpochSums:
        """Draw one triplet per pair of query and relevant image; `rate` is the maximum step."""
        loss, n_moved = self.run(self.n_pairs, rate)
        n = max(1, self.n_pairs)
        return EpochSums(loss / n, 1.0, n_moved / n)

    def run(self, n_steps: int, rate: float) -> tuple[float, int]:
        """Draw `n_steps` triplets; return the sum of their losses, and the number of triplets with a step."""
        loss, n_moved = self._steps(n_steps, rate)
        self._epoch += 1
        return float(loss), int(n_moved)

    def _store_queries(self, weights: sp.csr_array, relevant: sp.csr_array, rng: np.random.Generator) -> None:
        """Store the usable queries, and draw the seed of the draws."""
        usable = np.flatnonzero(self._has_order(relevant) & (np.diff(weights.indptr) > 0))
        weights, relevant = as_csr(weights[usable]), as_csr(relevant[usable])
        starts = weights.indptr.astype(np.int64), relevant.indptr.astype(np.int64)
        self._queries = JudgedQueries(starts[0], weights.indices, weights.data, starts[1], relevant.indices)
        self._gains = relevant.data
        self.n_pairs = int(relevant.nnz)
        self._seed = int(rng.integers(2**62))
        self._epoch = 0

    def _has_order(self, relevant: sp.csr_array) -> NDArray[np.bool_]:
        """Return for each query whether images differ in relevance."""
        n_relevant = np.diff(relevant.indptr)
        return np.asarray((n_relevant > 0) & (n_relevant < relevant.shape[1]))

    def _steps(self, n_steps: int, rate: float) -> tuple[float, int]:
        total, n_moved = rank_triplets(
            n_steps, self._queries, self._rows, self._n_images, rate, (self._seed, self._epoch), self._W, self._scratch
        )
        return total, n_moved


class TopTripletTraining(TripletTraining):
    """`TripletTraining` with violating images, and steps that are weighted by the rank of the relevant image.

    With the loss "ndcg", the values of `relevant` are gains. After `max_trials` draws without a violation, a relevant
    image counts as well ranked.
    """

    def __init__(
        self,
        X: Matrix,
        weights: sp.csr_array,
        relevant: sp.csr_array,
        tag_rows: Floats,
        *,
        loss: str,
        max_trials: int,
        rng: np.random.Generator,
    ) -> None:
        super().__init__(X, weights, relevant, tag_rows, rng=rng)
        gains = self._gains if loss == "ndcg" else np.ones_like(self._gains)
        shares = np.ones(len(self._queries.r_start) - 1)
        if loss == "ndcg":  # a query's pairs are drawn evenly, but their changes of nDCG are summed
            shares = np.diff(self._queries.r_start) / ideal_gains(self._queries.r_start, gains)
        self._rank_costs = gains, shares.astype(np.float32), rank_weights(loss, X.shape[0])
        self._max_trials = max_trials
        self._n_trials = 0

    def run_epoch(self, rate: float) -> EpochSums:
        """Draw one triplet per pair of query and relevant image; `rate` is the maximum step."""
        sums = super().run_epoch(rate)
        return sums._replace(draws=self._n_trials / max(1, self.n_pairs))

    def _has_order(self, relevant: sp.csr_array) -> NDArray[np.bool_]:
        has_order = super()._has_order(relevant)
        for query in np.flatnonzero(~has_order & (np.diff(relevant.indptr) > 0)):
            has_order[query] = np.ptp(relevant.data[relevant.indptr[query] : relevant.indptr[query + 1]]) > 0
        return has_order

    def _steps(self, n_steps: int, rate: float) -> tuple[float, int]:
        total, n_moved, self._n_trials = rank_violators(
            n_steps, self._queries, *self._rank_costs, self._rows, self._n_images, self._max_trials, rate,
            (self._seed, self._epoch), self._W, self._scratch,
        )  # fmt: skip
        return total, n_moved


def rank_weights(loss: str, n_images: int) -> Floats:
    """Return the weight, 0 to 1, of a relevant image that r images outrank, for r from 0 to `n_images`.

    "p10": ``min(r, 10) / 10``, the same for all ranks below the tenth (Usunier et al., α of the first ten ranks).
    "warp": ``Σ_{i ≤ r} 1 / i``, as a share of the largest (WSABIE, Eq. 3). "ndcg": ``D(1) - D(r + 1)`` with the
    discount ``D(i) = 1 / log2(1 + i)``: LambdaRank's change of nDCG by a swap with the first image, because nothing but
    an order is known: p- ranks above p+.
    """
    r = np.arange(n_images + 1)
    if loss == "p10":
        weights = np.minimum(r, P10_RANKS) / P10_RANKS
    elif loss == "warp":
        weights = np.concatenate(([0.0], np.cumsum(1 / r[1:])))
        weights /= weights[-1]
    else:
        weights = 1 - 1 / np.log2(2 + r)
    return np.asarray(weights, np.float32)


def ideal_gains(starts: NDArray[np.int64], gains: Floats) -> NDArray[np.float64]:
    """Return the ideal discounted gain of each query q, whose gains are ``gains[starts[q]:starts[q + 1]]``."""
    queries = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    order = np.lexsort((-gains, queries))
    ranks = np.arange(len(gains)) - starts[queries]
    return np.asarray(np.bincount(queries, gains[order] / np.log2(2 + ranks), minlength=len(starts) - 1), np.float64)
