"""Where to end a list: the confidence down to which tags are given, and the rank at which a search ends."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from visterm.metrics.annotation import f1_of_means
from visterm.models.confidence.calibration import LEAST_CHANCE, HeldOutChances

Doubles = NDArray[np.float64]

N_LEVELS = 10  # Expected precisions that are tried for a group of tags, from the requested one up to nearly 1
DOUBT = 20  # Expected entries that are added to a group's held-out entries, so that few held-out ones count less
NEVER = np.inf
SHARES = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 1.0)


class Cutoff(NamedTuple):
    """The least confidence at which each tag is given."""

    least: Doubles  # float64, shape (n_tags,): infinite for a tag that is never given
    wanted: float | None = None  # The precision that it is made for; None: another aim


def cutoff_at(confidence: float, n_tags: int) -> Cutoff:
    """Return every tag down to the same confidence."""
    return Cutoff(np.full(n_tags, float(confidence)))


def cutoff_of_best_f1(held: HeldOutChances) -> Cutoff:
    """Return each tag down to a share of what its chances are where it is likely: the share of the best F1.

    F1 is that of the means of precision and recall over the tags that were right in held-out images, as the literature
    on annotation reports it, so that rare tags count as much as frequent ones. What the chances p of a tag are where it
    is likely is ``Σ p² / Σ p``, small for a tag that is hard to tell, which one confidence for all would hardly give.
    If its chances held exactly, a tag would best be cut off at half of its best F1; that number follows the few images
    of a rare tag too far. A tag that was likely nowhere has the number of all tags together.

    References
    ----------
    Lipton, Elkan, Naryanaswamy: Optimal thresholding of classifiers to maximize F1 measure. ECML PKDD 2014.
    """
    n_tags, tags, chances = held.groups.size, held.tags, held.chances.astype(np.float64)
    if not held.right.any():
        return cutoff_at(NEVER, n_tags)
    typical = np.full(n_tags, (chances @ chances) / chances.sum())
    some = np.bincount(tags, minlength=n_tags) > 0
    typical[some] = np.bincount(tags, chances**2, n_tags)[some] / np.bincount(tags, chances, n_tags)[some]
    relevant = np.bincount(tags, held.right, n_tags)

    def f1(share: float) -> float:
        given = chances >= share * typical[tags]
        right = np.bincount(tags, given & held.right, n_tags)[relevant > 0]
        n_given = np.bincount(tags, given, n_tags)[relevant > 0]
        return float(f1_of_means(right / np.maximum(n_given, 1), right / relevant[relevant > 0])[0])

    return Cutoff(np.maximum(max(SHARES, key=f1) * typical, LEAST_CHANCE))


def cutoff_for_precision(held: HeldOutChances, wanted: float) -> Cutoff:
    """Return each tag down to where its expected precision over the held-out images is as wanted, above 0 and below 1.

    The expected precision of a tag down to a confidence c is the mean of its chances from c on, with one more entry at
    c itself: the point where few entries seem just enough is met too early by luck. So a tag without a likely image is
    given from the wanted precision on.

    Chances of rare tags may be too large together while those of all tags are right. So what was right is counted for
    groups of tags with about as many training images: where it is less than wanted, the least higher expected precision
    is taken at which it is as wanted. 20 more entries stand for what little data cannot say: as right as expected, or
    less, as the group's entries from half the wanted precision on are. A group that never is as right as wanted is not
    given at all. Where more is right than wanted nothing is lowered.
    """
    least = np.full(held.groups.size, NEVER)
    tags = held.tags
    some = held.chances >= wanted / 2
    groups, n_groups = held.groups[tags][some], int(held.groups.max(initial=-1)) + 1
    promised = np.bincount(groups, held.chances[some], minlength=n_groups) + DOUBT
    faith = np.minimum(1, (np.bincount(groups, held.right[some], minlength=n_groups) + DOUBT) / promised)
    open_groups = set(np.unique(held.groups).tolist())
    for level in np.linspace(wanted, 1, N_LEVELS, endpoint=False):
        cuts = expected_cuts(held, float(level))
        given = held.chances >= cuts[tags]
        for group in sorted(open_groups):
            of_group = given & (held.groups[tags] == group)
            n, expected = int(of_group.sum()), float(held.chances[of_group].sum(dtype=np.float64))
            mean = max(float(level), expected / n) if n else float(level)
            if held.right[of_group].sum() + DOUBT * mean * faith[group] >= wanted * (n + DOUBT):
                least[held.groups == group] = cuts[held.groups == group]
                open_groups.remove(group)
    return Cutoff(least, wanted)


def expected_cuts(held: HeldOutChances, level: float) -> Doubles:
    """Return the least chance of each tag down to which its expected precision is at least `level`."""
    chances = held.chances.astype(np.float64)
    sums = np.concatenate([[0.0], np.cumsum(chances)])
    first = held.starts[:-1][held.tags]
    ranks = np.arange(1, chances.size + 1) - first
    expected = (sums[1:] - sums[first] + chances) / (ranks + 1)
    n_given = np.bincount(held.tags[expected >= level], minlength=held.groups.size)
    cuts = np.full(held.groups.size, level)
    some = n_given > 0
    cuts[some] = np.minimum(level, chances[held.starts[:-1][some] + n_given[some] - 1])
    np.maximum(cuts, LEAST_CHANCE, out=cuts)
    return cuts


def expected_f1_cutoff(confidences: Any) -> int:
    """Return how many of the first entries have the largest expected F1: 0 where none has a chance.

    `confidences`, (n,), are chances that the entries of a ranking are relevant, best first; the smallest such rank is
    returned. Of the first k, ``Σ_{i ≤ k} P_i`` are expected to be relevant, and ``Σ_i P_i`` of all; so F1 is about
    ``2 Σ_{i ≤ k} P_i / (k + Σ_i P_i)``. The confidence at the cut is then about half of the best F1: a search that is
    easily answered ends early, one that is not goes on longer.

    References
    ----------
    Lewis: Evaluating and optimizing autonomous text classification systems. SIGIR 1995.
    """
    P = np.asarray(confidences, np.float64)
    total = P.sum()
    if not total > 0:
        return 0
    return int(np.argmax(2 * np.cumsum(P) / (np.arange(1, P.size + 1) + total))) + 1
