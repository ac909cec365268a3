"""Find given tags that are probably wrong, and missing tags, from the predicted probabilities of held-out images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_csr
from visterm.core.errors import DataError, ShapeError
from visterm.core.types import Doubles, Ints
from visterm.metrics.annotation import frequency_bands
from visterm.models.confidence.calibration import sigmoid
from visterm.models.confidence.evidence import EPSILON, MAX_NEGATIVE_SAMPLES, MIN_PROBABILITY, Evidence, log_odds

LOW_QUANTILE = 0.15
"""A given tag is suspicious if its log odds are below this quantile of those of images without the tag."""
TOP_SHARE = 0.05  # Missing tags are counted among the most probable pairs, for each given tag this number of pairs
GROUP_PRIOR_IMAGES = 100.0  # Pseudo-count of the rate in a tag's group when the tag's own rate is estimated
DEFAULT_NOISE = 0.03  # Assumed share of wrong and of missing tags if there is too little data
WRONG_HALF_SIZE, MISSING_HALF_SIZE = 300.0, 1500.0
"""Numbers of given tags at which half of the suspicious pairs are assumed to be mistakes. With fewer, more of them are
correct tags that the features cannot show."""
FULL_SEPARATION = 2.5
"""Distance between images with a tag and others, in standard deviations of the log odds, for informative features."""
HALF_SUSPICIOUS_SHARE = 0.2  # Share of given tags that are suspicious at which the rate of wrong tags is halved
DEFAULT_NOISE_IMAGES = 50.0  # Pseudo-count of images for `DEFAULT_NOISE` as the rate of missing tags
DEFAULT_NOISE_WRONG = 2.0  # Pseudo-count of wrong tags for `DEFAULT_NOISE` as the rate of wrong tags
POWERS = np.linspace(1, 0, 11)  # Exponents tried: wrong tags are proportional to a power of the tag's frequency
POWER_1_BONUS = 8.0  # Log-likelihood bonus of the power 1 over 0, because few wrong tags are observed
MAX_NOISE = 0.9
BIN_EDGES = np.arange(-8, 8.1, 0.5)  # Log odds between the bins of a curve
PRIOR_PAIRS_PER_BIN = 5.0  # Pseudo-count of the prior curve
MAX_IMAGES_OF_UNUSUAL_TAG = 3  # With as few images or fewer, the probabilities of a tag are only good for sorting
MAX_IMAGES_OF_RARE_TAG = 10
UNUSUAL_GROUP = 2  # Tags are in group 0, rare ones in group 1, unusual ones in group 2
RARE_TAG_PRIOR_PAIRS = 20.0  # Pseudo-count, per bin, of the common curve in the curves of rare tags
SHIFT_DEVIATION = 1.5  # Prior standard deviation of the shift that is learned from people's answers
MAX_PROBABILITY = 0.98  # Upper limit of the curves: no mistake is certain
Z_95 = 1.96  # Standard errors from the estimate to the ends of a 95 % interval


class RankedPairs(NamedTuple):
    """Images and tags that are probably mistakes, most probable first."""

    images: Ints  # shape (n,)
    tags: Ints
    # Probability that the pair is a mistake, and its 95 % interval
    probability: Doubles
    low: Doubles
    high: Doubles
    unusual: NDArray[np.bool_]  # Whether the tag has so few images that the probability is only good for sorting


class Mistakes(NamedTuple):
    """Given tags that are probably wrong, and tags that are probably missing."""

    wrong: RankedPairs
    missing: RankedPairs


class Noise(NamedTuple):
    """Rates of mistakes of each tag, shape (n_tags,)."""

    wrong: Doubles  # Share of images without the tag that are given the tag by mistake
    missing: Doubles  # Share of images with the tag that are not given the tag
    n_suspicious: float  # Number of suspicious given tags from which `wrong` was estimated


def _isotonic_shares(expected: Doubles, observed: Doubles, prior: Doubles, prior_count: float) -> Doubles:
    """Return ``expected / observed`` in each bin, shrunk to `prior`, and increasing."""
    from sklearn.isotonic import isotonic_regression

    shares = (expected + prior_count * prior) / (observed + prior_count)
    return np.asarray(isotonic_regression(np.minimum(shares, MAX_PROBABILITY), sample_weight=observed + prior_count))


def find_mistakes(
    probabilities: Any,
    given: Any,
    folds: Any,
    *,
    settled: Any = None,
    answers: Any = None,
    related: Ints | None = None,
    limit: int = 1000,
    seed: int = 0,
) -> Mistakes:
    """Return the given tags that are most probably wrong, and the tags that are most probably missing.

    Parameters
    ----------
    probabilities : array-like, shape (n_images, n_tags)
        Probability of each tag, by a model that was not trained on the image; may be mapped from disk.
    given : CSR or array, shape (n_images, n_tags)
        Above 0 where an image has the tag.
    folds : array-like of int, shape (n_images,)
        Number of the fold of each image, from 0; the images of a fold were held out together.
    settled : CSR or array, shape (n_images, n_tags), optional
        Not 0 where a person has said whether the image has the tag: these pairs are not listed.
    answers : pair of CSR, shape (n_images, n_tags), optional
        People's answers about given tags, and about absent tags: above 0 for a mistake, below 0 for a correct tag. The
        probabilities of all wrong (or missing) tags are shifted to fit the answers.
    related : array of int, shape (n_pairs, 2), optional
        Pairs of tags of which one implies the other, such as a tag and its parent in a tree: neither is evidence for
        the other.
    limit : int
        Maximum number of pairs of each kind.
    seed : int
        Seed of the sample of pairs on which the evidence is fitted.
    """
    given = as_csr(as_csr(given) > 0)
    folds = np.asarray(folds, np.int64)
    if probabilities.shape != given.shape or folds.shape != given.shape[:1]:
        raise ShapeError(
            f"probabilities is {probabilities.shape}, given {given.shape} and folds {folds.shape}; expected "
            "(n_images, n_tags), the same, and (n_images,)."
        )
    if folds.max(initial=0) < 1 or given.nnz == 0:
        raise DataError("Mistakes are found by comparing images that have tags, in two folds or more; there are none.")
    evidence = Evidence(probabilities, given, folds, related, seed)
    noise = _noise(evidence, seed)
    is_rare, is_unusual = (evidence.counts <= n for n in (MAX_IMAGES_OF_RARE_TAG, MAX_IMAGES_OF_UNUSUAL_TAG))
    groups = is_rare.astype(np.int64) + is_unusual
    rates = noise.missing / (1 - noise.missing)
    kinds = (
        MistakeKind(lambda q: np.asarray(np.log(noise.wrong) - log_odds(q)), noise.wrong, groups, limit),
        MistakeKind(lambda q: log_odds(noise.missing) + log_odds(q), rates, groups, limit),
    )
    for _, q, has_tag in evidence.blocks():
        for kind, entries in zip(kinds, (has_tag, ~has_tag), strict=True):
            kind.add(q, entries)

    settled = None if settled is None else as_csr(settled)
    is_listed = evidence.counts < given.shape[0]  # a tag on all images has no other images to compare with
    for rows, q, has_tag in evidence.blocks():
        is_open = is_listed if settled is None else is_listed & (settled[rows].toarray() == 0)
        for kind, answered in zip(kinds, answers or (), strict=False):
            kind.add_answers(answered[rows].tocoo(), q)
        for kind, entries in zip(kinds, (has_tag, ~has_tag), strict=True):
            kind.add_candidates(rows.start, q, entries & is_open)
    return Mistakes(*(kind.pairs(1 / (noise.n_suspicious + 1) + 1 / (evidence.counts + 1)) for kind in kinds))


class MistakeKind:
    """Collects the most probable mistakes of one kind block by block, and maps their log odds to probabilities.

    A probability is the number of mistakes that would be in a bin of log odds if mistakes were planted, divided by the
    number of pairs in the bin. The evidence for a pair does not use the pair itself, so a planted mistake would have
    the log odds that the pair has now, and nothing needs to be planted: the expected number in a bin is the sum of
    `planted` over the pairs that are no candidates. The curve is increasing (isotonic regression). Rare tags have their
    own curve, shrunk to the common one, and so do tags of two or three images, which are not part of the common curve.

    `log_odds_of` maps probabilities q that tags are given to log odds of mistakes; `planted`, (n_tags,), is the rate of
    mistakes, as a share of the other pairs of a tag; `groups`, (n_tags,), are the groups of tags.
    """

    def __init__(self, log_odds_of: Callable[[Doubles], Doubles], planted: Doubles, groups: Ints, limit: int) -> None:
        self._log_odds, self._planted, self._groups, self._limit = log_odds_of, planted, groups, limit
        self._expected, self._observed = np.zeros((2, 3, BIN_EDGES.size + 1))  # group of the tag, bin
        self._candidates = np.zeros((3, 0))  # image, tag, log odds
        self._answers: list[tuple[Doubles, Ints, NDArray[np.bool_]]] = []
        self._shift = 0.0

    def add(self, q: Doubles, entries: NDArray[np.bool_]) -> None:
        """Add a block of shape (n_rows, n_tags): mistakes expected outside of `entries`, and pairs in `entries`."""
        size, logits = self._expected.size, self._log_odds(q)
        bins = self._groups * (BIN_EDGES.size + 1) + np.searchsorted(BIN_EDGES, logits)
        counts = np.bincount(bins[~entries], np.broadcast_to(self._planted, q.shape)[~entries], size)
        self._expected += counts.reshape(3, -1)
        self._observed += np.bincount(bins[entries], minlength=size).reshape(3, -1)

    def add_answers(self, answers: sp.coo_array, q: Doubles) -> None:
        """Add people's answers about a block, except those about unusual tags (which have no probabilities)."""
        is_usual = self._groups[answers.col] < UNUSUAL_GROUP
        rows, tags = answers.row[is_usual], answers.col[is_usual]
        self._answers.append((self._log_odds(q)[rows, tags], self._groups[tags], answers.data[is_usual] > 0))

    def add_candidates(self, start: int, q: Doubles, entries: NDArray[np.bool_]) -> None:
        """Add entries of the block that begins at row `start`, and keep the best of all blocks."""
        logits = self._log_odds(q)
        if self._limit == self._candidates.shape[1]:
            entries = entries & (logits > self._candidates[2].min(initial=np.inf))
        rows, tags = np.nonzero(entries)
        candidates = np.concatenate([self._candidates, [start + rows, tags, logits[rows, tags]]], axis=1)
        order = np.lexsort((candidates[1], candidates[0], -candidates[2]))
        self._candidates = candidates[:, order[: self._limit]]

    def pairs(self, variance_of_tags: Doubles) -> RankedPairs:
        """Return the candidates with their probabilities, after all blocks were added."""
        (images, tags), logits = self._candidates[:2].astype(np.int64), self._candidates[2]
        self._fit_curves()
        if self._answers:
            self._learn(*map(np.concatenate, zip(*self._answers, strict=True)))
        probability, variance = self._probabilities(logits, self._groups[tags])
        margin = Z_95 * np.sqrt(variance + variance_of_tags[tags])
        low, high = (sigmoid(log_odds(probability) + sign * margin) for sign in (-1, 1))
        return RankedPairs(images, tags, probability, low, high, self._groups[tags] == UNUSUAL_GROUP)

    def _fit_curves(self) -> None:
        """Fit the curves of frequent tags, of rare tags, and of tags of two or three images."""
        self._centres = np.concatenate([BIN_EDGES - 0.25, [BIN_EDGES[-1] + 0.25]])
        expected, observed = self._expected[:2].sum(axis=0), self._observed[:2].sum(axis=0)
        common = _isotonic_shares(expected, observed, sigmoid(self._centres), PRIOR_PAIRS_PER_BIN)
        self._weights = np.stack([expected, *self._expected[1:]]) + 1
        rare_counts = zip(self._expected[1:], self._observed[1:], strict=True)
        rare = (_isotonic_shares(*counts, common, RARE_TAG_PRIOR_PAIRS) for counts in rare_counts)
        self._shares = np.stack([common, *rare])

    def _learn(self, logits: Doubles, groups: Ints, is_mistake: NDArray[np.bool_]) -> None:
        """Fit one shift of all log odds to people's answers (logistic regression with only an intercept)."""
        unshifted = log_odds(self._probabilities(logits, groups)[0])
        for _ in range(30):  # Newton's method converges in far fewer steps
            p = sigmoid(unshifted + self._shift)
            gradient = (is_mistake - p).sum() - self._shift / SHIFT_DEVIATION**2
            self._shift += gradient / ((p * (1 - p)).sum() + 1 / SHIFT_DEVIATION**2)

    def _probabilities(self, logits: Doubles, groups: Ints) -> tuple[Doubles, Doubles]:
        """Return the probabilities of pairs, and the variances of their log odds."""
        shares = np.choose(groups, [np.interp(logits, self._centres, curve) for curve in self._shares])
        weights = self._weights[groups, np.searchsorted(BIN_EDGES, logits)]
        return sigmoid(log_odds(shares) + self._shift), 1 / weights


