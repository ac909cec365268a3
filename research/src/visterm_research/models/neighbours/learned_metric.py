"""The metric of 2PKNN: weights of feature blocks and of features that put right neighbours before wrong ones.

For a training image, the nearest images of each of its tags are its right neighbours, and those of all other tags its
wrong neighbours: together they are the neighbourhood that votes. Right neighbours are pulled nearer, and wrong
neighbours are pushed away until they are farther than each right one by a margin; the push is stronger for neighbours
with fewer of the image's tags (Verma, Jawahar 2012, after the large-margin metric of Weinberger and Saul).
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

N_ROUNDS = 6  # In each round, the weights of blocks are learned, then those of features
MAX_WRONG = 100  # Maximum number of wrong neighbours of an image that are drawn at a time
RATES = (0.001, 0.0005)  # Learning rates of blocks and features in the first round, later divided by the root of rounds
PUSH = 100.0
"""μ of the paper: the weight of wrong neighbours within the margin, compared with the distance of a right one. With 10,
blocks with small distances got the largest weights on Corel5k, whether they helped or not."""
BATCH_IMAGES = 10  # Number of images per step


class Metric(NamedTuple):
    """A weighted distance: the mean of ``v_b d_b`` over the blocks, where each feature has a weight in ``d_b``."""

    v: Doubles  # shape (n_blocks,), 0 or more, with mean 1
    w: Doubles  # shape (n_features,), 0 or more

    def factors(self, slices: Sequence[slice], names: Sequence[str]) -> Floats:
        """Return factors of features, with which distances without weights are the distances with the weights w."""
        feature_factors = self.w.copy()
        for block, name in zip(slices, names, strict=True):
            if name == "l2":
                feature_factors[block] = np.sqrt(feature_factors[block])
        return feature_factors.astype(np.float32)

    def normalised(self, slices: Sequence[slice], names: Sequence[str]) -> Metric:
        """Return the same metric in another unit: v has mean 1, and so has w in each block."""
        v, w = self.v.copy(), self.w.copy()
        for b, (block, name) in enumerate(zip(slices, names, strict=True)):
            mean = w[block].mean()
            w[block] = w[block] / mean if mean > 0 else 1.0
            v[b] *= np.sqrt(mean) if name == "l2" else mean
        return Metric(v / v.mean() if v.any() else np.ones_like(v), w)


class Blocks(NamedTuple):
    """Feature blocks, the names of their distances, and the divisors of these distances."""

    slices: Sequence[slice]
    names: Sequence[str]
    scales: Doubles

    def refuse_overlaps(self) -> None:
        """Raise UserError if blocks share columns, because a feature has only one weight."""
        for first_block, next_block in pairwise(sorted(self.slices, key=lambda block: block.start)):
            if next_block.start < first_block.stop:
                raise UserError(
                    f"The blocks {(first_block.start, first_block.stop)} and {(next_block.start, next_block.stop)} "
                    "overlap, and a learned metric has one weight for each feature. Pass blocks that do not overlap or "
                    "metric='equal'."
                )


class Neighbourhood(NamedTuple):
    """The training images that vote for the tags of one training image."""

    image: int
    ids: Ids  # shape (n,)
    right: NDArray[np.bool_]  # shape (n,): whether it is a nearest image of one of the image's tags
    wrong: Doubles  # shape (n,): the share of the image's tags that a wrong neighbour does not have; 0 for right ones
    distances: Floats  # shape (n,)


class Neighbourhoods:
    """Finds the `k` nearest images of each tag for training images; `given` are the tags, (n_images, n_tags)."""

    def __init__(self, given: sp.csr_array, k: int) -> None:
        self._given, self._k = given, min(k, given.shape[0])
        self._members = sp.csr_array(given.T)
        self._members.sort_indices()

    def of(self, image: int, distances: Floats) -> Neighbourhood:
        """Return the neighbourhood of an image from its distances to all training images, float32 (n_images,)."""
        image_tags = self._given.indices[self._given.indptr[image] : self._given.indptr[image + 1]]
        ids = self._nearest_of_tags(image, distances, self._members)
        right = np.isin(ids, self._nearest_of_tags(image, distances, sp.csr_array(self._members[image_tags])))
        shared = np.asarray(self._given[ids][:, image_tags].sum(axis=1), np.float64).ravel()
        return Neighbourhood(
            image, ids, right, np.where(right, 0.0, 1 - shared / max(image_tags.size, 1)), distances[ids]
        )

    def _nearest_of_tags(self, image: int, distances: Floats, members: sp.csr_array) -> Ids:
        neighbours, is_listed = np.empty(distances.size, np.int64), np.zeros(distances.size, np.uint8)
        n = semantic_neighbours(distances, image, members.indptr, members.indices, self._k, is_listed, neighbours)
        return neighbours[:n].copy()


def learn_metric(
    rows: Matrix,
    blocks: Blocks,
    find: Callable[[Metric], Sequence[Neighbourhood]],
    judge: Callable[[Metric], float],
    rng: np.random.Generator,
    *,
    features: bool,
) -> Metric:
    """Learn the weights of blocks and, with `features`, those of features, alternately, by stochastic subgradients.

    Each round uses the neighbourhoods by the current metric. Returns the metric with the best value of `judge`, among
    equal weights and the metrics after each learning step.

    Parameters
    ----------
    rows : array or CSR of float32, shape (n_images, n_features)
        Training features, without factors.
    blocks : Blocks
        Blocks that don't overlap.
    find : callable
        Returns the neighbourhoods of randomly drawn training images by a metric.
    judge : callable
        Measures how well a metric ranks the tags of images that `find` doesn't return; higher is better.
    rng : Generator
        Draws wrong neighbours.
    features : bool
    """
    n_blocks = len(blocks.slices)
    metric = Metric(np.ones(n_blocks), np.ones(rows.shape[1]))
    best_metric, best_value = metric, judge(metric)
    margin = 0.0
    for number in range(N_ROUNDS):
        neighbourhoods = find(metric.normalised(blocks.slices, blocks.names))
        margin = margin or float(np.mean([near.distances.std() for near in neighbourhoods])) or 1.0
        training = MetricTraining(rows, blocks._replace(scales=blocks.scales * n_blocks * margin), neighbourhoods, rng)
        for of_features in [False] * (n_blocks > 1) + [True] * features:
            metric = training.learn(metric, RATES[of_features] / np.sqrt(number + 1), of_features=of_features)
            candidate = metric.normalised(blocks.slices, blocks.names)
            if (value := judge(candidate)) > best_value:
                best_metric, best_value = candidate, value
    return best_metric


class MetricTraining(NamedTuple):
    """Training on neighbourhoods, each used once; distances are divided so that the margin is 1."""

    rows: Matrix
    blocks: Blocks
    neighbourhoods: Sequence[Neighbourhood]
    rng: np.random.Generator

    def learn(self, metric: Metric, rate: float, *, of_features: bool) -> Metric:
        """Return the metric after a gradient step for each batch of images; weights are clipped at 0."""
        v, w = metric.v.copy(), metric.w.copy()
        rates = np.zeros_like(w)
        for block in self.blocks.slices:
            rates[block] = rate * (block.stop - block.start)  # so that a weight's steps don't shrink with the width
        order = self.rng.permutation(len(self.neighbourhoods))
        for start in range(0, order.size, BATCH_IMAGES):
            batch = order[start : start + BATCH_IMAGES]
            slopes = np.zeros_like(v), np.zeros_like(w)
            for number in batch:
                self._add_slopes(self.neighbourhoods[number], v, w, slopes)
            if of_features:
                w = np.maximum(w - rates * slopes[1] / batch.size, 0)
            else:
                moved_weights = np.maximum(v - rate * v.size * slopes[0] / batch.size, 0)
                v = moved_weights / moved_weights.mean() if moved_weights.any() else v
        return Metric(v, w)

    def _add_slopes(
        self, neighbourhood: Neighbourhood, v: Doubles, w: Doubles, slopes: tuple[Doubles, Doubles]
    ) -> None:
        """Add the slopes of one image, with up to `MAX_WRONG` of its wrong neighbours."""
        right, wrong = np.flatnonzero(neighbourhood.right), np.flatnonzero(neighbourhood.wrong > 0)
        wrong = np.sort(self.rng.permutation(wrong)[:MAX_WRONG])
        if right.size == 0 or wrong.size == 0:
            return
        indices = np.concatenate([right, wrong])
        blocks = self.blocks
        metric_slopes(
            _dense(self.rows[[neighbourhood.image]])[0], _dense(self.rows[neighbourhood.ids[indices]]),
            neighbourhood.right[indices], neighbourhood.wrong[indices] / wrong.size, PUSH,
            np.array([KINDS[name] for name in blocks.names]),
            np.array([[block.start, block.stop] for block in blocks.slices]), blocks.scales, v, w, *slopes,
        )  # fmt: skip


def _dense(rows: Any) -> Floats:
    return np.ascontiguousarray(rows.toarray() if sp.issparse(rows) else rows, np.float32)
