"""Where to end a list: the confidence down to which tags are given, and the rank at which a search ends.

Cut-offs are the lowest confidences at which each tag is given, float64 of shape (n_tags,): infinite if it never is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.metrics.annotation import f1_of_means
from visterm.metrics.significance import upper_share
from visterm.models.confidence.calibration import MIN_CUTOFF, Doubles, HeldOutChances

PRIOR_ENTRIES = 20  # Pseudo-count of entries that are right as often as their confidences say
MEANS = ("photo", "micro", "macro")
F1_LEVELS = np.arange(MIN_CUTOFF, 1.5, 0.02)  # Cut-offs of the most frequent tag to choose from


def cutoff_for_precision(held: HeldOutChances, wanted: float) -> Doubles:
    """Return the lowest confidences with the expected precision `wanted`, above 0 and below 1, over all tags.

    The expected precision is that of the held-out images and of `PRIOR_ENTRIES`. A tag has a higher cut-off than others
    if the precision of its own held-out images is clearly lower (the upper end of a one-sided 95 % interval is below
    `wanted`). This does not lower the cut-offs of other tags: some tags are only worse by chance, and without them the
    others would look better than they are.
    """
    confidences = held.chances.astype(np.float64)
    n = np.arange(1, confidences.size + 1)
    expected = (np.cumsum(held.right) + PRIOR_ENTRIES * np.cumsum(confidences) / n) / (n + PRIOR_ENTRIES)
    expected[:-1][confidences[1:] == confidences[:-1]] = 0.0  # equal ones are given together
    precise = np.flatnonzero(expected >= wanted)
    common = confidences[precise[-1]] if precise.size else np.inf if (confidences >= wanted).any() else wanted
    return np.asarray(np.maximum(_min_cutoffs(held, wanted), common))


def _min_cutoffs(held: HeldOutChances, wanted: float) -> Doubles:
    """Return the lowest confidence of each tag at which its own held-out images don't contradict the precision.

    Two right entries are added to those of each tag, so that few images contradict nothing.
    """
    order = np.argsort(held.tags, kind="stable")  # by tag, and highest first
    tags, confidences = held.tags[order], held.chances[order]
    starts = np.searchsorted(tags, np.arange(held.tag_counts.size + 1))
    n_right = np.concatenate([[0], np.cumsum(held.right[order])])
    n = np.arange(1, tags.size + 1) - starts[tags]
    is_precise = upper_share(n_right[1:] - n_right[starts[tags]] + 2, n + 2) >= wanted
    is_precise[:-1] &= (confidences[1:] < confidences[:-1]) | (tags[1:] > tags[:-1])  # the last of equal ones
    n_precise = np.zeros(held.tag_counts.size, np.int64)
    np.maximum.at(n_precise, tags[is_precise], n[is_precise])
    cutoffs = np.full(n_precise.size, MIN_CUTOFF)
    is_cut = np.flatnonzero(n_precise < np.diff(starts))
    last = confidences[starts[is_cut] + np.maximum(n_precise[is_cut], 1) - 1]
    cutoffs[is_cut] = np.where(n_precise[is_cut] > 0, last, np.where(last >= wanted, np.inf, wanted))
    cutoffs[~held.is_learned] = np.inf  # their precision is unknown
    return cutoffs


def cutoff_of_best_f1(held: HeldOutChances, mean: str = "photo") -> Doubles:
    """Return the cut-offs with the best F1 on the held-out images.

    `mean` says which F1: "photo" is the mean over images, "micro" is F1 of all entries together, and "macro" is F1 of
    the means of precision and recall over tags, as in the literature on annotation. For "photo" and "micro" all tags
    have the same cut-off. For "macro", where a rare tag counts as much as a frequent one, cut-offs are proportional to
    the square root of the tag's number of held-out images; other powers, and a cut-off fitted to each tag, were not
    better on fresh images.
    """
    if not held.right.any():
        return np.full(held.tag_counts.size, np.inf)
    shares = (held.tag_counts + 0.5) / (held.tag_counts.max() + 0.5)
    factors = np.sqrt(shares) if mean == "macro" else np.ones_like(shares)
    choices = [np.clip(level * factors, MIN_CUTOFF, 1) for level in F1_LEVELS]
    return max(choices, key=lambda cutoffs: f1_score(held, held.chances >= cutoffs[held.tags], mean))


def f1_score(held: HeldOutChances, given: NDArray[np.bool_], mean: str) -> float:
    """Return F1 if the held-out entries in `given` are given, by a mean of `cutoff_of_best_f1`."""
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
    """Return the number of first entries of a ranking with the highest expected F1, 0 if no entry has a confidence.

    `confidences`, shape (n,), are the probabilities that the entries are relevant, best first; of equal F1, the smaller
    number is returned. Of the first k entries ``Σ_{i ≤ k} P_i`` are expected to be relevant, and ``Σ_i P_i`` of all, so
    F1 is about ``2 Σ_{i ≤ k} P_i / (k + Σ_i P_i)``, and the confidence at the cut-off about half of the best F1.

    References
    ----------
    Lewis: Evaluating and optimizing autonomous text classification systems. SIGIR 1995.
    """
    P = np.asarray(confidences, np.float64)
    total = P.sum()
    if not total > 0:
        return 0
    return int(np.argmax(2 * np.cumsum(P) / (np.arange(1, P.size + 1) + total))) + 1
