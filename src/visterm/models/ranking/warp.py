"""Algorithm 1 of WSABIE, in blocks of pairs that see the same weights: draw in parallel, then move in parallel.

`plain_block` is the algorithm as plainly as it can be written: `PairTraining` learns the same bytes with the loops of
`visterm.kernels.warp`. How the other tag of a pair is found, in `visterm.models.ranking.negatives`;
the image's side, in `visterm.models.ranking.image_sides`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.threads import Team
from visterm.kernels.dot import dot
from visterm.kernels.random import draw_below, stream_of
from visterm.kernels.row_moves import Rule, limit_norms, make_rule
from visterm.kernels.warp import Draws, PairBatch, PositiveTags, RankLoss, add_tag_steps, weigh_pairs
from visterm.models.epochs import EpochSums, Floats
from visterm.models.ranking.image_sides import EmbeddedImages, Ints, StepSettings, even_bounds
from visterm.models.ranking.negatives import Objective
from visterm.models.ranking.sources import Training, block_size

PART = 64  # Pairs that one thread scores at a time, at least: fixed, so that BLAS gives the same bytes always
PARTS = 16  # Parts that a block falls into, at most


def plain_block(
    pairs: PairBatch, positives: PositiveTags, U: Floats, V: Floats, objective: Objective, draws: Draws, rule: Rule
) -> Floats:
    """Take the steps of Algorithm 1 for a block of pairs (image x, true tag y), one by one, without L2 and AdaGrad.

    `U`, (n, width), are the rows of the pairs' images; the tag rows `V`, (n_tags, width), are changed, and what was
    drawn is filled in. Returns the steps of the image rows, (n, width). It is what the kernels are compared with.
    """
    steps = np.zeros_like(U)
    for p, (image, y) in enumerate(zip(pairs.images, pairs.tags, strict=True)):
        has = positives.tags[positives.start[image] : positives.start[image + 1]]
        others = np.setdiff1d(np.arange(len(V)), has)
        stream = np.uint64(stream_of(draws.seed, draws.epoch, pairs.examples[p]))
        f_y, most = dot(U[p], V[y]), min(len(others), draws.max_trials)
        pairs.violators[p], pairs.trials[p], pairs.gains[p] = -1, most, 0
        for n in range(1, most + 1):
            drawn = others[draw_below(stream, n - 1, len(others))]
            f_drawn = dot(U[p], V[drawn])
            if f_drawn > f_y - np.float32(draws.margin):
                rank = len(others) // n
                pairs.violators[p], pairs.trials[p], pairs.gains[p] = drawn, n, objective.rank_weights[rank]
                pairs.gaps[p] = f_y - f_drawn
                steps[p] = np.float32(rule.rate) * pairs.gains[p] * (V[y] - V[drawn])
                break
    for step in np.flatnonzero(pairs.violators >= 0):
        change = np.float32(rule.rate) * pairs.gains[step] * U[step]
        V[pairs.tags[step]] += change
        V[pairs.violators[step]] -= change
    limit_norms(V, rule.max_norm)
    return steps


class PairTraining(Training):
    """The state of one training: pairs, weights and scratch. `run_epoch` visits each pair once.

    The pairs are all of an image and a tag that it has: the ones of `positives`, (n_images, n_tags), with sorted
    columns; tags that are stored as zeros are in no pair, and aren't drawn either. `side` is made for blocks of
    ``steps.block`` (or as many pairs as there are); `tag_rows`, (n_tags, width), are changed in place; `rng` draws the
    order of the pairs and the key of the draws. The bytes of the weights depend on the data, the generator, the
    objective, the steps and the rates, and not on the team's size. `growth` is a factor of ``steps.max_norm``, which
    may change from epoch to epoch.
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
        self._positives = PositiveTags(positives.indptr.astype(np.int64), positives.indices)
        has = positives.data > 0
        self._images = np.repeat(np.arange(positives.shape[0]), np.diff(positives.indptr))[has]
        self._tags = positives.indices[has].astype(np.int64)
        self._seed, self._epoch = int(rng.integers(2**62)), 0
        self._block = block_size(steps.block, self._tags.size)
        self._part = _part_size(self._block, PART * side.grain)
        self._negatives = objective.negatives(
            objective, side, self._positives, tag_rows, seed=self._seed, block=self._block, team=team
        )
        self._rank_loss = RankLoss(objective.rank_weights, objective.most_trials)
        n_tags = len(tag_rows)
        self._squares = np.ones(n_tags if steps.adagrad else 0, np.float32)
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
        self._rule = make_rule(rate, self._steps.l2, self._steps.max_norm * self.growth)
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

        done = self._team.run(partial(self._find_steps, pairs), -(-n // self._part))
        self._team.run(lambda number: self._move(pairs, self._shares[number]), len(self._shares))
        return np.asarray(np.sum(done, axis=0))

    def _find_steps(self, pairs: PairBatch, part: int) -> tuple[float, int, int]:
        """Embed a part of the pairs, draw their other tags, and weigh the steps by the ranks that the draws tell."""
        first, last = part * self._part, min(pairs.tags.size, (part + 1) * self._part)
        self._side.embed(slice(first, last))
        self._negatives.draw(pairs, first, last)
        return self._weigh(pairs, first, last)

    def _weigh(self, pairs: PairBatch, first: int, last: int) -> tuple[float, int, int]:
        """Turn the violations of the pairs first .. last-1 into steps; return what `weigh_pairs` does."""
        positives, rank_loss = tuple(self._positives), tuple(self._rank_loss)
        sums: tuple[float, int, int] = weigh_pairs(
            tuple(pairs), first, last, positives, rank_loss, self._side.rate, self._V, self._side.steps
        )
        return sums

    def _move(self, pairs: PairBatch, share: int) -> None:
        """Move one share of the features, or after these of the tags, and keep the norms."""
        if share < self._side.n_shares:
            self._side.move(share, pairs.violators)
            return
        first, last = self._tag_bounds[share - self._side.n_shares :][:2]
        add_tag_steps(tuple(pairs), self._side.rows, self._rule, self._squares, first, last, self._V)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return sums of squares, and how the last draws were made."""
        ways = np.array(self._negatives.ways)
        return {"tag_squares": self._squares, "image_squares": self._side.squares, "ways": ways}

    def load_state(self, state: dict[str, NDArray[Any]]) -> None:
        """Take over the `state` that a training before left."""
        if state:
            np.copyto(self._squares, state["tag_squares"])
            np.copyto(self._side.squares, state["image_squares"])
            self._negatives.load_ways([bool(way) for way in state["ways"]])


def in_turn(n_first: int, n_second: int) -> list[int]:
    """Return the numbers of two kinds of shares, the second from `n_first` on, so that either half has half of each."""
    places = [(share + 0.5) / n for n in (n_first, n_second) for share in range(n)]
    return sorted(range(len(places)), key=places.__getitem__)


def _part_size(block: int, least: int) -> int:
    """Cut a block into parts of at least `least` pairs, if possible into a number that most teams can share out."""
    n_parts = min(PARTS, max(1, block // least))
    if n_parts > 2:
        n_parts -= n_parts % (4 if n_parts > 4 else 2)
    return -(-block // n_parts)
