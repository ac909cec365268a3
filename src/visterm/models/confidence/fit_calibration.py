"""Fit confidences to the scores of images that a model has not learned from (Platt's sigmoids, tag by tag)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_csr
from visterm.data.tag_queries import queries_of_tags, relevant_images
from visterm.models.confidence.calibration import (
    Bend,
    Calibration,
    Doubles,
    HeldOutChances,
    doubted,
    groups_of,
    log_sigmoid,
)
from visterm.models.confidence.tag_sigmoids import Cases, likeliest_curves

MIN_IMAGES = 20  # Of fewer held-out images with tags nothing is learned about chances
PRIOR = 3.0
"""How firmly a tag holds to the common curve: chosen on drawn libraries among 0.3, 1, 3 and 10, for six models."""

MAX_CASES = 2**19  # Scores looked at; past these, of tags that images lack, a sample that weighs as much as all
MAX_PART_CASES = 2**16  # The same for the curves of parts of the images, which only show how far curves can be trusted
N_PARTS = 5
MAX_SUBSETS = 2**14
N_QUERIES = 300
QUERY_IMAGES = 1000
TOGETHER = 0.45  # λ of libraries without images of two tags; about what is found on drawn libraries and Corel5k
WEIGHT = 1.0
"""C of the common curve: next to nothing beside many images, and enough that few, separated without a mistake, make no
confidences of 0 and 1."""

NEVER = 1e-12

LEAST_ODDS = -5.0  # Entries of smaller odds say nothing of the confidences at which tags are given
MAX_ENTRIES = 2**19
FIRMNESS = 10.0  # How firmly few entries hold to no change of all confidences
MOST_DOUBT = 20.0
DOUBT_COST = 0.5
"""Log likelihood that each doubt of 1 must gain. With 3, rare tags of small libraries kept confidences that don't hold
(Corel5k blobs, validation rows)."""

LEAST_SLOPE = 0.05  # Above 0, so that the order of chances stays


def fit_calibration(
    scores: NDArray[np.float32], Y: Any, others: Any, counts: Any = None, *, prior: float = PRIOR, seed: int = 0
) -> Calibration | None:
    """Find the sigmoid of each tag that makes the tags of held-out images most likely; None if under 20 have a tag.

    A tag's curve is drawn to one that all tags share, ``slope · score + offset + share · log odds of the tag among the
    images learned from``, and the more, the fewer held-out images have the tag: there a frequent tag needs less of a
    score than a rare one. A tag whose scores speak against it keeps the common curve. Tags that people left out count
    as absent, so confidences are those of a tag being *given*.

    Then each fifth of the images gets chances by curves fitted on the others: all confidences are bent so that these
    chances hold, and what was right at them is kept, to choose cut-offs by. What holds for all tags together hides the
    rare ones, whose own curves follow few images too far: so tags with about as many images share a doubt besides, not
    below that of more frequent ones.

    `scores`, (n_held_out, n_tags), are of images that were not learned from, and `Y`, of that shape, is above 0 where a
    tag was given. `others`, (n_images, n_tags), are the tags of the images that were learned from: how frequent a tag
    is, and what searches by several words may be. `counts`, (n_tags,), are the training images of each tag, by which
    rare tags are told from frequent ones; None: those of `others`. `prior`, above 0, says how firmly a tag holds to the
    common curve; `seed` is that of the samples, where there is much.

    References
    ----------
    Platt: Probabilistic outputs for support vector machines. Advances in Large Margin Classifiers, 1999.
    """
    given, others = as_csr(as_csr(Y) > 0), as_csr(as_csr(others) > 0)
    n_tagged = int((np.diff(given.indptr) > 0).sum())
    if n_tagged < MIN_IMAGES or given.nnz == given.shape[0] * given.shape[1]:
        return None
    rng = np.random.default_rng(seed)
    n, known = others.shape[0], np.bincount(others.indices, minlength=others.shape[1])
    log_odds: Doubles = np.log((known + 0.5) / (n - known + 0.5))
    slope, offset = _sigmoids(scores, given, log_odds, prior, rng)
    bend, doubt, held_chances = _judged(scores, given, known if counts is None else counts, log_odds, prior, seed)
    plain = Calibration(slope, offset, TOGETHER, given.shape[0], bend, held_chances, doubt)
    return plain._replace(together=_together(plain, scores, given, others, rng))


def _judged(
    scores: NDArray[np.float32], given: sp.csr_array, counts: Any, log_odds: Doubles, prior: float, seed: int
) -> tuple[Bend, Doubles, HeldOutChances]:
    """Judge curves on images that they were not fitted on: how all bend, the doubt of each tag, and what was right."""
    rng = np.random.default_rng(seed + 1)
    odds = np.empty(scores.shape)
    shuffled = rng.permutation(given.shape[0])
    for part in np.array_split(shuffled, N_PARTS):
        learned = np.setdiff1d(shuffled, part)
        if given[learned].nnz in (0, learned.size * given.shape[1]):
            learned = shuffled  # nothing to tell apart
        slope, offset = _sigmoids(scores[learned], given[learned], log_odds, prior, rng, MAX_PART_CASES)
        odds[part] = slope * scores[part] + offset
    right = given.toarray() > 0
    bend = fit_bend(odds.ravel(), right.ravel(), rng)
    odds = bend(odds)
    doubt, least = np.zeros(given.shape[1]), 0.0
    groups = groups_of(counts)
    for group in np.unique(groups)[::-1]:  # the most frequent tags first: rarer ones are doubted at least as much
        of_group = groups == group
        doubt[of_group] = least = fit_doubt(odds[:, of_group].ravel(), right[:, of_group].ravel(), least, rng)
    return bend, doubt, HeldOutChances.of(np.exp(log_sigmoid(doubted(odds, doubt))), right, counts)


def _sigmoids(
    scores: NDArray[np.float32],
    given: sp.csr_array,
    log_odds: Doubles,
    prior: float,
    rng: np.random.Generator,
    max_cases: int | None = None,
) -> tuple[Doubles, Doubles]:
    """Fit the common curve, then those of the tags, on scores brought to mean 0 and deviation 1."""
    from sklearn.linear_model import LogisticRegression

    mean, deviation = scores.mean(dtype=np.float64), float(scores.std(dtype=np.float64)) or 1.0
    cases = _cases(scores, given, rng, MAX_CASES if max_cases is None else max_cases)
    cases = cases._replace(votes=(cases.votes - mean) / deviation)
    features = np.stack([cases.votes, log_odds[cases.tags]], axis=1)
    shared = LogisticRegression(C=WEIGHT, max_iter=1000).fit(features, cases.signs, sample_weight=cases.weights)
    if shared.coef_[0, 0] < 0:  # scores that rank the wrong way round tell nothing
        features[:, 0] = 0.0
        shared.fit(features, cases.signs, sample_weight=cases.weights)
    common, share = shared.coef_[0]
    centre = np.stack([np.full(len(log_odds), common), shared.intercept_[0] + share * log_odds], axis=1)
    curves = likeliest_curves(cases, centre, prior)
    against = curves[:, 0] < 0
    curves[against] = centre[against]
    slope = curves[:, 0] / deviation
    return slope, curves[:, 1] - slope * mean


def _cases(scores: NDArray[np.float32], given: sp.csr_array, rng: np.random.Generator, max_cases: int) -> Cases:
    """Take all scores of tags that images have and, of the others, as many as there is room for."""
    n_tags = given.shape[1]
    has = np.zeros(scores.size, np.bool_)
    has[np.repeat(np.arange(given.shape[0]), np.diff(given.indptr)) * n_tags + given.indices] = True
    absent = np.flatnonzero(~has)
    n_drawn = min(absent.size, max(max_cases - given.nnz, max_cases // 2))
    drawn = absent if n_drawn == absent.size else np.sort(rng.choice(absent, n_drawn, replace=False))
    places = np.concatenate([np.flatnonzero(has), drawn])
    signs = np.where(has[places], 1.0, -1.0)
    weights = np.where(has[places], 1.0, absent.size / max(n_drawn, 1))
    return Cases(scores.ravel()[places].astype(np.float64), signs, weights, places % n_tags, np.zeros(n_tags))


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


def fit_bend(odds: Doubles, right: NDArray[np.bool_], rng: np.random.Generator) -> Bend:
    """Find the curve that makes what is right most likely (beta calibration).

    `odds`, float64 of shape (n,), are log odds of entries, by curves that were not fitted on them; `right`, bool, says
    which are right. `rng` draws the sample, where there are more than half a million entries.

    References
    ----------
    Kull, Silva Filho, Flach: Beta calibration: a well-founded and easily implemented improvement on logistic
    calibration for binary classifiers. AISTATS 2017.
    """
    x, signs = _likely_entries(odds, right, rng)
    features = np.stack([-np.logaddexp(0, -x), np.logaddexp(0, x), np.ones(x.size)])
    none = np.array(Bend())

    def loss(values: Doubles) -> tuple[float, Doubles]:
        margins = signs * (values @ features)
        away = values - none
        downs = features @ (-signs * np.exp(-np.logaddexp(0, margins)))
        return float(np.logaddexp(0, -margins).sum() + FIRMNESS / 2 * away @ away), downs + FIRMNESS * away

    from scipy.optimize import minimize

    solution = minimize(loss, none, jac=True, bounds=[(LEAST_SLOPE, None), (LEAST_SLOPE, None), (None, None)])
    return Bend(*(float(value) for value in solution.x))


def fit_doubt(odds: Doubles, right: NDArray[np.bool_], least: float, rng: np.random.Generator) -> float:
    """Find the doubt of tags, from `least` on, that makes what is right most likely; `least` where it gains too little.

    `odds`, of shape (n,), are bent, and by curves that were not fitted on these entries.
    """
    from scipy.optimize import minimize_scalar

    x, signs = _likely_entries(odds, right, rng)

    def loss(doubt: float) -> float:
        return float(np.logaddexp(0, -signs * doubted(x, doubt)).sum() + DOUBT_COST * (doubt - least))

    doubt = float(minimize_scalar(loss, bounds=(least, MOST_DOUBT), method="bounded").x)
    return doubt if loss(doubt) < loss(least) else least


def _likely_entries(odds: Doubles, right: NDArray[np.bool_], rng: np.random.Generator) -> tuple[Doubles, Doubles]:
    """Return the odds of entries that are not unlikely, and 1 for those that are right, -1 for the others."""
    some = np.flatnonzero(odds > LEAST_ODDS)
    if some.size > MAX_ENTRIES:
        some = np.sort(rng.choice(some, MAX_ENTRIES, replace=False))
    return odds[some], np.where(right[some], 1.0, -1.0)
