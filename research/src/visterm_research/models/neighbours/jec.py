"""JEC: tags go over from the nearest images, by the sum of equally scaled distances."""

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
"""Stands for no image with both tags, so that their local frequency still ranks the tags that never co-occur."""


@dataclass(kw_only=True, eq=False, repr=False)
class Jec(DistanceAnnotator):
    """Joint equal contribution: the nearest image gives its tags first, its neighbours fill up.

    The distance of two images is the mean of their distances in the feature blocks, each divided by its largest value
    in training. Tags are transferred as in the paper (section 3.3): first those of the nearest image, the more
    frequent in training before the rarer; then those of the other neighbours, by the product of how often they
    occur there and how often in training together with tags of the first.

    Scores are between 1 and 2 for the first kind and between 0 and 1 for the second, times ``1 / (1 + d)`` with d the
    distance of the nearest image: this keeps each image's ranking of tags, and in a search puts images first that are
    near to a training image.

    Parameters
    ----------
    n_neighbors : int
        K of the paper. More brings in more tags beyond those of the nearest image.
    blocks, distances, n_jobs, random_state
        As in `DistanceAnnotator`.

    Attributes
    ----------
    rows_, given_, scales_
        As in `DistanceAnnotator`.
    frequency_ : ndarray of float32, shape (n_tags,)
        Share of the training images with each tag.
    together_ : csr_array of float32, shape (n_tags, n_tags)
        Training images with both tags.

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

    def _transfer(self, ids: Ids, near: Floats) -> sp.csr_array:
        """Score the tags of the neighbours (n, k) of images, nearest first."""
        n, k = ids.shape
        first = self.given_[ids[:, 0]]
        frequent = first.multiply(1 + self.frequency_ / max(float(self.frequency_.max()), 1e-12))
        others = weighted_votes(ids[:, 1:], np.full((n, k - 1), 1 / max(k - 1, 1), np.float32), self.given_)
        others = others - others.multiply(first)
        # The share of the first's tags that they are seen with.
        counted = others.multiply(first @ self.together_) + UNSEEN_TOGETHER * others
        most = first @ self.together_.diagonal() + UNSEEN_TOGETHER
        scores = frequent + sp.csr_array(sp.diags_array(1 / most) @ counted)
        confidence: NDArray[Any] = 1 / (1 + near[:, :1])
        return sp.csr_array(scores.multiply(confidence))
