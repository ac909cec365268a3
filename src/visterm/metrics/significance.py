"""How sure one may be of a mean, or of differences between models: bootstrap, Wilcoxon's signed ranks and Holm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from visterm.core.checks import check_count
from visterm.core.errors import DataError, ShapeError

DRAWS_AT_ONCE = 2**22

NOISE = 1e-10
"""Of the largest value: differences nearer than this are equal, as the same fractions reached by other sums are."""

LEVEL = 0.95  # Share of the resamples that an interval holds
MOST_TIED = 13  # Differences with ties of which all signs are gone through, as SciPy does
Z = 1.959964  # Standard deviations that hold 95 %, of an interval of a share
NORMAL_95 = 1.959963984540054  # Standard deviations on both sides of the mean that hold 95 % of a normal distribution
ONE_SIDED = 1.644854  # Those on one side of it
RESAMPLES = 1000  # Resamples of the images or queries, for the intervals of evaluations


class Interval(NamedTuple):
    """A mean over images, and the interval in which it lies under resampling of the images."""

    mean: float
    low: float
    high: float


class Difference(NamedTuple):
    """A mean difference between two models on the same images."""

    # First minus second, and its interval under resampling of the images
    mean: float
    low: float
    high: float
    p_value: float
    """Twice the share of resamples in which the difference is on or across 0, at most 1. Small: the sign is sure."""
    n: int  # Images that were compared


class SignedRanks(NamedTuple):
    """Wilcoxon's signed ranks of the differences between two models."""

    # Sums of the ranks, by size, of the differences in favour of each
    first_better: float
    second_better: float
    p_value: float
    """Of the hypothesis that the differences are symmetric around 0. Small: the one with the larger sum is better."""
    n: int  # Differences that are not 0

    def better(self, level: float = 0.95) -> int:
        """Return 1 if the first is better at this level of confidence, -1 if the second is, else 0."""
        if self.p_value > 1 - level:
            return 0
        return 1 if self.first_better > self.second_better else -1


class Compared(NamedTuple):
    """Two of several models, compared on the same images or queries."""

    # Numbers of the two
    first: int
    second: int
    difference: Difference  # Mean of the first minus that of the second, with its bootstrap interval
    ranks: SignedRanks  # Wilcoxon's test of the two alone
    holm_p: float  # Its p-value, corrected for the number of pairs

    def better(self) -> int:
        """Return 1 if the first is better at 95 % confidence over all pairs, -1 if the second is, else 0."""
        return self.ranks._replace(p_value=self.holm_p).better()


def bootstrap_mean(values: ArrayLike, *, n_resamples: int = 10_000) -> Interval:
    """Return the mean of values and its 95 % percentile bootstrap interval; that of a single value has no width.

    Raises DataError if no value is defined.

    Parameters
    ----------
    values : array-like, shape (n,)
        One value an image; NaN where the metric is not defined, which is left out.
    n_resamples : int
        Times that n values are drawn anew with replacement, from the seed 0.
    """
    array = _vector(values, "values")
    array = array[~np.isnan(array)]
    _, low, high = _resampled_means(array, n_resamples)
    return Interval(float(array.mean()), low, high)


def paired_bootstrap(first: ArrayLike, second: ArrayLike, *, n_resamples: int = 10_000) -> Difference:
    """Compare two models by their values on the same images; the interval of a single image has no width.

    Raises ShapeError if the two have different lengths; DataError if a value is defined for one model only, or no image
    is left.

    Parameters
    ----------
    first, second : array-like, shape (n,)
        Values of one metric, image by image; NaN in both where it is not defined.
    n_resamples : int
        As in `bootstrap_mean`.

    Examples
    --------
    >>> paired_bootstrap([0.9, 0.8, 0.7, 0.9], [0.5, 0.6, 0.6, 0.4]).low > 0
    True
    """
    differences = np.subtract(*_pairs(first, second))
    means, low, high = _resampled_means(differences, n_resamples)
    across = min(np.count_nonzero(means <= 0), np.count_nonzero(means >= 0))
    p_value = min(1.0, 2 * (across + 1) / (n_resamples + 1)) if differences.size > 1 else 1.0
    return Difference(float(differences.mean()), low, high, p_value, differences.size)


