"""The metric of 2PKNN: weights of feature blocks and of features that put right neighbours before wrong ones.

For a training image, the nearest images of each of its own tags are its right neighbours, those of all other tags its
wrong ones: together they are the neighbourhood that votes. Right ones are pulled near, and wrong ones pushed behind
each of them by a margin, the harder the fewer of the image's tags they have (Verma, Jawahar 2012, after
the large-margin metric of Weinberger and Saul).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import UserError
from visterm.core.types import Matrix
from visterm_research.kernels.metric_slopes import CHI2, COSINE, L1, L2, metric_slopes
from visterm_research.kernels.neighbour_votes import semantic_neighbours

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ids = NDArray[np.int64]

KINDS = {"l1": L1, "l2": L2, "chi2": CHI2, "cosine": COSINE}

ROUNDS = 6  # In each, the weights of blocks are learned, then those of features
MOST_WRONG = 100  # Wrong neighbours of an image that are drawn at a time
RATES = (0.001, 0.0005)  # Of blocks and of features in the first round; they shrink with the root of the rounds
PUSH = 100.0
"""μ of the paper: what wrong neighbours within the margin count beside the distance of a right one. At 10, blocks whose
distances are all small won on Corel5k, whether they helped or not."""
BATCH = 10  # Images between two steps


class Metric(NamedTuple):
    """A weighted distance: the mean of ``v_b d_b`` over the blocks, where each feature has a weight in ``d_b``."""

    v: Doubles  # shape (n_blocks,), none below 0, of mean 1
    w: Doubles  # shape (n_features,), none below 0

    def factors(self, slices: Sequence[slice], names: Sequence[str]) -> Floats:
        """Return what each feature is multiplied by so that plain distances are those with the weights w."""
        found = self.w.copy()
        for block, name in zip(slices, names, strict=True):
            if name == "l2":
                found[block] = np.sqrt(found[block])
        return found.astype(np.float32)

    def normalised(self, slices: Sequence[slice], names: Sequence[str]) -> Metric:
        """Return the same metric, but for its unit: the weights have mean 1, w in each block."""
        v, w = self.v.copy(), self.w.copy()
        for b, (block, name) in enumerate(zip(slices, names, strict=True)):
            mean = w[block].mean()
            w[block] = w[block] / mean if mean > 0 else 1.0
            v[b] *= np.sqrt(mean) if name == "l2" else mean
        return Metric(v / v.mean() if v.any() else np.ones_like(v), w)


class Blocks(NamedTuple):
    """Feature blocks, how they are compared, and by what their distances are divided."""

    slices: Sequence[slice]
    names: Sequence[str]
    scales: Doubles

    def refuse_overlaps(self) -> None:
        """Refuse blocks that share columns: a feature has one weight."""
        for before, after in pairwise(sorted(self.slices, key=lambda block: block.start)):
            if after.start < before.stop:
                raise UserError(
                    f"The blocks {(before.start, before.stop)} and {(after.start, after.stop)} overlap, and a learned "
                    "metric has one weight for each feature. Pass blocks that do not overlap, or metric='equal'."
                )


class Neighbourhood(NamedTuple):
    """The training images that vote for the tags of one of them."""

    image: int
    ids: Ids  # shape (n,)
    right: NDArray[np.bool_]  # shape (n,): found for a tag that the image has
    wrong: Doubles  # shape (n,): the share of the image's tags that a wrong neighbour lacks; 0 for right ones
    distances: Floats  # shape (n,)


class Neighbourhoods:
    """Finds the `k` nearest images of each tag for training images; `given` are the tags, (n_images, n_tags)."""

    def __init__(self, given: sp.csr_array, k: int) -> None:
        self._given, self._k = given, min(k, given.shape[0])
        self._members = sp.csr_array(given.T)
        self._members.sort_indices()

    def of(self, image: int, distances: Floats) -> Neighbourhood:
        """Return the neighbourhood of an image by its distances to all, float32 (n_images,)."""
        own = self._given.indices[self._given.indptr[image] : self._given.indptr[image + 1]]
        ids = self._found(image, distances, self._members)
        right = np.isin(ids, self._found(image, distances, sp.csr_array(self._members[own])))
        shared = np.asarray(self._given[ids][:, own].sum(axis=1), np.float64).ravel()
        return Neighbourhood(image, ids, right, np.where(right, 0.0, 1 - shared / max(own.size, 1)), distances[ids])

    def _found(self, image: int, distances: Floats, members: sp.csr_array) -> Ids:
        found, chosen = np.empty(distances.size, np.int64), np.zeros(distances.size, np.uint8)
        n = semantic_neighbours(distances, image, members.indptr, members.indices, self._k, chosen, found)
        return found[:n].copy()


def learn_metric(
    rows: Matrix,
    blocks: Blocks,
    find: Callable[[Metric], Sequence[Neighbourhood]],
    judge: Callable[[Metric], float],
    rng: np.random.Generator,
    *,
    features: bool,
) -> Metric:
    """Learn the weights of blocks and, with `features`, those of features, in turns, by stochastic subgradients.

    Each round takes the neighbourhoods that the metric makes then. The metric returned is the one that `judge` likes
    best, of those after each turn and of equal weights.

    Parameters
    ----------
    rows : array or CSR of float32, shape (n_images, n_features)
        Training features as they came.
    blocks : Blocks
        Which don't overlap.
    find : callable
        Returns neighbourhoods of training images by a metric, drawn anew in each call.
    judge : callable
        Says how well a metric ranks the tags of images that `find` doesn't return; more is better.
    rng : Generator
        Draws wrong neighbours.
    features : bool
    """
    n_blocks = len(blocks.slices)
    metric = Metric(np.ones(n_blocks), np.ones(rows.shape[1]))
    best, reached = metric, judge(metric)
    margin = 0.0
    for number in range(ROUNDS):
        found = find(metric.normalised(blocks.slices, blocks.names))
        margin = margin or float(np.mean([near.distances.std() for near in found])) or 1.0
        lesson = Lesson(rows, blocks._replace(scales=blocks.scales * n_blocks * margin), found, rng)
        for of_features in [False] * (n_blocks > 1) + [True] * features:
            metric = lesson.learn(metric, RATES[of_features] / np.sqrt(number + 1), of_features=of_features)
            candidate = metric.normalised(blocks.slices, blocks.names)
            if (now := judge(candidate)) > reached:
                best, reached = candidate, now
    return best


class Lesson(NamedTuple):
    """Neighbourhoods to learn from, once each; distances are divided so that the margin is 1."""

    rows: Matrix
    blocks: Blocks
    found: Sequence[Neighbourhood]
    rng: np.random.Generator

    def learn(self, metric: Metric, rate: float, *, of_features: bool) -> Metric:
        """Return the metric after a step down the slopes of the loss for each few images; no weight is below 0."""
        v, w = metric.v.copy(), metric.w.copy()
        rates = np.zeros_like(w)
        for block in self.blocks.slices:
            rates[block] = rate * (block.stop - block.start)  # so that a weight's steps don't shrink with the width
        order = self.rng.permutation(len(self.found))
        for start in range(0, order.size, BATCH):
            batch = order[start : start + BATCH]
            slopes = np.zeros_like(v), np.zeros_like(w)
            for number in batch:
                self._add_slopes(self.found[number], v, w, slopes)
            if of_features:
                w = np.maximum(w - rates * slopes[1] / batch.size, 0)
            else:
                stepped = np.maximum(v - rate * v.size * slopes[0] / batch.size, 0)
                v = stepped / stepped.mean() if stepped.any() else v
        return Metric(v, w)

    def _add_slopes(self, near: Neighbourhood, v: Doubles, w: Doubles, slopes: tuple[Doubles, Doubles]) -> None:
        """Add the slopes of one image, with a few of its wrong neighbours."""
        right, wrong = np.flatnonzero(near.right), np.flatnonzero(near.wrong > 0)
        wrong = np.sort(self.rng.permutation(wrong)[:MOST_WRONG])
        if right.size == 0 or wrong.size == 0:
            return
        chosen = np.concatenate([right, wrong])
        blocks = self.blocks
        metric_slopes(
            _dense(self.rows[[near.image]])[0], _dense(self.rows[near.ids[chosen]]), near.right[chosen],
            near.wrong[chosen] / wrong.size, PUSH, np.array([KINDS[name] for name in blocks.names]),
            np.array([[block.start, block.stop] for block in blocks.slices]), blocks.scales, v, w, *slopes,
        )  # fmt: skip


def _dense(rows: Any) -> Floats:
    return np.ascontiguousarray(rows.toarray() if sp.issparse(rows) else rows, np.float32)
