"""What a ranking model is made of: loss, weight of the rank, negatives, step and regulariser."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum, auto

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import UserError
from visterm.kernels.pair_batch import Loss


class Negatives(Enum):
    """Which other tags ȳ a true tag is compared with."""

    UNTIL_VIOLATION = auto()  # Draw uniformly until one is within the margin (WARP)
    POOL = auto()  # The same law; many images are scored at once against one pool of drawn tags
    UNIFORM = auto()  # One draw (AUC)
    ADAPTIVE = auto()  # One draw from tags that are likely to score high for the image (VSE-ens)
    ALL = auto()  # All tags within the margin, none drawn (OWPC)


class Step(Enum):
    """How a gradient becomes a step."""

    SGD = auto()  # Times the learning rate
    ADAGRAD = auto()  # Times the learning rate over the root of one plus the mean squares that the row has seen


WEIGHTS = ("harmonic", "constant", "top", "truncated")
SAMPLERS = {"draws": Negatives.UNTIL_VIOLATION, "pool": Negatives.POOL}
STEPS = {"sgd": Step.SGD, "adagrad": Step.ADAGRAD}


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The parts of one ranking model that are the same for all its epochs."""

    loss: Loss = Loss.HINGE
    weight: str = "harmonic"  # See `rank_weights`
    truncate: int = 10  # The k of ``weight="truncated"``
    negatives: Negatives = Negatives.UNTIL_VIOLATION
    step: Step = Step.SGD
    rank_scale: float = 0.1  # λ of the adaptive negatives
    l2: float = 0.0  # Factor of ½ |row|² for the rows that a step moves
    max_norm: float = math.inf  # Longest row of either side
    max_trials: int | None = None  # Draws for one pair; None: as many as there are candidates
    rank_of_trials: bool = False  # Estimate the rank after N draws as floor(max_trials / N), not floor(candidates / N)
    block: int = 256  # Pairs that share one state of the weights


def rank_weights(weight: str, n: int, truncate: int = 10) -> NDArray[np.float32]:
    """Return L(0) .. L(n), what a true tag on rank k costs (WSABIE, Eq. 5), float32, shape (n + 1,).

    "harmonic": 1 + 1/2 + ... + 1/k, which makes the first places count most. "constant": k / n, the mean rank. "top": 1
    from rank 1 on, the share of images with a wrong tag on top. "truncated": as harmonic, but nothing more after rank
    `truncate`.
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
