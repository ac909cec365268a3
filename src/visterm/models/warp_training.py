"""Epochs of Algorithm 1 in blocks: draw in parallel against frozen weights, then step, each thread on its own rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from visterm.core.threads import Team
from visterm.core.types import Matrix
from visterm.kernels.warp import add_tag_steps, draw_violators, harmonic_weights
from visterm.models.feature_steps import Floats, Ints, feature_steps

PART = 64
"""Examples that one thread scores at a time: fixed, so that BLAS gives the same bytes for any number of threads."""

TABLE_TAGS = 1024
"""Up to so many tags, one matrix product of all scores costs less than the dot products of the draws one by one."""


class EpochSums(NamedTuple):
    """What one epoch did.

    Attributes
    ----------
    loss : float
        Mean over the examples of L(rank) · (1 - f_y + f_ȳ), 0 where no violator was drawn.
    draws : float
        Mean draws over the examples.
    violated : float
        Share of the examples that had a violator, and so made a step.
    """

    loss: float
    draws: float
    violated: float


class WarpTraining:
    """The state of one training: examples, weights and scratch. `run_epoch` visits each example once.

    The examples are all pairs of an image and a tag that it has. The bytes of the weights depend on the data, the
    generator, `rate`, `max_norm`, `max_trials` and `block`, and not on the team's size.

    Parameters
    ----------
    X : array or CSR of float32, shape (n_images, n_features)
    own : csr_array, shape (n_images, n_tags)
        Stored entries are the tags that images have; canonical.
    image_map : ndarray of float32, shape (n_features, dim)
        The matrix V of the paper, transposed; changed in place.
    tag_rows : ndarray of float32, shape (n_tags, dim)
        The matrix W of the paper, transposed; changed in place.
    rate, max_norm, max_trials, block
        As in `Wsabie`.
    scale : float
        Train as if the features were multiplied by it, without a copy of them: the image map is then the paper's times
        `scale`, so its steps are `scale` squared and its norms `scale` times as large.
    rng : Generator
        For the order of the examples and the key of the draws.
    team : Team
    """

    def __init__(
        self,
        X: Matrix,
        own: sp.csr_array,
        image_map: Floats,
        tag_rows: Floats,
        *,
        rate: float,
        max_norm: float,
        max_trials: int,
        block: int,
        scale: float,
        rng: np.random.Generator,
        team: Team,
    ) -> None:
        self._image_map, self._tag_rows = image_map, tag_rows
        self._map_rate, self._map_norm = rate * scale**2, max_norm * scale
        self._tag_rate, self._tag_norm, self._max_trials = rate, max_norm, max_trials
        self._rng, self._team = rng, team
        self._own_start, self._own_tags = own.indptr.astype(np.int64), own.indices
        self._images = np.repeat(np.arange(own.shape[0]), np.diff(own.indptr))
        self._tags = own.indices.astype(np.int64)
        n_tags, dim = tag_rows.shape
        self._rank_weights = harmonic_weights(n_tags)
        self._block = min(block, max(1, self._tags.size))
        self._features = feature_steps(X, self._block, team.size)
        self._U = np.empty((self._block, dim), np.float32)
        self._steps = np.empty((self._block, dim), np.float32)
        self._scores = np.empty((self._block, n_tags if n_tags <= TABLE_TAGS else 0), np.float32)
        self._violators = np.empty(self._block, np.int64)
        self._trials = np.empty(self._block, np.int64)
        self._tag_bounds = np.linspace(0, n_tags, team.size + 1).astype(np.int64)
        self._seed = int(rng.integers(2**62))
        self._epoch = 0

    def run_epoch(self) -> EpochSums:
        """Visit every example once, in an order drawn anew."""
        order = self._rng.permutation(self._tags.size)
        loss, trials, violated = 0.0, 0, 0
        for start in range(0, order.size, self._block):
            examples = order[start : start + self._block]
            loss += self._run_block(examples)
            trials += int(self._trials[: examples.size].sum())
            violated += int(np.count_nonzero(self._violators[: examples.size] >= 0))
        self._epoch += 1
        n = max(1, order.size)
        return EpochSums(loss / n, trials / n, violated / n)

    def _run_block(self, examples: Ints) -> float:
        images, tags = self._images[examples], self._tags[examples]
        self._features.take(images)
        n = examples.size
        U, steps, scores = self._U[:n], self._steps[:n], self._scores[:n]
        violators, trials = self._violators[:n], self._trials[:n]
        steps.fill(0.0)

        def draw(number: int) -> float:
            part = slice(number * PART, (number + 1) * PART)
            self._features.embed(part, self._image_map, U[part])
            if scores.shape[1]:
                np.matmul(U[part], self._tag_rows.T, out=scores[part])
            loss: float = draw_violators(
                examples[part], images[part], tags[part], self._own_start, self._own_tags,
                U[part], self._tag_rows, scores[part], self._rank_weights, self._max_trials,
                self._seed, self._epoch, self._map_rate, violators[part], trials[part], steps[part],
            )  # fmt: skip
            return loss

        def step(share: int) -> None:
            if share < self._features.n_shares:
                self._features.move(share, violators, steps, self._map_norm, self._image_map)
                return
            share -= self._features.n_shares
            add_tag_steps(
                tags, violators, trials, images, self._own_start, U, self._rank_weights, self._tag_rate, self._tag_norm,
                self._tag_bounds[share], self._tag_bounds[share + 1], self._tag_rows,
            )  # fmt: skip

        loss = sum(self._team.run(draw, -(-n // PART)))
        self._team.run(step, self._features.n_shares + self._team.size)
        return loss
