"""What a pair costs, and how its other tag is found: drawn until one violates (WARP), or where scores are high."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from visterm.core.threads import Team
from visterm.kernels.draws import SortedTags, draw_adaptive, draw_geometric, sort_tags
from visterm.kernels.random import draw_many
from visterm.kernels.warp import Draws, PairBatch, Pool, PositiveTags, draw_violators
from visterm.models.epochs import Floats
from visterm.models.ranking.image_sides import EmbeddedImages

TABLE_FLOATS = 2**20  # Scores that one matrix product makes, of all tags for a few pairs: they stay in the third cache
TABLE_ROWS = 32  # Pairs that such a product needs to run at BLAS speed: with too many tags for that, there is none
TABLE_FROM = 0.2  # Mean draws a pair in the epoch before, as a share of the tags, from which on all scores at once pay
POOL = 256  # Tags of a pool: one matrix product scores them for a whole part
POOL_FROM = 8  # Mean draws a pair in the epoch before from which on a pool pays
REDRAWS = 100  # Draws of tags that the image has after which an adaptive draw becomes a uniform one


class UniformDraws:
    """Draws uniformly until a tag violates the margin, up to a number of draws.

    By the same law the tags come one by one, from pools that many pairs share, or from all scores at once: whichever
    pays, by how many draws the epoch before needed. A block has at most `block` pairs.
    """

    tabled = True  # Whether all scores of a few pairs may be made by one product

    def __init__(
        self,
        objective: Objective,
        side: EmbeddedImages,
        positives: PositiveTags,
        tag_rows: Floats,
        *,
        seed: int,
        block: int,
        team: Team,
    ) -> None:
        self._side, self._positives, self._V, self._seed, self._team = side, positives, tag_rows, seed, team
        self._max_trials, self._margin, self._pooled = objective.max_trials, objective.margin, objective.pooled
        self._tabled = self.tabled and not self._pooled and len(tag_rows) * TABLE_ROWS <= TABLE_FLOATS
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
        by_table = self._tabled and n_draws >= TABLE_FROM * len(self._V) * n_pairs
        self.ways = (bool(by_pool), bool(by_table))

    def load_ways(self, ways: Sequence[bool]) -> None:
        """Draw as a training before did, where this one can."""
        self.ways = (ways[0] and self._pooled, ways[1] and self._tabled)

    def draw(self, pairs: PairBatch, first: int, last: int) -> None:
        """Draw for the pairs first .. last-1, a part of their block."""
        by_pool, by_table = self.ways
        block, positives, draws = tuple(pairs), tuple(self._positives), tuple(self._draws)
        if by_table:
            size = max(TABLE_ROWS, TABLE_FLOATS // len(self._V))
            for start in range(first, last, size):
                stop = min(start + size, last)
                scores = np.matmul(self._side.U[start:stop], self._V.T, out=self._table(stop - start))
                draw_geometric(block, start, stop, positives, scores, draws)
            return
        pool = self._no_pool
        if by_pool:
            pool = Pool(np.empty(POOL, np.int64), self._pool_scores)
            key = int(pairs.examples[first]) + self._positives.tags.size
            draw_many(self._seed, self._draws.epoch, key, len(self._V), pool.tags)
            np.matmul(self._side.U[first:last], self._V[pool.tags].T, out=pool.scores[first:last])
        draw_violators(block, first, last, positives, self._side.rows, self._V, tuple(pool), draws)

    def _table(self, n: int) -> Floats:
        """Return room for the scores of all tags for n pairs: the same again to the same thread."""
        n_tags = len(self._V)
        table: Floats | None = getattr(self._of_thread, "table", None)
        if table is None or table.size < n * n_tags:
            table = self._of_thread.table = np.empty(n * n_tags, np.float32)
        return table[: n * n_tags].reshape(n, n_tags)


class AdaptiveDraws(UniformDraws):
    """Draws one tag a pair that probably scores high, from one sorted list of tags a dimension (VSE-ens).

    Ranks are drawn by `rank_scale`, λ as a share of the tags. The lists are renewed every ``n_tags · log(n_tags)``
    pairs.
    """

    tabled = False

    def __init__(
        self,
        objective: Objective,
        side: EmbeddedImages,
        positives: PositiveTags,
        tag_rows: Floats,
        *,
        rank_scale: float,
        **given: Any,
    ) -> None:
        super().__init__(objective._replace(max_trials=REDRAWS, margin=math.inf), side, positives, tag_rows, **given)
        n_tags, dim = tag_rows.shape
        self._lists = SortedTags(np.empty((dim, n_tags), np.int64), np.empty(dim), rank_scale * n_tags)
        self._until_sorted = 0

    def begin_block(self, pairs: PairBatch) -> None:
        """Sort the tags anew if it is time to, before these pairs."""
        if self._until_sorted <= 0:
            n_tags, dim = self._V.shape
            bounds = np.linspace(0, dim, min(dim, 8) + 1).astype(int)
            self._team.run(lambda i: sort_tags(self._V, bounds[i], bounds[i + 1], self._lists), len(bounds) - 1)
            self._until_sorted = max(1, math.ceil(n_tags * math.log(n_tags)))
        self._until_sorted -= pairs.tags.size

    def draw(self, pairs: PairBatch, first: int, last: int) -> None:
        """Draw for the pairs first .. last-1."""
        block, positives, lists = tuple(pairs), tuple(self._positives), tuple(self._lists)
        draw_adaptive(block, first, last, positives, self._side.U, self._V, lists, tuple(self._draws))


class Objective(NamedTuple):
    """What a pair (image x, true tag y) costs, and how its other tag ȳ is drawn."""

    rank_weights: Floats  # L(k), what a true tag on rank k costs, as far as draws can tell ranks; see `rank_weights`
    max_trials: int  # Draws for a pair, at most
    margin: float = 1.0  # A tag violates where ``f_ȳ(x) > f_y(x) - margin``; infinite takes the first draw
    most_trials: int = 0  # γ, where the rank after N draws is estimated as floor(γ / N); 0: as floor(candidates / N)
    pooled: bool = False  # Whether draws may come from pools that many pairs share
    negatives: Callable[..., UniformDraws] = UniformDraws  # What draws: made as `UniformDraws` is


def rank_weights(weight: str, n: int, truncate: int = 10) -> Floats:
    """Return L(0) .. L(n), what a true tag on rank k costs (WSABIE, Eq. 5), float32, shape (n + 1,).

    "harmonic": 1 + 1/2 + ... + 1/k, which makes the first places count most. "constant": k / n, the mean rank. "top": 1
    from rank 1 on, the share of images with a wrong tag on top. "truncated": as harmonic, but nothing more after rank
    `truncate`.
    """
    ranks = np.arange(1, n + 1)
    terms = {
        "harmonic": 1.0 / ranks,
        "constant": np.full(n, 1.0 / n),
        "top": (ranks == 1).astype(float),
        "truncated": np.where(ranks <= truncate, 1.0 / ranks, 0.0),
    }
    return np.concatenate([[0.0], np.cumsum(terms[weight])]).astype(np.float32)
