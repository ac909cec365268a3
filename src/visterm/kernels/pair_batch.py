"""What the kernels of training on pairs work on: a block of pairs, the tags that images have, draws and losses.

In hot loops pass them as plain tuples, ``tuple(pairs)``: Numba finds the type of one in a microsecond, and that of a
NamedTuple of eight arrays in ten.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np


class Loss(IntEnum):
    """What a pair (true tag y, other tag ȳ) costs, by the gap f_y - f_ȳ."""

    HINGE = 0  # ``|1 - gap|₊``: nothing from a gap of 1 on
    LOGISTIC = 1  # ``log(1 + exp(-gap))``: less and less, never nothing


class PairBatch(NamedTuple):
    """Pairs (image x, true tag y) that see the same weights, and what was found for each; arrays of shape (n,)."""

    examples: np.ndarray  # int64: numbers of the pairs: they key the draws
    # The image, as a row of `PositiveTags`, and the true tag y
    images: np.ndarray  # int64
    tags: np.ndarray  # int64
    at: np.ndarray  # int64: which of the image rows is that of each pair
    violators: np.ndarray  # int64: the other tag ȳ, or -1 where the pair makes no step
    trials: np.ndarray  # int64: N, the number of draws
    gaps: np.ndarray  # float32: f_y - f_ȳ, where there is a violator
    gains: np.ndarray  # float32: weight of the rank times the slope of the loss: the size of the step on the tags' side


class PositiveTags(NamedTuple):
    """The tags that images have: ``tags[start[i]:start[i + 1]]`` are those of image i, sorted (int32 or int64)."""

    start: np.ndarray
    tags: np.ndarray


class Pool(NamedTuple):
    """Tags drawn uniformly for many pairs, shape (m,), maybe none, and their scores, float32, shape (n, m)."""

    tags: np.ndarray
    scores: np.ndarray


class Draws(NamedTuple):
    """How other tags are drawn."""

    margin: float  # 1 for the hinge; infinite takes the first draw, whatever its score
    max_trials: int  # Draws for a pair, at most (and at most as many as there are candidates)
    # Key of the draws, together with the number of the pair
    seed: int
    epoch: int


class RankLoss(NamedTuple):
    """What a violation costs."""

    loss: int  # A `Loss`
    weights: np.ndarray
    """float32, shape (n_tags + 1,). L(k) of each rank; longer where `most_trials` is more than n_tags."""
    most_trials: int  # γ, where the rank is estimated as floor(γ / N); 0: as floor(candidates / N)
