"""Which models `auto` tries on what kind of features: those that did best for their seconds."""

from __future__ import annotations

from typing import Any, NamedTuple

import scipy.sparse as sp

from visterm.core.tables import MODELS
from visterm.core.types import Matrix

LINEAR, PAIRWISE = 1.0, 2.0


class Candidate(NamedTuple):
    """A model to try.

    Attributes
    ----------
    name : str
        As ``visterm models`` lists it.
    settings : dict
        Others than its defaults.
    growth : float
        Its seconds grow with the images to this power: by it a fit of all images is estimated from one of some.
    """

    name: str
    settings: dict[str, Any]
    growth: float = PAIRWISE


DENSE = (
    Candidate("kernel_ridge", {}),
    Candidate("knn", {}),
    Candidate("ridge", {}, LINEAR),
    Candidate("tagprop", {"distances": "cosine"}),
)

SPARSE = (
    Candidate("kernel_ridge", {}),
    Candidate("knn", {}),
    Candidate("ridge", {}, LINEAR),
    Candidate("wsabie", {}, LINEAR),
)

QUICK_ROWS = 10_000
"""With more images the neighbours are tried first: they need no fit."""


def candidates_for(X: Matrix, *, by_number: bool) -> tuple[Candidate, ...]:
    """List what to try on features (n_images, n_features): dense ones, of networks, sparse ones, of visterms, or none.

    Of images known only by number none can be held out, so that there is one candidate.
    """
    if by_number:
        return (Candidate("wsabie", MODELS.load("wsabie").by_number_params, LINEAR),)
    listed = SPARSE if sp.issparse(X) else DENSE
    return listed if X.shape[0] <= QUICK_ROWS else tuple(sorted(listed, key=lambda candidate: candidate.name != "knn"))
