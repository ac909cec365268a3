"""PLSA with aspects tied to tags: aspects are fitted to the captions, and then visterms to these aspects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import check_count, check_number
from visterm.core.learned import Array, Kind
from visterm.core.progress import reported
from visterm.core.threads import one_blas_thread
from visterm.core.types import Matrix, RandomState
from visterm.models import Judged, Watch
from visterm_research.models.generative.counts import CountingAnnotator, as_counts, count_tags

Floats = NDArray[np.float64]

MAX_FOLD_EPOCHS = 10_000  # Maximum number of EM steps for a new image, which delay every annotation
MIN_DENSE_SHARE = 0.02
"""Share of stored counts above which computing all products by BLAS is faster than products at the stored entries."""

BLOCK_FLOATS = 2**22
"""Number of floats in memory at a time: aspects of new images, a block of products, or the rows for the products."""


@dataclass(kw_only=True, eq=False, repr=False)
class Plsa(CountingAnnotator):
    """Explains captions and pictures by the same few aspects: ``P(t|p) = Σ_z P(z|p) P(t|z)``.

    Training has two parts. EM first finds P(z|p) and P(t|z), the aspects that make the training captions most likely;
    then P(v|z) is fitted to the pictures with fixed P(z|p), so that aspects describe differences between tags, and not
    the most common visterms. For a new image, P(z|p) is fitted to its visterms with fixed P(v|z) (folding in), starting
    with the aspects of the average training image.

    The default numbers of EM steps were chosen on 500 held-out training photos of Corel5k.

    Features are counts, 0 or more; negative features are an error. Visterms that no training image has are ignored, and
    an image without visterms has the average aspects. Training images without a tag are left out, and explicit
    negatives are ignored.

    Parameters
    ----------
    aspects : int
        Number of aspects z. More separate finer differences, need more images, and take time and memory in proportion.
        400 is the paper's choice on Corel5k.
    epochs : int
        Number of EM steps over the captions. More fit rare combinations of tags, and finally overfit.
    visterm_epochs : int
        Number of EM steps over the pictures. With few, a rare visterm is not evidence of a single aspect.
    fold_epochs : int
        Number of EM steps for a new image. With fewer, its aspects are nearer to those of the average image.
    random_state : int, RandomState, Generator or None
        Start values of the aspects.

    Attributes
    ----------
    tag_rows_ : ndarray of float32, shape (n_tags, aspects)
        P(t|z); the row of an image is P(z|p).
    visterms_ : ndarray of float64, shape (n_features, aspects)
        P(v|z).
    average_ : ndarray of float64, shape (aspects,)
        Mean P(z|p) of the training images.

    References
    ----------
    T. Hofmann: Unsupervised learning by probabilistic latent semantic analysis. Machine Learning 42, 2001.
    F. Monay, D. Gatica-Perez: PLSA-based image auto-annotation: constraining the latent space. ACM Multimedia 2004.
    As in Grangier, Bengio 2008, section II-B, equations (2) and (3).
    """

    probabilities: ClassVar[bool] = True

    learned: ClassVar[dict[str, Kind]] = {
        "tag_rows_": Array("float32", ("n_tags_", "aspects"), least=0),
        "visterms_": Array("float64", ("n_features_in_", "aspects"), least=0),
        "average_": Array("float64", ("aspects",), least=0),
    }

    test_params: ClassVar[dict[str, Any]] = {"aspects": 12}

    aspects: int = 400
    epochs: int = 50
    visterm_epochs: int = 3
    fold_epochs: int = 5
    random_state: RandomState = 0

    def _check_settings(self) -> None:
        for name in ("aspects", "epochs", "visterm_epochs", "fold_epochs"):
            check_count(getattr(self, name), name)
        check_number(self.fold_epochs, "fold_epochs", most=MAX_FOLD_EPOCHS)

    def _fit_monitored(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator, valid: Judged, watch: Watch) -> None:
        self._check_settings()
        tagged, captions = count_tags(Y)
        pictures = sp.csr_array(as_counts(X[tagged]))
        with one_blas_thread():
            images = np.full((tagged.size, self.aspects), 1 / self.aspects)
            tags = rng.random((self.n_tags_, self.aspects)) + 0.5
            tags /= tags.sum(axis=0)
            with reported(watch.monitor, "fit aspects to captions", self.epochs):
                for _ in range(self.epochs):
                    images, tags = refit_images(captions, images, tags), refit_words(captions, images, tags)
                    watch.monitor.advance()
            visterms = np.full((X.shape[1], self.aspects), 1 / X.shape[1])
            with reported(watch.monitor, "fit visterms to aspects", self.visterm_epochs):
                for _ in range(self.visterm_epochs):
                    visterms = refit_words(pictures, images, visterms)
                    watch.monitor.advance()
        self.tag_rows_ = tags.astype(np.float32)
        self.visterms_ = visterms
        self.average_ = images.mean(axis=0)

    def _image_rows(self, X: Matrix) -> Matrix:
        pictures = sp.csr_array(as_counts(X))
        rows = np.empty((X.shape[0], self.average_.size), np.float32)
        step = max(1, BLOCK_FLOATS // self.average_.size)
        with one_blas_thread():
            for start in range(0, X.shape[0], step):
                part = pictures[start : start + step]
                images = np.tile(self.average_, (part.shape[0], 1))
                for _ in range(self.fold_epochs):
                    images = refit_images(part, images, self.visterms_)
                rows[start : start + step] = images
        return rows


def refit_images(counts: sp.csr_array, images: Floats, words: Floats) -> Floats:
    """Return P(z|p) after one EM step with fixed P(w|z): ``P(z|p) ∝ Σ_w n(p, w) P(z|p, w)``.

    `counts` are n(p, w), (n_images, n_words); `images` are P(z|p), whose rows sum to 1; `words` are P(w|z), whose
    columns sum to 1. The row of an image doesn't change if all its words have the probability 0.
    """
    expected = images * (_ratios(counts, images, words) @ words)
    sums = expected.sum(axis=1, keepdims=True)
    updated: Floats = np.divide(expected, sums, out=images.copy(), where=sums > 0)
    return updated


def refit_words(counts: sp.csr_array, images: Floats, words: Floats) -> Floats:
    """Return P(w|z) after one EM step with fixed P(z|p): ``P(w|z) ∝ Σ_p n(p, w) P(z|p, w)``.

    Parameters are those of `refit_images`; an aspect that no image has doesn't change.
    """
    expected = words * (_ratios(counts, images, words).T @ images)
    sums = expected.sum(axis=0, keepdims=True)
    updated: Floats = np.divide(expected, sums, out=words.copy(), where=sums > 0)
    return updated


def _ratios(counts: sp.csr_array, images: Floats, words: Floats) -> Any:
    """Return n(p, w) / P(w|p) for the stored counts; 0 for words with the probability 0, which no aspect explains."""
    probabilities = np.empty(counts.nnz)
    rows = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    if counts.nnz >= MIN_DENSE_SHARE * counts.shape[0] * counts.shape[1]:
        step = max(1, BLOCK_FLOATS // counts.shape[1])
        for start in range(0, counts.shape[0], step):
            stored = slice(*counts.indptr[[start, min(start + step, counts.shape[0])]])
            products = images[start : start + step] @ words.T
            probabilities[stored] = products[rows[stored] - start, counts.indices[stored]]
    else:
        step = max(1, BLOCK_FLOATS // images.shape[1])
        for start in range(0, counts.nnz, step):
            stored = slice(start, start + step)
            np.einsum("ek,ek->e", images[rows[stored]], words[counts.indices[stored]], out=probabilities[stored])
    ratios = np.divide(counts.data, probabilities, out=np.zeros_like(probabilities), where=probabilities > 0)
    return sp.csr_array((ratios, counts.indices, counts.indptr), shape=counts.shape)
