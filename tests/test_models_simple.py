"""Prior, nearest neighbours, ridge and least squares against hand-computed values and other libraries."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Ridge as SklearnRidge
from sklearn.model_selection import GridSearchCV, LeaveOneOut, cross_val_predict, cross_val_score
from sklearn.preprocessing import LabelBinarizer

from planted import plant_corpus
from refusals import refused
from visterm.core.errors import DataError, ShapeError, TooLargeError
from visterm.models.baselines import Prior
from visterm.models.linear import base as linear
from visterm.models.linear import normal_equations as least_squares
from visterm.models.linear.normal_equations import fit_ridge, leave_one_out, mean_square_norm
from visterm.models.linear.ridge import ALPHAS, Ridge
from visterm.models.neighbours.knn import Knn


@pytest.fixture(scope="module")
def planted():
    return plant_corpus(random_state=1)


def test_the_prior_ranks_tags_by_how_many_images_have_them():
    Y = [[1, 0, 1], [1, 0, 0], [1, -1, 1], [0, -1, 0]]
    model = Prior().fit(np.eye(4), Y)
    np.testing.assert_allclose(model.decision_function(np.ones((1, 4))), [[0.75, 0, 0.5]])
    assert model.annotate(np.ones((1, 4)), 3).ids.tolist() == [[0, 2, 1]]


def test_neighbours_vote_by_their_cosine_to_a_power_and_scores_are_shares():
    X = np.array([[1.0, 0.0], [3.0, 4.0], [0.0, 2.0], [-1.0, 0.0]])
    Y = [[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 0, 1]]
    scores = Knn(n_neighbors=2, power=2).fit(X, Y).decision_function([[5.0, 0.0]])
    total = 1 + 0.6**2
    np.testing.assert_allclose(scores, [[1, 0.36 / total, 0]], rtol=1e-6)


def test_neighbours_that_point_away_have_no_vote():
    model = Knn(n_neighbors=2, power=1).fit([[1.0, 0.0], [0.0, 1.0]], [[1, 0], [0, 1]])
    np.testing.assert_array_equal(model.decision_function([[-1.0, 0.0]]), [[0, 0]])


def test_of_equally_near_images_those_that_came_first_are_the_neighbours():
    X = np.ones((4, 2))
    model = Knn(n_neighbors=2, power=1).fit(X, np.eye(4))
    np.testing.assert_allclose(model.decision_function([[1.0, 1.0]]), [[0.5, 0.5, 0, 0]])


def test_more_neighbours_than_images_means_all_images(planted):
    X, Y = planted.X_train[:5], planted.Y_train[:5]
    few, many = (Knn(n_neighbors=n, power=1).fit(X, Y).decision_function(planted.X_test) for n in (5, 500))
    np.testing.assert_array_equal(few, many)


def test_the_settings_of_the_neighbours_are_those_that_rank_left_out_images_best(planted):
    X, Y = planted.X_train, planted.Y_train
    model, sparse = Knn().fit(X, Y), Knn().fit(sp.csr_array(X), Y)
    assert (sparse.n_neighbors_, sparse.power_) == (model.n_neighbors_, model.power_)
    own = Y.toarray()
    directions = X / np.linalg.norm(X, axis=1, keepdims=True)
    cosines = directions @ directions.T
    np.fill_diagonal(cosines, -np.inf)  # each image is left out of its own neighbours
    found = {}
    for n in (10, 20, 40, 80, 160):
        near = np.argsort(-cosines, axis=1, kind="stable")[:, :n]
        nearest = np.take_along_axis(cosines, near, axis=1).clip(0)
        for power in (1, 2, 4, 8, 16):
            scores = np.einsum("in,int->it", nearest**power, own[near])
            found[n, power] = slow_map(scores, own)
    assert found[model.n_neighbors_, model.power_] >= max(found.values()) - 0.01
    assert len(set(found.values())) > 1


def slow_map(scores, relevant):
    values = []
    for row, tags in zip(scores, relevant, strict=True):
        hits = tags[np.argsort(-row, kind="stable")] > 0
        values.append((np.cumsum(hits) / np.arange(1, len(hits) + 1))[hits].mean())
    return np.mean(values)


def test_neighbours_given_one_setting_choose_the_other(planted):
    model = Knn(n_neighbors=7).fit(planted.X_train, planted.Y_train)
    assert model.n_neighbors_ == 7
    assert model.power_ in (1, 2, 4, 8, 16)


SHAPES = {"more images": (60, 25), "more features": (30, 70)}


def _problem(shape):
    rng = np.random.default_rng(2)
    n, d = SHAPES[shape]
    X = ((rng.random((n, d)) < 0.3) * rng.random((n, d)) + 0.2 * (rng.random(d) < 0.2)).astype(np.float32)
    return X, (rng.random((n, 5)) < 0.3).astype(np.float32)


@pytest.mark.parametrize("solver", ["direct", "conjugate gradients"])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("shape", SHAPES)
def test_ridge_weights_are_those_of_scikit_learn(shape, form, solver, monkeypatch):
    if solver != "direct":
        monkeypatch.setattr(least_squares, "DIRECT_SIZE", 10)
        monkeypatch.setattr(least_squares, "CG_COLUMNS", 2)
    X, T = _problem(shape)
    found = fit_ridge(form(X), form(T), 0.5)
    expected = SklearnRidge(alpha=0.5).fit(X.astype(float), T.astype(float))
    np.testing.assert_allclose(found.weights.T, expected.coef_, atol=2e-4)
    np.testing.assert_allclose(found.intercept, expected.intercept_, atol=2e-4)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("shape", SHAPES)
def test_leave_one_out_predictions_are_those_of_really_leaving_one_out(shape, form):
    X, T = _problem(shape)
    for alpha, predicted in leave_one_out(form(X), form(T), [3.0, 0.3], scale=0.5):
        expected = cross_val_predict(
            SklearnRidge(alpha=alpha * 0.5), X.astype(float), T.astype(float), cv=LeaveOneOut()
        )
        np.testing.assert_allclose(predicted, expected, atol=1e-4)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_the_penalty_relates_to_the_mean_squared_length_of_centred_rows(form):
    X, _ = _problem("more images")
    centred = X.astype(float) - X.mean(axis=0)
    assert mean_square_norm(form(X)) == pytest.approx((centred**2).sum(axis=1).mean(), rel=1e-5)


def test_features_that_never_vary_leave_ridge_with_the_tag_frequencies():
    model = Ridge().fit(np.full((6, 3), 0.7), [[1, 0], [1, 0], [1, 1], [0, 0], [0, 0], [0, 0]])
    np.testing.assert_allclose(model.decision_function(np.full((1, 3), 0.7)), [[0.5, 1 / 6]], atol=1e-5)


def test_scaling_all_features_leaves_ridge_predictions_alone(planted):
    first = Ridge(alpha=0.3).fit(planted.X_train, planted.Y_train).decision_function(planted.X_test)
    scaled = Ridge(alpha=0.3).fit(planted.X_train * 100, planted.Y_train).decision_function(planted.X_test * 100)
    np.testing.assert_allclose(scaled, first, atol=1e-4)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_rows_of_ridge_have_the_width_that_costs_least(form, planted):
    wide = Ridge(alpha=1).fit(form(planted.X_train), planted.Y_train)  # 40 features, 12 tags
    width = wide.image_rows(form(planted.X_test)).shape[1]
    assert width == (12 if form is np.asarray else 41)
    narrow = Ridge(alpha=1).fit(form(planted.X_train[:, :6]), planted.Y_train)
    assert narrow.image_rows(form(planted.X_test[:, :6])).shape[1] == 7


def test_ridge_chooses_a_penalty_near_the_best_on_unseen_images(planted):
    chosen = Ridge().fit(planted.X_train, planted.Y_train)
    relevant = planted.Y_test.toarray()
    tried = [
        slow_map(Ridge(alpha=alpha).fit(planted.X_train, planted.Y_train).decision_function(planted.X_test), relevant)
        for alpha in ALPHAS
    ]
    assert slow_map(chosen.decision_function(planted.X_test), relevant) >= max(tried) - 0.02


@pytest.mark.parametrize(
    ("model", "setting"),
    [
        (Ridge(alpha=0), "alpha"),
        (Ridge(alpha=float("inf")), "alpha"),
        (Knn(n_neighbors=0), "n_neighbors"),
        (Knn(power=-1), "power"),
    ],
)
def test_settings_that_cannot_be_are_refused_with_what_is_accepted(model, setting, planted):
    with refused(setting, value=getattr(model, setting)):
        model.fit(planted.X_train, planted.Y_train)


def test_ridge_refuses_more_weights_than_memory_should_take(monkeypatch, planted):
    monkeypatch.setattr(linear, "MAX_WEIGHT_BYTES", 1000)
    with pytest.raises(TooLargeError, match=r"40 features × 12 tags.*wsabie"):
        Ridge().fit(planted.X_train, planted.Y_train)


@pytest.mark.parametrize(
    ("X", "message"), [(np.ones((1, 3)), "X has 3 features, but Prior is expecting 2"), ([1, 2], "2D")]
)
def test_features_of_another_shape_are_refused_in_one_line(X, message):
    model = Prior().fit(np.ones((4, 2)), np.ones((4, 1)))
    with pytest.raises(DataError, match=message) as refused:
        model.annotate(X)
    assert "\n" not in str(refused.value)


def test_a_score_is_the_mean_average_precision_over_images_that_have_a_tag():
    model = Ridge().fit(np.eye(3), np.eye(3))
    Y = np.array([[1, 0, 0], [1, 0, 0], [0, 0, 0], [0, 0, 1]])
    X = np.eye(3)[[0, 1, 2, 2]]  # right, at rank 2 of equal scores but one, untagged, right
    assert model.score(X, Y) == pytest.approx((1 + 1 / 2 + 1) / 3)
    assert model.score(X, Y, sample_weight=[1, 2, 5, 1]) == pytest.approx((1 + 2 / 2 + 1) / 4)
    with pytest.raises(DataError, match="No image has a right tag and a weight above 0"):
        model.score(X, Y, sample_weight=[0, 0, 5, 0])
    with refused("sample_weight", value=(3,), error=ShapeError):
        model.score(X, Y, sample_weight=[1, 1, 1])
    with pytest.raises(ShapeError):
        model.score(X, Y[:, :2])


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_scikit_learn_chooses_settings_and_measures_models_by_their_scores(form, planted):
    X, Y = form(planted.X_train), planted.Y_train.toarray()
    searched = GridSearchCV(Ridge(), {"alpha": [0.1, 1.0]}, cv=2).fit(X, Y)
    means = [cross_val_score(Ridge(alpha=alpha), X, Y, cv=2).mean() for alpha in (0.1, 1.0)]
    assert searched.best_score_ == pytest.approx(max(means))
    assert searched.best_params_ == {"alpha": [0.1, 1.0][int(np.argmax(means))]}
    assert cross_val_score(Prior(), X, Y, cv=2).mean() < max(means)


def test_a_vector_of_class_numbers_is_refused_and_a_vector_of_one_tag_is_not():
    X = np.eye(6)
    for y in ([0, 1, 2, 0, 1, 2], [1, 2, 1, 2, 1, 2]):
        with pytest.raises(DataError, match=r"LabelBinarizer \(one class per image\) or MultiLabelBinarizer"):
            Ridge().fit(X, y)
    for y in (["0", "1", "2"] * 2, ["cat", "dog"] * 3):
        with pytest.raises(DataError, match=r"expected a list of tags for each image. Split the column"):
            Ridge().fit(X, y)
    for y in ([0, 1, 0, 1, 0, 1], np.array([True, False] * 3), [1, -1, 0, 0, 0, 0]):
        assert Ridge().fit(X, y).n_tags_ == 1
    assert Ridge().fit(X, LabelBinarizer().fit_transform([0, 1, 2, 0, 1, 2])).n_tags_ == 3
