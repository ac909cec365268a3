"""Base class of relevance models: tags of training images, weighted by the likelihood of the new image given each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from itertools import product
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.learned import Array, Csr, DenseOrCsr, Kind
from visterm.core.threads import one_blas_thread
from visterm.core.types import Matrix
from visterm.metrics import average_precisions
from visterm.models import Annotator
from visterm_research.models.generative.counts import count_tags

Floats = NDArray[np.float64]

CHOICE_ROWS = 1000  # Use at most this many training images, each left out in turn, to choose the settings
BLOCK_BYTES = 2**25


class RelevanceAnnotator(Annotator):
    """Scores tags by the conditional ``P(t|p) = Σ_j P(j|p) P(t|j)``, ``P(j|p) ∝ P(p|j)``, over training images j.

    All training images with a tag have the same prior probability; images without tags are left out. A new model
    writes `_learn_images`, `_log_likelihoods` and `_tag_shares`.

    A model has two settings: how sharply the likelihood separates training images, and the share of a tag's probability
    that comes from its frequency in all captions. If they are None, those are chosen that rank the tags of training
    images best (MAP over images) when each image is left out of the sum.

    Attributes
    ----------
    images_ : array or CSR of float64
        The tagged training images in the form for the likelihood.
    captions_ : csr_array of float64, shape (n_tagged, n_tags)
        The part of P(t|j) that depends on the image.
    background_ : ndarray of float64, shape (n_tags,)
        The part of P(t|j) that is the same for all images.
    """

    probabilities: ClassVar[bool] = True

    images_: Any
    captions_: sp.csr_array
    background_: Floats

    learned: ClassVar[dict[str, Kind]] = {
        "images_": DenseOrCsr("float64", ("n_tagged", "n_features_in_"), canonical=False),
        "captions_": Csr("float64", ("n_tagged", "n_tags_"), least=0, canonical=False),
        "background_": Array("float64", ("n_tags_",), least=0),
    }

    likelihood_setting: ClassVar[str]
    """The parameter for the sharpness of the likelihood; the attribute with the used value has this name and ``_``."""
    likelihood_choices: ClassVar[tuple[float, ...]]

    caption_setting: ClassVar[str]  # The parameter for the smoothness of P(t|j)
    caption_choices: ClassVar[tuple[float, ...]]

    def _fit(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator) -> None:
        self._check_settings()
        tagged, given = count_tags(Y)
        X = X[tagged]
        sharpness, smoothing = self._choose(X, given, rng)
        setattr(self, f"{self.likelihood_setting}_", sharpness)
        setattr(self, f"{self.caption_setting}_", smoothing)
        self.images_ = self._learn_images(X, sharpness)
        self.captions_, self.background_ = self._tag_shares(given, smoothing)

    def _image_rows(self, X: Matrix) -> Matrix:
        rows = np.empty((X.shape[0], self.n_tags_), np.float32)
        sharpness = getattr(self, f"{self.likelihood_setting}_")
        for part, likelihoods in self._blocks(X, self.images_, sharpness):
            rows[part] = posteriors(likelihoods) @ self.captions_ + self.background_
        return rows

    @abstractmethod
    def _learn_images(self, X: Matrix, sharpness: float) -> Any:
        """Return the tagged training images in the form for `_log_likelihoods`."""

    @abstractmethod
    def _log_likelihoods(self, X: Matrix, images: Any, sharpness: float) -> Floats:
        """Return log P(p|j), shape (n_images, n_tagged), up to a term that is the same for all j."""

    @abstractmethod
    def _tag_shares(self, given: sp.csr_array, smoothing: float) -> tuple[sp.csr_array, Floats]:
        """Return two parts with the sum P(t|j): of the images, (n_tagged, n_tags), and the background, (n_tags,)."""

    def _blocks(self, X: Matrix, images: Any, sharpness: float) -> Iterator[tuple[slice, Floats]]:
        """Yield slices of the images and their log likelihoods."""
        step = max(1, BLOCK_BYTES // (8 * images.shape[0]))
        for start in range(0, X.shape[0], step):
            part = slice(start, min(start + step, X.shape[0]))
            with one_blas_thread():
                likelihoods = self._log_likelihoods(X[part], images, sharpness)
            yield part, likelihoods

    def _choose(self, X: Matrix, given: sp.csr_array, rng: np.random.Generator) -> tuple[float, float]:
        """Return sharpness and smoothing; choose settings that are None by leave-one-out on training images."""
        sharpness, smoothing = (getattr(self, name) for name in (self.likelihood_setting, self.caption_setting))
        sharps = self.likelihood_choices if sharpness is None else (float(sharpness),)
        smooths = self.caption_choices if smoothing is None else (float(smoothing),)
        n = given.shape[0]
        rows = np.sort(rng.permutation(n)[:CHOICE_ROWS])
        if len(sharps) * len(smooths) == 1 or n < 2 or given.shape[1] < 2:
            return sharps[0], smooths[0]
        shares = {smoothing: self._tag_shares(given, smoothing) for smoothing in smooths}
        sums = dict.fromkeys(product(sharps, smooths), 0.0)
        for sharpness in sharps:
            images = self._learn_images(X, sharpness)
            for part, likelihoods in self._blocks(X[rows], images, sharpness):
                left_out = rows[part]
                likelihoods[np.arange(left_out.size), left_out] = -np.inf
                weights = posteriors(likelihoods)
                for smoothing, (captions, background) in shares.items():
                    scores = (weights @ captions + background).astype(np.float32)
                    sums[sharpness, smoothing] += float(average_precisions(scores, given[left_out]).sum())
        return max(sums, key=sums.__getitem__)


def posteriors(likelihoods: Floats) -> Floats:
    """Turn log P(p|j) into P(j|p), in place; rows sum to 1."""
    likelihoods -= likelihoods.max(axis=1, keepdims=True)
    np.exp(likelihoods, out=likelihoods)
    likelihoods /= likelihoods.sum(axis=1, keepdims=True)
    return likelihoods
