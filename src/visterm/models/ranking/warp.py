"""Algorithm 1 of WSABIE for blocks of pairs: draw in parallel with the same weights, then update in parallel.

`PairTraining` runs the compiled loops of `visterm.kernels.warp`. `Objective` defines the cost of a pair and how its
other tag is drawn: until a tag violates the margin (`UniformDraws`), or among tags with high scores (`AdaptiveDraws`).
`image_sides` updates the image side.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from visterm.core.threads import Team
from visterm.core.types import Arrays, Doubles, Floats, Ints
from visterm.kernels import warp as kernels
from visterm.kernels.random import draw_many
from visterm.kernels.row_moves import make_rule
from visterm.models.epochs import EpochSums
from visterm.models.ranking.image_sides import EmbeddedImages, StepSettings, even_bounds
from visterm.models.ranking.training import Training

MIN_PART_PAIRS = 64  # Minimum number of pairs that a thread scores at a time; constant, for the same bytes from BLAS
MAX_PARTS = 16  # Maximum number of parts of a block

TABLE_FLOATS = 2**20  # Number of scores per matrix product, all tags × a few pairs: they fit in the L3 cache
MIN_TABLE_ROWS = 32  # Minimum number of pairs for the product to be fast; with more tags, there are no tables
MIN_TABLE_DRAWS = 0.2  # Minimum draws per pair in the previous epoch, as a share of the tags, for tables to be faster
POOL_SIZE = 256  # Number of tags in a pool: one matrix product scores them for a whole part
MIN_POOL_DRAWS = 8  # Minimum draws per pair in the previous epoch for pools to be faster
MAX_REDRAWS = 100  # After drawing this many tags that the image has, an adaptive draw becomes a uniform draw


class Objective(NamedTuple):
    """The cost of a pair (image x, true tag y), and how its other tag ȳ is drawn."""

    rank_weights: Floats  # L(k), the cost of a true tag on rank k (the draws estimate k); see `rank_weights`
    max_trials: int  # Maximum number of draws for a pair
    margin: float = 1.0  # A tag violates it if ``f_ȳ(x) > f_y(x) - margin``; with infinity, the first draw does
    rank_numerator: int = 0  # γ: the rank after N draws is estimated as floor(γ / N); 0: as floor(candidates / N)
    use_pools: bool = False  # Whether draws may come from pools that many pairs share
    loss: kernels.Loss = kernels.Loss.HINGE  # The cost of a violation by its gap, before the weight of the rank
    negatives: Callable[..., UniformDraws] | None = None  # Makes the sampler; None: `UniformDraws`


def rank_weights(weight: str, n: int, truncate: int = 10) -> Floats:
    """Return L(0) .. L(n), the costs of a true tag on rank k (WSABIE, Eq. 5), float32, shape (n + 1,).

    "harmonic": 1 + 1/2 + ... + 1/k; the first ranks count most. "constant": k / n, the mean rank. "top": 1 if k > 0,
    the share of images with a wrong tag on top. "truncated": like harmonic, but constant above rank `truncate`.

    """
    ranks = np.arange(1, n + 1)
    terms = {
        "harmonic": 1.0 / ranks,
        "constant": np.full(n, 1.0 / n),
        "top": (ranks == 1).astype(float),
        "truncated": np.where(ranks <= truncate, 1.0 / ranks, 0.0),
    }
    return np.concatenate([[0.0], np.cumsum(terms[weight])]).astype(np.float32)


class PairTraining(Training):
    """The state of one training: pairs, weights and temporary arrays. `run_epoch` visits each pair once.

    There is a pair for each image and each of its tags: the ones of `positives`, (n_images, n_tags), with sorted
    columns. Other values above 0 are weights: each epoch draws as many pairs, in proportion to them. Tags that are
    stored as zeros are not in a pair, and are not drawn. `side` is made for blocks of
    ``steps.block`` pairs (or of all pairs, if there are fewer). `tag_rows`, (n_tags, width), are changed in place.
    `rng` draws the order of the pairs and the seed of the draws. The bytes of the weights depend on the data, the
    generator, the objective, the steps and the rates, but not on the team's size. `growth` multiplies
    ``steps.max_norm``, and may change from epoch to epoch.
    """

    def __init__(
        self,
        side: EmbeddedImages,
        positives: sp.csr_array,
        tag_rows: Floats,
        objective: Objective,
        steps: StepSettings,
        *,
        rng: np.random.Generator,
        team: Team,
    ) -> None:
        self._side, self._V, self._steps, self._rng, self._team = side, tag_rows, steps, rng, team
        self._positives = kernels.PositiveTags(positives.indptr.astype(np.int64), positives.indices)
        is_pair = positives.data > 0
        self._images = np.repeat(np.arange(positives.shape[0]), np.diff(positives.indptr))[is_pair]
        self._tags = positives.indices[is_pair].astype(np.int64)
        weights = positives.data[is_pair]
        self._cumulated = np.cumsum(weights, dtype=np.float64) if (weights != 1).any() else None
        self._seed, self._epoch = int(rng.integers(2**62)), 0
        self._block = min(steps.block, max(1, self._tags.size))

        n_parts = min(MAX_PARTS, max(1, self._block // (MIN_PART_PAIRS * side.grain)))
        if n_parts > 2:  # numbers that most teams can divide evenly
            n_parts -= n_parts % (4 if n_parts > 4 else 2)
        self._part_size = -(-self._block // n_parts)

        self._negatives = (objective.negatives or UniformDraws)(
            objective, side, self._positives, tag_rows, seed=self._seed, block=self._block, team=team
        )
        self._rank_loss = kernels.RankLoss(objective.rank_weights, objective.rank_numerator, int(objective.loss))
        n_tags = len(tag_rows)
        self._squares = np.ones(n_tags if steps.adagrad else 0, np.float32)
        # half of a tag's load is proportional to its frequency
        loads = np.bincount(self._tags, minlength=n_tags) + self._tags.size / n_tags
        self._tag_bounds = even_bounds(loads, team.size)
        self._n_tag_shares = team.size
        self._violators, self._trials = np.empty((2, self._block), np.int64)
        self._gaps, self._gains = np.empty((2, self._block), np.float32)

    def run_epoch(self, rate: float) -> EpochSums:
        """Visit each pair once, or pairs drawn by weight, in a new random order, with the given learning rate."""
        self._side.set_rate(rate, self.growth)
        self._rule = make_rule(rate, self._steps.l2, self._steps.max_norm * self.growth)
        self._shares = interleave(self._side.n_shares, self._n_tag_shares)
        order = self._rng.permutation(self._tags.size)
        if self._cumulated is not None:
            drawn = self._rng.random(order.size) * self._cumulated[-1]
            order = np.minimum(np.searchsorted(self._cumulated, drawn, side="right"), order.size - 1)
        sums = np.zeros(3)
        blocks = [order[start : start + self._block] for start in range(0, order.size, self._block)]
        # Sorting changes only the order of sums, as all pairs of a block use the same weights. Pairs of an image then
        # share its row in the cache, and a thread finds the steps of its rows next to each other.
        self._team.run(lambda number: blocks[number].sort(), len(blocks))
        for examples in blocks:
            sums += self._run_block(examples)

        self._epoch += 1
        n = max(1, order.size)
        self._negatives.end_epoch(sums[1], n)
        return EpochSums(*(float(value) / n for value in sums))

    def _run_block(self, examples: Ints) -> Doubles:
        """Process a block: first draw the other tags of all pairs, with the same weights, then update all rows.

        Returns the sum of the costs, the number of draws, and the number of pairs with a step.
        """
        n, images = examples.size, self._images[examples]
        pairs = kernels.PairBatch(
            examples, images, self._tags[examples], self._side.take(images),
            self._violators[:n], self._trials[:n], self._gaps[:n], self._gains[:n],
        )  # fmt: skip
        self._negatives.begin_block(pairs, self._epoch)
        sums = self._team.run(partial(self._find_steps, pairs), -(-n // self._part_size))
        self._team.run(partial(self._move, pairs), len(self._shares))
        return np.asarray(np.sum(sums, axis=0))

    def _find_steps(self, pairs: kernels.PairBatch, part: int) -> tuple[float, int, int]:
        """Embed a part of the pairs, draw their other tags, and weight the steps by the estimated ranks."""
        start, stop = part * self._part_size, min(pairs.tags.size, (part + 1) * self._part_size)
        self._side.embed(slice(start, stop))
        self._negatives.draw(pairs, start, stop)
        sums: tuple[float, int, int] = kernels.weigh_pairs(
            tuple(pairs), start, stop, tuple(self._positives), tuple(self._rank_loss), self._side.rate, self._V,
            self._side.steps,
        )  # fmt: skip
        return sums

    def _move(self, pairs: kernels.PairBatch, position: int) -> None:
        """Update one share of the features or tags, and limit the norms."""
        share = self._shares[position]
        if share < self._side.n_shares:
            self._side.move(share, pairs.violators)
            return
        start, stop = self._tag_bounds[share - self._side.n_shares :][:2]
        kernels.add_tag_steps(tuple(pairs), self._side.rows, self._rule, self._squares, start, stop, self._V)

    def state(self) -> Arrays:
        """Return the sums of squared gradients, and flags of the current methods of drawing."""
        methods = np.array(self._negatives.methods)
        return {"tag_squares": self._squares, "image_squares": self._side.squares, "ways": methods}

    def load_state(self, state: Arrays) -> None:
        """Continue from the `state` of an earlier training."""
        np.copyto(self._squares, state["tag_squares"])
        np.copyto(self._side.squares, state["image_squares"])
        self._negatives.load_methods([bool(method) for method in state["ways"]])


def interleave(n_first: int, n_second: int) -> list[int]:
    """Return 0 .. n_first + n_second - 1, with the first `n_first` numbers spread evenly among the others."""
    positions = [(share + 0.5) / n for n in (n_first, n_second) for share in range(n)]
    return sorted(range(len(positions)), key=positions.__getitem__)


class UniformDraws:
    """Draws uniformly until a tag violates the margin, up to a maximum number of draws.

    There are three methods with the same distribution: one tag at a time, pools of tags that many pairs share, or a
    table of all scores. The number of draws in the previous epoch chooses one. A block has up to `block` pairs.
    """

    use_tables = True  # Whether one product may compute all scores of a few pairs

    def __init__(
        self,
        objective: Objective,
        side: EmbeddedImages,
        positives: kernels.PositiveTags,
        tag_rows: Floats,
        *,
        seed: int,
        block: int,
        team: Team,
    ) -> None:
        self._side, self._positives, self._V, self._seed, self._team = side, positives, tag_rows, seed, team
        self._max_trials, self._margin, self._use_pools = objective.max_trials, objective.margin, objective.use_pools
        self._use_tables = self.use_tables and not self._use_pools and len(tag_rows) * MIN_TABLE_ROWS <= TABLE_FLOATS
        self.methods = (False, False)
        self._no_pool = kernels.Pool(np.empty(0, np.int64), np.empty((block, 0), np.float32))
        self._pool_scores = np.empty((block, POOL_SIZE if self._use_pools else 0), np.float32)
        self._thread_data = threading.local()

    def begin_block(self, pairs: kernels.PairBatch, epoch: int) -> None:
        """Prepare the draws for a block; `epoch` is a part of their seed."""
        self._draws = kernels.Draws(self._margin, self._max_trials, self._seed, epoch)

    def end_epoch(self, n_draws: float, n_pairs: int) -> None:
        """Choose the method of the next epoch by the number of draws in this epoch."""
        by_pool = self._use_pools and n_draws >= MIN_POOL_DRAWS * n_pairs
        by_table = self._use_tables and n_draws >= MIN_TABLE_DRAWS * len(self._V) * n_pairs
        self.methods = (bool(by_pool), bool(by_table))

    def load_methods(self, methods: Sequence[bool]) -> None:
        """Use the methods of an earlier training, if this training allows them."""
        self.methods = (methods[0] and self._use_pools, methods[1] and self._use_tables)

    def draw(self, pairs: kernels.PairBatch, first_pair: int, stop_pair: int) -> None:
        """Draw tags for the pairs `first_pair` .. `stop_pair` - 1, a part of their block."""
        by_pool, by_table = self.methods
        block, positives, draws = tuple(pairs), tuple(self._positives), tuple(self._draws)
        if by_table:
            chunk_size = max(MIN_TABLE_ROWS, TABLE_FLOATS // len(self._V))
            for start in range(first_pair, stop_pair, chunk_size):
                stop = min(start + chunk_size, stop_pair)
                scores = np.matmul(self._side.U[start:stop], self._V.T, out=self._table(stop - start))
                kernels.draw_geometric(block, start, stop, positives, scores, draws)
            return

        pool = self._no_pool
        if by_pool:
            pool = kernels.Pool(np.empty(POOL_SIZE, np.int64), self._pool_scores)
            key = int(pairs.examples[first_pair]) + self._positives.tags.size
            draw_many(self._seed, self._draws.epoch, key, len(self._V), pool.tags)
            np.matmul(self._side.U[first_pair:stop_pair], self._V[pool.tags].T, out=pool.scores[first_pair:stop_pair])
        kernels.draw_violators(block, first_pair, stop_pair, positives, self._side.rows, self._V, tuple(pool), draws)

    def _table(self, n: int) -> Floats:
        """Return an array for the scores of all tags for n pairs; each thread reuses its own array."""
        n_tags = len(self._V)
        table: Floats | None = getattr(self._thread_data, "table", None)
        if table is None or table.size < n * n_tags:
            table = self._thread_data.table = np.empty(n * n_tags, np.float32)
        return table[: n * n_tags].reshape(n, n_tags)


class AdaptiveDraws(UniformDraws):
    """Draws one tag per pair that probably has a high score, from a sorted list of tags per dimension (VSE-ens).

    `rank_scale` is the scale λ of the drawn ranks, as a share of the tags. The lists are sorted again every
    ``n_tags · log(n_tags)`` pairs.
    """

    use_tables = False

    def __init__(
        self,
        objective: Objective,
        side: EmbeddedImages,
        positives: kernels.PositiveTags,
        tag_rows: Floats,
        *,
        rank_scale: float,
        **settings: Any,
    ) -> None:
        objective = objective._replace(max_trials=MAX_REDRAWS, margin=math.inf)
        super().__init__(objective, side, positives, tag_rows, **settings)
        n_tags, dim = tag_rows.shape
        self._sorted_tags = kernels.SortedTags(np.empty((dim, n_tags), np.int64), np.empty(dim), rank_scale * n_tags)
        self._pairs_until_sort = 0

    def begin_block(self, pairs: kernels.PairBatch, epoch: int) -> None:
        """Prepare the draws for a block, and sort the tags again if enough pairs were drawn since the last time."""
        super().begin_block(pairs, epoch)
        if self._pairs_until_sort <= 0:
            n_tags, dim = self._V.shape
            bounds = np.linspace(0, dim, min(dim, 8) + 1).astype(int)
            self._team.run(
                lambda i: kernels.sort_tags(self._V, bounds[i], bounds[i + 1], self._sorted_tags), len(bounds) - 1
            )
            self._pairs_until_sort = max(1, math.ceil(n_tags * math.log(n_tags)))
        self._pairs_until_sort -= pairs.tags.size

    def draw(self, pairs: kernels.PairBatch, start: int, stop: int) -> None:
        """Draw tags for the pairs `start` .. `stop` - 1."""
        block, positives, lists = tuple(pairs), tuple(self._positives), tuple(self._sorted_tags)
        kernels.draw_adaptive(block, start, stop, positives, self._side.U, self._V, lists, tuple(self._draws))
