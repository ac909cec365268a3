"""Confidences that are too large or too small as a whole, put right: one curve through the chances of all tags.

Sigmoids promise too much at their ends: the best scores of all still miss what people left out. A beta curve has an end
of its own on either side, and keeps the order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Doubles = NDArray[np.float64]

LEAST_ODDS = -5.0
"""Entries of smaller odds say nothing of the confidences at which tags are given."""

MAX_ENTRIES = 2**19
FIRMNESS = 10.0
"""How firmly few entries hold to no change."""

LEAST_SLOPE = 0.05
"""Above 0, so that the order of chances stays."""


class Bend(NamedTuple):
    """The curve ``odds' = low · ln σ(odds) - high · ln σ(-odds) + shift`` of log odds; as it stands, no change.

    Attributes
    ----------
    low, high : float
        Above 0: the slopes for chances near 0 and near 1.
    shift : float
    """

    low: float = 1.0
    high: float = 1.0
    shift: float = 0.0

    def __call__(self, odds: Any) -> Doubles:
        """Return the log odds of any shape that are put right."""
        x = np.asarray(odds, np.float64)
        if self == Bend():
            return x
        bent: Doubles = self.high * np.logaddexp(0, x) - self.low * np.logaddexp(0, -x) + self.shift
        return bent


def fit_bend(odds: Doubles, right: NDArray[np.bool_], rng: np.random.Generator) -> Bend:
    """Find the curve that makes what is right most likely (beta calibration).

    Parameters
    ----------
    odds : ndarray of float64, shape (n,)
        Log odds of entries, by curves that were not fitted on them.
    right : ndarray of bool, shape (n,)
    rng : Generator
        Of the sample, where there are more than half a million entries.

    References
    ----------
    Kull, Silva Filho, Flach: Beta calibration: a well-founded and easily implemented improvement on logistic
    calibration for binary classifiers. AISTATS 2017.
    """
    some = np.flatnonzero(odds > LEAST_ODDS)
    if some.size > MAX_ENTRIES:
        some = np.sort(rng.choice(some, MAX_ENTRIES, replace=False))
    x, signs = odds[some], np.where(right[some], 1.0, -1.0)
    features = np.stack([-np.logaddexp(0, -x), np.logaddexp(0, x), np.ones(x.size)])
    none = np.array(Bend())

    def loss(values: Doubles) -> tuple[float, Doubles]:
        margins = signs * (values @ features)
        away = values - none
        downs = features @ (-signs * np.exp(-np.logaddexp(0, margins)))
        return float(np.logaddexp(0, -margins).sum() + FIRMNESS / 2 * away @ away), downs + FIRMNESS * away

    found = minimize(loss, none, jac=True, bounds=[(LEAST_SLOPE, None), (LEAST_SLOPE, None), (None, None)])
    return Bend(*(float(value) for value in found.x))
