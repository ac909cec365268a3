"""Weights of a sum of models that rank the tags of some images best, and how far rare tags are lifted in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.metrics.ranking import average_precisions
from visterm.metrics.retrieval import rank_images

Floats = NDArray[np.float32]

STEPS = 20  # A member's weight is a multiple of 1 / 20
MAX_PASSES = 10

SAMPLE_ROWS = 2000  # The most images that choose weights
SAMPLE_BYTES = 2**28  # Scores of all members held at a time: where there are very many tags, fewer images are looked at
LEAST_GAIN = 1e-9  # Gains in MAP below this are roundings
LEAST_WORTH = 0.002
"""What a model must add to the two MAPs together to be kept: less is chance, and each costs time for every image."""

LIFTS = tuple(step / 40 for step in range(21))

LIFT_COST = 0.003  # MAP over images that lifting rare tags may cost
LEAST_SPREAD = 0.02
"""Tags whose scores hardly differ from image to image are taken to have this share of the mean spread."""


def image_map(scores: Floats, Y: sp.csr_array) -> float:
    """Return MAP over images: how well the tags of each are ranked."""
    return float(np.nanmean(average_precisions(scores, Y)))


def word_map(scores: Floats, Y: sp.csr_array) -> float:
    """Return MAP over tags: how well a search for each ranks the images."""
    return float(np.nanmean(rank_images(scores, Y).average_precision()))


def both_maps(scores: Floats, Y: sp.csr_array) -> float:
    """Return the sum of MAP over images and MAP over tags."""
    return image_map(scores, Y) + word_map(scores, Y)


def best_mix(
    scores: Sequence[Floats], Y: sp.csr_array, measure: Callable[[Floats, sp.csr_array], float] = image_map
) -> tuple[NDArray[np.float64], float]:
    """Find the weights of a sum of scores with the highest MAP over images, or another measure.

    Starts from the best of all members alike and each member alone, then goes over the members in turn: each gets the
    weight among 0, 1/20, ..., 1 that ranks best while the others share the rest as they did before, until a round over
    all brings nothing. With two members that is the whole grid; every value found is a mix that was measured.

    `scores` of each member are scaled, float32 of shape (n_images, n_tags); `Y`, of that shape, is above 0 for given
    tags, and has at least one. `measure` is `image_map`, `word_map` or `both_maps`. Returns weights, float64 of shape
    (n_members,), not below 0 and of sum 1; and the value that they reach.
    """
    n = len(scores)
    starts = [np.full(n, 1 / n), *np.eye(n)]
    found = [measure(mixed(start, scores), Y) for start in starts]
    place = int(np.argmax(found))
    best, value = starts[place], found[place]
    for _ in range(MAX_PASSES if n > 1 else 0):
        before = value
        for member in range(n):
            others = np.delete(best, member)
            others = others / others.sum() if others.sum() > 0 else np.full(others.size, 1 / others.size)
            for share in np.arange(STEPS + 1) / STEPS:
                mix = np.insert((1 - share) * others, member, share)
                reached = measure(mixed(mix, scores), Y)
                if reached > value + LEAST_GAIN:
                    best, value = mix, reached
        if value <= before:
            break
    return best, value


def without_idlers(
    weights: NDArray[np.float64], value: float, scores: Sequence[Floats], Y: sp.csr_array
) -> NDArray[np.float64]:
    """Set to 0, one after the other, the weights without which the others reach nearly `value`, of `both_maps`."""
    while np.count_nonzero(weights) > 1:
        candidates = []
        for m in np.flatnonzero(weights):
            rest = np.where(np.arange(weights.size) == m, 0.0, weights)
            rest /= rest.sum()
            candidates.append((both_maps(mixed(rest, scores), Y), rest))
        reached, rest = max(candidates, key=lambda item: item[0])
        if reached < value - LEAST_WORTH:
            break
        weights = rest
    return weights


def sample(n: int, n_members: int, n_tags: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw as many of n images, in order, as the scores of all members may be held of at a time."""
    most = min(SAMPLE_ROWS, max(1, SAMPLE_BYTES // (4 * n_members * n_tags)))
    return np.arange(n) if n <= most else np.sort(rng.permutation(n)[:most])


def mixed(weights: NDArray[np.float64], scores: Sequence[Floats]) -> Floats:
    """Return the weighted sum of scores."""
    total = np.zeros_like(scores[0])
    for weight, member in zip(weights, scores, strict=True):
        if weight > 0:
            total += np.float32(weight) * member
    return total


def rare_tag_boost(scores: NDArray[np.float32], lift: float) -> NDArray[np.float64]:
    """Return ``spread_t^-lift`` of each tag, of mean 1; the spread is the standard deviation of its scores.

    Factors by the frequency of tags, by their highest scores, or of deviations from the mean score of each tag, and
    numbers added instead of factors, gave as many different tags only at the same or a greater cost.
    """
    spread = scores.std(axis=0, dtype=np.float64)
    spread = np.maximum(spread, LEAST_SPREAD * spread.mean()) if spread.any() else np.ones(spread.size)
    factors = spread**-lift
    scaled: NDArray[np.float64] = factors / factors.mean()
    return scaled


def best_lift(scores: NDArray[np.float32], Y: sp.csr_array, best_alone: float) -> float:
    """Find the greatest lift that costs little.

    `scores` are float32, (n_images, n_tags), and `Y`, of the same shape, their tags. `best_alone` is the MAP over
    images of the best model alone: the lift costs little of this either.
    """
    reached = {lift: image_map(scores * rare_tag_boost(scores, lift).astype(np.float32), Y) for lift in LIFTS}
    least = max(reached[0.0], best_alone) - LIFT_COST
    return max((lift for lift in LIFTS if reached[lift] >= least), default=0.0)
