"""Classifiers and regressors of scikit-learn as models: one estimator for all tags, or one per tag."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Never, Protocol, Self, runtime_checkable

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import check_size
from visterm.core.errors import UserError
from visterm.core.estimator import Estimator, clone
from visterm.core.products import dense
from visterm.core.types import Doubles, Matrix
from visterm.models.base import MAX_SCORE_BYTES, Annotator

_FEWER = "Use a model of visterm, such as logistic, or fewer tags or images."


@runtime_checkable
class SklearnEstimator(Protocol):
    """What estimators of scikit-learn have, besides a method for scores."""

    def fit(self, X: Any, y: Any, /) -> Any:
        """Learn."""

    def get_params(self, deep: bool = True) -> Mapping[str, object]:
        """Return the settings by name."""

    def set_params(self, **params: object) -> object:
        """Change settings."""


class SklearnModel(Annotator):
    """Scores tags by a classifier or regressor of scikit-learn, or of another library with its methods.

    A classifier for several labels per image, such as `RandomForestClassifier` or `OneVsRestClassifier`, and a
    regressor with several outputs learn all tags together. Of other estimators, a copy learns each tag. Scores are
    those of `decision_function`, or else of `predict_proba`, or else of a regressor's `predict`. A tag that all
    training images have, or none, has the same score for all images: 1 or 0.

    `get_params` and `set_params` are those of the estimator. A run with such a model stays in memory, because opening
    the estimator from a file would run its code.

    Parameters
    ----------
    estimator : classifier with `decision_function` or `predict_proba`, or regressor
        It is copied before it learns.

    Attributes
    ----------
    estimators_ : list of estimators, or of numbers
        The fitted estimator of all tags, or an estimator or a constant score for each tag.
    sparse_ : bool
        Whether the estimators learned from sparse features.
    state_ : ndarray of uint8, shape (16,)
        A hash of what the estimators learned.
    """

    def __init__(self, estimator: SklearnEstimator) -> None:
        self.estimator = estimator

    def get_params(self, deep: bool = True) -> dict[str, object]:
        """Return the settings of the estimator by name."""
        return dict(self.estimator.get_params(deep))

    def set_params(self, **params: object) -> Self:
        """Change settings of the estimator."""
        self.estimator.set_params(**params)
        return self

    def __sklearn_clone__(self) -> Self:
        return type(self)(clone(self.estimator))

    def __repr__(self) -> str:
        return repr(self.estimator)

    def refuse_saving(self) -> Never:
        """Raise UserError: a run holds data only."""
        raise UserError(
            f"A run with {type(self.estimator).__name__} cannot be saved: an estimator of scikit-learn is saved as a "
            "pickle, which runs code when it is opened, and a run holds data only.",
            setting="model", value=self.estimator,
            advice="Leave the run in memory (no `out`); or write the tagger with joblib.dump, and open only your own "
            "files; or fit a model of visterm, such as visterm.models.Logistic().",
        )  # fmt: skip

    def _fit(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator) -> None:
        import joblib
        from sklearn.utils import get_tags

        self.sparse_ = sp.issparse(X) and get_tags(self.estimator).input_tags.sparse
        n_tags = Y.shape[1]
        check_size(Y.shape[0] * n_tags, MAX_SCORE_BYTES, f"{Y.shape[0]} images × {n_tags} tags", _FEWER)
        has_tag, features = (Y > 0).toarray().astype(np.int8), self._readable(X)
        counts = has_tag.sum(axis=0)
        if n_tags > 1 and _learns_tags_together(self.estimator):
            self.estimators_ = [clone(self.estimator).fit(features, has_tag)]
        else:
            self.estimators_ = [
                clone(self.estimator).fit(features, has_tag[:, tag]) if 0 < count < len(has_tag) else float(count > 0)
                for tag, count in enumerate(counts)
            ]
        self.state_ = np.frombuffer(bytes.fromhex(joblib.hash(self.estimators_)), np.uint8)

    def _image_rows(self, X: Matrix) -> Matrix:
        features = self._readable(X)
        if len(self.estimators_) < self.n_tags_:
            return np.ascontiguousarray(_scores_of(self.estimators_[0], features), np.float32)
        scores = np.empty((X.shape[0], self.n_tags_), np.float32)
        for tag, part in enumerate(self.estimators_):
            scores[:, tag] = (
                part if isinstance(part, float) else _scores_of(part, features).reshape(len(scores), -1)[:, -1]
            )
        return scores

    def _readable(self, X: Matrix) -> Matrix:
        """Return features in the form that the estimator learned from: sparse if it takes sparse matrices, or dense."""
        if self.sparse_:
            X = sp.csr_array(X)
            indices = (part.astype(np.int32) for part in (X.indices, X.indptr))  # some estimators take no other type
            return sp.csr_array((X.data, *indices), X.shape)
        check_size(4 * X.shape[0] * X.shape[1], MAX_SCORE_BYTES, f"{X.shape[0]} × {X.shape[1]} dense features", _FEWER)
        return dense(X)


def as_model(model: object) -> Annotator:
    """Return an unfitted copy of a model, or of an estimator of scikit-learn as a model.

    Raises UserError for anything else, such as a class.
    """
    if isinstance(model, Annotator):
        return clone(model)
    if isinstance(model, SklearnEstimator) and not isinstance(model, type | Estimator):
        from sklearn.base import is_regressor

        if hasattr(model, "decision_function") or hasattr(model, "predict_proba") or is_regressor(model):
            return SklearnModel(clone(model))
    raise UserError(
        setting="model", value=model,
        expected="a name ('ridge'), a model (visterm.models.Ridge()), or an estimator of scikit-learn: a regressor or "
        "a classifier with decision_function or predict_proba (LogisticRegression())",
    )  # fmt: skip


def _learns_tags_together(estimator: SklearnEstimator) -> bool:
    """Return whether an estimator learns from a matrix of tags."""
    from sklearn.base import is_regressor
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.multioutput import ClassifierChain, MultiOutputClassifier
    from sklearn.utils import get_tags

    if isinstance(estimator, OneVsRestClassifier | MultiOutputClassifier | ClassifierChain):
        return True
    tags = get_tags(estimator)
    if is_regressor(estimator):
        return bool(tags.target_tags.multi_output)
    return bool(tags.classifier_tags and tags.classifier_tags.multi_label)


def _scores_of(estimator: Any, X: Matrix) -> Doubles:
    """Return the scores of all tags, (n_images, n_tags); of one tag, also (n_images,) or the chances (no, yes)."""
    if hasattr(estimator, "decision_function"):
        return np.asarray(estimator.decision_function(X))
    if not hasattr(estimator, "predict_proba"):
        return np.asarray(estimator.predict(X))
    chances = estimator.predict_proba(X)
    if isinstance(chances, list):  # an array per tag, with a column per class: 0, 1, or both
        pairs = zip(chances, estimator.classes_, strict=True)
        return np.column_stack([part @ np.asarray(classes, np.float64) for part, classes in pairs])
    return np.asarray(chances)
