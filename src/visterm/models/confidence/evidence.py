"""How likely it is that a tag was given to an image: by what a model sees there, and by the image's other tags."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

Doubles = NDArray[np.float64]

COMPANIONS = 1500
"""Tags, the most frequent ones, whose company says something of each other: a matrix of twice as many rows."""

ODDS_SCALE = 0.1  # Of the log odds beside the tags that are given, which are 0 or 1
LEAST_EXPECTED = 1e-4
FIRMNESS = 20.0  # Images that speak against a link between two tags, so that few together say little
BLOCK = 2**22  # Entries of images and tags that are looked at together
MOST_CASES = 400_000  # Entries of tags that images lack from which it is learned how the evidence adds up
LEAST = 1e-6  # Of a chance whose log odds are looked at
TINY = 1e-9


class Evidence:
    """The chance that a tag was given, by what a model sees in the image and by the image's other tags."""

    def __init__(
        self, chances: Any, given: sp.csr_array, folds: NDArray[np.int64], related: NDArray[np.int64] | None, seed: int
    ) -> None:
        from sklearn.linear_model import LogisticRegression

        n_tags = given.shape[1]
        pairs = np.empty((0, 2), np.int64) if related is None else np.asarray(related, np.int64)
        ends = np.concatenate([pairs, pairs[:, ::-1], np.repeat(np.arange(n_tags)[:, None], 2, axis=1)])
        bound = sp.csr_array((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(n_tags, n_tags))
        self._bound = sp.csr_array((bound > 0).astype(np.float64))  # Each tag with itself and those related
        self._chances, self.given, self._folds = chances, given, folds
        self.counts = np.bincount(given.indices, minlength=given.shape[1])
        self._company = Company.of(chances, given, folds, self._bound)
        self.common = (self.counts + 0.5) / (given.shape[0] + 1)
        self._curve: Any = None
        n, n_tags = given.shape
        rng = np.random.default_rng(seed)
        rate = min(1.0, MOST_CASES / max(n * n_tags, 1))
        cases: list[tuple[Doubles, NDArray[np.bool_]]] = []
        for _, features, has in self._blocks():
            keep = has | (rng.random(has.shape) < rate)
            cases.append((features[keep], has[keep]))
        features = np.concatenate([case[0] for case in cases])
        has = np.concatenate([case[1] for case in cases])
        weights = np.where(has, 1.0, 1 / rate)
        self._mean, self._scale = features.mean(axis=0), features.std(axis=0) + TINY
        self._curve = LogisticRegression(max_iter=1000).fit(
            (features - self._mean) / self._scale, has, sample_weight=weights
        )

    def _blocks(self) -> Iterator[tuple[slice, Doubles, NDArray[np.bool_]]]:
        """Yield rows, features of shape (n_rows, n_tags, 5), and which tags the images have."""
        log_common = np.log(self.common / (1 - self.common))
        for rows in _blocks_of(self.given.shape):
            given, p = sp.csr_array(self.given[rows]), self._chances[rows]
            has, odds = given.toarray() > 0, log_odds(p)
            E = self._company.expected(p, given, self._folds[rows], self.common)
            others = np.log1p(has.sum(axis=1, keepdims=True) - (given > 0).astype(np.float64) @ self._bound)
            parts = (odds, np.broadcast_to(log_common, odds.shape), E, np.log(np.maximum(E, LEAST_EXPECTED)), others)
            yield rows, np.stack(parts, axis=-1), has

    def blocks(self) -> Iterator[tuple[slice, Doubles, NDArray[np.bool_]]]:
        """Yield rows, the chances q that tags were given, shape (n_rows, n_tags), and which were."""
        coef = self._curve.coef_[0] / self._scale
        constant = self._curve.intercept_[0] - coef @ self._mean
        for rows, features, has in self._blocks():
            yield rows, 1 / (1 + np.exp(-(features @ coef + constant))), has


class Company(NamedTuple):
    """What the other tags of an image, and its chances of all tags, say of a tag: ``(a - mean) B + mean`` (EASE).

    ``a`` has the tags that are given and, scaled, the log odds of all chances. B is ridge regression in which no tag
    says anything of itself, nor of tags that are bound to it. Images of a fold are judged by those of the other folds.

    References
    ----------
    Steck: Embarrassingly shallow autoencoders for sparse data. WWW 2019.
    """

    frequent: NDArray[np.int64]  # shape (n_frequent,): the tags that are looked at
    weights: list[Doubles]  # B of each fold, shape (2 n_frequent, n_frequent)
    means: list[Doubles]  # Of each fold, shape (2 n_frequent,)

    @classmethod
    def of(cls, chances: Any, given: sp.csr_array, folds: NDArray[np.int64], bound: sp.csr_array) -> Self:
        """Learn from all images, once for each fold; `bound` is above 0 where a tag must say nothing of another."""
        counts = np.bincount(given.indices, minlength=given.shape[1])
        frequent = np.sort(np.argsort(-counts, kind="stable")[:COMPANIONS])
        among = sp.csr_array(bound[frequent][:, frequent])
        lists = np.split(among.indices, among.indptr[1:-1])
        several = {column: np.sort(out) for column, out in enumerate(lists) if out.size > 1}
        n_folds, width = int(folds.max()) + 1, 2 * frequent.size
        grams, sums = np.zeros((n_folds, width, width)), np.zeros((n_folds, width))
        for rows in _blocks_of(given.shape):
            A = _company(chances[rows], given[rows], frequent)
            for fold in np.unique(folds[rows]):
                part = A[folds[rows] == fold]
                grams[fold] += part.T @ part
                sums[fold] += part.sum(axis=0)
        weights, means = [], []
        for fold, n in enumerate(given.shape[0] - np.bincount(folds)):
            mean = (sums.sum(axis=0) - sums[fold]) / n
            gram = grams.sum(axis=0) - grams[fold] - n * np.outer(mean, mean)
            inverse = np.linalg.inv(gram + FIRMNESS * np.eye(width))
            B = -(inverse / np.diag(inverse))[:, : frequent.size]
            np.fill_diagonal(B, 0.0)
            for column, out in several.items():  # the same regression without these rows: their block of the inverse
                B[:, column] = -inverse[:, out] @ np.linalg.inv(inverse[np.ix_(out, out)])[:, out == column].ravel()
                B[out, column] = 0.0
            weights.append(B)
            means.append(mean)
        return cls(frequent, weights, means)

    def expected(self, p: Any, given: sp.csr_array, folds: NDArray[np.int64], common: Doubles) -> Doubles:
        """Return how far an image's company leads to expect each tag, shape (n_images, n_tags); others are `common`."""
        found = np.repeat(common[None], given.shape[0], axis=0)
        A = _company(p, given, self.frequent)
        for fold in np.unique(folds):
            rows = np.flatnonzero(folds == fold)
            mean = self.means[fold]
            found[np.ix_(rows, self.frequent)] = (A[rows] - mean) @ self.weights[fold] + mean[: self.frequent.size]
        return found


def _blocks_of(shape: tuple[int, int]) -> Iterator[slice]:
    """Yield the rows of each block of a matrix."""
    step = max(1, BLOCK // max(shape[1], 1))
    for start in range(0, shape[0], step):
        yield slice(start, min(start + step, shape[0]))


def log_odds(chances: Any) -> Doubles:
    """Return ``log(p / (1 - p))``; chances of nearly 0 and nearly 1 are moved inwards."""
    p = np.clip(np.asarray(chances, np.float64), LEAST, 1 - LEAST)
    odds: Doubles = np.log(p) - np.log1p(-p)
    return odds


def _company(chances: Any, given: sp.csr_array, frequent: NDArray[np.int64]) -> Doubles:
    """Return what tells of an image's tags: those given, and the log odds of all, shape (n_images, 2 n_frequent)."""
    return np.concatenate([given[:, frequent].toarray(), log_odds(chances[:, frequent]) * ODDS_SCALE], axis=1)
