"""A sigmoid for each tag, by the votes for it: all curves are drawn to one that fits all tags together."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Doubles = NDArray[np.float64]

MAX_STEPS = 50
MAX_HALVINGS = 30
ENOUGH = 1e-9
ROUNDING = 1e-13
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


class Cases(NamedTuple):
    """Entries of images and tags that count one by one, and the weight of all others, which have no vote and no tag."""

    votes: Doubles  # float64, shape (n_cases,)
    signs: Doubles  # float64, shape (n_cases,). 1 where the image has the tag, -1 where it has not.
    weights: Doubles  # float64, shape (n_cases,)
    tags: NDArray[np.int64]  # shape (n_cases,)
    rest: Doubles  # float64, shape (n_tags,): what the others of each tag weigh together


def likeliest_curves(cases: Cases, centre: Doubles, prior: float) -> Doubles:
    """Return the curves (scale, offset) of smallest loss plus ``prior / 2`` times the square of the way to `centre`.

    `centre` is float64 of shape (n_tags, 2), and `prior` above 0.
    """
    curves = centre.copy()
    losses = _losses(cases, curves, centre, prior)
    for _ in range(MAX_STEPS):
        step = _step(cases, curves, centre, prior)
        size = np.ones(len(curves))
        for _ in range(MAX_HALVINGS):
            step_curves = curves + size[:, None] * step
            reached = _losses(cases, step_curves, centre, prior)
            worse = reached > losses + ROUNDING * (1 + losses)
            if not worse.any():
                break
            size[worse] /= 2
        else:
            step_curves[worse], reached[worse] = curves[worse], losses[worse]
        gained = losses - reached
        curves, losses = step_curves, reached
        if (gained <= ENOUGH * (1 + losses)).all():
            break
    return curves


def _losses(cases: Cases, curves: Doubles, centre: Doubles, prior: float) -> Doubles:
    scale, offset = curves[cases.tags].T
    margins = cases.signs * (scale * cases.votes + offset)
    each = np.bincount(cases.tags, cases.weights * np.logaddexp(0, -margins), minlength=len(curves))
    rest = cases.rest * np.logaddexp(0, curves[:, 1])
    total: Doubles = each + rest + prior / 2 * np.square(curves - centre).sum(axis=1)
    return total


def _step(cases: Cases, curves: Doubles, centre: Doubles, prior: float) -> Doubles:
    scale, offset = curves[cases.tags].T
    chances = _logistic(scale * cases.votes + offset)
    errors = cases.weights * (chances - (cases.signs > 0))
    bends = cases.weights * chances * (1 - chances)
    rest = _logistic(curves[:, 1])

    def total(values: Doubles) -> Doubles:
        return np.bincount(cases.tags, values, minlength=len(curves)).astype(np.float64)

    down = np.stack([total(errors * cases.votes), total(errors) + cases.rest * rest], axis=1)
    down += prior * (curves - centre)
    a = total(bends * cases.votes**2) + prior
    b = total(bends * cases.votes)
    c = total(bends) + cases.rest * rest * (1 - rest) + prior
    determinant = a * c - b * b
    return -np.stack([c * down[:, 0] - b * down[:, 1], a * down[:, 1] - b * down[:, 0]], axis=1) / determinant[:, None]


def _logistic(values: Doubles) -> Doubles:
    return np.exp(-np.logaddexp(0, -values))
