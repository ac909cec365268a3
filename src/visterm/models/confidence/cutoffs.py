"""Where to end a list: the confidence down to which tags are given, and the rank at which a search ends."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from visterm.metrics.annotation import f1_of_means
from visterm.metrics.significance import upper_share
from visterm.models.confidence.calibration import LEAST_CHANCE, HeldOutChances

Doubles = NDArray[np.float64]

DOUBT = 20  # Entries as right as expected that are added to the held-out ones, so that few of these count less
NEVER = np.inf
MEANS = ("photo", "micro", "macro")


class Cutoff(NamedTuple):
    """The least confidence at which each tag is given."""

    least: Doubles  # float64, shape (n_tags,): infinite for a tag that is never given


def cutoff_at(confidence: float, n_tags: int) -> Cutoff:
    """Return every tag down to the same confidence."""
    return Cutoff(np.full(n_tags, float(confidence)))


def cutoff_for_precision(held: HeldOutChances, wanted: float) -> Cutoff:
    """Return the least confidence at which tags, all together, are expected to be right as often as `wanted`.

    Held-out images say how often that is, and 20 more entries as right as their confidences, so that few say less. A
    tag whose own held-out images are clearly less often right has a higher cut-off: where that begins (the upper end of
    a one-sided 95 % interval is below what is wanted). That lowers no other cut-off: what looks worst by luck would
    else make the rest look better than it is. `wanted` is above 0 and below 1.
    """
    chances = held.chances.astype(np.float64)
    n = np.arange(1, chances.size + 1)
    expected = (np.cumsum(held.right) + DOUBT * np.cumsum(chances) / n) / (n + DOUBT)
    expected[:-1][chances[1:] == chances[:-1]] = 0.0  # equal ones are given together
    enough = np.flatnonzero(expected >= wanted)
    common = chances[enough[-1]] if enough.size else NEVER if (chances >= wanted).any() else wanted
    return Cutoff(np.maximum(_floors(held, wanted), common))


def _floors(held: HeldOutChances, wanted: float) -> Doubles:
    """Return the least chance of each tag down to which its own held-out images do not speak against it.

    Two more entries that were right stand for what few images cannot say.
    """
    n_tags, order = held.tag_counts.size, np.argsort(held.tags, kind="stable")  # each tag's largest first
    tags, chances = held.tags[order], held.chances[order]
    starts = np.searchsorted(tags, np.arange(n_tags + 1))
    sums = np.concatenate([[0], np.cumsum(held.right[order])])
    n = np.arange(1, tags.size + 1) - starts[tags]
    is_fine = upper_share(sums[1:] - sums[starts[tags]] + 2, n + 2) >= wanted
    is_fine[:-1] &= (chances[1:] < chances[:-1]) | (tags[1:] > tags[:-1])  # the last of equal ones
    n_fine = np.zeros(n_tags, np.int64)
    np.maximum.at(n_fine, tags[is_fine], n[is_fine])
    floors = np.full(n_tags, float(LEAST_CHANCE))
    some = np.flatnonzero(n_fine < np.diff(starts))
    last = chances[starts[some] + np.maximum(n_fine[some], 1) - 1]
    floors[some] = np.where(n_fine[some] > 0, last, np.where(last >= wanted, NEVER, wanted))
    floors[~held.is_learned] = NEVER  # nothing shows how often they are right
    return floors


def cutoff_of_best_f1(held: HeldOutChances, mean: str = "photo") -> Cutoff:
    """Return the one confidence for all tags with the best F1 on the held-out images.

    `mean` says which F1: "photo" is the mean over images, "micro" that of all entries together, and "macro" that of the
    means of precision and recall over tags, as the literature on annotation reports it. Cut-offs of a tag's own gained
    next to nothing in any of them.
    """
    if not held.right.any():
        return cutoff_at(NEVER, held.tag_counts.size)
    levels = np.arange(LEAST_CHANCE, 1, 0.02)
    best = max(levels, key=lambda level: f1_score(held, held.chances >= level, mean))
    return cutoff_at(best, held.tag_counts.size)


def f1_score(held: HeldOutChances, given: NDArray[np.bool_], mean: str) -> float:
    """Return F1 of the held-out entries that are given, by a mean of `cutoff_of_best_f1`."""
    right = given & held.right
    if mean == "micro":
        return float(2 * right.sum() / (given.sum() + held.tag_counts.sum()))
    groups, counts = (held.images, held.image_counts) if mean == "photo" else (held.tags, held.tag_counts)
    n_right, n_given = (np.bincount(groups, each, counts.size)[counts > 0] for each in (right, given))
    counts = counts[counts > 0]
    if mean == "photo":
        return float((2 * n_right / (n_given + counts)).mean())
    return float(f1_of_means(n_right / np.maximum(n_given, 1), n_right / counts)[0])


def expected_f1_cutoff(confidences: Any) -> int:
    """Return how many of the first entries have the largest expected F1: 0 where none has a chance.

    `confidences`, (n,), are chances that the entries of a ranking are relevant, best first; the smallest such rank is
    returned. Of the first k, ``Σ_{i ≤ k} P_i`` are expected to be relevant, and ``Σ_i P_i`` of all; so F1 is about
    ``2 Σ_{i ≤ k} P_i / (k + Σ_i P_i)``, and the confidence at the cut about half of the best F1.

    References
    ----------
    Lewis: Evaluating and optimizing autonomous text classification systems. SIGIR 1995.
    """
    P = np.asarray(confidences, np.float64)
    total = P.sum()
    if not total > 0:
        return 0
    return int(np.argmax(2 * np.cumsum(P) / (np.arange(1, P.size + 1) + total))) + 1
