"""Several models on the same images or queries: which differs significantly from which, for any number of pairs."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from visterm.metrics import significance

RESAMPLES = 1000  # Resamples of the images or queries, for intervals


class Compared(NamedTuple):
    """Two of several models, compared on the same images or queries."""

    # Numbers of the two
    first: int
    second: int
    difference: significance.Difference  # Mean of the first minus that of the second, with its bootstrap interval
    ranks: significance.SignedRanks  # Wilcoxon's test of the two alone
    holm_p: float  # Its p-value, corrected for the number of pairs

    def better(self, level: float = 0.95) -> int:
        """Return 1 if the first is better at this level of confidence over all pairs, -1 if the second is, else 0."""
        return self.ranks._replace(p_value=self.holm_p).better(level)


def compare_pairs(values: Sequence[Any]) -> list[Compared]:
    """Compare every two of several models by Wilcoxon's test, with p-values corrected by Holm's method.

    `values` has an array of shape (n,) for each model: one measure on the same images or queries, NaN in all where it
    is not defined. Pairs come in the order (0, 1), (0, 2), ..., (1, 2), ...; there are none of one model. Raises
    ShapeError if the lengths differ; DataError if a value is defined for one model only.
    """
    pairs = list(combinations(range(len(values)), 2))
    tests = [significance.signed_ranks(values[a], values[b]) for a, b in pairs]
    corrected = holm([test.p_value for test in tests])
    return [
        Compared(a, b, difference_of(values[a], values[b]), test, float(p))
        for (a, b), test, p in zip(pairs, tests, corrected, strict=True)
    ]


def holm(p_values: Sequence[float]) -> NDArray[np.float64]:
    """Correct p-values for their number (Holm 1979): the chance that any true hypothesis is rejected stays the level.

    The smallest of n is multiplied by n, the next by n - 1, and so on; none becomes smaller than one before it.
    """
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p, kind="stable")
    stepped = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1)))
    corrected = np.empty_like(p)
    corrected[order] = stepped
    return corrected


def interval_of(values: NDArray[np.float64]) -> significance.Interval:
    """Return the mean of the values that are defined and its 95 % bootstrap interval; a single value has no width."""
    defined = values[~np.isnan(values)]
    if defined.size == 1:
        return significance.Interval(float(defined[0]), float(defined[0]), float(defined[0]))
    return significance.bootstrap_mean(defined, n_resamples=RESAMPLES)


def difference_of(first: NDArray[np.float64], second: NDArray[np.float64]) -> significance.Difference:
    """Return the first mean minus the second and its 95 % bootstrap interval; a single value has no width."""
    defined = ~np.isnan(first)
    if first.size == second.size and np.count_nonzero(defined) == 1 and not np.isnan(second[defined][0]):
        only = float(first[defined][0] - second[defined][0])
        return significance.Difference(only, only, only, 1.0, 1)
    return significance.paired_bootstrap(first, second, n_resamples=RESAMPLES)
