"""Confidence intervals of means and tests of differences between models: bootstrap, Wilcoxon's test and Holm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from visterm.core.checks import check_count
from visterm.core.errors import DataError, ShapeError

MAX_DRAWS_IN_MEMORY = 2**22

TIE_TOLERANCE = 1e-10
"""Relative to the largest value: differences closer than this count as equal, because sums of fractions are rounded."""

CONFIDENCE_LEVEL = 0.95  # Share of the resamples inside an interval
MAX_EXACT_TIES = 13  # Maximum number of differences with ties for the exact test over all signs, as in SciPy
Z95 = 1.959964  # Two-sided 95 % quantile of the normal distribution, rounded, for intervals of shares
ONE_SIDED_Z95 = 1.644854  # One-sided 95 % quantile of the normal distribution
N_RESAMPLES = 1000  # Number of resamples of images or queries for the intervals of evaluations
MAX_RESAMPLED = (
    2**18
)  # With more values, the normal distribution gives the same interval, without minutes of resampling


class Interval(NamedTuple):
    """A mean over images, and its interval under resampling of the images."""

    mean: float
    low: float
    high: float


class Difference(NamedTuple):
    """A mean difference between two models on the same images."""

    mean: float  # First minus second
    low: float  # Ends of the interval under resampling of the images
    high: float
    p_value: float
    """Twice the share of resamples with a difference of 0 or the opposite sign, at most 1. Small: the sign is clear."""
    n: int  # Number of compared images


class SignedRanks(NamedTuple):
    """Wilcoxon's signed ranks of the differences between two models."""

    first_better: float  # Sum of the ranks of the differences in favour of the first model
    second_better: float
    p_value: float
    """For the hypothesis that differences are symmetric around 0. Small: the model with the larger sum is better."""
    n: int  # Number of differences that are not 0

    def better(self, level: float = 0.95) -> int:
        """Return 1 if the first model is better at this confidence level, -1 if the second is, else 0."""
        if self.p_value > 1 - level:
            return 0
        return 1 if self.first_better > self.second_better else -1


class Compared(NamedTuple):
    """The comparison of two of several models on the same images or queries."""

    # Indices of the two models
    first: int
    second: int
    difference: Difference  # Mean difference, first minus second, with its bootstrap interval
    ranks: SignedRanks  # Wilcoxon's test of these two models
    holm_p: float  # The test's p-value, corrected for the number of pairs

    def better(self) -> int:
        """Return 1 if the first model is better at 95 % confidence over all pairs, -1 if the second is, else 0."""
        return self.ranks._replace(p_value=self.holm_p).better()


def bootstrap_mean(values: ArrayLike, *, n_resamples: int = 10_000) -> Interval:
    """Return the mean of values and its 95 % percentile bootstrap interval, which is a point for a single value.

    Raises DataError if no value is defined.

    Parameters
    ----------
    values : array-like, shape (n,)
        One value per image; NaN if the metric is not defined: such images are ignored.
    n_resamples : int
        Number of times that n values are drawn with replacement, with the seed 0.
    """
    array = _vector(values, "values")
    array = array[~np.isnan(array)]
    _, low, high = _resampled_means(array, n_resamples)
    return Interval(float(array.mean()), low, high)


def paired_bootstrap(first: ArrayLike, second: ArrayLike, *, n_resamples: int = 10_000) -> Difference:
    """Compare two models by their values on the same images; for a single image the interval is a point.

    Raises ShapeError if the lengths differ; DataError if a value is defined for one model only, or no value is defined
    for both.

    Parameters
    ----------
    first, second : array-like, shape (n,)
        Values of a metric, image by image; NaN in both if it is not defined.
    n_resamples : int
        As in `bootstrap_mean`.

    Examples
    --------
    >>> paired_bootstrap([0.9, 0.8, 0.7, 0.9], [0.5, 0.6, 0.6, 0.4]).low > 0
    True
    """
    differences = np.subtract(*_pairs(first, second))
    means, low, high = _resampled_means(differences, n_resamples)
    n_across = min(np.count_nonzero(means <= 0), np.count_nonzero(means >= 0))
    p_value = min(1.0, 2 * (n_across + 1) / (n_resamples + 1)) if differences.size > 1 else 1.0
    return Difference(float(differences.mean()), low, high, p_value, differences.size)


