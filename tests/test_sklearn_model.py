"""Classifiers and regressors of scikit-learn as the models of taggers: one estimator for all tags, or one per tag."""

from __future__ import annotations

import io

import joblib
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.cluster import KMeans
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge, RidgeClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.svm import SVR, LinearSVC

import visterm
from refusals import refused
from visterm.core.errors import ShapeError
from visterm.core.estimator import clone
from visterm.models import Annotator
from visterm.models.sklearn_model import SklearnModel, as_model

pytestmark = pytest.mark.usefixtures("plugin")

ESTIMATORS = [
    LogisticRegression(), LinearSVC(), RidgeClassifier(), GaussianNB(), SVR(), Ridge(),
    RandomForestClassifier(20, random_state=0), HistGradientBoostingClassifier(max_iter=5),
    OneVsRestClassifier(LogisticRegression()), MultiOutputClassifier(GaussianNB()),
    MLPClassifier(20, max_iter=3000, random_state=0), make_pipeline(MaxAbsScaler(), LogisticRegression()),
]  # fmt: skip


@pytest.fixture(scope="module")
def rows():
    """Features and tags of 80 rows: two tags by the sign of a feature, two by the sign of another."""
    X = np.random.default_rng(0).normal(size=(80, 6)).astype(np.float32)
    signs = X[:, :2] > 0
    return X, np.column_stack([signs[:, :1], ~signs[:, :1], signs[:, 1:], ~signs[:, 1:]]).astype(np.int8)


@pytest.fixture(scope="module")
def photos():
    """Pixels of 24 photos with their tags."""
    pixels = np.random.default_rng(0).integers(0, 100, (24, 16, 16, 3), np.uint8)
    pixels[::2] += 150
    return list(pixels), [["light" if n % 2 == 0 else "dark", "photo"] for n in range(24)]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: type(estimator).__name__)
def test_an_estimator_learns_several_tags_from_dense_and_sparse_features(estimator, rows):
    X, Y = rows
    before = repr(estimator.get_params())
    model = as_model(estimator).fit(X[:60], Y[:60])
    scores = model.decision_function(X[60:])
    assert scores.shape == (20, 4)
    assert scores.dtype == np.float32
    right = np.take_along_axis(Y[60:], model.annotate(X[60:], 2).ids, axis=1)
    assert right.mean() > 0.75
    sparse = sp.csr_array(X)
    sparse.indices, sparse.indptr = sparse.indices.astype(np.int64), sparse.indptr.astype(np.int64)
    assert np.allclose(model.decision_function(sparse[60:]), scores, atol=1e-5)
    right = np.take_along_axis(Y[60:], as_model(estimator).fit(sparse[:60], Y[:60]).annotate(X[60:], 2).ids, axis=1)
    assert right.mean() > 0.75
    assert not [name for name in vars(estimator) if name.endswith("_")]
    assert repr(estimator.get_params()) == before
    assert repr(clone(model)) == repr(model) == repr(estimator)


def test_scores_are_those_of_an_estimator_fitted_for_each_tag(rows):
    X, Y = rows
    scores = as_model(LogisticRegression(C=0.5)).fit(X, Y).decision_function(X)
    for tag in range(4):
        by_itself = LogisticRegression(C=0.5).fit(X, Y[:, tag]).decision_function(X)
        assert np.allclose(scores[:, tag], by_itself, atol=1e-5)


def test_chances_of_all_tags_together_are_those_of_having_the_tag(rows):
    X, Y = rows
    forest = RandomForestClassifier(10, random_state=0)
    scores = as_model(forest).fit(X, Y).decision_function(X)
    assert np.allclose(scores, np.column_stack([part[:, 1] for part in clone(forest).fit(X, Y).predict_proba(X)]))


@pytest.mark.parametrize("estimator", [LogisticRegression(), RandomForestClassifier(5, random_state=0)])
def test_a_tag_of_all_images_or_none_and_a_single_tag_are_learned_too(estimator, rows):
    X, Y = rows
    scores = as_model(estimator).fit(X, np.column_stack([np.ones(80), np.zeros(80), Y[:, 0]])).decision_function(X)
    assert (scores[:, 0] == 1).all()
    assert (scores[:, 1] == 0).all()
    single = as_model(estimator).fit(X, Y[:, :1]).decision_function(X)
    assert single.shape == (80, 1)
    assert single[Y[:, 0] > 0].min() > single[Y[:, 0] == 0].mean()


