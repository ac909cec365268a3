"""Algorithm 1 of WSABIE, in blocks of pairs that see the same weights: draw in parallel, then move in parallel.

Its loops are in `visterm.kernels.warp`; how the other tag of a pair is found, in `visterm.models.ranking.negatives`;
the image's side, in `visterm.models.ranking.image_sides`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.threads import Team
from visterm.kernels.pair_batch import PairBatch, PositiveTags, RankLoss
from visterm.kernels.row_moves import make_rule
from visterm.kernels.warp import add_tag_steps, weigh_pairs
from visterm.models.epochs import EpochSums, Floats
from visterm.models.ranking.image_sides import ImageSide, Ints, even_bounds
from visterm.models.ranking.negatives import negatives_for
from visterm.models.ranking.recipe import Negatives, Recipe, Step, rank_weights

PART = 64
"""Pairs that one thread scores at a time, at least: from the block alone, so that BLAS gives the same bytes always."""

PARTS = 16  # Parts that a block falls into, at most
SMALLEST_BLOCK = 16
LARGEST_TAG_BLOCK = 256
LARGEST_BLOCK = 4096

BLOCKS_AN_EPOCH = 64
"""Where there are many pairs, a block is this share of them: larger blocks still lose nothing that one can see."""


class PairTraining:
    """The state of one training: pairs, weights and scratch. `run_epoch` visits each pair once.

    The pairs are all of an image and a tag that it has: the ones of `positives`, (n_images, n_tags), with sorted
    columns; tags that are stored as zeros are in no pair, and aren't drawn either. `side` is made for blocks of
    ``recipe.block`` (or as many pairs as there are); `tag_rows`, (n_tags, width), are changed in place; `rng` draws the
    order of the pairs and the key of the draws. The bytes of the weights depend on the data, the generator, the recipe
    and the rates, and not on the team's size. `growth` is a factor of the recipe's `max_norm`, which may change from
    epoch to epoch.
    """

    growth: float = 1.0

    def __init__(
        self,
        side: ImageSide,
        positives: sp.csr_array,
        tag_rows: Floats,
        recipe: Recipe,
        *,
        rng: np.random.Generator,
        team: Team,
    ) -> None:
        self._side, self._W, self._recipe, self._rng, self._team = side, tag_rows, recipe, rng, team
        self._positives = PositiveTags(positives.indptr.astype(np.int64), positives.indices)
        own = positives.data > 0
        self._images = np.repeat(np.arange(positives.shape[0]), np.diff(positives.indptr))[own]
        self._tags = positives.indices[own].astype(np.int64)
        self._seed, self._epoch = int(rng.integers(2**62)), 0
        self._block = block_size(recipe.block, self._tags.size)
        self._part = _part_size(self._block, PART * side.grain)
        self._negatives = negatives_for(recipe, side, self._positives, tag_rows, self._seed, self._block, team)
        n_tags = len(tag_rows)
        n_ranks = max(n_tags, recipe.max_trials or 0)
        if recipe.negatives in (Negatives.UNIFORM, Negatives.ADAPTIVE):  # one draw estimates no rank
            weights = np.ones(n_ranks + 1, np.float32)
        else:
            weights = rank_weights(recipe.weight, n_ranks, recipe.truncate)
        most_trials = (recipe.max_trials or n_tags) if recipe.rank_of_trials else 0
        self._rank_loss = RankLoss(int(recipe.loss), weights, most_trials)
        self._squares = np.ones(n_tags if recipe.step == Step.ADAGRAD else 0, np.float32)
        # half of a tag's steps follow its frequency
        loads = np.bincount(self._tags, minlength=n_tags) + self._tags.size / n_tags
        self._tag_bounds = even_bounds(loads, team.size)
        self._n_tag_shares = team.size
        self._violators, self._trials = np.empty((2, self._block), np.int64)
        self._gaps, self._gains = np.empty((2, self._block), np.float32)

    def run_epoch(self, rate: float) -> EpochSums:
        """Visit every pair once, in an order drawn anew, with steps of the given learning rate."""
        self._side.growth = self.growth
        self._side.set_rate(rate)
        self._rule = make_rule(rate, self._recipe.l2, self._recipe.max_norm * self.growth)
        self._negatives.begin_epoch(self._epoch)
        self._shares = in_turn(self._side.n_shares, self._n_tag_shares)
        order = self._rng.permutation(self._tags.size)
        sums = np.zeros(3)
        blocks = [order[start : start + self._block] for start in range(0, order.size, self._block)]
        # The weights are those before the block, so only the order of sums changes. Pairs of an image then share
        # its row in the cache, and a thread finds the steps of the rows that it moves after.
        self._team.run(lambda number: blocks[number].sort(), len(blocks))
        for examples in blocks:
            sums += self._run_block(examples)
        self._epoch += 1
        n = max(1, order.size)
        self._negatives.end_epoch(sums[1], n)
        return EpochSums(*(float(value) / n for value in sums))

    def _run_block(self, examples: Ints) -> NDArray[np.float64]:
        """Take the steps of a block: first all other tags are drawn, against the same weights, then all rows move.

        Returns the sums of the costs and of the draws, and how many pairs made a step.
        """
        n, images = examples.size, self._images[examples]
        at = self._side.take(images)
        pairs = PairBatch(
            examples, images, self._tags[examples], at,
            self._violators[:n], self._trials[:n], self._gaps[:n], self._gains[:n],
        )  # fmt: skip
        self._negatives.begin_block(pairs)

        found = self._team.run(partial(self._find_steps, pairs), -(-n // self._part))
        self._team.run(lambda number: self._move(pairs, self._shares[number]), len(self._shares))
        sums: NDArray[np.float64] = np.sum(found, axis=0)
        return sums

    def _find_steps(self, pairs: PairBatch, part: int) -> tuple[float, int, int]:
        """Embed a part of the pairs, draw their other tags, and weigh the steps by the ranks that the draws tell."""
        first, last = part * self._part, min(pairs.tags.size, (part + 1) * self._part)
        self._side.embed(slice(first, last))
        self._negatives.draw(pairs, first, last)
        positives, rank_loss = tuple(self._positives), tuple(self._rank_loss)
        found: tuple[float, int, int] = weigh_pairs(
            tuple(pairs), first, last, positives, rank_loss, self._side.rate, self._W, self._side.steps
        )
        return found

    def _move(self, pairs: PairBatch, share: int) -> None:
        """Move one share of the features, or after these of the tags, and keep the norms."""
        if share < self._side.n_shares:
            self._side.move(share, pairs.violators)
            return
        first, last = self._tag_bounds[share - self._side.n_shares :][:2]
        add_tag_steps(tuple(pairs), self._side.rows, self._rule, self._squares, first, last, self._W)

    def carried(self) -> dict[str, NDArray[Any]]:
        """Return what training on other rows goes on with: sums of squares, and how the last draws were made."""
        ways = np.array(self._negatives.ways)
        return {"tag_squares": self._squares, "image_squares": self._side.squares, "ways": ways}

    def go_on(self, carried: dict[str, NDArray[Any]]) -> None:
        """Take over what a training before left in `carried`; nothing, if there was none."""
        if carried:
            np.copyto(self._squares, carried["tag_squares"])
            np.copyto(self._side.squares, carried["image_squares"])
            self._negatives.go_on([bool(way) for way in carried["ways"]])


def in_turn(n_first: int, n_second: int) -> list[int]:
    """Return the numbers of two kinds of shares, the second from `n_first` on, so that either half has half of each."""
    places = [(share + 0.5) / n for n in (n_first, n_second) for share in range(n)]
    return sorted(range(len(places)), key=places.__getitem__)


def block_for(n_pairs: int, n_tags: int) -> int:
    """Choose how many of the pairs of an epoch share one state of the weights."""
    return max(min(max(n_tags, SMALLEST_BLOCK), LARGEST_TAG_BLOCK), min(n_pairs // BLOCKS_AN_EPOCH, LARGEST_BLOCK))


def block_size(block: int, n_pairs: int) -> int:
    """Return the pairs of a block: no more than there are."""
    return min(block, max(1, n_pairs))


def _part_size(block: int, least: int) -> int:
    """Cut a block into parts of at least `least` pairs, if possible into a number that most teams can share out."""
    n_parts = min(PARTS, max(1, block // least))
    if n_parts > 2:
        n_parts -= n_parts % (4 if n_parts > 4 else 2)
    return -(-block // n_parts)
