"""Find the weights of a sum of models that ranks best on given images, and the boost of rare tags in the sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import scipy.sparse as sp

from visterm.core.types import Doubles, Floats, Ints
from visterm.metrics.ranking import average_precisions
from visterm.metrics.report import evaluate
from visterm.metrics.retrieval import rank_images

WEIGHT_STEPS = 20  # A member's weight is a multiple of 1 / 20
MAX_PASSES = 10

SAMPLE_ROWS = 2000  # Use at most this many images to find weights
SAMPLE_BYTES = 2**28  # Maximum memory for the scores of all members: with very many tags, fewer images are used
EQUAL_IMAGES = 100  # See `shrunk`
GOOD_SHARE = 0.65  # See `shrunk`
NEARLY_BEST = 0.8  # Minimum share of the best value for a model to count as good
SURE_IMAGES = 200  # With fewer images, a lift must raise MAP by more than two standard errors, as many are tried
MIN_GAIN = 1e-9  # Smaller gains in MAP are rounding errors
SURE_ERRORS = 2.0  # Standard errors that a gain must have in `sure_mix`
MIN_WORTH = 0.002  # Minimum gain in the sum of both MAPs for a model to be kept; smaller gains may be chance
LIFTS_AND_CENTRES = ((0.0, 0.0), *((step / 10, centre) for step in range(1, 9) for centre in (0.0, 0.25, 0.5)))
"""Pairs of a lift and a centre: scores of `centre` times the tag's mean score are not changed by the lift."""

SAME_MAP = 0.003  # Shapes within this of the best MAP over images are compared by F1 of five tags per image
MIN_SPREAD = 0.02  # Minimum spread of a tag, as a share of the mean spread, for tags with nearly constant scores


def image_map(scores: Floats, Y: sp.csr_array) -> float:
    """Return MAP over images: how well the tags of each image are ranked."""
    return float(np.nanmean(average_precisions(scores, Y)))


def word_map(scores: Floats, Y: sp.csr_array) -> float:
    """Return MAP over tags: how well a search for each tag ranks the images."""
    return float(np.nanmean(rank_images(scores, Y).average_precision()))


def both_maps(scores: Floats, Y: sp.csr_array) -> float:
    """Return the sum of MAP over images and MAP over tags."""
    return image_map(scores, Y) + word_map(scores, Y)


def best_mix(
    scores: Sequence[Floats], Y: sp.csr_array, measure: Callable[[Floats, sp.csr_array], float] = image_map
) -> tuple[Doubles, float]:
    """Find the weights of a sum of scores with the highest MAP over images, or another measure.

    Starts from equal weights or a single member, whichever is best. Then one member after another gets a better weight,
    a multiple of 1/20, while the other members share the rest in the same proportions, until a pass over all members
    brings no gain. The first pass tries every fourth multiple, the next ones those near the current weight, and 0.

    `scores` are the scaled scores of each member, float32, shape (n_images, n_tags); `Y`, of the same shape, is above 0
    for the tags of images, with at least one. `measure` is `image_map`, `word_map` or `both_maps`. Returns the weights,
    float64, shape (n_members,), non-negative with sum 1; and the value of the measure.
    """
    n = len(scores)
    starts = [np.full(n, 1 / n), *np.eye(n)]
    values = [measure(mixed(start, scores), Y) for start in starts]
    first = int(np.argmax(values))
    best, value = starts[first], values[first]
    for number in range(MAX_PASSES if n > 1 else 0):
        previous_value = value
        for member in range(n):
            others = np.delete(best, member)
            others = others / others.sum() if others.sum() > 0 else np.full(others.size, 1 / others.size)
            now = round(WEIGHT_STEPS * best[member])
            steps = {0, *range(now - 2, now + 3)} if number else set(range(0, WEIGHT_STEPS + 1, 4))
            for share in sorted(step / WEIGHT_STEPS for step in steps - {now} if 0 <= step <= WEIGHT_STEPS):
                mix = np.insert((1 - share) * others, member, share)
                mix_value = measure(mixed(mix, scores), Y)
                if mix_value > value + MIN_GAIN:
                    best, value = mix, mix_value
        if number and value <= previous_value:
            break
    return best, value


def sure_mix(scores: Sequence[Floats], Y: sp.csr_array) -> tuple[Doubles, float]:
    """Return the weights with the highest MAP over images, and it; only the best member if it isn't surely lower.

    With a single held-out tag per image, gains of less than two standard errors were often losses on other tags.
    """
    weights, value = best_mix(scores, Y)
    precisions = [average_precisions(member, Y) for member in scores]
    best = int(np.argmax([np.nanmean(values) for values in precisions]))
    if surely_gains(mixed(weights, scores), scores[best], Y):
        return weights, value
    return np.eye(len(scores))[best], float(np.nanmean(precisions[best]))


def surely_gains(scores: Floats, others: Floats, Y: sp.csr_array) -> bool:
    """Return whether the MAP over images of `scores` is higher than that of `others` by two standard errors."""
    gains = average_precisions(scores, Y) - average_precisions(others, Y)
    return bool(np.nanmean(gains) > SURE_ERRORS * np.nanstd(gains) / np.sqrt(len(gains)))


def sure_best(scores: Sequence[Floats], Y: sp.csr_array) -> int | None:
    """Return the number of the member whose MAP over images is surely higher than those of all others, or None."""
    order = np.argsort([image_map(member, Y) for member in scores])
    is_sure = len(order) > 1 and surely_gains(scores[order[-1]], scores[order[-2]], Y)
    return int(order[-1]) if is_sure else None


