"""MBRM, the multiple Bernoulli relevance model: an image has a tag or not, and Gaussian kernels compare features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from scipy.special import logsumexp

from visterm.core.checks import check_count, check_number, check_size
from visterm.core.errors import ShapeError
from visterm.core.learned import Kind, Number
from visterm.core.products import column_means
from visterm.core.types import Matrix, RandomState
from visterm.models import row_squares, squared_distances
from visterm_research.models.generative.relevance import Floats, RelevanceAnnotator

TILE_BYTES = 2**26  # Size of the kernels between regions in memory at a time
MAX_TILE_BYTES = 2**29  # Maximum size of the kernels of one image


@dataclass(kw_only=True, eq=False, repr=False)
class Mbrm(RelevanceAnnotator):
    """Expects the tags of training images with similar features, whatever the number of their tags.

    ``P(t|p) = Σ_j P(j|p) P(t|j)``, and ``P(j|p)`` is proportional to the product over the regions g of the image of
    ``mean_i exp(-|g - r_ij|² / w)``, over the regions r of training image j: a density of Gaussian kernels. An image
    has a tag or not, so tags of long captions are not less probable, unlike in CMRM's multinomial:
    ``P(t|j) = (μ [j has t] + n_t) / (μ + n)``, where ``n_t`` of the ``n`` training images have the tag. P(t|p) does not
    depend on the other tags, whose probabilities sum to 1.

    Features may be dense or sparse, and negative. Explicit negatives are ignored.

    Parameters
    ----------
    bandwidth : float, optional
        Width of the kernels: w, in units of the mean squared distance between the regions of training images. With
        more, more images influence the scores. None: chosen.
    mu : float, optional
        μ, in units of n: weight of the image's own tags compared with the tag frequencies, above 0. Less moves frequent
        tags up in annotation; searches by one word don't change. None: chosen.
    regions : int
        The features are those of this many regions of equal width, one after the other (the cells of a grid, as in the
        paper). All pairs of regions are compared, at any positions, so the time grows with the square of `regions`.
    random_state : int, RandomState, Generator or None
        If there are more than 1,000 images, samples 1,000 of them to choose the settings.

    Attributes
    ----------
    bandwidth_, mu_ : float
        The used values; chosen values are from 0.003 to 1 and from 0.1 to 100, see `RelevanceAnnotator`.
    spread_ : float
        The mean squared distance between regions.
    images_ : array or CSR of float64, shape (n_tagged, n_features)
        The training images that have a tag.
    captions_, background_
        As in `RelevanceAnnotator`.

    References
    ----------
    S. Feng, R. Manmatha, V. Lavrenko: Multiple Bernoulli relevance models for image and video annotation. CVPR 2004.
    """

    learned: ClassVar[dict[str, Kind]] = {
        "bandwidth_": Number(above=0),
        "mu_": Number(above=0),
        "spread_": Number(least=0),
    }

    likelihood_setting = "bandwidth"
    likelihood_choices = (0.1, 0.003, 0.01, 0.03, 0.3, 1.0)
    caption_setting = "mu"
    caption_choices = (1.0, 0.1, 0.3, 3.0, 10.0, 100.0)

    test_params: ClassVar[dict[str, Any]] = {}

    bandwidth: float | None = None
    mu: float | None = None
    regions: int = 1
    random_state: RandomState = 0

    def _check_settings(self) -> None:
        check_count(self.regions, "regions")
        for name in ("bandwidth", "mu"):
            check_number(getattr(self, name), name, above=0, otherwise="or None to have it chosen")

    def _check_learned(self) -> None:
        super()._check_learned()
        self._check_width(self.n_features_in_)

    def _check_width(self, n_features: int) -> None:
        """Raise ShapeError if the features cannot be divided into regions of equal width."""
        if n_features % self.regions:
            raise ShapeError(
                f"X has {n_features} features, which cannot be those of {self.regions} regions of equal width. "
                "Set regions to a number that divides them."
            )

    def _learn_images(self, X: Matrix, sharpness: float) -> Any:
        self._check_width(X.shape[1])
        regions = self._regions(X)
        mean = np.asarray(regions.sum(axis=0), np.float64).ravel() / regions.shape[0]
        self.spread_ = 2 * max(0.0, float(row_squares(regions).mean() - mean @ mean))
        return X.astype(np.float64)

    def _log_likelihoods(self, X: Matrix, images: Any, sharpness: float) -> Floats:
        width = sharpness * (self.spread_ or 1.0)
        training_regions = self._regions(images)
        min_bytes = 8 * self.regions * training_regions.shape[0]
        check_size(min_bytes, MAX_TILE_BYTES, f"Comparing {self.regions} regions", "Fit it on fewer images or regions.")
        step = max(1, TILE_BYTES // (8 * self.regions * training_regions.shape[0]))
        tiles = []
        for start in range(0, X.shape[0], step):
            logs = squared_distances(self._regions(X[start : start + step]), training_regions) / -width
            if self.regions > 1:
                logs = logsumexp(logs.reshape(len(logs), -1, self.regions), axis=2)
                logs = logs.reshape(-1, self.regions, logs.shape[1]).sum(axis=1)
            tiles.append(logs)
        return np.concatenate(tiles) if tiles else np.empty((0, images.shape[0]))

    def _tag_shares(self, given: sp.csr_array, smoothing: float) -> tuple[sp.csr_array, Floats]:
        frequency = column_means(given)
        return sp.csr_array(given * (smoothing / (smoothing + 1))), frequency / (smoothing + 1)

    def _regions(self, X: Any) -> Any:
        rows = X.astype(np.float64, copy=False)
        if self.regions == 1:
            return rows
        shape = X.shape[0] * self.regions, X.shape[1] // self.regions
        return sp.csr_array(rows.reshape(shape)) if sp.issparse(X) else rows.reshape(shape)
