"""One number a tag that makes tags comparable within an image, and leaves every ranking of images as it is."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.special import expit, logit

from visterm.core.threads import one_blas_thread
from visterm.core.types import Matrix
from visterm.models.epochs import Floats

MAX_IMAGES = 1024
"""Training images in use, at even distances; more change the intercepts by less than the noise of the tags."""

HALVINGS = 32  # Of the bracket around each intercept: ten digits
BLOCK_TAGS = 2048  # Tags handled together, so that memory does not grow with them


def set_intercepts(rows: Floats, X: Matrix, positives: sp.csr_array) -> None:
    """Set the last column of tag rows (n_tags, n_features + 1) so that each tag is given to as many images as have it.

    The intercept of a tag is the most likely one of a logistic model with the score as it is: that under which the mean
    of ``σ(score + intercept)`` is the share of images with the tag. Half an image is added to those with the tag and to
    those without, so that a tag of no image, or of all, has a finite one. `X` and `positives` are of the images learned
    from.
    """
    n_images = X.shape[0]
    shares = (np.bincount(positives.indices, minlength=positives.shape[1]) + 0.5) / (n_images + 1.0)
    some = X[np.unique(np.linspace(0, n_images - 1, min(n_images, MAX_IMAGES)).round().astype(np.int64))]
    with one_blas_thread():
        for start in range(0, len(rows), BLOCK_TAGS):
            part = slice(start, start + BLOCK_TAGS)
            scores, share = np.asarray(some @ rows[part, :-1].T, np.float64), shares[part]
            low, high = logit(share) - scores.max(axis=0), logit(share) - scores.min(axis=0)
            for _ in range(HALVINGS):
                middle = (low + high) / 2
                too_many = expit(scores + middle).mean(axis=0) > share
                high, low = np.where(too_many, middle, high), np.where(too_many, low, middle)
            rows[part, -1] = (low + high) / 2


def keep_means(rows: Floats, before: Floats, X: Matrix) -> None:
    """Set the last column of tag rows so that the mean score of each tag over some images is what it was before."""
    mean = np.asarray(X.mean(axis=0), np.float64).ravel()
    moved = (rows[:, :-1].astype(np.float64) - before[:, :-1]) @ mean
    rows[:, -1] = before[:, -1] - moved
