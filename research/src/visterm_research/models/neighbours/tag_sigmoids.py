"""A sigmoid for each tag, by the votes for it: all curves are drawn to one that fits all tags together."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.models import Cases, likeliest_curves

Doubles = NDArray[np.float64]

LOOSE_PRIOR = 1e-6  # Keeps the common sigmoid finite where votes and tags agree without exception


class Costs(NamedTuple):
    """What a tag weighs in the likelihood: one that an image has, and one that it has not."""

    given: float
    absent: float

    @classmethod
    def balanced(cls, tags: sp.csr_array) -> Self:
        """Return one for each tag given, and costs of as much in sum for all others."""
        n_absent = tags.shape[0] * tags.shape[1] - tags.nnz
        return cls(1.0, tags.nnz / max(n_absent, 1))


class Sigmoids(NamedTuple):
    """Curves ``1 / (1 + exp(-scale v - offset))``, one a tag."""

    scale: Doubles
    offset: Doubles

    @classmethod
    def flat(cls, n_tags: int) -> Self:
        """Return curves that rank as the votes themselves do."""
        return cls(np.ones(n_tags), np.zeros(n_tags))


def fit_sigmoids(votes: sp.csr_array, tags: sp.csr_array, costs: Costs, prior: float) -> Sigmoids:
    """Find each tag's curve that makes tags most likely, by Newton's method in two variables.

    `votes` and `tags`, (n_images, n_tags), store the votes, which are 0 elsewhere, and the tags that images have.
    `prior` says how firmly a tag holds to the curve that fits all tags together; above 0, or tags that no image has
    diverge.
    """
    cases = _cases(votes, tags, costs)
    together = cases._replace(tags=np.zeros_like(cases.tags), rest=cases.rest.sum(keepdims=True))
    common = likeliest_curves(together, np.zeros((1, 2)), LOOSE_PRIOR)
    curves = likeliest_curves(cases, np.repeat(common, votes.shape[1], axis=0), prior)
    return Sigmoids(np.ascontiguousarray(curves[:, 0]), np.ascontiguousarray(curves[:, 1]))


def _cases(votes: sp.csr_array, tags: sp.csr_array, costs: Costs) -> Cases:
    n, n_tags = votes.shape
    found, has = votes.tocoo(), tags.tocoo()
    keys = np.concatenate([c.coords[0].astype(np.int64) * n_tags + c.coords[1] for c in (found, has)])
    places, inverse = np.unique(keys, return_inverse=True)
    values: Doubles = np.bincount(inverse[: found.nnz], found.data, minlength=places.size).astype(np.float64)
    given = np.bincount(inverse[found.nnz :], minlength=places.size) > 0
    of_tag = places % n_tags
    rest = costs.absent * (n - np.bincount(of_tag, minlength=n_tags))
    weights = np.where(given, costs.given, costs.absent)
    return Cases(values, np.where(given, 1.0, -1.0), weights, of_tag, rest)
