"""Which models `auto` tries on what kind of features: those that did best for their seconds, the cheapest first."""

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
    Candidate("knn", {}),
    Candidate("kernel_ridge", {}),
    Candidate("ridge", {}, LINEAR),
    Candidate("tagprop", {"distances": "cosine"}),
)

SPARSE = (
    Candidate("knn", {}),
    Candidate("kernel_ridge", {}),
    Candidate("ridge", {}, LINEAR),
    Candidate("wsabie", {}, LINEAR),
)


def candidates_for(X: Matrix, *, by_number: bool) -> tuple[Candidate, ...]:
    """List what to try on features (n_images, n_features): dense ones, of networks, sparse ones, of visterms, or none.

    Of images known only by number none can be held out, so that there is one candidate.
    """
    if by_number:
        return (Candidate("wsabie", MODELS.load("wsabie").by_number_params, LINEAR),)
    return SPARSE if sp.issparse(X) else DENSE
