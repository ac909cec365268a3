"""Where to end a list: the confidence down to which tags are given, and the rank at which a search ends."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from visterm.models.confidence.calibration import LEAST_CHANCE, HeldOutChances

Doubles = NDArray[np.float64]

N_LEVELS = 10  # Expected precisions that are tried for a group of tags, from the requested one up to nearly 1
DOUBT = 20  # Expected entries that are added to a group's held-out entries, so that few held-out ones count less
NEVER = np.inf


class Cutoff(NamedTuple):
    """The least confidence at which each tag is given."""

    least: Doubles  # float64, shape (n_tags,): infinite for a tag that is never given
    wanted: float | None = None  # The precision that it is made for; None: another aim


def cutoff_at(confidence: float, n_tags: int) -> Cutoff:
    """Return every tag down to the same confidence."""
    return Cutoff(np.full(n_tags, float(confidence)))


def cutoff_of_best_f1(held: HeldOutChances) -> Cutoff:
    """Return every tag down to the confidence where F1 of all tags given to all held-out images is expected to be best.

    With chances that hold, one confidence for all tags, half of the best F1, cannot be beaten.

    References
    ----------
    Lipton, Elkan, Naryanaswamy: Optimal thresholding of classifiers to maximize F1 measure. ECML PKDD 2014.
    """
    chances = np.sort(held.chances.astype(np.float64))[::-1]
    if chances.size == 0:
        return cutoff_at(NEVER, held.groups.size)
    f1 = 2 * np.cumsum(chances) / (np.arange(1, chances.size + 1) + held.n_given)
    return cutoff_at(chances[np.argmax(f1)], held.groups.size)


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
