"""Support vector machines: scores beside scikit-learn's, a penalty for each tag, and kernels made elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import average_precision_score
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC, LinearSVC
from sklearn.utils.estimator_checks import check_estimator

from planted import plant_corpus
from visterm.core.errors import ShapeError, UserError
from visterm.core.persist import load_estimator, save_estimator
from visterm.core.tables import MODELS
from visterm.metrics import average_precisions
from visterm_research.models.linear.svm import BIAS_FEATURE, PENALTIES, Svm


@pytest.fixture(scope="module")
def planted():
    return plant_corpus(n_tags=12, random_state=2)


def normalised(train_scores, scores):
    return (scores - train_scores.mean()) / train_scores.std()


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_linear_scores_are_scikit_learns_normalised_over_training_images(form, planted):
    X, Y = planted.X_train.astype(float), planted.Y_train.toarray() > 0
    scores = Svm(C=0.7).fit(form(planted.X_train), planted.Y_train).decision_function(form(planted.X_test))
    scale = np.sqrt(np.square(X).sum(axis=1).mean())
    for tag in range(12):
        machine = LinearSVC(C=0.7, dual=False, intercept_scaling=BIAS_FEATURE, tol=1e-7).fit(X / scale, Y[:, tag])
        expected = normalised(machine.decision_function(X / scale), machine.decision_function(planted.X_test / scale))
        np.testing.assert_allclose(scores[:, tag], expected, atol=0.02)  # the solver stops a little before the end


def test_scores_of_training_images_have_mean_0_and_variance_1_for_each_tag(planted):
    scores = Svm().fit(planted.X_train, planted.Y_train).decision_function(planted.X_train)
    np.testing.assert_allclose(scores.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(scores.std(axis=0), 1, atol=1e-5)


def test_scores_that_are_not_normalised_are_margins_and_rank_an_images_tags_better(planted):
    X, Y = planted.X_train, planted.Y_train.toarray() > 0
    margins, scaled = (
        Svm(C=1, kernel="rbf", gamma=2.0, normalise=n).fit(X, Y).decision_function(planted.X_test)
        for n in (False, True)
    )
    machine = SVC(C=1, gamma=2.0).fit(X, Y[:, 4])
    np.testing.assert_allclose(margins[:, 4], machine.decision_function(planted.X_test), atol=5e-3)
    relevant = planted.Y_test.toarray()
    of_margins, of_scaled = (np.nanmean(average_precisions(scores, relevant)) for scores in (margins, scaled))
    assert of_margins > of_scaled


def test_a_query_of_two_words_averages_their_normalised_scores(planted):
    model = Svm(C=1).fit(planted.X_train, planted.Y_train)
    query = np.zeros(12)
    query[[3, 8]] = 0.5
    found = model.query_rows(query) @ model.image_rows(planted.X_test).T
    expected = model.decision_function(planted.X_test)[:, [3, 8]].mean(axis=1)
    np.testing.assert_allclose(found[0], expected, atol=1e-5)


def test_each_tag_has_the_penalty_that_finds_its_validation_images_best(planted):
    X, Y = planted.X_train, planted.Y_train
    train, held = (X[:160], Y[:160]), (X[160:], Y[160:])
    model = Svm().fit(*train, valid=held)
    reached = np.array(
        [
            [
                average_precision_score(truth, scores)
                for truth, scores in zip(
                    held[1].toarray().T, Svm(C=C).fit(*train).decision_function(held[0]).T, strict=True
                )
            ]
            for C in PENALTIES
        ]
    )
    chosen = [PENALTIES.index(C) for C in model.C_]
    np.testing.assert_allclose(reached[chosen, np.arange(12)], reached.max(axis=0), atol=1e-9)
    assert len(set(chosen)) > 1
    assert model.n_features_in_ == 40


def test_a_tag_that_no_validation_image_has_takes_the_penalty_best_for_all(planted):
    X, Y = planted.X_train, planted.Y_train.toarray()
    held = np.flatnonzero(Y[:, 5] == 0)[:60]
    rest = np.setdiff1d(np.arange(240), held)
    model = Svm().fit(X[rest], Y[rest], valid=(X[held], Y[held]))
    maps = []
    for C in PENALTIES:
        scores = Svm(C=C).fit(X[rest], Y[rest]).decision_function(X[held])
        judged = [t for t in range(12) if Y[held, t].any()]
        maps.append(np.mean([average_precision_score(Y[held, t], scores[:, t]) for t in judged]))
    assert model.C_[5] == PENALTIES[int(np.argmax(maps))]


def test_without_enough_images_to_hold_out_the_penalty_is_1(planted):
    assert (Svm(valid_share=0.1).fit(planted.X_train, planted.Y_train).C_ == 1).all()
    assert (Svm(valid_share=0.3).fit(planted.X_train, planted.Y_train).C_ != 1).any()


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_a_kernel_machine_scores_as_scikit_learns_and_as_with_its_kernel_made_elsewhere(form, planted):
    X, Y = planted.X_train, planted.Y_train.toarray() > 0
    inside = Svm(kernel="rbf", gamma=2.0, C=3).fit(form(X), planted.Y_train)
    scores = inside.decision_function(form(planted.X_test))
    for tag in (0, 7):
        machine = SVC(C=3, gamma=2.0).fit(X, Y[:, tag])
        expected = normalised(machine.decision_function(X), machine.decision_function(planted.X_test))
        np.testing.assert_allclose(scores[:, tag], expected, atol=5e-3)
    K, K_test = rbf_kernel(X, X, 2.0), rbf_kernel(planted.X_test, X, 2.0)
    outside = Svm(kernel="precomputed", C=3).fit(form(K), planted.Y_train)
    np.testing.assert_allclose(outside.decision_function(form(K_test)), scores, atol=2e-3)


@pytest.mark.parametrize("kernel", ["chi2", "intersection", "hellinger", "rbf"])
def test_kernels_are_tuned_saved_and_the_same_for_any_number_of_threads(kernel, planted, tmp_path):
    first, second = (
        Svm(kernel=kernel, valid_share=0.25, n_jobs=n).fit(planted.X_train, planted.Y_train) for n in (1, 3)
    )
    scores = first.decision_function(planted.X_test)
    np.testing.assert_array_equal(scores, second.decision_function(planted.X_test))
    save_estimator(first, MODELS, tmp_path, "model")
    np.testing.assert_array_equal(load_estimator(MODELS, tmp_path, "model").decision_function(planted.X_test), scores)
    relevant = planted.Y_test.toarray()
    best = np.argsort(-scores, axis=0)[:5]
    assert np.take_along_axis(relevant, best, axis=0).mean() > 2 * relevant.mean()


def test_kernel_machines_keep_the_rules_of_scikit_learn():
    check_estimator(Svm(kernel="rbf", valid_share=0.25), on_skip=None)


def test_a_kernel_made_elsewhere_is_tuned_within_the_training_images(planted):
    X = planted.X_train
    model = Svm(kernel="precomputed", valid_share=0.25).fit(rbf_kernel(X, X, 2.0), planted.Y_train)
    same = Svm(kernel="rbf", gamma=2.0, valid_share=0.25).fit(X, planted.Y_train)
    np.testing.assert_array_equal(model.C_, same.C_)
    held = rbf_kernel(planted.X_test, X, 2.0), planted.Y_test
    assert Svm(kernel="precomputed").fit(rbf_kernel(X, X, 2.0), planted.Y_train, valid=held).C_.shape == (12,)


def test_a_tag_of_no_image_is_as_low_as_any_and_one_of_all_images_as_high(planted):
    Y = np.hstack([planted.Y_train.toarray(), np.zeros((240, 1)), np.ones((240, 1))])
    model = Svm(C=1).fit(planted.X_train, Y)
    scores = model.decision_function(planted.X_train)
    np.testing.assert_allclose(scores[:, 12], scores[:, :12].min(), rtol=1e-5)
    np.testing.assert_allclose(scores[:, 13], scores[:, :12].max(), rtol=1e-5)


def test_images_without_a_single_tag_give_finite_scores():
    for kernel in ("linear", "rbf"):
        model = Svm(kernel=kernel).fit(np.eye(4), np.zeros((4, 2)))
        assert np.isfinite(model.decision_function(np.eye(4))).all()


def test_what_cannot_be_is_refused_with_what_is_accepted(planted):
    with pytest.raises(UserError, match="kernel is 'linar'; expected one of: linear"):
        Svm(kernel="linar").fit(planted.X_train, planted.Y_train)
    with pytest.raises(UserError, match="C is 0; expected a finite number above 0, or None to have it chosen"):
        Svm(C=0).fit(planted.X_train, planted.Y_train)
    with pytest.raises(ShapeError, match=r"X is 240 × 40; with kernel=.precomputed. expected the square kernel"):
        Svm(kernel="precomputed").fit(planted.X_train, planted.Y_train)
    with pytest.raises(UserError, match="not sums over features"):
        Svm(kernel="rbf", C=1).fit(planted.X_train, planted.Y_train).explain(planted.X_test[:1], 0)
