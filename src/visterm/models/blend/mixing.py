"""Weights of a sum of models that rank the tags of some images best, and how far rare tags are lifted in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.metrics.ranking import average_precisions
from visterm.metrics.report import evaluate
from visterm.metrics.retrieval import rank_images

Floats = NDArray[np.float32]

STEPS = 20  # A member's weight is a multiple of 1 / 20
MAX_PASSES = 10

SAMPLE_ROWS = 2000  # The most images that choose weights
SAMPLE_BYTES = 2**28  # Scores of all members held at a time: where there are very many tags, fewer images are looked at
LEAST_GAIN = 1e-9  # Gains in MAP below this are roundings
LEAST_WORTH = 0.002  # What a model must add to the two MAPs together to be kept: less is chance
SHAPES = ((0.0, 0.0), *((step / 10, centre) for step in range(1, 9) for centre in (0.0, 0.25, 0.5)))
"""Lifts, and how near a tag's own mean they leave its scores as they are: 0 not at all, 1 at its mean."""

SAME_MAP = 0.003  # Within this of the best MAP over images, F1 of five tags an image decides
LEAST_SPREAD = 0.02  # Share of the mean spread that tags are taken to have whose scores hardly differ


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
    values = [measure(mixed(start, scores), Y) for start in starts]
    first = int(np.argmax(values))
    best, value = starts[first], values[first]
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


def gain_of(scores: Floats, others: Floats, Y: sp.csr_array) -> float:
    """Return what scores add to the MAP over images of others, with the best of a few weights; 0 if nothing."""
    shares = (0.0, 0.25, 0.5, 0.75, 1.0)
    reached = [image_map(mixed(np.array([1 - share, share]), [others, scores]), Y) for share in shares]
    return max(reached) - reached[0]


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
    return np.asarray(factors / factors.mean())


def best_shape(scores: NDArray[np.float32], Y: sp.csr_array) -> tuple[float, float]:
    """Find the lift and the centre that rank the tags of images best, of those next to it with the best F1.

    `scores` are float32, (n_images, n_tags), and `Y`, of the same shape, their tags. F1 is that of the means of
    precision and recall over tags, with five tags an image: rare tags count in it as much as frequent ones.
    """
    reached = {shape: image_map(shaped(scores, *shape), Y) for shape in SHAPES}
    least = max(reached.values()) - SAME_MAP
    near = [shape for shape in SHAPES if reached[shape] >= least]
    return max(near, key=lambda shape: evaluate(shaped(scores, *shape), Y, ["tag_f1@5"])["tag_f1@5"])


def shaped(scores: NDArray[np.float32], lift: float, centre: float) -> NDArray[np.float32]:
    """Return scores times the factors of tags, and plus their offsets."""
    factors = rare_tag_boost(scores, lift)
    return scores * factors.astype(np.float32) + tag_offsets(scores, factors, centre).astype(np.float32)


def tag_offsets(scores: NDArray[np.float32], factors: NDArray[np.float64], centre: float) -> NDArray[np.float64]:
    """Return what keeps a score of `centre` times the tag's mean score as it is where scores are times `factors`."""
    return np.asarray((1 - factors) * centre * scores.mean(axis=0, dtype=np.float64))