def _noise(evidence: Evidence, seed: int) -> Noise:
    """Estimate how often each tag is given by mistake, and how often it is left out.

    Confident learning counts given tags below the mean probability of images without the tag, and absent tags above the
    mean probability of images with it. If a model recognizes a tag poorly, most of these pairs are no mistakes, so the
    two thresholds are stricter here. A given tag is suspicious below the `LOW_QUANTILE` of the images without the tag
    (as z-scores, pooled over tags). An absent tag is suspicious among the most probable pairs of all tags. Only a part
    of the suspicious pairs is assumed to be mistakes, see `WRONG_HALF_SIZE`. Tags of two or three images, which no
    model recognizes well, are not counted as wrong.
    """
    n, n_tags = evidence.given.shape
    counts, rng = evidence.counts, np.random.default_rng(seed)
    n_top = max(1, round(TOP_SHARE * evidence.given.nnz))
    sums, squares, sums_with_tag = np.zeros((3, n_tags))
    n_absent = n - counts
    is_usual = counts > MAX_IMAGES_OF_UNUSUAL_TAG
    is_usual = is_usual if is_usual.any() else np.ones(n_tags, np.bool_)
    top, samples = np.zeros(0), []
    sampling_rate = min(1.0, MAX_NEGATIVE_SAMPLES / n / n_tags)
    for _, q, has_tag in evidence.blocks():
        logits = log_odds(q)
        absent = np.where(has_tag, 0, logits)
        sums += absent.sum(axis=0)
        squares += (absent**2).sum(axis=0)
        sums_with_tag += np.where(has_tag, logits, 0).sum(axis=0)
        top = np.sort(np.concatenate([top, q[q > (top[0] if top.size == n_top else 0)]]))[-n_top:]
        rows, tags = np.nonzero((rng.random(q.shape) < sampling_rate) & ~has_tag)
        samples.append((logits[rows, tags], tags))

    mean = sums / np.maximum(n_absent, 1)
    deviation = np.sqrt(np.maximum(squares / np.maximum(n_absent, 1) - mean**2, EPSILON))
    z_scores = [(logits - mean[tags]) / deviation[tags] for logits, tags in samples]
    low = mean + np.quantile(np.concatenate(z_scores), LOW_QUANTILE) * deviation

    n_given = counts[is_usual].sum()
    separation = ((sums_with_tag - counts * mean) / deviation)[is_usual].sum() / n_given
    informativeness = np.clip(separation / FULL_SEPARATION, 0, 1)
    given_low, absent_low, n_in_top, absent_in_top = np.zeros((4, n_tags))
    for _, q, has_tag in evidence.blocks():
        is_low, is_top = log_odds(q) <= low, q >= top[0]
        given_low += (is_low & has_tag & is_usual).sum(axis=0)
        absent_low += (is_low & ~has_tag & is_usual).sum(axis=0)
        n_in_top += is_top.sum(axis=0)
        absent_in_top += (is_top & ~has_tag).sum(axis=0)
    wrong_share = informativeness * n_given / (n_given + WRONG_HALF_SIZE)
    missing_share = informativeness * n_given / (n_given + MISSING_HALF_SIZE)
    wrong = _wrong_rates(evidence, is_usual, given_low, absent_low, wrong_share)
    return Noise(wrong, missing_share * _shrunk_shares(absent_in_top, n_in_top, groups_of(counts)), given_low.sum())


