"""Estimate how likely it is that each tag was given, from a model's prediction and from the image's other tags."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.types import Doubles, Floats, Ints
from visterm.models.base import row_blocks
from visterm.models.confidence.calibration import Calibration, sigmoid
from visterm.models.confidence.fit_calibration import MAX_STEPS, MIN_RELATIVE_SLOPE, TOLERANCE, Cases, fit_calibration

LINE_PENALTY = 10.0  # Penalty on the change of a tag's slope and offset, for scores with the standard deviation 1
KINK = -3.5
"""Log odds, about 3 %, at which the weight of a prediction changes. Above it, most given tags are right, however likely
the model finds them; below it, the lower the log odds, the more often a given tag is wrong."""
N_COOCCURRING_TAGS = 1500
"""Number of the most frequent tags whose co-occurrence is modelled, by a matrix with twice as many rows."""

LOG_ODDS_FACTOR = 0.1  # Balances log odds with the columns of given tags, which are 0 or 1
MIN_EXPECTED = 1e-4  # Lower limit of predictions before the logarithm
RIDGE_PENALTY = 20.0
MAX_NEGATIVE_SAMPLES = 400_000  # Maximum number of (image, absent tag) pairs to fit on
MIN_PROBABILITY = 1e-6  # Probabilities are clipped to this before computing log odds
EPSILON = 1e-9


def fit_tag_lines(scores: Floats, Y: Any, others: Any, rng: np.random.Generator) -> Calibration | None:
    """Fit a line from scores to log odds for each tag, without a curve; None where `fit_calibration` returns None.

    Confidences have slopes by a rule that all tags share, which keeps the order of the most confident images of all
    tags. Mistakes stand out among the images of one tag, so here a tag's slope follows its own images, too, by Newton's
    method in two variables. Parameters are those of `fit_calibration`.
    """
    calibration = fit_calibration(scores, Y, others)
    if calibration is None:
        return None
    cases = Cases.of(scores, Y.toarray() > 0, True, rng)
    mean, deviation = float(scores.mean()), float(scores.std()) or 1.0
    z_scores, tags, n_tags = (cases.scores - mean) / deviation, cases.tags, scores.shape[1]
    shared = np.stack([calibration.slope * deviation, calibration.offset + calibration.slope * mean])
    lines = shared

    for _ in range(MAX_STEPS):
        P = sigmoid(lines[0, tags] * z_scores + lines[1, tags])
        errors, curvature = cases.weights * (P - cases.right), cases.weights * P * (1 - P)
        sums = [np.bincount(tags, errors * column, n_tags) for column in (z_scores, 1.0)]
        gradient = np.stack(sums) + LINE_PENALTY * (lines - shared)
        moments = [np.bincount(tags, curvature * z_scores**power, n_tags) for power in (2, 1, 1, 0)]
        hessian = np.stack(moments, axis=1).reshape(-1, 2, 2) + LINE_PENALTY * np.eye(2)
        steps = np.linalg.solve(hessian, gradient.T[:, :, None])[:, :, 0].T
        lines = lines - np.clip(steps, -1, 1)
        if np.abs(steps).max() < TOLERANCE:
            break
    lines = np.where(lines[0] >= MIN_RELATIVE_SLOPE * shared[0], lines, shared)
    slope = lines[0] / deviation
    return calibration._replace(slope=slope, offset=lines[1] - slope * mean, curve=None)


class Evidence:
    """The probability that a tag was given, by a model's prediction for the image and by the image's other tags."""

    def __init__(self, probabilities: Any, given: sp.csr_array, folds: Ints, related: Ints | None, seed: int) -> None:
        from sklearn.linear_model import LogisticRegression

        n, n_tags = given.shape
        pairs = np.empty((0, 2), np.int64) if related is None else np.asarray(related, np.int64)
        ends = np.concatenate([pairs, pairs[:, ::-1], np.repeat(np.arange(n_tags)[:, None], 2, axis=1)])
        related_tags = sp.csr_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(n_tags, n_tags))
        self._related = sp.csr_array((related_tags > 0).astype(np.float64))  # Tags related to each tag, and the tag
        self._probabilities, self.given, self._folds = probabilities, given, folds
        self.counts = np.bincount(given.indices, minlength=n_tags)
        self.frequency = (self.counts + 0.5) / (n + 1)
        self._cooccurrence = CooccurrenceModel.fit(probabilities, given, folds, self._related)

        rng = np.random.default_rng(seed)
        sampling_rate = min(1.0, MAX_NEGATIVE_SAMPLES / max(n * n_tags, 1))
        samples: list[tuple[Doubles, NDArray[np.bool_]]] = []
        for _, block, has_tag in self._feature_blocks():
            keep = has_tag | (rng.random(has_tag.shape) < sampling_rate)
            samples.append((block[keep], has_tag[keep]))
        features, is_given = (np.concatenate(parts) for parts in zip(*samples, strict=True))
        weights = np.where(is_given, 1.0, 1 / sampling_rate)
        mean, scale = features.mean(axis=0), features.std(axis=0) + EPSILON
        regression = LogisticRegression(max_iter=1000)
        regression.fit((features - mean) / scale, is_given, sample_weight=weights)
        self._coef = regression.coef_[0] / scale
        self._intercept = regression.intercept_[0] - self._coef @ mean

    def _feature_blocks(self) -> Iterator[tuple[slice, Doubles, NDArray[np.bool_]]]:
        """Yield rows, features of shape (n_rows, n_tags, 6), and which tags the images have."""
        prior = np.log(self.frequency / (1 - self.frequency))
        for rows in row_blocks(self.given.shape[0], 8 * self.given.shape[1]):
            given, p = sp.csr_array(self.given[rows]), self._probabilities[rows]
            has_tag, logits = given.toarray() > 0, log_odds(p)
            expected = self._cooccurrence.predict(p, given, self._folds[rows], self.frequency)
            n_unrelated = has_tag.sum(axis=1, keepdims=True) - (given > 0).astype(np.float64) @ self._related
            log_expected = np.log(np.maximum(expected, MIN_EXPECTED))
            prior_logits, log_n_unrelated = (np.broadcast_to(x, logits.shape) for x in (prior, np.log1p(n_unrelated)))
            features = logits, np.maximum(logits - KINK, 0), prior_logits, expected, log_expected, log_n_unrelated
            yield rows, np.stack(features, axis=-1), has_tag

    def blocks(self) -> Iterator[tuple[slice, Doubles, NDArray[np.bool_]]]:
        """Yield rows, probabilities q that tags were given, shape (n_rows, n_tags), and which were."""
        for rows, features, has_tag in self._feature_blocks():
            yield rows, 1 / (1 + np.exp(-(features @ self._coef + self._intercept))), has_tag


class CooccurrenceModel(NamedTuple):
    """Predicts a tag from the other tags and from the probabilities of all tags (EASE): ``(a - mean) B + mean``.

    ``a`` is the given tags and the scaled log odds of all tags. B is a ridge regression with zeros for the tag itself
    and for related tags. The images of a fold are predicted by the regression on the images of the other folds.

    References
    ----------
    Steck: Embarrassingly shallow autoencoders for sparse data. WWW 2019.
    """

    tags: Ints  # shape (n_frequent,): the frequent tags, which are modelled
    weights: list[Doubles]  # B of each fold, shape (2 n_frequent, n_frequent)
    means: list[Doubles]  # Mean of ``a`` for each fold, shape (2 n_frequent,)

    @classmethod
    def fit(cls, probabilities: Any, given: sp.csr_array, folds: Ints, related: sp.csr_array) -> Self:
        """Fit a regression for each fold, on the other folds; `related` is above 0 where B must be 0."""
        counts = np.bincount(given.indices, minlength=given.shape[1])
        tags = np.sort(np.argsort(-counts, kind="stable")[:N_COOCCURRING_TAGS])
        related = sp.csr_array(related[tags][:, tags])
        excluded_of = enumerate(map(np.sort, np.split(related.indices, related.indptr[1:-1])))
        excluded_with_others = {column: excluded for column, excluded in excluded_of if excluded.size > 1}
        n_folds, width = int(folds.max()) + 1, 2 * tags.size
        grams, sums = np.zeros((n_folds, width, width)), np.zeros((n_folds, width))
        for rows in row_blocks(given.shape[0], 8 * given.shape[1]):
            A = _regression_inputs(probabilities[rows], given[rows], tags)
            for fold in np.unique(folds[rows]):
                part = A[folds[rows] == fold]
                grams[fold] += part.T @ part
                sums[fold] += part.sum(axis=0)

        weights, means = [], []
        for fold, n in enumerate(given.shape[0] - np.bincount(folds)):
            mean = (sums.sum(axis=0) - sums[fold]) / n
            gram = grams.sum(axis=0) - grams[fold] - n * np.outer(mean, mean)
            inverse = np.linalg.inv(gram + RIDGE_PENALTY * np.eye(width))
            B = -(inverse / np.diag(inverse))[:, : tags.size]
            np.fill_diagonal(B, 0.0)
            for column, excluded in excluded_with_others.items():
                # Block elimination in the inverse leaves the excluded variables out of a ridge regression
                block = np.linalg.inv(inverse[np.ix_(excluded, excluded)])[:, excluded == column].ravel()
                B[:, column] = -inverse[:, excluded] @ block
                B[excluded, column] = 0.0
            weights.append(B)
            means.append(mean)
        return cls(tags, weights, means)

    def predict(self, p: Any, given: sp.csr_array, folds: Ints, default: Doubles) -> Doubles:
        """Return predictions of all tags, shape (n_images, n_tags); tags that are not frequent get their `default`."""
        predicted = np.repeat(default[None], given.shape[0], axis=0)
        A = _regression_inputs(p, given, self.tags)
        for fold in np.unique(folds):
            rows, mean = np.flatnonzero(folds == fold), self.means[fold]
            predicted[np.ix_(rows, self.tags)] = (A[rows] - mean) @ self.weights[fold] + mean[: self.tags.size]
        return predicted


def log_odds(probabilities: Any) -> Doubles:
    """Return ``log(p / (1 - p))``, with p clipped to `MIN_PROBABILITY` and 1 - `MIN_PROBABILITY`."""
    p = np.clip(np.asarray(probabilities, np.float64), MIN_PROBABILITY, 1 - MIN_PROBABILITY)
    return np.asarray(np.log(p) - np.log1p(-p))


def _regression_inputs(probabilities: Any, given: sp.csr_array, tags: Ints) -> Doubles:
    """Return the given tags and the scaled log odds, shape (n_images, 2 n_frequent)."""
    return np.concatenate([given[:, tags].toarray(), log_odds(probabilities[:, tags]) * LOG_ODDS_FACTOR], axis=1)
