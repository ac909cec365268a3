"""2PKNN: the nearest images of each tag vote, so that rare tags are not outvoted by frequent ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import check_count, check_number
from visterm.core.errors import DataError, UnknownNameError
from visterm.core.learned import Array, Kind, Number, Whole
from visterm.core.registry import unknown
from visterm.core.types import Matrix
from visterm.metrics import average_precisions
from visterm.models import Ids
from visterm_research.kernels.neighbour_votes import two_pass_votes
from visterm_research.models.neighbours.distances import read_distances
from visterm_research.models.neighbours.learned_metric import (
    Blocks,
    Metric,
    Neighbourhood,
    Neighbourhoods,
    learn_metric,
)
from visterm_research.models.neighbours.near_images import SAMPLE_ROWS, DistanceAnnotator, Floats

NEIGHBORS = (1, 2, 4, 8)
BANDWIDTHS = (5.0, 10.0, 20.0, 40.0, 80.0)

METRICS = ("equal", "blocks", "features")
LEARN_ROWS = 1000  # Maximum number of training images whose neighbourhoods are used to learn a metric in each round
JUDGE_ROWS = 500  # Maximum number of other training images that measure a metric
MIN_JUDGED = 10


@dataclass(kw_only=True, eq=False, repr=False)
class TwoPassKnn(DistanceAnnotator):
    """Two-pass nearest neighbours: first the nearest images of every tag, then a weighted vote of these images.

    The first pass finds the `n_neighbors` nearest images among the images of each tag; together they are the semantic
    neighbours, with the same number of images for rare and frequent tags. In the second pass, each neighbour at
    distance d votes for all its tags with the weight ``exp(-bandwidth · d)``. A tag's score is its share of the votes:
    an estimate of P(tag | image), with which both images for a tag and tags for an image can be ranked. Distances of
    the feature blocks, each divided by its largest value in training, are averaged; a learned metric weights blocks by
    v and features by w, so that blocks and features that separate tags decide which images are near.

    All tags get a vote, so scores are dense.

    Parameters
    ----------
    n_neighbors : int, optional
        K1 of the paper: images of each tag. More is smoother. None: chosen by leaving training images out.
    bandwidth : float, optional
        With more, the nearest neighbours have larger weights; with 0, all have the same. None: chosen.
    metric : {"equal", "blocks", "features"}
        Which weights are learned: none, those of blocks, or those of blocks and features. Learning uses 1,000 drawn
        images and takes many times as long; weights stay equal if the learned ones are not better on 500 other images.
        With fewer than 40 tagged images, nothing is learned.
    blocks, distances, n_jobs, random_state
        As in `DistanceAnnotator`; the drawn images choose the settings, too. A learned metric needs blocks that don't
        overlap; the features of a block with the distance "cosine" have no weights.

    Attributes
    ----------
    n_neighbors_ : int
    bandwidth_ : float
        The used settings. Settings that are None are chosen from 1 to 8 neighbours and bandwidths of 5 to 80: those
        that rank the tags of training images best (MAP over images) when each image is left out.
    block_weights_ : ndarray of float64, shape (n_blocks,)
        v, with mean 1; only with a learned metric.
    feature_factors_ : ndarray of float32, shape (n_features,)
        Factors of the features: w, or its root in blocks with the distance "l2"; only with ``metric="features"``.
    rows_, given_, scales_
        As in `DistanceAnnotator`; the rows are already multiplied by the factors.

    References
    ----------
    Verma, Jawahar: Image annotation using metric learning in semantic neighbourhoods. ECCV 2012.
    """

    learned: ClassVar[dict[str, Kind]] = {
        "n_neighbors_": Whole(least=1),
        "bandwidth_": Number(least=0),
        "block_weights_": Array("float64", ("n_blocks",), least=0, required=False),
        "feature_factors_": Array("float32", ("n_features_in_",), least=0, required=False),
    }

    test_params: ClassVar[dict[str, Any]] = {"metric": "features"}

    n_neighbors: int | None = None
    bandwidth: float | None = None
    metric: str = "equal"

    def _fit(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator) -> None:
        super()._fit(X, Y, rng)
        if self.metric != "equal":
            self._set_metric(X, self._learned_metric(rng))
        self.n_neighbors_, self.bandwidth_ = self._choose(rng)

    def _check_learned(self) -> None:
        super()._check_learned()
        existing = {name for name in ("block_weights_", "feature_factors_") if hasattr(self, name)}
        if existing != set(("block_weights_", "feature_factors_")[: METRICS.index(self.metric)]):
            raise DataError(f"{sorted(existing)} do not match metric={self.metric!r}")

    def _check_settings(self) -> None:
        super()._check_settings()
        check_count(self.n_neighbors, "n_neighbors", "or None to have it chosen")
        check_number(self.bandwidth, "bandwidth", least=0, otherwise="or None to have it chosen")
        if self.metric not in METRICS:
            raise UnknownNameError(unknown("metric", str(self.metric), list(METRICS)))

    def _image_rows(self, X: Matrix) -> Matrix:
        members = self._members()

        def vote(_: slice, D: Floats) -> Floats:
            no_images = np.full(D.shape[1], -1, np.int64)
            return self._votes(self._joint_distances(D), no_images, members, self.n_neighbors_, self.bandwidth_)

        return np.concatenate(self._near_parts(_multiply_features(X, getattr(self, "feature_factors_", None)), vote))

    def _votes(self, D: Floats, left_out: Ids, members: sp.csr_array, n_neighbors: int, bandwidth: float) -> Floats:
        """Return the votes for images, from their distances to all training images; `left_out` is -1 for none."""
        image_tags = self.given_
        votes = np.empty((D.shape[0], image_tags.shape[1]), np.float32)
        max_neighbors = min(n_neighbors, image_tags.shape[0])
        two_pass_votes(
            D,
            left_out,
            members.indptr,
            members.indices,
            image_tags.indptr,
            image_tags.indices,
            max_neighbors,
            float(bandwidth),
            votes,
        )
        return votes

    def _members(self) -> sp.csr_array:
        members = sp.csr_array(self.given_.T)
        members.sort_indices()
        return members

    def _choose(self, rng: np.random.Generator) -> tuple[int, float]:
        """Return the settings; choose settings that are None by leave-one-out on training images."""
        sizes = NEIGHBORS if self.n_neighbors is None else (int(self.n_neighbors),)
        pairs = [(size, bandwidth) for size in sizes for bandwidth in self._bandwidths()]
        rows = self._sample(rng, SAMPLE_ROWS)
        if len(pairs) == 1 or self.given_[rows].nnz == 0:
            return pairs[0]
        return pairs[int(np.argmax(self._map_by_settings(rows, pairs)))]

    def _bandwidths(self) -> tuple[float, ...]:
        return BANDWIDTHS if self.bandwidth is None else (float(self.bandwidth),)

    def _map_by_settings(self, rows: Ids, pairs: list[tuple[int, float]]) -> list[float]:
        """Return MAP over the training images `rows`, each left out, for each pair of settings."""
        members, tags = self._members(), self.given_[rows]

        def judge(part: slice, D: Floats) -> list[NDArray[np.float64]]:
            distances = self._joint_distances(D)
            votes = [self._votes(distances, rows[part], members, *pair) for pair in pairs]
            return [average_precisions(scores, tags[part]) for scores in votes]

        parts = self._near_parts(self.rows_[rows], judge)
        return [float(np.nanmean(np.concatenate(values))) for values in zip(*parts, strict=True)]

    def _joint_distances(self, D: Floats) -> Floats:
        """Return the weighted mean of the distances in all blocks, `D` (n_blocks, n, n_images)."""
        weights = getattr(self, "block_weights_", None)
        if weights is None:
            return np.asarray(D.mean(axis=0))
        return np.asarray(np.tensordot((weights / len(weights)).astype(np.float32), D, axes=1))

    def _learned_metric(self, rng: np.random.Generator) -> Metric:
        """Learn the weights on a part of the training images, and measure them on other training images."""
        X, names = self.rows_, read_distances(self.distances, self._known_blocks())
        blocks = Blocks(self._slices(), names, self.scales_)
        blocks.refuse_overlaps()
        tagged = rng.permutation(np.flatnonzero(np.diff(self.given_.indptr)))
        judge_ids, learn_ids = np.split(tagged, [min(JUDGE_ROWS, tagged.size // 4)])
        if judge_ids.size < MIN_JUDGED:
            return Metric(np.ones(len(names)), np.ones(X.shape[1]))
        judge_ids.sort()
        size = self._choose(rng)[0]
        pairs = [(size, bandwidth) for bandwidth in self._bandwidths()]
        neighbourhoods = Neighbourhoods(self.given_, size)

        def find(metric: Metric) -> list[Neighbourhood]:
            self._set_metric(X, metric)
            sample = np.sort(rng.permutation(learn_ids)[:LEARN_ROWS])

            def neighbourhoods_of_part(part: slice, D: Floats) -> list[Neighbourhood]:
                images = sample[part].tolist()
                return [neighbourhoods.of(*pair) for pair in zip(images, self._joint_distances(D), strict=True)]

            return [
                neighbourhood
                for part in self._near_parts(self.rows_[sample], neighbourhoods_of_part)
                for neighbourhood in part
            ]

        def judge(metric: Metric) -> float:
            self._set_metric(X, metric)
            return max(self._map_by_settings(judge_ids, pairs))

        return learn_metric(X, blocks, find, judge, rng, features=self.metric == "features")

    def _set_metric(self, X: Matrix, metric: Metric) -> None:
        """Set the learned weights, and the rows of the training images `X`, for a metric."""
        self.block_weights_ = metric.v
        if self.metric == "features":
            self.feature_factors_ = metric.factors(self._slices(), read_distances(self.distances, self._known_blocks()))
            self.rows_ = _multiply_features(X, self.feature_factors_)


def _multiply_features(X: Matrix, factors: NDArray[np.float32] | None) -> Matrix:
    """Return rows with each feature times its factor."""
    if factors is None:
        return X
    rows: Any = X
    if not sp.issparse(X):
        return np.asarray(rows * factors, np.float32)
    return sp.csr_array((rows.data * factors[rows.indices], rows.indices, rows.indptr), shape=rows.shape)