def signed_ranks(first: ArrayLike, second: ArrayLike) -> SignedRanks:
    """Compare two models by Wilcoxon's signed rank test, two-sided, as the PAMIR paper does (section V-C).

    Differences of 0 are left out; up to 50 others without ties, and up to 13 with some, are judged exactly, more by the
    normal law. Differences that are apart by no more than 1e-10 of the largest value are equal: 1/2 - 1/3 and 2/3 - 1/2
    are two numbers in floating point, and one rank. Raises ShapeError if the two have different lengths; DataError if a
    value is defined for one model only.

    Parameters
    ----------
    first, second : array-like, shape (n,)
        Values of one metric on the same queries or images; NaN in both where it is not defined.

    Examples
    --------
    >>> signed_ranks([0.9, 0.8, 0.7, 0.9, 0.6, 0.4], [0.1, 0.2, 0.3, 0.4, 0.5, 0.5]).second_better
    1.5
    """
    sizes = _numbered_sizes(*_pairs(first, second))
    sizes = sizes[sizes != 0]
    if sizes.size == 0:
        return SignedRanks(0.0, 0.0, 1.0, 0)
    from scipy.stats import rankdata, wilcoxon  # half a second, which a service need not wait for

    ranks = rankdata(np.abs(sizes))
    first = float(ranks[sizes > 0].sum())
    tied = np.unique(ranks).size < ranks.size
    # The same as SciPy's, which goes through all signs one by one where there are ties: half a second.
    p_value = _all_signs(ranks, first) if tied and ranks.size <= MOST_TIED else float(wilcoxon(sizes).pvalue)
    return SignedRanks(first, float(ranks[sizes < 0].sum()), p_value, sizes.size)