def without_idlers(weights: Doubles, value: float, scores: Sequence[Floats], Y: sp.csr_array) -> Doubles:
    """Set weights to 0, one after the other, as long as the other members reach nearly `value` in `both_maps`."""
    while np.count_nonzero(weights) > 1:
        kept = [np.where(np.arange(weights.size) == m, 0.0, weights) for m in np.flatnonzero(weights)]
        remaining = [others / others.sum() for others in kept]
        values = [both_maps(mixed(others, scores), Y) for others in remaining]
        if max(values) < value - MIN_WORTH:
            break
        weights = remaining[int(np.argmax(values))]
    return weights


def shrunk(weights: Doubles, values: Sequence[float], priors: Sequence[float], n_images: int) -> Doubles:
    """Return weights chosen on few images as if `EQUAL_IMAGES` more images had chosen the `priors` of the good members.

    `values` are the members' own, in the measure of the weights; a good member has at least 65 % of the best value, as
    values are noisy. If all good members have the prior 0, they are drawn to equal weights.
    """
    good = np.asarray(values) >= GOOD_SHARE * max(values)
    shares = good * np.asarray(priors) if (good * np.asarray(priors)).any() else good.astype(np.float64)
    return np.asarray((n_images * weights + EQUAL_IMAGES * shares / shares.sum()) / (n_images + EQUAL_IMAGES))


def best_pair(
    scores: Floats, others: Floats, Y: sp.csr_array, measure: Callable[[Floats, sp.csr_array], float] = image_map
) -> tuple[Floats, float]:
    """Return the sum of `others` and `scores` with the best of five weights, and its gain in `measure`, at least 0."""
    mixes = [mixed(np.array([1 - share, share]), [others, scores]) for share in (0.0, 0.25, 0.5, 0.75, 1.0)]
    values = [measure(mix, Y) for mix in mixes]
    best = int(np.argmax(values))
    return mixes[best], values[best] - values[0]


def sample(n: int, n_members: int, n_tags: int, rng: np.random.Generator) -> Ints:
    """Sample as many of n images as `SAMPLE_ROWS` and `SAMPLE_BYTES` allow; return their sorted numbers."""
    max_rows = sample_size(n_members, n_tags)
    return np.arange(n) if n <= max_rows else np.sort(rng.permutation(n)[:max_rows])


def sample_size(n_members: int, n_tags: int) -> int:
    """Return the maximum number of images to sample."""
    return min(SAMPLE_ROWS, max(1, SAMPLE_BYTES // (4 * n_members * n_tags)))


def mixed(weights: Doubles, scores: Sequence[Floats]) -> Floats:
    """Return the weighted sum of scores."""
    total = np.zeros_like(scores[0])
    for weight, member in zip(weights, scores, strict=True):
        if weight > 0:
            total += np.float32(weight) * member
    return total


def rare_tag_boost(scores: Floats, lift: float) -> Doubles:
    """Return ``spread_t^-lift`` of each tag, scaled to mean 1; the spread is the standard deviation of its scores.

    To return as many different tags, the alternatives cost as much or more: factors by frequency, by highest scores or
    of deviations from the tag's mean score, and terms instead of factors.
    """
    spread = scores.std(axis=0, dtype=np.float64)
    spread = np.maximum(spread, MIN_SPREAD * spread.mean()) if spread.any() else np.ones(spread.size)
    factors = spread**-lift
    return np.asarray(factors / factors.mean())


def best_shape(scores: Floats, Y: sp.csr_array) -> tuple[float, float]:
    """Find the lift and the centre with the best F1 among those whose MAP over images is nearly the best.

    `scores`, float32, and `Y`, their tags, have the shape (n_images, n_tags). F1 is computed from the mean precision
    and recall over tags, with five tags per image: rare tags count as much as frequent ones. With few images, there is
    only a lift if MAP is higher by more than two standard errors.
    """
    precisions = {shape: average_precisions(shaped(scores, *shape), Y) for shape in LIFTS_AND_CENTRES}
    maps = {shape: float(np.nanmean(values)) for shape, values in precisions.items()}
    if len(scores) < SURE_IMAGES:
        plain = precisions[LIFTS_AND_CENTRES[0]]
        errors = {shape: np.nanstd(values - plain) / np.sqrt(len(scores)) for shape, values in precisions.items()}
        candidates = [shape for shape in maps if maps[shape] - 2 * errors[shape] > np.nanmean(plain)]
        candidates.append(LIFTS_AND_CENTRES[0])
    else:
        candidates = [shape for shape in maps if maps[shape] >= max(maps.values()) - SAME_MAP]
    return max(candidates, key=lambda shape: evaluate(shaped(scores, *shape), Y, ["tag_f1@5"])["tag_f1@5"])


def shaped(scores: Floats, lift: float, centre: float) -> Floats:
    """Return the scores multiplied by `rare_tag_boost`, plus `tag_offsets`."""
    factors = rare_tag_boost(scores, lift)
    return scores * factors.astype(np.float32) + tag_offsets(scores, factors, centre).astype(np.float32)


def tag_offsets(scores: Floats, factors: Doubles, centre: float) -> Doubles:
    """Return the terms to add after `factors`, which leave scores of `centre` times a tag's mean score unchanged."""
    return np.asarray((1 - factors) * centre * scores.mean(axis=0, dtype=np.float64))
