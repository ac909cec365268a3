"""Kernel values for a fit on some of the images: each row compares an image with these only."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import get_tags

from visterm.core.types import Matrix


def learns_from_kernel(model: Any) -> bool:
    """Whether the features that a model learns from are values of a kernel with the training images, in their order."""
    return bool(get_tags(model).input_tags.pairwise)


def own_columns(model: Any, X: Matrix, learned: NDArray[np.int64] | None) -> Matrix:
    """Take what a model may see of feature rows, if it learns from some of the training images only.

    Every part of a training set that a model is fitted on, or judged by, goes through here: a model over kernel values
    (``kernel="precomputed"``) needs the square kernel of the images that it learns from, and of others their values
    with these. For all other models features are features.

    Parameters
    ----------
    model : Annotator
    X : array or CSR, shape (n_rows, n_features)
        Rows of any images.
    learned : ndarray of int64 or None
        Places of the images to learn from among those that the columns stand for. None: all of them.

    Returns
    -------
    array or CSR, shape (n_rows, n_features) or (n_rows, n_learned)
    """
    return X if learned is None or not learns_from_kernel(model) else X[:, learned]
