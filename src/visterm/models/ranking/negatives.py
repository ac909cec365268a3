"""How the other tag of a pair is found: drawn until one violates (WARP), or drawn where scores are high (VSE-ens)."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence

import numpy as np

from visterm.core.threads import Team
from visterm.kernels.adaptive import SortedTags, draw_adaptive, sort_tags
from visterm.kernels.geometric_draws import draw_geometric
from visterm.kernels.pair_batch import Draws, Loss, PairBatch, Pool, PositiveTags
from visterm.kernels.random import draw_many
from visterm.kernels.violator_marks import draw_marked, mark_violators, score_own_tags
from visterm.kernels.warp import draw_violators
from visterm.models.epochs import Floats
from visterm.models.ranking.image_sides import ImageSide
from visterm.models.ranking.recipe import Negatives, Recipe

TABLE_FLOATS = 2**20  # Scores that one matrix product makes, of all tags for a few pairs: they stay in the third cache
TABLE_ROWS = 32
"""Pairs that such a product needs to run at BLAS speed: with more tags than that leaves room for, there is none."""

TABLE_FROM = 0.2  # Mean draws a pair in the epoch before, as a share of the tags, from which on all scores at once pay
MARKS = 2**26  # Pairs of a block times tags, at most, one byte each: with more of them, each tag is scored when drawn
MARKS_FROM = 0.05  # Mean draws a pair in the epoch before, as a share of the tags, from which on marks pay
MARK_TAGS = 256  # Tags that a thread marks at a time
POOL = 256  # Tags of a pool: one matrix product scores them for a whole part
POOL_FROM = 8  # Mean draws a pair in the epoch before from which on a pool pays
REDRAWS = 100  # Draws of tags that the image has after which an adaptive draw becomes a uniform one


class UniformDraws:
    """Draws uniformly until a tag violates the margin, up to a number of draws.

    By the same law the tags come one by one, from pools that many pairs share, or from all scores at once: whichever
    pays, by how many draws the epoch before needed. A block has at most `block` pairs.
    """

    def __init__(
        self, recipe: Recipe, side: ImageSide, positives: PositiveTags, tag_rows: Floats, seed: int, block: int
    ) -> None:
        self._side, self._positives, self._W, self._seed = side, positives, tag_rows, seed
        self._max_trials, self._margin = recipe.max_trials or len(tag_rows), 1.0
        if recipe.negatives == Negatives.UNIFORM:
            self._max_trials, self._margin = 1, 1.0 if recipe.loss == Loss.HINGE else math.inf
        self._pooled = side.U.size > 0 and recipe.negatives == Negatives.POOL
        self._tabled = side.tabled and recipe.negatives == Negatives.UNTIL_VIOLATION
        self._tabled &= len(tag_rows) * TABLE_ROWS <= TABLE_FLOATS
        self.ways = (False, False)
        self._no_pool = Pool(np.empty(0, np.int64), np.empty((block, 0), np.float32))
        self._pool_scores = np.empty((block, POOL if self._pooled else 0), np.float32)
        self._of_thread = threading.local()

    def begin_epoch(self, epoch: int) -> None:
        """Key the draws by the epoch."""
        self._draws = Draws(self._margin, self._max_trials, self._seed, epoch)

    def begin_block(self, pairs: PairBatch) -> None:
        """Prepare nothing."""

    def end_epoch(self, n_draws: float, n_pairs: int) -> None:
        """Choose the way of the next epoch, by the draws that this one needed."""
        by_pool = self._pooled and n_draws >= POOL_FROM * n_pairs
        by_table = self._tabled and n_draws >= TABLE_FROM * len(self._W) * n_pairs
        self.ways = (bool(by_pool), bool(by_table))

    def go_on(self, ways: Sequence[bool]) -> None:
        """Draw as a training before did, where this one can."""
        self.ways = (ways[0] and self._pooled, ways[1] and self._tabled)

    def draw(self, pairs: PairBatch, first: int, last: int) -> None:
        """Draw for the pairs first .. last-1, a part of their block."""
        by_pool, by_table = self.ways
        block, positives, draws = tuple(pairs), tuple(self._positives), tuple(self._draws)
        if by_table:
            size = max(TABLE_ROWS, TABLE_FLOATS // len(self._W))
            for start in range(first, last, size):
                stop = min(start + size, last)
                scores = np.matmul(self._side.U[start:stop], self._W.T, out=self._table(stop - start))
                draw_geometric(block, start, stop, positives, scores, draws)
            return
        pool = self._no_pool
        if by_pool:
            pool = Pool(np.empty(POOL, np.int64), self._pool_scores)
            key = int(pairs.examples[first]) + self._positives.tags.size
            draw_many(self._seed, self._draws.epoch, key, len(self._W), pool.tags)
            np.matmul(self._side.U[first:last], self._W[pool.tags].T, out=pool.scores[first:last])
        draw_violators(block, first, last, positives, self._side.rows, self._W, tuple(pool), draws)

    def _table(self, n: int) -> Floats:
        """Return room for the scores of all tags for n pairs: the same again to the same thread."""
        n_tags = len(self._W)
        held: Floats | None = getattr(self._of_thread, "table", None)
        if held is None or held.size < n * n_tags:
            held = self._of_thread.table = np.empty(n * n_tags, np.float32)
        return held[: n * n_tags].reshape(n, n_tags)


class MarkedDraws(UniformDraws):
    """The same draws for sparse rows of a linear scorer: if pairs need many, first the tags that violate are marked.

    Parameters are those of `UniformDraws`, and the team.
    """

    def __init__(
        self,
        recipe: Recipe,
        side: ImageSide,
        positives: PositiveTags,
        tag_rows: Floats,
        seed: int,
        block: int,
        team: Team,
    ) -> None:
        super().__init__(recipe, side, positives, tag_rows, seed, block)
        self._team, self._marks = team, np.empty((block, len(tag_rows)), np.bool_)

    def begin_block(self, pairs: PairBatch) -> None:
        """Mark the tags that violate, if these draws are by marks."""
        if not self.ways[1]:
            return
        block, n_tags = tuple(pairs), len(self._W)
        score_own_tags(block, self._side.rows, self._W)

        def mark(share: int) -> None:
            first, last = share * MARK_TAGS, min(n_tags, (share + 1) * MARK_TAGS)
            mark_violators(block, self._margin, self._side.rows, first, last, self._W, self._marks)

        self._team.run(mark, -(-n_tags // MARK_TAGS))

    def end_epoch(self, n_draws: float, n_pairs: int) -> None:
        """Choose the way of the next epoch, by the draws that this one needed."""
        self.ways = (False, bool(n_draws >= MARKS_FROM * len(self._W) * n_pairs))

    def go_on(self, ways: Sequence[bool]) -> None:
        """Draw as a training before did."""
        self.ways = (False, ways[1])

    def draw(self, pairs: PairBatch, first: int, last: int) -> None:
        """Draw for the pairs first .. last-1."""
        if not self.ways[1]:
            super().draw(pairs, first, last)
            return
        block, positives, draws = tuple(pairs), tuple(self._positives), tuple(self._draws)
        draw_marked(block, first, last, positives, self._side.rows, self._W, self._marks, draws)


class AdaptiveDraws:
    """Draws one tag a pair that probably scores high, from one sorted list of tags a dimension (VSE-ens).

    The lists are renewed every ``n_tags · log(n_tags)`` pairs. Parameters are those of `UniformDraws`, and the team.
    """

    ways = (False, False)

    def __init__(
        self, recipe: Recipe, side: ImageSide, positives: PositiveTags, tag_rows: Floats, seed: int, team: Team
    ) -> None:
        self._side, self._positives, self._W, self._seed, self._team = side, positives, tag_rows, seed, team
        n_tags, dim = tag_rows.shape
        self._lists = SortedTags(np.empty((dim, n_tags), np.int64), np.empty(dim), recipe.rank_scale * n_tags)
        self._until_sorted = 0

    def begin_epoch(self, epoch: int) -> None:
        """Key the draws by the epoch."""
        self._draws = Draws(math.inf, REDRAWS, self._seed, epoch)

    def begin_block(self, pairs: PairBatch) -> None:
        """Sort the tags anew if it is time to, before these pairs."""
        if self._until_sorted <= 0:
            n_tags, dim = self._W.shape
            bounds = np.linspace(0, dim, min(dim, 8) + 1).astype(int)
            self._team.run(lambda i: sort_tags(self._W, bounds[i], bounds[i + 1], self._lists), len(bounds) - 1)
            self._until_sorted = max(1, math.ceil(n_tags * math.log(n_tags)))
        self._until_sorted -= pairs.tags.size

    def end_epoch(self, n_draws: float, n_pairs: int) -> None:
        """Go on as before."""

    def go_on(self, ways: Sequence[bool]) -> None:
        """Go on as before: there is one way."""

    def draw(self, pairs: PairBatch, first: int, last: int) -> None:
        """Draw for the pairs first .. last-1."""
        block, positives, lists = tuple(pairs), tuple(self._positives), tuple(self._lists)
        draw_adaptive(block, first, last, positives, self._side.U, self._W, lists, tuple(self._draws))


def negatives_for(
    recipe: Recipe, side: ImageSide, positives: PositiveTags, tag_rows: Floats, seed: int, block: int, team: Team
) -> UniformDraws | AdaptiveDraws:
    """Return the draws that a recipe asks for."""
    if recipe.negatives == Negatives.ADAPTIVE:
        return AdaptiveDraws(recipe, side, positives, tag_rows, seed, team)
    if side.marked and recipe.negatives == Negatives.UNTIL_VIOLATION and block * len(tag_rows) <= MARKS:
        return MarkedDraws(recipe, side, positives, tag_rows, seed, block, team)
    return UniformDraws(recipe, side, positives, tag_rows, seed, block)
