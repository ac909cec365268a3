"""2PKNN: the nearest images of each tag vote, so that rare tags are not outvoted by frequent ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import check_count, check_number
from visterm.core.learned import Kind, Number, Whole
from visterm.core.types import Matrix
from visterm.kernels.neighbour_votes import two_pass_votes
from visterm.metrics.ranking import average_precisions
from visterm.models.neighbours.knn import Ids
from visterm.models.neighbours.near_images import SAMPLE_ROWS, DistanceAnnotator, Floats

NEIGHBORS = (1, 2, 4, 8)
BANDWIDTHS = (5.0, 10.0, 20.0, 40.0, 80.0)


@dataclass(kw_only=True, eq=False, repr=False)
class TwoPassKnn(DistanceAnnotator):
    """Two-pass nearest neighbours: first the nearest images of every tag, then a weighted vote of all those.

    In the first pass the `n_neighbors` images nearest to the image are found within the images of each tag; together
    they are its semantic neighbours, among which a rare tag has as many images as a frequent one. In the second pass
    each neighbour at distance d votes for all its tags with the weight ``exp(-bandwidth · d)``. A tag's score is its
    share of the votes: an estimate of P(tag | image), which compares images for a tag as well as tags for an image.
    Distances of the feature blocks, each divided by its largest value in training, are averaged.

    All tags get a vote, so that scores are dense.

    Parameters
    ----------
    n_neighbors : int, optional
        K1 of the paper: images of each tag. More is smoother. None: chosen by leaving training images out.
    bandwidth : float, optional
        How much more the nearest weigh; 0 gives all the same vote. None: chosen.
    blocks, distances, n_jobs, random_state
        As in `DistanceAnnotator`; the images drawn choose the settings, too.

    Attributes
    ----------
    n_neighbors_ : int
    bandwidth_ : float
        The settings that were used. Those not given are the ones that rank the tags of training images best (MAP over
        images) when each image is left out, among 1 to 8 neighbours and bandwidths of 5 to 80.
    rows_, given_, scales_
        As in `DistanceAnnotator`.

    References
    ----------
    Verma, Jawahar: Image annotation using metric learning in semantic neighbourhoods. ECCV 2012; sections 3.1, 3.2.
    """

    learned: ClassVar[dict[str, Kind]] = {"n_neighbors_": Whole(least=1), "bandwidth_": Number(least=0)}

    test_params: ClassVar[dict[str, Any]] = {}

    n_neighbors: int | None = None
    bandwidth: float | None = None

    def _fit(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator) -> None:
        super()._fit(X, Y, rng)
        self.n_neighbors_, self.bandwidth_ = self._choose(rng)

    def _check_settings(self) -> None:
        super()._check_settings()
        check_count(self.n_neighbors, "n_neighbors", "or None to have it chosen")
        check_number(self.bandwidth, "bandwidth", least=0, otherwise="or None to have it chosen")

    def _image_rows(self, X: Matrix) -> Matrix:
        members = self._members()

        def vote(_: slice, D: Floats) -> Floats:
            none = np.full(D.shape[1], -1, np.int64)
            return self._votes(D.mean(axis=0), none, members, self.n_neighbors_, self.bandwidth_)

        return np.concatenate(self._near_parts(X, vote))

    def _votes(self, D: Floats, left_out: Ids, members: sp.csr_array, n_neighbors: int, bandwidth: float) -> Floats:
        """Return the votes for images by their distances to all training images; -1: none of these is left out."""
        given = self.given_
        votes = np.empty((D.shape[0], given.shape[1]), np.float32)
        most = min(n_neighbors, given.shape[0])
        two_pass_votes(
            D, left_out, members.indptr, members.indices, given.indptr, given.indices, most, float(bandwidth), votes
        )
        return votes

    def _members(self) -> sp.csr_array:
        members = sp.csr_array(self.given_.T)
        members.sort_indices()
        return members

    def _choose(self, rng: np.random.Generator) -> tuple[int, float]:
        """Return the settings; those that are None by leaving each of some training images out."""
        sizes = NEIGHBORS if self.n_neighbors is None else (int(self.n_neighbors),)
        bandwidths = BANDWIDTHS if self.bandwidth is None else (float(self.bandwidth),)
        pairs = [(size, bandwidth) for size in sizes for bandwidth in bandwidths]
        rows = self._sample(rng, SAMPLE_ROWS)
        tags = self.given_[rows]
        if len(pairs) == 1 or tags.nnz == 0:
            return pairs[0]
        members = self._members()

        def judge(part: slice, D: Floats) -> list[NDArray[np.float64]]:
            mean = D.mean(axis=0)
            found = [self._votes(mean, rows[part], members, *pair) for pair in pairs]
            return [average_precisions(scores, tags[part]) for scores in found]

        parts = self._near_parts(self.rows_[rows], judge)
        reached = [float(np.nanmean(np.concatenate(of_pair))) for of_pair in zip(*parts, strict=True)]
        return pairs[int(np.argmax(reached))]
