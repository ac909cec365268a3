"""CMRM, the cross-media relevance model: P(tag | image) from the training images that share its visterms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import check_number
from visterm.core.learned import Kind, Number
from visterm.core.types import Matrix, RandomState
from visterm_research.models.generative.counts import CountingAnnotator, Counts, as_counts, scale_rows
from visterm_research.models.generative.relevance import Floats, RelevanceAnnotator


@dataclass(kw_only=True, eq=False, repr=False)
class Cmrm(CountingAnnotator, RelevanceAnnotator):
    """Expects the tags of the training images that are likely to have the new image's visterms.

    ``P(t, p) = Σ_j P(j) P(t|j) Π_v P(v|j)^tf(v, p)``, over training images j with equal P(j), and the score is
    ``P(t|p) = P(t, p) / P(p)``: the joint probability would rank images with few visterms first.
    The distributions of a training image's tags and visterms are smoothed with those of all images (Jelinek-Mercer):
    ``P(t|j) = (1 - α) tf(t, j) / |j| + α P(t)`` and ``P(v|j) = (1 - β) tf(v, j) / Σ_v tf(v, j) + β P(v)``.

    Jeon et al. divide both by the number of tags and visterms together, with which many visterms would lower the
    probabilities of tags.

    Features are counts, 0 or more (negative features are an error); weighted and scaled rows, such as those of the
    encoder `visterms`, are fractions of counts. The more visterms an image's row sums to, the fewer training images
    decide: with hundreds of blocks, a single image. `length` sets the sum. Visterms that no training image has are
    ignored, and so are explicit negatives.

    Parameters
    ----------
    alpha : float, optional
        Share of a tag's probability that comes from its frequency in all captions, from 0 to below 1. More moves
        frequent tags up in annotation; searches by one word don't change. None: chosen.
    beta : float, optional
        The same for visterms, above 0 and below 1. With more, more training images influence the scores. None: chosen.
    length : float, optional
        Scale every image to this number of visterms. More: fewer training images decide. None: the features are counts.
    random_state : int, RandomState, Generator or None
        If there are more than 1,000 images, samples 1,000 of them to choose α and β.

    Attributes
    ----------
    alpha_, beta_ : float
        The used values; chosen values are from 0.02 to 0.8 and from 0.03 to 0.98, see `RelevanceAnnotator`.
    images_ : array or CSR of float64, shape (n_tagged, n_features)
        log P(v|j) / (β P(v)): 0 wherever the image does not have the visterm.
    captions_, background_
        As in `RelevanceAnnotator`.

    References
    ----------
    J. Jeon, V. Lavrenko, R. Manmatha: Automatic image annotation and retrieval using cross-media relevance models.
    SIGIR 2003. As in Grangier, Bengio 2008, section II-B, equation (1).
    """

    learned: ClassVar[dict[str, Kind]] = {"alpha_": Number(least=0, below=1), "beta_": Number(above=0, below=1)}

    likelihood_setting = "beta"
    likelihood_choices = (0.1, 0.03, 0.3, 0.6, 0.8, 0.9, 0.95, 0.98)
    caption_setting = "alpha"
    caption_choices = (0.5, 0.02, 0.1, 0.2, 0.8)

    test_params: ClassVar[dict[str, Any]] = {"length": 20}

    alpha: float | None = None
    beta: float | None = None
    length: float | None = None
    random_state: RandomState = 0

    def _check_settings(self) -> None:
        check_number(self.length, "length", above=0, otherwise="or None to take the features as they are")
        check_number(self.alpha, "alpha", least=0, below=1, otherwise="or None to have it chosen")
        check_number(self.beta, "beta", above=0, below=1, otherwise="or None to have it chosen")

    def _learn_images(self, X: Matrix, sharpness: float) -> Counts:
        counts = as_counts(X, self.length)
        totals = np.asarray(counts.sum(axis=0), np.float64).ravel()
        scale = (1 - sharpness) / sharpness * totals.sum()
        inverse = np.divide(scale, totals, out=np.zeros_like(totals), where=totals > 0)
        frequencies = scale_rows(counts)
        return (
            sp.csr_array(frequencies @ sp.diags_array(inverse)).log1p()
            if sp.issparse(frequencies)
            else np.log1p(frequencies * inverse)
        )

    def _log_likelihoods(self, X: Matrix, images: Counts, sharpness: float) -> Floats:
        counts = as_counts(X, self.length)
        likelihoods = counts @ images.T
        return likelihoods.toarray() if sp.issparse(likelihoods) else np.asarray(likelihoods)

    def _tag_shares(self, given: sp.csr_array, smoothing: float) -> tuple[sp.csr_array, Floats]:
        frequency = np.asarray(given.sum(axis=0), np.float64).ravel() / given.sum()
        return sp.csr_array(scale_rows(given) * (1 - smoothing)), smoothing * frequency
