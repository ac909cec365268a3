"""Fit confidences to the scores of images that a model has not learned from."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from operator import itemgetter
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_csr
from visterm.core.types import Doubles, Floats, Ints
from visterm.data.tag_queries import queries_of_tags, relevant_images
from visterm.metrics.significance import upper_share
from visterm.models.confidence.calibration import Calibration, Curve, HeldOutChances, log_sigmoid, sigmoid

MIN_IMAGES = 20  # Minimum number of held-out images with tags
PRIOR = 30.0  # Penalty on the shift of a tag's line: of 1, 3, 10 and 30, the smallest error on validation rows

MAX_CASES = 2**18  # Maximum number of scores to fit lines on; absent tags are sampled, and weighted to count as all
N_FOLDS = 5
MAX_SUBSETS, N_QUERIES, QUERY_IMAGES = 2**14, 300, 1000  # Limits for the searches to which λ is fitted
TOGETHER = 0.45  # λ of libraries without images with two tags; about what is fitted on drawn libraries and Corel5k
EPSILON = 1e-12
MIN_LOG_ODDS = -5.0  # First knot of the curve: lower log odds don't matter for the confidences at which tags are given
N_KNOTS = 16
N_BINS = 2000
N_ABOVE_KNOTS = 30  # Number of held-out entries above the last knot
SLOPE_PENALTY = 10.0  # Penalty on the curve's deviation from the slope 1, per unit of log odds
MIN_SLOPE = 0.02  # Above 0, so that the curve keeps the order
MIN_ENTRIES = 20  # Minimum number of entries that a bound, or a fit, is based on
MARGIN = 0.15  # Log odds between the bound and the point where the curve starts to approach it
MAX_STEPS = 50
TOLERANCE = 1e-6
MIN_RELATIVE_SLOPE = 0.1  # Minimum slope of a tag's line, as a share of that of all tags
LIKELY_LOG_ODDS = -3.0  # About 5 %
N_REFITS = 3  # Fits of the shared rule to entries above `LIKELY_LOG_ODDS`


class Cases(NamedTuple):
    """Entries (image, tag) to fit on, each array of shape (n_cases,)."""

    scores: Doubles
    right: NDArray[np.bool_]  # Whether the image has the tag
    weights: Doubles
    images: Ints
    tags: Ints

    @classmethod
    def of(cls, scores: Floats, right: NDArray[np.bool_], is_open: Any, rng: np.random.Generator) -> Self:
        """Take all entries of given tags, and a sample of the other open entries if there are too many."""
        present, absent = np.flatnonzero(right), np.flatnonzero(~right & is_open)
        n_sampled = min(absent.size, max(MAX_CASES - present.size, MAX_CASES // 2))
        sample = absent if n_sampled == absent.size else np.sort(rng.choice(absent, n_sampled, replace=False))
        entries = np.concatenate([present, sample])
        weights = np.repeat([1.0, absent.size / max(n_sampled, 1)], [present.size, n_sampled])
        images, tags = np.divmod(entries, scores.shape[1])
        return cls(scores.ravel()[entries].astype(np.float64), right.ravel()[entries], weights, images, tags)

    def where(self, mask: NDArray[np.bool_]) -> Cases:
        """Return the cases of a mask of shape (n_cases,)."""
        return Cases._make(array[mask] for array in self)


def fit_calibration(
    scores: Floats,
    Y: Any,
    others: Any,
    counts: Any = None,
    *,
    known: Any = None,
    raised: Callable[[Doubles], Doubles] | None = None,
    prior: float = PRIOR,
    seed: int = 0,
) -> Calibration | None:
    """Fit confidences by maximum likelihood to the tags of held-out images; None if fewer than 20 have a tag.

    Each tag has a line from scores to log odds. Its slope and offset follow a rule that all tags share, a logistic
    regression on the score, the tag's log odds among the images learned from, and its number of images. The rule is
    fitted to all entries or to those with a probability above 5 %, whichever has the smaller squared error. Then the
    offset of each tag is shifted to fit its own held-out images. The model was trained on all training images, so the
    final lines use the log odds among these. A confidence is the probability that a tag is *given*.

    A curve for all tags, a monotone spline, corrects the log odds of lines that were shifted in a cross-fit of five
    folds. It is bounded by what the most confident held-out entries support: the highest lower confidence limit of the
    share of right entries among the first n, for any n of 20 or more. The results are kept to choose cut-offs.

    `scores` and `Y`, shape (n_held_out, n_tags), are of images that the scores' model was not trained on; `Y` is above
    0 where a tag was given. `others`, shape (n_images, n_tags), are the tags that it was trained on, and `counts`,
    shape (n_tags,), the numbers of all training images of each tag (None: those of `others`). Entries in which `known`,
    shape (n_held_out, n_tags), is above 0 are left out: known tags of images known by number. `raised` maps confidences
    of all tags to those by which images are tagged in a tree of tags. `prior` is the penalty on a tag's shift, above 0.

    References
    ----------
    Platt: Probabilistic outputs for support vector machines. Advances in Large Margin Classifiers, 1999.
    """
    given, others = as_csr(as_csr(Y) > 0), as_csr(as_csr(others) > 0)
    if np.count_nonzero(np.diff(given.indptr)) < MIN_IMAGES or given.nnz == given.shape[0] * given.shape[1]:
        return None
    rng = np.random.default_rng(seed)
    is_open = np.ones(given.shape, np.bool_) if known is None else as_csr(known).toarray() <= 0
    n_learned, n_given = others.shape[0], np.bincount(others.indices, minlength=others.shape[1])
    counts = n_given if counts is None else np.asarray(counts)
    tag_log_odds, log_counts = _tag_log_odds(n_given, n_learned), np.log1p(counts).astype(np.float64)
    final_log_odds = _tag_log_odds(counts, n_learned * counts.sum() / max(n_given.sum(), 1))
    right = (given.toarray() > 0) & is_open
    cases, folds = Cases.of(scores, right, is_open, rng), rng.permutation(len(scores)) % N_FOLDS
    fits = []
    for n_refits in (0, N_REFITS):
        slope, offset, weight, fitted_cases = _shared_rule(cases, tag_log_odds, log_counts, n_refits)
        log_odds = np.full(scores.shape, -np.inf)
        for fold in range(N_FOLDS):
            other_folds = fitted_cases.where(folds[fitted_cases.images] != fold)
            log_odds[folds == fold] = slope * scores[folds == fold] + _shifted(other_folds, slope, offset, prior)
        log_odds[~is_open] = -np.inf
        curve = fit_curve(log_odds.ravel(), right.ravel())
        confidences = sigmoid(curve(log_odds))
        shifted_offset = _shifted(fitted_cases, slope, offset, prior)
        calibration = Calibration(slope, shifted_offset, TOGETHER, given.shape[0], curve)
        fits.append((float(np.mean((confidences - right) ** 2)), weight, confidences, calibration))

    _, weight, confidences, calibration = min(fits, key=itemgetter(0))
    held_out = HeldOutChances.of(confidences if raised is None else raised(confidences), right, counts)
    together = _fit_together(calibration, scores, given, others, rng)
    offset = calibration.offset + weight * (final_log_odds - tag_log_odds)
    return calibration._replace(offset=offset, together=together, held_out=held_out)


def _tag_log_odds(counts: Any, n_images: float) -> Any:
    return np.log((counts + 0.5) / (n_images - counts + 0.5))


def _shared_rule(
    cases: Cases, tag_log_odds: Doubles, log_counts: Doubles, n_refits: int
) -> tuple[Doubles, Doubles, float, Cases]:
    """Return slopes and offsets of all tags by a shared rule, the weight of tags' log odds, and the fitted cases.

    The rule is refitted `n_refits` times to the cases with a probability above 5 %: the many others may distort it, and
    change the order of the most confident ones.
    """
    from sklearn.linear_model import LogisticRegression

    def fit(mask: NDArray[np.bool_]) -> Any:
        rule = LogisticRegression(max_iter=1000)
        return rule.fit(features[mask], cases.right[mask], sample_weight=cases.weights[mask])

    mean = float(np.average(cases.scores, weights=cases.weights))
    deviation = float(np.sqrt(np.average((cases.scores - mean) ** 2, weights=cases.weights))) or 1.0
    z_scores, tags = (cases.scores - mean) / deviation, cases.tags
    log_counts = log_counts - log_counts[tags[cases.right]].mean()
    features = np.stack([z_scores, tag_log_odds[tags], z_scores * log_counts[tags]], axis=1)
    fitted = np.ones(tags.size, np.bool_)
    rule = fit(fitted)
    if rule.coef_[0, 0] < 0:  # scores in the wrong order contain no information
        features[:, [0, 2]] = 0.0
        rule = fit(fitted)
    for _ in range(n_refits):
        is_likely = rule.decision_function(features) > LIKELY_LOG_ODDS
        n_right = int(cases.right[is_likely].sum())
        if min(n_right, int(is_likely.sum()) - n_right) < MIN_ENTRIES or (refitted := fit(is_likely)).coef_[0, 0] < 0:
            break
        fitted, rule = is_likely, refitted

    common, weight, count_weight = rule.coef_[0]
    slope = np.maximum(common + count_weight * log_counts, MIN_RELATIVE_SLOPE * common) / deviation
    return slope, rule.intercept_[0] + weight * tag_log_odds - slope * mean, float(weight), cases.where(fitted)


def _shifted(cases: Cases, slope: Doubles, common: Doubles, prior: float) -> Doubles:
    """Return the offset of each tag, shifted from the `common` one to fit its cases, by Newton's method."""
    tags, offset = cases.tags, common
    for _ in range(MAX_STEPS):
        P = sigmoid(slope[tags] * cases.scores + offset[tags])
        gradient = np.bincount(tags, cases.weights * (P - cases.right), common.size) + prior * (offset - common)
        step = gradient / (np.bincount(tags, cases.weights * P * (1 - P), common.size) + prior)
        offset = offset - np.clip(step, -1, 1)
        if np.abs(step).max() < TOLERANCE:
            break
    return offset


