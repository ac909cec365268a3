"""Epochs over (image, tag) pairs in blocks: draw against frozen weights, then step, both in parallel on rows apart."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.threads import Team
from visterm.kernels.adaptive import draw_adaptive, sort_tags
from visterm.kernels.codes import Loss, Negatives, Step
from visterm.kernels.counted import draw_counted
from visterm.kernels.owpc import weigh_all
from visterm.kernels.pair_steps import add_tag_steps, weigh_pairs
from visterm.kernels.random import draw_many
from visterm.kernels.rules import make_rule, move_rows
from visterm.kernels.warp import draw_violators
from visterm.models.ranking.feature_steps import Floats, Ints
from visterm.models.ranking.image_sides import ImageSide
from visterm.models.ranking.recipe import Recipe, rank_weights

PART = 64
"""Pairs that one thread scores at a time, at least: from the block alone, so that BLAS gives the same bytes always."""

PARTS = 16
"""Parts that a block falls into, at most."""

SMALLEST_BLOCK = 16
LARGEST_TAG_BLOCK = 256
LARGEST_BLOCK = 4096

BLOCKS_AN_EPOCH = 64
"""Where there are many pairs, a block is this share of them: larger blocks still lose nothing that one can see."""

TABLE_FLOATS = 2**20
"""Scores that one matrix product makes, of all tags for a few pairs: they stay in the third cache."""

TABLE_ROWS = 32
"""Pairs that such a product needs to run at BLAS speed: with more tags than that leaves room for, there is none."""

TABLE_FROM = 0.2
"""Mean draws a pair in the epoch before, as a share of the tags, from which on all scores at once pay."""

POOL = 256
"""Tags of a pool: one matrix product scores them for a whole part."""

POOL_FROM = 8
"""Mean draws a pair in the epoch before from which on a pool pays."""

TAG_SHARE = 128
"""Tags that one BLAS call moves where every tag moves: fixed, for the same bytes."""

REDRAWS = 100
"""Draws of tags that the image has after which an adaptive draw becomes a uniform one."""


class EpochSums(NamedTuple):
    """What one epoch did, as means over its examples.

    Attributes
    ----------
    loss : float
        Weighted loss; 0 where nothing violated.
    draws : float
        Tags drawn (or scored).
    violated : float
        Share of the examples that made a step.
    """

    loss: float
    draws: float
    violated: float


class PairTraining:
    """The state of one training: examples, weights and scratch. `run_epoch` visits each example once.

    The examples are all pairs of an image and a tag that it has. The bytes of the weights depend on the data, the
    generator, the recipe and the rates, and not on the team's size.

    Parameters
    ----------
    side : ImageSide
        The image's side, made for blocks of ``recipe.block`` (or as many pairs as there are).
    own : csr_array, shape (n_images, n_tags)
        Stored entries are the tags that images have; canonical.
    tag_rows : ndarray of float32, shape (n_tags, width)
        Changed in place.
    recipe : Recipe
    rng : Generator
        For the order of the examples and the key of the draws.
    team : Team
    """

    def __init__(
        self,
        side: ImageSide,
        own: sp.csr_array,
        tag_rows: Floats,
        recipe: Recipe,
        *,
        rng: np.random.Generator,
        team: Team,
    ) -> None:
        self._side, self._W, self._recipe = side, tag_rows, recipe
        self._rng, self._team = rng, team
        self._own_start, self._own_tags = own.indptr.astype(np.int64), own.indices
        self._images = np.repeat(np.arange(own.shape[0]), np.diff(own.indptr))
        self._tags = own.indices.astype(np.int64)
        n_tags = tag_rows.shape[0]
        self._rank_weights = _weights_of(recipe, max(n_tags, recipe.max_trials or 0))
        self._block = block_size(recipe.block, self._tags.size)
        self._part = _part_size(self._block, PART * side.grain)
        self._max_trials, self._margin = _trials_and_margin(recipe, n_tags)
        self._most_trials = self._max_trials if recipe.rank_of_trials else 0
        self._pooled = side.U.size > 0 and recipe.negatives == Negatives.POOL
        self._tabled = side.tabled and recipe.negatives == Negatives.UNTIL_VIOLATION
        self._tabled &= n_tags * TABLE_ROWS <= TABLE_FLOATS
        self._scores = np.empty((self._block, n_tags if recipe.negatives == Negatives.ALL else 0), np.float32)
        self._pool_scores = np.empty((self._block, POOL if self._pooled else 0), np.float32)
        self._use_pool = False
        self._use_table = False
        self._of_thread = threading.local()
        self._violators = np.empty(self._block, np.int64)
        self._trials = np.empty(self._block, np.int64)
        self._gaps = np.empty(self._block, np.float32)
        self._gains = np.empty(self._block, np.float32)
        self._squares = np.ones(n_tags if recipe.step == Step.ADAGRAD else 0, np.float32)
        self._tag_bounds = _even_bounds(own, team.size)
        self._seed = int(rng.integers(2**62))
        self._epoch = 0
        adaptive = recipe.negatives == Negatives.ADAPTIVE
        self._order = np.empty((tag_rows.shape[1] if adaptive else 0, n_tags), np.int64)
        self._sigmas = np.empty(len(self._order))
        self._until_sorted = 0

    def run_epoch(self, rate: float, meet: Callable[[], None] | None = None, n_meetings: int = 1) -> EpochSums:
        """Visit every example once, in an order drawn anew, with steps of the given learning rate.

        `meet` is called between blocks, which it cuts off, `n_meetings` times in all, the last time at the end; it may
        change the weights and what `carried` gives, in place.
        """
        self._side.set_rate(rate)
        self._rule = make_rule(rate, self._recipe.l2, self._recipe.max_norm)
        order = self._rng.permutation(self._tags.size)
        sums = np.zeros(3)
        for until_meeting in np.array_split(order, n_meetings):
            for start in range(0, until_meeting.size, self._block):
                if self._order.size and self._until_sorted <= 0:
                    self._sort_tags()
                examples = until_meeting[start : start + self._block]
                sums += self._run_block(examples)
                self._until_sorted -= examples.size
            if meet is not None:
                meet()
        self._epoch += 1
        n = max(1, order.size)
        self._use_pool = self._pooled and sums[1] >= POOL_FROM * n
        self._use_table = self._tabled and sums[1] >= TABLE_FROM * len(self._W) * n
        return EpochSums(*(float(value) / n for value in sums))

    def carried(self) -> dict[str, NDArray[Any]]:
        """Return what training on other rows shall go on with: sums of squares, and how many draws were needed."""
        ways = np.array([self._use_pool, self._use_table])
        return {"tag_squares": self._squares, "image_squares": self._side.squares, "ways": ways}

    def go_on(self, carried: dict[str, NDArray[Any]]) -> None:
        """Take over what a training before gave as `carried`; nothing, if there was none."""
        if carried:
            np.copyto(self._squares, carried["tag_squares"])
            np.copyto(self._side.squares, carried["image_squares"])
            self._use_pool, self._use_table = (bool(way) for way in carried["ways"])
            self._use_pool &= self._pooled
            self._use_table &= self._tabled

    def _run_block(self, examples: Ints) -> NDArray[np.float64]:
        images, tags = self._images[examples], self._tags[examples]
        n = examples.size
        at = self._side.take(images)
        all_tags = self._recipe.negatives == Negatives.ALL

        def draw(number: int) -> tuple[float, int, int]:
            part = slice(number * self._part, min(n, (number + 1) * self._part))
            self._side.embed(part)
            found: tuple[float, int, int]
            found = (self._weigh_all if all_tags else self._draw)(part, examples, images, tags, at)
            return found

        def step(share: int) -> None:
            if share < self._side.n_shares:
                self._side.move(share, self._violators[:n])
                return
            share -= self._side.n_shares
            if all_tags:
                self._move_all(share, n)
                return
            add_tag_steps(
                tags, self._violators[:n], self._gains[:n], self._side.rows, at, self._rule, self._squares,
                self._tag_bounds[share], self._tag_bounds[share + 1], self._W,
            )  # fmt: skip

        sums: NDArray[np.float64] = np.sum(self._team.run(draw, -(-n // self._part)), axis=0)
        n_tag_shares = -(-len(self._W) // TAG_SHARE) if all_tags else self._team.size
        self._team.run(step, self._side.n_shares + n_tag_shares)
        return sums

    def _draw(self, part: slice, examples: Ints, images: Ints, tags: Ints, at: Ints) -> tuple[float, int, int]:
        """Draw and weigh the other tags of one part."""
        pool = self._draw_pool(int(examples[part.start])) if self._use_pool else np.empty(0, np.int64)
        size = max(TABLE_ROWS, TABLE_FLOATS // len(self._W)) if self._use_table else part.stop - part.start
        for start in range(part.start, part.stop, size):
            self._draw_some(slice(start, min(start + size, part.stop)), examples, images, tags, at, pool)
        W, violators, trials, gaps = self._W, self._violators[part], self._trials[part], self._gaps[part]
        images, tags = images[part], tags[part]
        found: tuple[float, int, int] = weigh_pairs(
            tags, images, self._own_start, self._rank_weights, self._most_trials, int(self._recipe.loss),
            self._side.rate, W, violators, trials, gaps, self._gains[part], self._side.steps[part],
        )  # fmt: skip
        return found

    def _draw_some(self, some: slice, examples: Ints, images: Ints, tags: Ints, at: Ints, pool: Ints) -> None:
        """Draw the other tags of some pairs, from scores that a product made where that pays."""
        U, W = self._side.U, self._W
        violators, trials, gaps = self._violators[some], self._trials[some], self._gaps[some]
        examples, images, tags = examples[some], images[some], tags[some]
        if self._order.size:
            draw_adaptive(
                examples, images, tags, self._own_start, self._own_tags, U[some], W, self._order, self._sigmas,
                self._recipe.rank_scale * len(W), REDRAWS, self._seed, self._epoch, violators, trials, gaps,
            )  # fmt: skip
            return
        if self._use_table:
            draw_counted(
                examples, images, tags, self._own_start, self._own_tags, np.matmul(U[some], W.T, out=self._table(some)),
                self._margin, self._max_trials, self._seed, self._epoch, violators, trials, gaps,
            )  # fmt: skip
            return
        pool_scores = self._pool_scores[some, : pool.size]
        if pool_scores.size:
            np.matmul(U[some], W[pool].T, out=pool_scores)
        draw_violators(
            examples, images, tags, self._own_start, self._own_tags, self._side.rows, at[some], W, pool, pool_scores,
            self._margin, self._max_trials, self._seed, self._epoch, violators, trials, gaps,
        )  # fmt: skip

    def _table(self, some: slice) -> Floats:
        """Return room for the scores of all tags for some pairs: the same again to the same thread."""
        n, n_tags = some.stop - some.start, len(self._W)
        held: Floats | None = getattr(self._of_thread, "table", None)
        if held is None or held.size < n * n_tags:
            held = self._of_thread.table = np.empty(n * n_tags, np.float32)
        return held[: n * n_tags].reshape(n, n_tags)

    def _weigh_all(self, part: slice, examples: Ints, images: Ints, tags: Ints, at: Ints) -> tuple[float, int, int]:
        """Score all tags of one part, and weigh those that violate."""
        scores = self._scores[part]
        np.matmul(self._side.U[part], self._W.T, out=scores)
        found: tuple[float, int, int] = weigh_all(
            tags[part], images[part], self._own_start, self._own_tags, self._rank_weights,
            scores, self._violators[part], self._trials[part],
        )  # fmt: skip
        steps = self._side.steps[part]
        if steps.shape[1]:
            np.matmul(scores, self._W[:, : steps.shape[1]], out=steps)
            steps *= np.float32(self._side.rate)
        return found

    def _move_all(self, share: int, n: int) -> None:
        """Move one share of the tags by all factors of the block."""
        own = slice(share * TAG_SHARE, (share + 1) * TAG_SHARE)
        factors, U = self._scores[:n, own], self._side.U[:n]
        change = factors.T @ U
        change *= np.float32(self._rule.rate)
        gradients = counts = self._squares[:0]
        if self._squares.size:
            gradients = np.square(factors).T @ (np.einsum("pc,pc->p", U, U) / np.float32(U.shape[1]))
        if self._rule.keep < 1:
            counts = np.count_nonzero(factors, axis=0).astype(np.float32)
        move_rows(self._W[own], change, gradients, counts, self._squares[own], self._rule)

    def _draw_pool(self, example: int) -> Ints:
        pool = np.empty(POOL, np.int64)
        draw_many(self._seed, self._epoch, example + self._tags.size, len(self._W), pool)
        return pool

    def _sort_tags(self) -> None:
        dim = len(self._order)
        bounds = np.linspace(0, dim, min(dim, 8) + 1).astype(int)
        self._team.run(
            lambda i: sort_tags(self._W, bounds[i], bounds[i + 1], self._order, self._sigmas), len(bounds) - 1
        )
        n_tags = len(self._W)
        self._until_sorted = max(1, math.ceil(n_tags * math.log(n_tags)))


def block_for(n_pairs: int, n_tags: int) -> int:
    """Choose how many pairs share one state of the weights, of so many in an epoch."""
    return max(min(max(n_tags, SMALLEST_BLOCK), LARGEST_TAG_BLOCK), min(n_pairs // BLOCKS_AN_EPOCH, LARGEST_BLOCK))


def block_size(block: int, n_pairs: int) -> int:
    """Return the pairs of a block: no more than there are."""
    return min(block, max(1, n_pairs))


def _part_size(block: int, least: int) -> int:
    """Cut a block into parts of at least so many pairs, if it can be into a number that most teams can share out."""
    n_parts = min(PARTS, max(1, block // least))
    if n_parts > 2:
        n_parts -= n_parts % (4 if n_parts > 4 else 2)
    return -(-block // n_parts)


def _weights_of(recipe: Recipe, n_ranks: int) -> Floats:
    """Return L of each rank; where one tag is drawn, no rank is estimated, and every pair weighs 1."""
    if recipe.negatives in (Negatives.UNIFORM, Negatives.ADAPTIVE):
        return np.ones(n_ranks + 1, np.float32)
    return rank_weights(recipe.weight, n_ranks, recipe.truncate)


def _trials_and_margin(recipe: Recipe, n_tags: int) -> tuple[int, float]:
    if recipe.negatives == Negatives.UNIFORM:
        return 1, 1.0 if recipe.loss == Loss.HINGE else math.inf
    return recipe.max_trials or n_tags, 1.0


def _even_bounds(own: sp.csr_array, n_shares: int) -> Ints:
    """Split the tags into ranges that take about as many steps: half of them follow the tags' frequency."""
    n_tags = own.shape[1]
    load = np.cumsum(np.bincount(own.indices, minlength=n_tags) + own.nnz / n_tags)
    inner = np.searchsorted(load, load[-1] * np.arange(1, n_shares) / n_shares)
    return np.concatenate([[0], inner, [n_tags]]).astype(np.int64)