def test_a_tagger_takes_a_classifier_tags_searches_and_has_confidences(photos):
    pixels, tags = photos
    classifier = LogisticRegression(C=10)
    tagger = visterm.fit(pixels, tags, encoder="mean_colour", model=classifier, n_jobs=1)
    best = [[tag.tag for tag in photo.tags[:2]] for photo in tagger.annotate(pixels).images]
    assert [set(first) for first in best] == [set(one) for one in tags]
    assert tagger.predict_proba(pixels[:3]).shape == (3, 3)
    assert repr(tagger).startswith(
        "Tagger(encoder='mean_colour', model=LogisticRegression(C=10), n_jobs=1) with 3 tags"
    )
    hits = visterm.Catalogue(tagger).add(pixels).search("dark", k=12).hits
    assert {hit.id % 2 for hit in hits} == {1}
    other = visterm.fit(pixels, tags, encoder="mean_colour", model=LogisticRegression(C=0.01), n_jobs=1)
    assert other.fingerprint != tagger.fingerprint
    again = visterm.Tagger(encoder="mean_colour", model=classifier, n_jobs=1).fit(pixels, tags)
    assert again.fingerprint == tagger.fingerprint


def test_grid_search_reaches_the_settings_of_a_classifier_and_the_classifier_itself(photos):
    tagger = visterm.Tagger(encoder="mean_colour", model=LogisticRegression(), n_jobs=1)
    assert "model__C" in tagger.get_params()
    grid = [{"model__C": [1e-6, 1.0]}, {"model": [GaussianNB()]}]
    search = GridSearchCV(tagger, grid, cv=2).fit(*photos)
    assert len(search.cv_results_["mean_test_score"]) == 3
    assert search.best_estimator_.score(*photos) > 0.9


def test_a_run_with_a_classifier_stays_in_memory_and_says_why(photos, tmp_path):
    tagger = visterm.fit(*photos, encoder="mean_colour", model=LogisticRegression(), n_jobs=1)
    with refused("model") as info:
        tagger.save(tmp_path / "run")
    assert "A run with LogisticRegression cannot be saved" in str(info.value)
    assert "joblib.dump" in info.value.advice
    with refused("model"):
        visterm.fit(tmp_path / "no photos", model=LogisticRegression(), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    file = io.BytesIO()
    joblib.dump(tagger, file)
    file.seek(0)
    assert joblib.load(file).annotate(photos[0]).images == tagger.annotate(photos[0]).images


@pytest.mark.parametrize(
    "model", [LogisticRegression, KMeans(), BaseEstimator(), visterm.Tagger(), visterm.encoders.Visterms(), 3]
)
def test_what_is_neither_a_model_nor_a_classifier_is_refused_with_both_ways(model):
    with refused("model") as info:
        visterm.Tagger(model=model)
    assert "('ridge')" in info.value.expected
    assert "visterm.models.Ridge()" in info.value.expected
    assert "LogisticRegression()" in info.value.expected


class Mean(Annotator):
    """A model of one's own that no package registers: the mean of each tag's rows."""

    def _fit(self, X, Y, rng):
        self.tag_rows_ = np.asarray((Y.T @ X) / np.maximum(Y.sum(axis=0), 1)[:, None], np.float32)

    def _image_rows(self, X):
        return X


def test_a_model_of_ones_own_learns_without_a_package_and_is_saved_with_one(photos, tmp_path):
    tagger = visterm.fit(*photos, encoder="mean_colour", model=Mean(), n_jobs=1)
    assert len(tagger.annotate(photos[0]).images) == 24
    with refused("model") as info:
        tagger.save(tmp_path / "run")
    assert "entry-point group 'visterm.models'" in info.value.advice
    joblib.dump(tagger, tmp_path / "tagger")
    assert np.array_equal(joblib.load(tmp_path / "tagger").predict(photos[0]), tagger.predict(photos[0]))


def test_a_model_of_ones_own_whose_rows_are_not_as_wide_as_the_tags_is_refused():
    class TooWide(Annotator):
        def _fit(self, X, Y, rng):
            self.n_ = Y.shape[1]

        def _image_rows(self, X):
            return X

    model = TooWide().fit(np.eye(6, 5), np.eye(6, 2))
    for rank in (model.annotate, model.image_rows):
        with pytest.raises(ShapeError, match=r"TooWide\._image_rows returned \(6, 5\); expected \(n_images, 2\)"):
            rank(np.eye(6, 5))


def test_a_model_says_which_estimator_it_has():
    assert isinstance(as_model(SVR()), SklearnModel)
    assert as_model(SVR(C=3)).get_params()["C"] == 3