def fit_curve(log_odds: Doubles, right: NDArray[np.bool_]) -> Curve:
    """Fit the curve by maximum likelihood, and find its bound.

    `log_odds`, float64 of shape (n,), are of entries that the lines were not fitted on; `right` says which are right.
    """
    from scipy.optimize import minimize

    is_relevant = log_odds > MIN_LOG_ODDS
    order = np.argsort(-log_odds[is_relevant], kind="stable")
    x, n_right = log_odds[is_relevant][order], np.cumsum(right[is_relevant][order])
    if x.size < MIN_ENTRIES:
        return Curve(np.zeros(1), np.zeros(1), 1.0, 1.0, 0)
    n = np.arange(MIN_ENTRIES, x.size + 1)
    lower_limits = 1 - upper_share(n - n_right[MIN_ENTRIES - 1 :], n)
    best = int(np.argmax(lower_limits))

    ends = np.unique(np.geomspace(1, x.size, N_BINS).astype(np.int64))  # the highest log odds have bins of their own
    sizes, hits = np.diff(ends, prepend=0), np.diff(n_right[ends - 1], prepend=0)
    means = np.diff(np.cumsum(x)[ends - 1], prepend=0) / sizes
    hits_below = np.cumsum(hits[::-1])  # the same number of right entries is between two knots
    knots = np.interp(np.arange(1, N_KNOTS) / N_KNOTS * hits_below[-1], hits_below, means[::-1])
    top = x[min(N_ABOVE_KNOTS, x.size - 1)]
    knots = np.concatenate([[MIN_LOG_ODDS], knots[knots < top - MARGIN], [max(top, MIN_LOG_ODDS + MARGIN)]])
    knots = knots[np.append(True, np.diff(knots) > TOLERANCE)]
    widths = np.append(np.diff(knots), np.inf)
    features = np.concatenate([np.ones((1, means.size)), np.clip(means - knots[:, None], 0, widths[:, None])])
    start = np.concatenate([[MIN_LOG_ODDS], np.ones(knots.size)])
    penalty = SLOPE_PENALTY * np.append(0.0, np.minimum(widths, 1.0))

    def loss(coef: Doubles) -> tuple[float, Doubles]:
        line, change = coef @ features, coef - start
        total = sizes @ np.logaddexp(0, line) - hits @ line + penalty @ change**2 / 2
        return float(total), features @ (sizes * sigmoid(line) - hits) + penalty * change

    limits = [(None, None)] + [(MIN_SLOPE, None)] * knots.size
    first, *slopes = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=limits).x
    values = first + np.concatenate([[0.0], np.cumsum(np.array(slopes[:-1]) * np.diff(knots))])
    share = float(lower_limits[best]) + EPSILON
    bound = max(float(np.log(share) - np.log1p(-share)), first + 2 * MARGIN)
    cap = bound - MARGIN
    is_below = values < cap - TOLERANCE
    last_knot = knots[is_below][-1] + (cap - values[is_below][-1]) / slopes[int(is_below.sum()) - 1]
    knots, values = (np.append(part[is_below], end) for part, end in ((knots, last_knot), (values, cap)))
    return Curve(knots, values, float(slopes[0]), bound, MIN_ENTRIES + best)