def compare_pairs(values: Sequence[Any]) -> list[Compared]:
    """Compare every two of several models by Wilcoxon's test, with p-values corrected by Holm's method.

    `values` has an array of shape (n,) for each model: one measure on the same images or queries, NaN in all where it
    is not defined. Pairs come in the order (0, 1), (0, 2), ..., (1, 2), ...; there are none of one model. Raises
    ShapeError if the lengths differ; DataError if a value is defined for one model only.
    """
    pairs = list(combinations(range(len(values)), 2))
    tests = [signed_ranks(values[a], values[b]) for a, b in pairs]
    corrected = holm([test.p_value for test in tests])
    return [
        Compared(a, b, paired_bootstrap(values[a], values[b], n_resamples=RESAMPLES), test, float(p))
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


def interval_of(values: NDArray[np.float64]) -> Interval:
    """Return the mean of the values that are defined and its 95 % bootstrap interval, for evaluations."""
    return bootstrap_mean(values, n_resamples=RESAMPLES)


def _numbered_sizes(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return whole numbers in place of differences: 0 for none, equal sizes the same number, and the signs kept."""
    differences = first - second
    order = np.argsort(np.abs(differences))
    noise = NOISE * max(np.abs(first).max(initial=0), np.abs(second).max(initial=0))
    numbers = np.empty(differences.size)
    numbers[order] = np.cumsum(np.diff(np.abs(differences[order]), prepend=0) > noise)
    return np.sign(differences) * numbers


def _all_signs(ranks: NDArray[np.float64], rank_sum: float) -> float:
    """Return twice the share (at most 1) of sign patterns whose sum of ranks is as extreme as the one found."""
    signs = np.arange(2**ranks.size)[:, None] >> np.arange(ranks.size) & 1
    sums = signs @ ranks
    return float(min(1.0, 2 * min((sums <= rank_sum).mean(), (sums >= rank_sum).mean())))


def _pairs(first: ArrayLike, second: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the values where both are defined, and refuse what is defined for one only."""
    a, b = _vector(first, "first"), _vector(second, "second")
    if a.size != b.size:
        raise ShapeError(f"first has {a.size} values, second {b.size}; expected values of the same images.")
    one_only = np.flatnonzero(np.isnan(a) != np.isnan(b))
    if one_only.size:
        raise DataError(
            f"{one_only.size} images have a value of one model only, the first is {one_only[0]}. "
            "Compare values of the same metric on the same images and tags."
        )
    both = ~np.isnan(a)
    return a[both], b[both]


def _vector(values: ArrayLike, name: str) -> NDArray[np.float64]:
    array = np.asarray(values, np.float64)
    if array.ndim != 1:
        raise ShapeError(f"{name} has {array.ndim} dimensions; expected 1, one value an image.")
    if np.isinf(array).any():
        raise DataError(f"{name} has infinite values; expected finite numbers, or NaN where a metric is not defined.")
    return array


def _resampled_means(values: NDArray[np.float64], n_resamples: int) -> tuple[NDArray[np.float64], float, float]:
    """Return the means of resamples, and the ends of the interval that holds 95 % of them."""
    check_count(n_resamples, "n_resamples")
    if values.size == 0:
        raise DataError("No image has a value; at least 1 is needed to resample. Evaluate more images.")
    rng = np.random.default_rng(0)
    step = max(1, DRAWS_AT_ONCE // values.size)
    means = np.empty(n_resamples)
    for start in range(0, n_resamples, step):
        part = means[start : start + step]
        part[:] = values[rng.integers(values.size, size=(part.size, values.size))].mean(axis=1)
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return means, float(low), float(high)


class Moments:
    """Counts, sums and sums of squares of the values that are defined (not NaN)."""

    def __init__(self) -> None:
        self.n = 0
        self._sum = self._squares = 0.0

    def add(self, values: NDArray[np.float64]) -> None:
        """Take more values, shape (n,)."""
        defined = values[~np.isnan(values)]
        self.n += defined.size
        self._sum += float(defined.sum())
        self._squares += float(np.square(defined).sum())

    def interval(self) -> Interval:
        """Return the mean and its 95 % interval by the normal distribution: near the bootstrap for many values.

        A single value has no width, and without values all three are NaN.
        """
        mean = self._sum / self.n if self.n else math.nan
        variance = max(0.0, self._squares / self.n - mean**2) if self.n else math.nan
        half = NORMAL_95 * math.sqrt(variance / max(1, self.n))
        return Interval(mean, mean - half, mean + half)


def share_of_right(n_right: ArrayLike, n_given: ArrayLike) -> Interval | None:
    """Return the share of right tags among all that were given, and its 95 % interval; None where nothing was given.

    Tags of one image are right or wrong together, so they say less than as many tags of different images. The interval
    is Wilson's for the number of independent tags that say as much: the number given, divided by the ratio of the
    variance over images to that of independent tags, if above 1. Unlike a bootstrap over images, it does not shrink to
    a point if few tags were given and all were right. `n_right` and `n_given` are int of shape (n_images,).

    References
    ----------
    Wilson: Probable inference, the law of succession, and statistical inference. JASA 1927. Rao, Scott: A simple method
    for the analysis of clustered binary data. Biometrics 1992.
    """
    right, given = np.asarray(n_right, np.float64), np.asarray(n_given, np.float64)
    n = float(given.sum())
    if n == 0:
        return None
    share = float(right.sum()) / n
    independent = share * (1 - share) / n
    effect = 1.0
    if independent > 0 and given.size > 1:
        residuals = right - share * given
        effect = max(1.0, given.size / (given.size - 1) * float(residuals @ residuals) / n**2 / independent)
    m = n / effect
    centre = (share + Z**2 / (2 * m)) / (1 + Z**2 / m)
    half = Z / (1 + Z**2 / m) * float(np.sqrt(share * (1 - share) / m + Z**2 / (4 * m**2)))
    return Interval(share, max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half)))


def upper_share(n_right: Any, n: Any) -> NDArray[np.float64]:
    """Return the upper end of the one-sided 95 % interval of shares, `n_right` of `n`: Wilson's, of independent ones.

    The lower end is 1 less that of the others: ``1 - upper_share(n - n_right, n)``.
    """
    n = np.asarray(n, np.float64)
    share = n_right / n
    half = ONE_SIDED * np.sqrt(share * (1 - share) / n + ONE_SIDED**2 / (4 * n**2))
    upper: NDArray[np.float64] = (share + ONE_SIDED**2 / (2 * n) + half) / (1 + ONE_SIDED**2 / n)
    return upper
