"""A sigmoid of votes for each tag, with a prior that draws all curves to one curve that fits all tags together."""

from __future__ import annotations

from typing import NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Doubles = NDArray[np.float64]

MAX_STEPS = 50
MAX_HALVINGS = 30
MIN_GAIN = 1e-9
ROUNDING_SHARE = 1e-13
LOOSE_PRIOR = 1e-6  # Keeps the common sigmoid finite if votes and tags agree without exception


class Costs(NamedTuple):
    """Weights in the likelihood of a tag that an image has, and of a tag that it does not have."""

    given: float
    absent: float

    @classmethod
    def balanced(cls, tags: sp.csr_array) -> Self:
        """Return 1 for a tag that an image has, and a cost of absent tags with which all of them have the same sum."""
        n_absent = tags.shape[0] * tags.shape[1] - tags.nnz
        return cls(1.0, tags.nnz / max(n_absent, 1))


class Sigmoids(NamedTuple):
    """Curves ``1 / (1 + exp(-scale v - offset))``, one per tag."""

    scale: Doubles
    offset: Doubles

    @classmethod
    def flat(cls, n_tags: int) -> Self:
        """Return curves that rank tags like the votes."""
        return cls(np.ones(n_tags), np.zeros(n_tags))


def fit_sigmoids(votes: sp.csr_array, tags: sp.csr_array, costs: Costs, prior: float) -> Sigmoids:
    """Find the curve of each tag that makes the tags most likely, by Newton's method in two variables.

    `votes` and `tags`, (n_images, n_tags), are the votes and the tags of images. `prior` is the strength with which the
    curve that fits all tags together attracts each curve; it is above 0, as tags that no image has would diverge.
    """
    cases = _cases(votes, tags, costs)
    joint_cases = cases._replace(tags=np.zeros_like(cases.tags), rest=cases.rest.sum(keepdims=True))
    common = likeliest_curves(joint_cases, np.zeros((1, 2)), LOOSE_PRIOR)
    curves = likeliest_curves(cases, np.repeat(common, votes.shape[1], axis=0), prior)
    return Sigmoids(np.ascontiguousarray(curves[:, 0]), np.ascontiguousarray(curves[:, 1]))


def _cases(votes: sp.csr_array, tags: sp.csr_array, costs: Costs) -> Cases:
    n, n_tags = votes.shape
    stored_votes, stored_tags = votes.tocoo(), tags.tocoo()
    keys = np.concatenate([c.coords[0].astype(np.int64) * n_tags + c.coords[1] for c in (stored_votes, stored_tags)])
    entries, inverse = np.unique(keys, return_inverse=True)
    values: Doubles = np.bincount(inverse[: stored_votes.nnz], stored_votes.data, minlength=entries.size).astype(
        np.float64
    )
    has_tag = np.bincount(inverse[stored_votes.nnz :], minlength=entries.size) > 0
    tag_of_entry = entries % n_tags
    rest = costs.absent * (n - np.bincount(tag_of_entry, minlength=n_tags))
    weights = np.where(has_tag, costs.given, costs.absent)
    return Cases(values, np.where(has_tag, 1.0, -1.0), weights, tag_of_entry, rest)


class Cases(NamedTuple):
    """Entries (image, tag) with a vote or the tag, and for each tag the summed weight of all other entries."""

    votes: Doubles  # float64, shape (n_cases,)
    signs: Doubles  # float64, shape (n_cases,). 1 if the image has the tag, -1 if not.
    weights: Doubles  # float64, shape (n_cases,)
    tags: NDArray[np.int64]  # shape (n_cases,)
    rest: Doubles  # float64, shape (n_tags,): the summed weight of the other entries of each tag


def likeliest_curves(cases: Cases, centre: Doubles, prior: float) -> Doubles:
    """Return curves (scale, offset) that minimise the loss plus ``prior / 2`` times the squared distance to `centre`.

    `centre` is float64 of shape (n_tags, 2), and `prior` above 0.
    """
    curves = centre.copy()
    losses = _losses(cases, curves, centre, prior)
    for _ in range(MAX_STEPS):
        step = _step(cases, curves, centre, prior)
        step_sizes = np.ones(len(curves))
        for _ in range(MAX_HALVINGS):
            step_curves = curves + step_sizes[:, None] * step
            step_losses = _losses(cases, step_curves, centre, prior)
            is_worse = step_losses > losses + ROUNDING_SHARE * (1 + losses)
            if not is_worse.any():
                break
            step_sizes[is_worse] /= 2
        else:
            step_curves[is_worse], step_losses[is_worse] = curves[is_worse], losses[is_worse]
        gains = losses - step_losses
        curves, losses = step_curves, step_losses
        if (gains <= MIN_GAIN * (1 + losses)).all():
            break
    return curves


def _losses(cases: Cases, curves: Doubles, centre: Doubles, prior: float) -> Doubles:
    scale, offset = curves[cases.tags].T
    margins = cases.signs * (scale * cases.votes + offset)
    case_losses = np.bincount(cases.tags, cases.weights * np.logaddexp(0, -margins), minlength=len(curves))
    rest_losses = cases.rest * np.logaddexp(0, curves[:, 1])
    total: Doubles = case_losses + rest_losses + prior / 2 * np.square(curves - centre).sum(axis=1)
    return total


def _step(cases: Cases, curves: Doubles, centre: Doubles, prior: float) -> Doubles:
    scale, offset = curves[cases.tags].T
    probabilities = _logistic(scale * cases.votes + offset)
    errors = cases.weights * (probabilities - (cases.signs > 0))
    curvatures = cases.weights * probabilities * (1 - probabilities)
    rest = _logistic(curves[:, 1])

    def total(values: Doubles) -> Doubles:
        return np.bincount(cases.tags, values, minlength=len(curves)).astype(np.float64)

    gradients = np.stack([total(errors * cases.votes), total(errors) + cases.rest * rest], axis=1)
    gradients += prior * (curves - centre)
    a = total(curvatures * cases.votes**2) + prior
    b = total(curvatures * cases.votes)
    c = total(curvatures) + cases.rest * rest * (1 - rest) + prior
    determinant = a * c - b * b
    return (
        -np.stack([c * gradients[:, 0] - b * gradients[:, 1], a * gradients[:, 1] - b * gradients[:, 0]], axis=1)
        / determinant[:, None]
    )


def _logistic(values: Doubles) -> Doubles:
    return np.exp(-np.logaddexp(0, -values))