def signed_ranks(first: ArrayLike, second: ArrayLike) -> SignedRanks:
    """Compare two models by Wilcoxon's signed rank test, two-sided, as in the PAMIR paper (section V-C).

    Differences of 0 are ignored. The test is exact for up to 50 differences without ties and up to 13 with ties; else
    it uses the normal approximation. Differences within 1e-10 of the largest value are ties: 1/2 - 1/3 and 2/3 - 1/2
    differ in floating point but have the same rank. Raises ShapeError if the lengths differ; DataError if a value is
    defined for one model only.

    Parameters
    ----------
    first, second : array-like, shape (n,)
        Values of a metric on the same queries or images; NaN in both if it is not defined.

    Examples
    --------
    >>> signed_ranks([0.9, 0.8, 0.7, 0.9, 0.6, 0.4], [0.1, 0.2, 0.3, 0.4, 0.5, 0.5]).second_better
    1.5
    """
    sizes = _signed_sizes(*_pairs(first, second))
    sizes = sizes[sizes != 0]
    if sizes.size == 0:
        return SignedRanks(0.0, 0.0, 1.0, 0)
    from scipy.stats import rankdata, wilcoxon  # takes half a second to import

    ranks = rankdata(np.abs(sizes))
    first = float(ranks[sizes > 0].sum())
    has_ties = np.unique(ranks).size < ranks.size
    # As in SciPy, which takes half a second to try all signs one by one if there are ties
    p_value = _all_signs(ranks, first) if has_ties and ranks.size <= MAX_EXACT_TIES else float(wilcoxon(sizes).pvalue)
    return SignedRanks(first, float(ranks[sizes < 0].sum()), p_value, sizes.size)


def compare_pairs(values: Sequence[Any]) -> list[Compared]:
    """Compare all pairs of models by Wilcoxon's test, with p-values corrected by Holm's method.

    `values` has an array of shape (n,) for each model: a measure on the same images or queries, NaN in all arrays if it
    is not defined. Pairs come in the order (0, 1), (0, 2), ..., (1, 2), ...; a single model has no pairs. Raises
    ShapeError if the lengths differ; DataError if a value is defined for one model of a pair only.
    """
    pairs = list(combinations(range(len(values)), 2))
    tests = [signed_ranks(values[a], values[b]) for a, b in pairs]
    corrected = holm([test.p_value for test in tests])
    return [
        Compared(a, b, paired_bootstrap(values[a], values[b], n_resamples=N_RESAMPLES), test, float(p))
        for (a, b), test, p in zip(pairs, tests, corrected, strict=True)
    ]


def holm(p_values: Sequence[float]) -> NDArray[np.float64]:
    """Correct p-values for multiple tests (Holm 1979), which controls the probability of any false rejection.

    The smallest of n is multiplied by n, the next by n - 1, and so on; the order of p-values is preserved.
    """
    p = np.asarray(p_values, np.float64)
    order = np.argsort(p, kind="stable")
    adjusted = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1)))
    corrected = np.empty_like(p)
    corrected[order] = adjusted
    return corrected


def interval_of(values: NDArray[np.float64]) -> Interval:
    """Return the mean of the defined values and its 95 % interval: by bootstrap or, for very many values, as normal."""
    n = values.size - np.count_nonzero(np.isnan(values))
    if n <= MAX_RESAMPLED:
        return bootstrap_mean(values, n_resamples=N_RESAMPLES)
    mean, half = float(np.nanmean(values)), Z95 * float(np.nanstd(values)) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half)


