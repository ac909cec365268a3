"""What methods.py compares, behind one face: models of visterm and of scikit-learn."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp
from harness.data_sets import Rows
from numpy.typing import NDArray

from lab.cost import Cost
from lab.method_sets import MethodSet
from visterm.core.tables import MODELS

Scores = NDArray[np.float32]

DIM = 100
"""Numbers of an image and of a tag in others' embeddings, as in ours by default."""

TIMED_SECONDS = 0.2  # At least
SCIKIT_LEARN = ("LogisticRegression", "Ridge", "KNeighborsRegressor", "TruncatedSVD")


class UnsuitedError(RuntimeError):
    """The contestant cannot learn from such rows."""


class Judged(NamedTuple):
    """The scores of the judged images, the seconds that they took, and what ranks the images for a tag."""

    scores: Scores
    seconds: float
    rank: Callable[[int], NDArray[np.int64]]


class Contestant(Protocol):
    """Learns once, and is judged once.

    Attributes
    ----------
    settings : dict
        What differs from its defaults, as it is shown.
    """

    settings: dict[str, str]

    def warm_up(self, rows: Rows) -> None:
        """Load what is compiled or imported at the first fit."""

    def learn(self, rows: Rows) -> Cost:
        """Fit, and say what that took."""

    def judge(self, rows: Rows) -> Judged:
        """Score the judged images, and keep what a search needs of them."""


class Ours:
    """A model of visterm with its defaults, and what the data set has for it."""

    def __init__(self, name: str, data: MethodSet) -> None:
        self._name, self._data = name, data
        self._given, self.settings = data.settings(name)

    def warm_up(self, rows: Rows) -> None:
        given = {key: value for key, value in self._given.items() if key not in ("word_vectors", "part_of")}
        if "word_vectors" in self._given:
            given["word_vectors"] = self._given["word_vectors"][: rows.Y.shape[1]]
        model = MODELS.create(self._name, **given).fit(rows.X, rows.Y)
        model.decision_function(rows.features(rows.judged))

    def learn(self, rows: Rows) -> Cost:
        if self._name == "ease" and rows.X is not None:
            raise UnsuitedError("With features it is ridge.")
        self._model = MODELS.create(self._name, **self._given)
        with Cost() as cost:
            self._model.fit(rows.X, rows.Y)
        return cost

    def judge(self, rows: Rows) -> Judged:
        X = rows.features(rows.judged)
        scores, seconds = timed(lambda: self._model.decision_function(X))
        U: Any = self._model.image_rows(X)
        V: Any = getattr(self._model, "tag_rows_", None)
        if V is None:  # a photo's row is its scores
            return judged_by_scores(scores, seconds)
        V = V.toarray() if sp.issparse(V) else V
        return Judged(scores, seconds, lambda tag: np.argsort(-(U @ V[tag])))


class ScikitLearn:
    """An estimator of scikit-learn with its defaults: for features, or for images known by number."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self.settings = {"n_components": f"{DIM}, or half of the tags"} if kind == "TruncatedSVD" else {}

    def warm_up(self, rows: Rows) -> None:
        self.learn(rows)
        self.judge(rows)

    def learn(self, rows: Rows) -> Cost:
        self._check(rows)
        self._model = self._make(rows.Y.shape[1])
        Y = sp.csr_matrix(rows.Y > 0, dtype=np.float32) if self._kind == "TruncatedSVD" else (rows.Y > 0).toarray() * 1
        with Cost() as cost:
            self._model.fit(*((Y,) if rows.X is None else (rows.X, Y)))
        return cost

    def judge(self, rows: Rows) -> Judged:
        if rows.X is None:
            pairs = sp.csr_matrix((rows.Y > 0)[rows.judged], dtype=np.float32)
            return judged_by_scores(*timed(lambda: self._model.transform(pairs) @ self._model.components_))
        score = getattr(self._model, "decision_function", None) or self._model.predict
        return judged_by_scores(*timed(lambda: score(rows.judged)))

    def _check(self, rows: Rows) -> None:
        if (rows.X is None) != (self._kind == "TruncatedSVD"):
            raise UnsuitedError("It needs features." if rows.X is None else "It is for images known by number.")

    def _make(self, n_tags: int) -> Any:
        from sklearn.decomposition import TruncatedSVD
        from sklearn.linear_model import LogisticRegression, Ridge
        from sklearn.multiclass import OneVsRestClassifier
        from sklearn.neighbors import KNeighborsRegressor

        return {
            "LogisticRegression": lambda: OneVsRestClassifier(LogisticRegression()),
            "Ridge": Ridge,
            "KNeighborsRegressor": KNeighborsRegressor,
            "TruncatedSVD": lambda: TruncatedSVD(min(DIM, n_tags // 2), random_state=0),
        }[self._kind]()


def timed(score: Callable[[], Any]) -> tuple[Any, float]:
    """Return scores and the seconds of a call, the mean of enough for a clock with coarse ticks."""
    began, n_calls = time.process_time(), 0
    while n_calls == 0 or time.process_time() - began < TIMED_SECONDS:
        scores = score()
        n_calls += 1
    return scores, (time.process_time() - began) / n_calls


def judged_by_scores(scores: Any, seconds: float) -> Judged:
    """Return what is judged where nothing but its scores can be kept of an image."""
    kept: Scores = np.ascontiguousarray(scores, np.float32)
    return Judged(kept, seconds, lambda tag: np.argsort(-kept[:, tag]))
