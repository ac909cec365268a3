"""A sigmoid for each tag: weighted logistic regression on one variable, for all tags at once."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Doubles = NDArray[np.float64]

MAX_STEPS = 50
MAX_HALVINGS = 30
ENOUGH = 1e-9
ROUNDING = 1e-13


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
