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
from visterm.data.tag_queries import queries_of_tags, relevant_images
from visterm.metrics.significance import upper_share
from visterm.models.confidence.calibration import Calibration, Curve, Doubles, HeldOutChances, log_sigmoid

MIN_IMAGES = 20  # Of fewer held-out images with tags nothing is learned about chances
PRIOR = 30.0
"""How firmly a tag holds to what all tags share: of 1, 3, 10 and 30, the smallest error on validation rows."""

MAX_CASES = 2**18  # Scores that lines are fitted to; past these, of absent tags a sample that weighs as much as all
N_FOLDS = 5
MAX_SUBSETS, N_QUERIES, QUERY_IMAGES = 2**14, 300, 1000  # Of searches by several words
TOGETHER = 0.45  # λ of libraries without images of two tags; about what is found on drawn libraries and Corel5k
NEVER = 1e-12
LEAST_ODDS = -5.0  # Where the curve begins: smaller odds say nothing of the confidences at which tags are given
N_KNOTS = 16
N_STEPS = 2000
TOP = 30  # Held-out entries above the last knot
FIRMNESS = 10.0  # How firmly the curve holds to the slope 1, for each unit of log odds
LEAST_SLOPE = 0.02  # Above 0, so that the order of chances stays
FEWEST = 20  # Entries that can support a bound
ROOM = 0.15  # Log odds below the bound from which on chances only come nearer to it
MAX_STEPS = 50
ENOUGH = 1e-6
WRONG_WAY = 0.1  # Least slope of a tag's line beside that of all tags
NEAR_ODDS = -3.0  # About 5 %: the rule of all tags is that of larger chances
N_PASSES = 3  # Fits of the rule to what lies above that