def _wrong_rates(
    evidence: Evidence, is_usual: NDArray[np.bool_], given_low: Doubles, absent_low: Doubles, wrong_share: float
) -> Doubles:
    """Estimate the share of images without each tag that are given the tag by mistake.

    The rate is proportional to a power of the tag's frequency: 1 if people confuse tags in proportion to how often they
    give them, 0 if wrong tags are spread evenly over all tags. The power with the highest Poisson likelihood is taken;
    the data are the numbers of given and of absent tags with low log odds. `wrong_share` of the suspicious given tags
    are assumed to be wrong.
    """
    counts, n_absent = evidence.counts, evidence.given.shape[0] - evidence.counts
    n_suspicious, best_likelihood, rates = given_low.sum(), -np.inf, np.zeros(counts.size)
    for power in POWERS:
        weights = evidence.frequency**power
        n_weighted = max(weights[is_usual] @ n_absent[is_usual], EPSILON)
        default_scale = DEFAULT_NOISE * counts[is_usual].sum() / n_weighted
        pseudo_count = DEFAULT_NOISE_WRONG / default_scale
        scale = (n_suspicious + DEFAULT_NOISE_WRONG) / (weights @ absent_low + pseudo_count)
        expected_low = scale * weights * absent_low + EPSILON
        likelihood = given_low @ np.log(expected_low) - expected_low.sum() + POWER_1_BONUS * power
        if likelihood > best_likelihood:
            suspicious_share = scale * (weights @ n_absent) / evidence.given.nnz
            best_likelihood = likelihood
            rate = wrong_share * scale / (1 + (suspicious_share / HALF_SUSPICIOUS_SHARE) ** 2)
            rates = np.clip(rate * weights, EPSILON, MAX_NOISE)
    return rates


def groups_of(counts: NDArray[Any]) -> NDArray[np.int8]:
    """Return the number of each tag's group: tags with about the same number of images, the rarest in group 0."""
    groups = np.zeros(len(counts), np.int8)
    for number, band in enumerate(frequency_bands(counts)):
        groups[band.tags] = number
    return groups


def _shrunk_shares(sums: Doubles, totals: Doubles, groups: NDArray[np.int8]) -> Doubles:
    """Return sums / totals of each tag, shrunk to its group's share, which is shrunk to the overall share."""
    overall = (sums.sum() + DEFAULT_NOISE_IMAGES * DEFAULT_NOISE) / (totals.sum() + DEFAULT_NOISE_IMAGES)
    group_sums, group_totals = (np.bincount(groups, values) for values in (sums, totals))
    share = ((GROUP_PRIOR_IMAGES * overall + group_sums) / (GROUP_PRIOR_IMAGES + group_totals))[groups]
    shrunk = (GROUP_PRIOR_IMAGES * share + sums) / (GROUP_PRIOR_IMAGES + totals)
    return np.asarray(np.clip(shrunk, MIN_PROBABILITY, MAX_NOISE))
