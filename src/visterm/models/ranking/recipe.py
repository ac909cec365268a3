"""What a ranking model is made of: loss, weight of the rank, negatives, step, regulariser, and how rates change."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import UserError
from visterm.kernels.codes import Loss, Negatives, Step

WEIGHTS = ("harmonic", "constant", "top", "truncated")
SCHEDULES = ("constant", "inverse", "cosine")
SAMPLERS = {"draws": Negatives.UNTIL_VIOLATION, "pool": Negatives.POOL}
STEPS = {"sgd": Step.SGD, "adagrad": Step.ADAGRAD}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The parts of one ranking model that are the same for all its epochs.

    Attributes
    ----------
    loss : Loss
    weight : str
        See `rank_weights`.
    truncate : int
        The k of ``weight="truncated"``.
    negatives : Negatives
    step : Step
    rank_scale : float
        λ of the adaptive negatives.
    l2 : float
        Factor of ½ |row|² for the rows that a step moves.
    max_norm : float
        Longest row of either side.
    max_trials : int or None
        Draws for one pair; None: as many as there are candidates.
    rank_of_trials : bool
        Estimate the rank after N draws as floor(max_trials / N), not floor(candidates / N).
    block : int
        Pairs that share one state of the weights.
    """

    loss: Loss = Loss.HINGE
    weight: str = "harmonic"
    truncate: int = 10
    negatives: Negatives = Negatives.UNTIL_VIOLATION
    step: Step = Step.SGD
    rank_scale: float = 0.1
    l2: float = 0.0
    max_norm: float = math.inf
    max_trials: int | None = None
    rank_of_trials: bool = False
    block: int = 256


def rank_weights(weight: str, n: int, truncate: int = 10) -> NDArray[np.float32]:
    """Return L(0) .. L(n), what a true tag on rank k costs (WSABIE, Eq. 5), float32, shape (n + 1,).

    Parameters
    ----------
    weight : str
        "harmonic": 1 + 1/2 + ... + 1/k, which makes the first places count most. "constant": k / n, the mean rank.
        "top": 1 from rank 1 on, the share of images with a wrong tag on top. "truncated": as harmonic, but nothing more
        after rank `truncate`.
    n : int
    truncate : int
    """
    ranks = np.arange(1, n + 1)
    if weight == "constant":
        terms = np.full(n, 1.0 / n)
    elif weight == "top":
        terms = (ranks == 1).astype(float)
    elif weight == "harmonic":
        terms = 1.0 / ranks
    elif weight == "truncated":
        terms = np.where(ranks <= truncate, 1.0 / ranks, 0.0)
    else:
        raise UserError(f"weight is {weight!r}; expected one of: {', '.join(WEIGHTS)}.")
    return np.concatenate([[0.0], np.cumsum(terms)]).astype(np.float32)


def rate_factor(schedule: str, epoch: int, epochs: int) -> float:
    """Return the factor of the learning rate in one epoch, counted from 1.

    "constant" is 1; "inverse" is halved after a tenth of the epochs, then falls as one over their number; "cosine"
    falls to 0 along half a cosine.
    """
    done = (epoch - 1) / epochs
    if schedule == "constant":
        return 1.0
    if schedule == "inverse":
        return 1 / (1 + 10 * done)
    if schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * done))
    raise UserError(f"schedule is {schedule!r}; expected one of: {', '.join(SCHEDULES)}.")