class Cases(NamedTuple):
    """Entries of images and tags, each array of shape (n_cases,)."""

    scores: Doubles
    right: NDArray[np.bool_]  # Whether the image has the tag
    weights: Doubles
    images: NDArray[np.int64]
    tags: NDArray[np.int64]

    @classmethod
    def of(cls, scores: NDArray[np.float32], given: sp.csr_array, free: Any, rng: np.random.Generator) -> Self:
        """Take all entries of tags that images have and, of the others, as many as there is room for."""
        has = (given.toarray() > 0).ravel()
        present, absent = np.flatnonzero(has & free.ravel()), np.flatnonzero(~has & free.ravel())
        n_drawn = min(absent.size, max(MAX_CASES - present.size, MAX_CASES // 2))
        drawn = absent if n_drawn == absent.size else np.sort(rng.choice(absent, n_drawn, replace=False))
        places = np.concatenate([present, drawn])
        weights = np.repeat([1.0, absent.size / max(n_drawn, 1)], [present.size, n_drawn])
        images, tags = np.divmod(places, scores.shape[1])
        return cls(scores.ravel()[places].astype(np.float64), has[places], weights, images, tags)

    def some(self, kept: NDArray[np.bool_]) -> Cases:
        """Return a part of the cases."""
        arrays: list[Any] = [array[kept] for array in self]
        return Cases(*arrays)


def fit_calibration(
    scores: NDArray[np.float32],
    Y: Any,
    others: Any,
    counts: Any = None,
    *,
    known: Any = None,
    raised: Callable[[Doubles], Doubles] | None = None,
    prior: float = PRIOR,
    seed: int = 0,
) -> Calibration | None:
    """Find the confidences that make the tags of held-out images most likely; None if under 20 images have a tag.

    First each tag gets a line from scores to log odds, by a rule that all tags share, in which the score, the tag's log
    odds among the images learned from, and its number of images count (logistic regression on all chances, or on those
    above 5 %, whichever has the smaller squared error). The
    line is shifted as far as the tag's own held-out images say so. The model that is used has learned from all training
    images, so its lines have the log odds among these. Tags that people left out count as absent, so confidences are
    those of a tag being *given*.

    Then each fifth of the images gets log odds by lines shifted by the others, and a curve for all tags makes these
    hold (a monotone spline). It stays below what the surest held-out entries support: the highest lower bound of the
    share that is right among the n surest, for any n of 20 or more. These chances are kept, to choose cut-offs by.

    `scores`, (n_held_out, n_tags), are of images that were not learned from, and `Y`, of that shape, is above 0 where a
    tag was given. `others`, (n_images, n_tags), are the tags of the images learned from, and `counts`, (n_tags,), all
    training images of each tag (None: those of `others`). Where `known`, shaped as `scores`, is above 0, an image known
    by number is known to have a tag, and the entry is left out. `raised` makes of chances of all tags those that images
    are tagged by, where a tree adds what lies under a tag; cut-offs are chosen by these. `prior`, above 0, says how
    firmly a tag holds to the rule of all; `seed` is that of the samples, where there is much, and of the fifths.

    References
    ----------
    Platt: Probabilistic outputs for support vector machines. Advances in Large Margin Classifiers, 1999.
    """
    given, others = as_csr(as_csr(Y) > 0), as_csr(as_csr(others) > 0)
    n_tagged = int((np.diff(given.indptr) > 0).sum())
    if n_tagged < MIN_IMAGES or given.nnz == given.shape[0] * given.shape[1]:
        return None
    rng = np.random.default_rng(seed)
    free = np.ones(given.shape, np.bool_) if known is None else as_csr(known).toarray() <= 0
    n, n_given = others.shape[0], np.bincount(others.indices, minlength=others.shape[1])
    counts = n_given if counts is None else np.asarray(counts)
    n_training = n * counts.sum() / max(n_given.sum(), 1)
    log_odds, final = (_log_odds(counts, n_training) for counts, n_training in ((n_given, n), (counts, n_training)))
    of_tags = np.stack([log_odds, np.log1p(counts)])
    cases = Cases.of(scores, given, free, rng)
    folds, right = rng.permutation(len(scores)) % N_FOLDS, (given.toarray() > 0) & free
    fits = []
    for n_passes in (0, N_PASSES):
        slope, common, share, near = _rule(cases, of_tags, n_passes)
        odds = np.full(scores.shape, -np.inf)
        for fold in range(N_FOLDS):
            part = near.some(folds[near.images] != fold)
            odds[folds == fold] = slope * scores[folds == fold] + _shifted(part, slope, common, prior)
        odds[~free] = -np.inf
        curve = fit_curve(odds.ravel(), right.ravel())
        error = float(np.mean((np.exp(log_sigmoid(curve(odds))) - right) ** 2))
        fits.append((error, (slope, _shifted(near, slope, common, prior), share, odds, curve)))
    slope, offset, share, odds, curve = min(fits, key=itemgetter(0))[1]
    chances = np.exp(log_sigmoid(curve(odds)))
    held_out = HeldOutChances.of(chances if raised is None else raised(chances), right, counts)
    plain = Calibration(slope, offset, TOGETHER, given.shape[0], curve, held_out)
    together = _together(plain, scores, given, others, rng)
    return plain._replace(offset=offset + share * (final - log_odds), together=together)


def _log_odds(counts: Any, n_images: float) -> Doubles:
    odds: Doubles = np.log((counts + 0.5) / (n_images - counts + 0.5))
    return odds


def _rule(cases: Cases, of_tags: Doubles, n_passes: int) -> tuple[Doubles, Doubles, float, Cases]:
    """Fit the rule that all tags share, on scores brought to mean 0 and deviation 1.

    Returns slopes and offsets of tags, how far a tag's log odds count in these, and the cases that it was fitted to.
    `of_tags`, (2, n_tags), are log odds of tags and logs of their numbers of images. Then `n_passes` times it is fitted
    again, to the cases that it gives chances above 5 %: the many others may tilt it, and reorder the surest.
    """
    from sklearn.linear_model import LogisticRegression

    tags = cases.tags
    mean = float(np.average(cases.scores, weights=cases.weights))
    deviation = float(np.sqrt(np.average((cases.scores - mean) ** 2, weights=cases.weights))) or 1.0
    votes = (cases.scores - mean) / deviation
    log_odds, photos = of_tags
    photos = photos - photos[tags[cases.right]].mean()
    features = np.stack([votes, log_odds[tags], votes * photos[tags]], axis=1)
    near, rule = np.ones(votes.size, np.bool_), LogisticRegression(max_iter=1000)
    rule.fit(features, cases.right, sample_weight=cases.weights)
    if rule.coef_[0, 0] < 0:  # scores that rank the wrong way round tell nothing
        features[:, [0, 2]] = 0.0
        rule.fit(features, cases.right, sample_weight=cases.weights)
    for _ in range(n_passes):
        above = rule.decision_function(features) > NEAR_ODDS
        n_right = int(cases.right[above].sum())
        if min(n_right, int(above.sum()) - n_right) < FEWEST:
            break
        better = LogisticRegression(max_iter=1000)
        better.fit(features[above], cases.right[above], sample_weight=cases.weights[above])
        if better.coef_[0, 0] < 0:
            break
        near, rule = above, better

    common, share, more = rule.coef_[0]
    slope = np.maximum(common + more * photos, WRONG_WAY * common) / deviation
    return slope, rule.intercept_[0] + share * log_odds - slope * mean, float(share), cases.some(near)


def _shifted(cases: Cases, slope: Doubles, common: Doubles, prior: float) -> Doubles:
    """Return the offset of each tag, as far from the common one as its cases say, by Newton's method."""
    tags, offset = cases.tags, common
    for _ in range(MAX_STEPS):
        P = np.exp(log_sigmoid(slope[tags] * cases.scores + offset[tags]))
        down = np.bincount(tags, cases.weights * (P - cases.right), common.size) + prior * (offset - common)
        step = down / (np.bincount(tags, cases.weights * P * (1 - P), common.size) + prior)
        offset = offset - np.clip(step, -1, 1)
        if np.abs(step).max() < ENOUGH:
            break
    return offset


def fit_curve(odds: Doubles, right: NDArray[np.bool_]) -> Curve:
    """Find the curve that makes what is right most likely, and how high it may go.

    `odds`, float64 of shape (n,), are log odds of entries, by lines that were not fitted on them; `right`, bool, says
    which are right.
    """
    from scipy.optimize import minimize

    some = odds > LEAST_ODDS
    order = np.argsort(-odds[some], kind="stable")
    x, hits = odds[some][order], np.cumsum(right[some][order])
    if x.size < FEWEST:
        return Curve(np.zeros(1), np.zeros(1), 1.0, 1.0, 0)
    n = np.arange(FEWEST, x.size + 1)
    lower = 1 - upper_share(n - hits[FEWEST - 1 :], n)
    best = int(np.argmax(lower))

    ends = np.unique(np.geomspace(1, x.size, N_STEPS).astype(np.int64))  # of steps; the surest ones are one by one
    sizes, n_right = np.diff(ends, prepend=0), np.diff(hits[ends - 1], prepend=0)
    middles = np.diff(np.cumsum(x)[ends - 1], prepend=0) / sizes
    known = np.cumsum(n_right[::-1])  # knots part what is right into equal parts
    knots = np.interp(np.arange(1, N_KNOTS) / N_KNOTS * known[-1], known, middles[::-1])
    top = x[min(TOP, x.size - 1)]
    knots = np.concatenate([[LEAST_ODDS], knots[knots < top - ROOM], [max(top, LEAST_ODDS + ROOM)]])
    knots = knots[np.append(True, np.diff(knots) > ENOUGH)]
    widths = np.append(np.diff(knots), np.inf)
    features = np.concatenate([np.ones((1, middles.size)), np.clip(middles - knots[:, None], 0, widths[:, None])])
    start = np.concatenate([[LEAST_ODDS], np.ones(knots.size)])
    firmness = FIRMNESS * np.append(0.0, np.minimum(widths, 1.0))

    def loss(values: Doubles) -> tuple[float, Doubles]:
        line, away = values @ features, values - start
        errors = sizes * np.exp(log_sigmoid(line)) - n_right
        total = sizes @ np.logaddexp(0, line) - n_right @ line + firmness @ away**2 / 2
        return float(total), features @ errors + firmness * away

    limits = [(None, None)] + [(LEAST_SLOPE, None)] * knots.size
    first, *slopes = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=limits).x
    values = first + np.concatenate([[0.0], np.cumsum(np.array(slopes[:-1]) * np.diff(knots))])
    share = float(lower[best]) + NEVER
    bound = max(float(np.log(share) - np.log1p(-share)), first + 2 * ROOM)
    cap = bound - ROOM
    below = values < cap - ENOUGH
    end = knots[below][-1] + (cap - values[below][-1]) / slopes[int(below.sum()) - 1]
    return Curve(np.append(knots[below], end), np.append(values[below], cap), float(slopes[0]), bound, FEWEST + best)


def _together(
    plain: Calibration, scores: NDArray[np.float32], given: sp.csr_array, others: sp.csr_array, rng: np.random.Generator
) -> float:
    """Find λ by searches for two and three tags that an image learned from has, whether a held-out one has them or not.

    Made from held-out images, each search would have an answer among them, and confidences would be too large.
    """
    made = queries_of_tags(others, max_words=3, max_subsets=MAX_SUBSETS, random_state=rng)
    several = np.flatnonzero(made.n_words > 1)
    if several.size == 0:
        return plain.together
    shares = made.n_relevant[several] / made.n_relevant[several].sum()
    words = made.words[np.sort(rng.choice(several, min(N_QUERIES, several.size), replace=False, p=shares))]
    images = np.sort(rng.permutation(len(scores))[:QUERY_IMAGES])
    right = relevant_images(words, given[images]).toarray() > 0
    if not right.any():
        return plain.together
    logs = log_sigmoid(plain.odds(scores[images]))
    queries = [words.indices[start:stop] for start, stop in pairwise(words.indptr)]
    product = np.stack([logs[:, tags].sum(axis=1) for tags in queries])
    least = np.stack([logs[:, tags].min(axis=1) for tags in queries])

    def loss(together: float) -> float:
        log_p = (1 - together) * product + together * least
        return float(-np.where(right, log_p, np.log(np.maximum(-np.expm1(log_p), NEVER))).mean())

    from scipy.optimize import minimize_scalar

    return float(minimize_scalar(loss, bounds=(0, 1), method="bounded").x)
