"""JEC: tags are transferred from the nearest images, by the sum of equally scaled distances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import check_count
from visterm.core.learned import Array, Csr, Kind
from visterm.core.products import column_means
from visterm.core.types import Matrix
from visterm.models import Ids, weighted_votes
from visterm_research.models.neighbours.near_images import DistanceAnnotator, Floats, nearest

UNSEEN_TOGETHER = 1e-3
"""Number of images for two tags that never occur together, so that their local frequency still ranks them."""


@dataclass(kw_only=True, eq=False, repr=False)
class Jec(DistanceAnnotator):
    """Joint equal contribution: first the tags of the nearest image, then those of the other neighbours.

    The distance of two images is the mean of their distances in the feature blocks, each divided by its largest value
    in training. Tags are transferred as in the paper (section 3.3): first those of the nearest image, by their
    frequency in training; then those of the other neighbours, by the product of their frequency among these neighbours
    and the number of training images that they share with tags of the nearest image.

    Scores are between 1 and 2 for tags of the nearest image and between 0 and 1 for the others, times ``1 / (1 + d)``,
    where d is the distance of the nearest image: this doesn't change an image's ranking of tags, and a search ranks
    images near to a training image first.

    Parameters
    ----------
    n_neighbors : int
        K of the paper. With more, more tags besides those of the nearest image have scores.
    blocks, distances, n_jobs, random_state
        As in `DistanceAnnotator`.

    Attributes
    ----------
    rows_, given_, scales_
        As in `DistanceAnnotator`.
    frequency_ : ndarray of float32, shape (n_tags,)
        Share of the training images with each tag.
    together_ : csr_array of float32, shape (n_tags, n_tags)
        Number of training images with both tags.

    References
    ----------
    Makadia, Pavlovic, Kumar: A new baseline for image annotation. ECCV 2008.
    """

    learned: ClassVar[dict[str, Kind]] = {
        "frequency_": Array("float32", ("n_tags_",), least=0, most=1),
        "together_": Csr("float32", ("n_tags_", "n_tags_"), least=0, canonical=False),
    }

    test_params: ClassVar[dict[str, Any]] = {}

    distances: str | Sequence[str] = "l1"
    n_neighbors: int = 5

    def _fit(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator) -> None:
        super()._fit(X, Y, rng)
        self.frequency_ = column_means(self.given_).astype(np.float32)
        self.together_ = sp.csr_array(self.given_.T @ self.given_)

    def _check_settings(self) -> None:
        super()._check_settings()
        check_count(self.n_neighbors, "n_neighbors")

    def _image_rows(self, X: Matrix) -> Matrix:
        def transfer(_: slice, D: Floats) -> sp.csr_array:
            return self._transfer(*nearest(D.mean(axis=0), self.n_neighbors))

        return sp.csr_array(sp.vstack(self._near_parts(X, transfer), format="csr"), dtype=np.float32)

    def _transfer(self, ids: Ids, distances: Floats) -> sp.csr_array:
        """Score the tags of the neighbours (n, k) of images, nearest first."""
        n, k = ids.shape
        nearest_tags = self.given_[ids[:, 0]]
        nearest_scores = nearest_tags.multiply(1 + self.frequency_ / max(float(self.frequency_.max()), 1e-12))
        other_votes = weighted_votes(ids[:, 1:], np.full((n, k - 1), 1 / max(k - 1, 1), np.float32), self.given_)
        other_votes = other_votes - other_votes.multiply(nearest_tags)
        # The number of images that other tags share with the nearest image's tags, as a share of the maximum
        other_scores = other_votes.multiply(nearest_tags @ self.together_) + UNSEEN_TOGETHER * other_votes
        max_scores = nearest_tags @ self.together_.diagonal() + UNSEEN_TOGETHER
        scores = nearest_scores + sp.csr_array(sp.diags_array(1 / max_scores) @ other_scores)
        confidence: NDArray[Any] = 1 / (1 + distances[:, :1])
        return sp.csr_array(scores.multiply(confidence))
