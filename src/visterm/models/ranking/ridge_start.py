"""Start values of an embedding from ridge regression: a low-rank factorisation of its weights."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.types import Matrix

ALPHA = 30.0  # Penalty, in units of the mean squared length of the centred rows; training undoes too much of it
SPREAD = 0.7  # Mean deviation of an image's scores, about that of a trained model with a margin of 1
MAX_WEIGHTS = 2**26  # With more weights than this, features times tags, ridge regression would take too much memory
POWER_ITERATIONS = 4


class RidgeFactors(NamedTuple):
    """Factors of scores: ``x · A · v_t + b_t`` for an image with the features x, float32."""

    image_map: NDArray[np.float32]  # A, shape (n_features, rank)
    tag_rows: NDArray[np.float32]  # rows v_t, shape (n_tags, rank)
    intercepts: NDArray[np.float32]  # b_t, shape (n_tags,)


def ridge_factors(
    X: Matrix, positives: sp.csr_array, fresh: Matrix, rank: int, rng: np.random.Generator
) -> RidgeFactors | None:
    """Factorise the weights of ridge regression from features to tags, at most of the given rank.

    `positives`, (n_images, n_tags), has ones for tags. The scores of all tags of an image are centred, and have a mean
    deviation of `SPREAD` on the images with the features `fresh`. If there are more features and images than
    `DIRECT_SIZE`, a sample of as many images is used. Returns None if there are too many weights, or fewer than three
    images, features or tags.

    References
    ----------
    Halko, Martinsson, Tropp: Finding structure with randomness. SIAM Review 53, 2011; algorithm 4.4.
    """
    from sklearn.utils.extmath import randomized_svd

    from visterm.models.linear.normal_equations import DIRECT_SIZE, fit_ridge, mean_square_norm

    n, d = X.shape
    if d * positives.shape[1] > MAX_WEIGHTS or min(n, d, positives.shape[1]) < 3:
        return None
    if min(n, d) > DIRECT_SIZE:
        images = np.sort(rng.permutation(n)[:DIRECT_SIZE])
        X, positives = X[images], positives[images]
    fitted = fit_ridge(X, sp.csr_array(positives > 0, dtype=np.float32), ALPHA * mean_square_norm(X))
    weights = fitted.weights - fitted.weights.mean(axis=1, keepdims=True)
    intercepts = fitted.intercept - fitted.intercept.mean()
    scores = np.asarray(fresh @ weights) + intercepts
    factor = np.float32(SPREAD / (float(scores.std(axis=1).mean()) or 1.0))
    rank = min(rank, min(weights.shape) - 1)
    U, values, Vt = randomized_svd(weights * factor, rank, n_iter=POWER_ITERATIONS, random_state=0)
    roots = np.sqrt(np.maximum(values, 0))
    return RidgeFactors(np.asarray(U * roots, np.float32), np.asarray(Vt.T * roots, np.float32), intercepts * factor)
