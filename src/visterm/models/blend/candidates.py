"""Which models `auto` tries on what kind of features: those that did best for their seconds, the cheapest first."""

from __future__ import annotations

from typing import Any

import scipy.sparse as sp

from visterm.core.tables import MODELS
from visterm.core.types import Matrix

Listed = tuple[tuple[str, dict[str, Any]], ...]

DENSE: Listed = (
    ("knn", {}),
    ("kernel_ridge", {}),
    ("ridge", {}),
    ("tagprop", {"distances": "cosine"}),
)

SPARSE: Listed = (
    ("knn", {}),
    ("kernel_ridge", {}),
    ("ridge", {}),
    ("wsabie", {}),
)

GROWTHS = {
    "knn": 1.0,
    "kernel_ridge": 1.6,
    "prior": 1.0,
    "ridge": 1.5,
    "tagprop": 1.2,
    "two_pass_knn": 1.0,
    "wsabie": 1.0,
}
"""Seconds of a fit and of scores grow with the images to about these powers, measured from 450 to 3,600 images of 1,280
features. With many more images they grow less: all of these look at a part of them only to choose their settings."""

PAIRWISE = 2.0
"""What is taken for the others: each image is compared with each."""


def candidates_for(X: Matrix, *, by_number: bool) -> Listed:
    """List what to try on features (n_images, n_features): dense ones, of networks, sparse ones, of visterms, or none.

    Of images known only by number none can be held out, so that there is one candidate.

    Returns
    -------
    tuple of (str, dict)
        Names as ``visterm models`` lists them, and the settings that are not the defaults.
    """
    if by_number:
        return (("wsabie", MODELS.load("wsabie").by_number_params),)
    return SPARSE if sp.issparse(X) else DENSE


def growth_of(name: str) -> float:
    """Return the power of the images that the seconds of a model grow with."""
    return GROWTHS.get(name, PAIRWISE)