def _signed_sizes(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Replace differences by signed integers in the order of their sizes: 0 for no difference, ties are equal."""
    differences = first - second
    order = np.argsort(np.abs(differences))
    noise = TIE_TOLERANCE * max(np.abs(first).max(initial=0), np.abs(second).max(initial=0))
    numbers = np.empty(differences.size)
    numbers[order] = np.cumsum(np.diff(np.abs(differences[order]), prepend=0) > noise)
    return np.sign(differences) * numbers


def _all_signs(ranks: NDArray[np.float64], rank_sum: float) -> float:
    """Return twice the share (at most 1) of sign patterns with a sum of ranks at least as extreme as `rank_sum`."""
    signs = np.arange(2**ranks.size)[:, None] >> np.arange(ranks.size) & 1
    sums = signs @ ranks
    return float(min(1.0, 2 * min((sums <= rank_sum).mean(), (sums >= rank_sum).mean())))


def _pairs(first: ArrayLike, second: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the values that are defined in both arrays. Raises DataError if a value is defined in only one."""
    a, b = _vector(first, "first"), _vector(second, "second")
    if a.size != b.size:
        raise ShapeError(f"first has {a.size} values, second {b.size}; expected values of the same images.")
    one_sided = np.flatnonzero(np.isnan(a) != np.isnan(b))
    if one_sided.size:
        raise DataError(
            f"{one_sided.size} images have a value of one model only, such as image {one_sided[0]}. "
            "Compare values of the same metric on the same images and tags."
        )
    both_defined = ~np.isnan(a)
    return a[both_defined], b[both_defined]


def _vector(values: ArrayLike, name: str) -> NDArray[np.float64]:
    array = np.asarray(values, np.float64)
    if array.ndim != 1:
        raise ShapeError(f"{name} has {array.ndim} dimensions; expected 1, one value per image.")
    if np.isinf(array).any():
        raise DataError(f"{name} has infinite values; expected finite numbers, or NaN where a metric is not defined.")
    return array


def _resampled_means(values: NDArray[np.float64], n_resamples: int) -> tuple[NDArray[np.float64], float, float]:
    """Return the means of resamples, and the ends of the interval with 95 % of them."""
    check_count(n_resamples, "n_resamples")
    if values.size == 0:
        raise DataError("No image has a value; at least 1 is needed to resample. Evaluate more images.")
    rng = np.random.default_rng(0)
    step = max(1, MAX_DRAWS_IN_MEMORY // values.size)
    means = np.empty(n_resamples)
    for start in range(0, n_resamples, step):
        chunk = means[start : start + step]
        chunk[:] = values[rng.integers(values.size, size=(chunk.size, values.size))].mean(axis=1)
    low, high = np.quantile(means, [(1 - CONFIDENCE_LEVEL) / 2, (1 + CONFIDENCE_LEVEL) / 2])
    return means, float(low), float(high)


def share_of_right(n_right: ArrayLike, n_given: ArrayLike) -> Interval | None:
    """Return the share of right tags among all assigned tags, and its 95 % interval; None without assigned tags.

    Tags of the same image are correlated, so they are less informative than tags of different images. The interval is
    Wilson's for the effective number of independent tags: the number of tags divided by the design effect, which is the
    variance over images divided by the variance of independent tags, at least 1. Unlike a bootstrap over images, the
    interval is not a point if all of a few tags are right. `n_right` and `n_given` are int of shape (n_images,).

    References
    ----------
    Wilson: Probable inference, the law of succession, and statistical inference. JASA 1927. Rao, Scott: A simple method
    for the analysis of clustered binary data. Biometrics 1992.
    """
    n_correct, n_tags = np.asarray(n_right, np.float64), np.asarray(n_given, np.float64)
    n = float(n_tags.sum())
    if n == 0:
        return None
    share = float(n_correct.sum()) / n
    independent_variance = share * (1 - share) / n
    design_effect = 1.0
    if independent_variance > 0 and n_tags.size > 1:
        residuals = n_correct - share * n_tags
        design_effect = max(
            1.0, n_tags.size / (n_tags.size - 1) * float(residuals @ residuals) / n**2 / independent_variance
        )

    m = n / design_effect
    centre = (share + Z95**2 / (2 * m)) / (1 + Z95**2 / m)
    half = Z95 / (1 + Z95**2 / m) * float(np.sqrt(share * (1 - share) / m + Z95**2 / (4 * m**2)))
    return Interval(share, max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half)))


def upper_share(n_right: Any, n: Any) -> NDArray[np.float64]:
    """Return the upper end of Wilson's one-sided 95 % interval of the shares `n_right` of `n`.

    The lower end is ``1 - upper_share(n - n_right, n)``.
    """
    n = np.asarray(n, np.float64)
    share = n_right / n
    half = ONE_SIDED_Z95 * np.sqrt(share * (1 - share) / n + ONE_SIDED_Z95**2 / (4 * n**2))
    upper: NDArray[np.float64] = (share + ONE_SIDED_Z95**2 / (2 * n) + half) / (1 + ONE_SIDED_Z95**2 / n)
    return upper