def _fit_together(
    calibration: Calibration, scores: Floats, given: sp.csr_array, others: sp.csr_array, rng: Any
) -> float:
    """Fit λ to searches for two or three tags of an image that was learned from; no held-out image may have them all.

    Searches for the tags of held-out images would always have an answer, and their confidences would be too high.
    """
    from scipy.optimize import minimize_scalar

    sampled = queries_of_tags(others, max_words=3, max_subsets=MAX_SUBSETS, random_state=rng)
    multiword = np.flatnonzero(sampled.n_words > 1)
    if multiword.size == 0:
        return TOGETHER
    shares = sampled.n_relevant[multiword] / sampled.n_relevant[multiword].sum()
    words = sampled.words[np.sort(rng.choice(multiword, min(N_QUERIES, multiword.size), replace=False, p=shares))]
    images = np.sort(rng.permutation(len(scores))[:QUERY_IMAGES])
    right = relevant_images(words, given[images]).toarray() > 0
    if not right.any():
        return TOGETHER
    logs = log_sigmoid(calibration.log_odds(scores[images]))
    logs_of_queries = [logs[:, words.indices[start:stop]] for start, stop in pairwise(words.indptr)]
    product, minimum = (np.stack([f(part, axis=1) for part in logs_of_queries]) for f in (np.sum, np.min))

    def loss(together: float) -> float:
        log_p = (1 - together) * product + together * minimum
        return float(-np.where(right, log_p, np.log(np.maximum(-np.expm1(log_p), EPSILON))).mean())

    return float(minimize_scalar(loss, bounds=(0, 1), method="bounded").x)
