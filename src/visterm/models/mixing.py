"""Weights of a sum of models: those, on the simplex, that rank the tags of some images best."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.metrics.ranking import average_precisions

Floats = NDArray[np.float32]

STEPS = 20
"""A member's weight is sought among the multiples of 1 / 20."""

MAX_PASSES = 10

LEAST_GAIN = 1e-9
"""Gains in MAP below this are roundings."""


def best_mix(scores: Sequence[Floats], Y: sp.csr_array) -> tuple[NDArray[np.float64], float]:
    """Find the weights of a sum of scores with the highest MAP over images.

    Starts from the best of all members alike and each member alone, then goes over the members in turn: each gets the
    weight among 0, 1/20, ..., 1 that ranks best while the others share the rest as they did before, until a round
    over all brings nothing. With two members that is the whole grid; every value found is a mix that was measured.

    Parameters
    ----------
    scores : sequence of ndarray of float32, shape (n_images, n_tags)
        Of each member, scaled.
    Y : csr_array, shape (n_images, n_tags)
        Above 0: given. At least one entry.

    Returns
    -------
    weights : ndarray of float64, shape (n_members,)
        Not below 0, of sum 1.
    map : float
        What they reach.
    """
    n = len(scores)
    starts = [np.full(n, 1 / n), *np.eye(n)]
    found = [_map_of(start, scores, Y) for start in starts]
    place = int(np.argmax(found))
    best, value = starts[place], found[place]
    for _ in range(MAX_PASSES if n > 1 else 0):
        before = value
        for member in range(n):
            for mix in _line(best, member):
                reached = _map_of(mix, scores, Y)
                if reached > value + LEAST_GAIN:
                    best, value = mix, reached
        if value <= before:
            break
    return best, value


def _line(weights: NDArray[np.float64], member: int) -> list[NDArray[np.float64]]:
    """Give the mixes in which one member has each weight, and the others keep their proportions."""
    others = np.delete(weights, member)
    others = others / others.sum() if others.sum() > 0 else np.full(others.size, 1 / others.size)
    shares = np.arange(STEPS + 1) / STEPS
    return [np.insert((1 - share) * others, member, share) for share in shares]


def _map_of(weights: NDArray[np.float64], scores: Sequence[Floats], Y: sp.csr_array) -> float:
    mixed = np.zeros_like(scores[0])
    for weight, member in zip(weights, scores, strict=True):
        if weight > 0:
            mixed += np.float32(weight) * member
    return float(np.nanmean(average_precisions(mixed, Y)))
