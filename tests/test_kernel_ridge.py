"""Kernel ridge gives what scikit-learn's does, leaves images out exactly, and takes landmarks where there are many."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.kernel_ridge import KernelRidge as Reference

from planted import plant_corpus
from refusals import refused
from visterm.metrics import average_precisions
from visterm.models.linear import kernel_ridge
from visterm.models.linear.kernel_ridge import KernelRidge
from visterm.models.linear.ridge import Ridge


@pytest.fixture(scope="module")
def planted():
    return plant_corpus(random_state=1)


def unit(X):
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def reference(X, Y, gamma, alpha):
    mean = Y.mean(axis=0)
    fitted = Reference(kernel="rbf", gamma=gamma, alpha=alpha).fit(unit(X).astype(float), Y - mean)
    return lambda rows: fitted.predict(unit(rows).astype(float)) + mean


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_scores_are_those_of_scikit_learn(form, planted):
    X, Y = planted.X_train + 0.01, planted.Y_train.toarray()
    model = KernelRidge(gamma=2.0, alpha=0.5).fit(form(X), Y)
    far = ((unit(X)[:, None] - unit(X)[None]) ** 2).sum(axis=2)
    width = far.sum() / (len(X) * (len(X) - 1))
    assert model.width_ == pytest.approx(width, rel=1e-5)
    expected = reference(X, Y, 2.0 / width, 0.5)(planted.X_test + 0.01)
    np.testing.assert_allclose(model.decision_function(form(planted.X_test + 0.01)), expected, atol=1e-4)


def test_settings_are_those_that_rank_left_out_images_best(planted, monkeypatch):
    X, Y = planted.X_train[:40] + 0.01, planted.Y_train[:40].toarray()
    monkeypatch.setattr(kernel_ridge, "GAMMAS", (0.5, 4.0))
    monkeypatch.setattr(kernel_ridge, "ALPHAS", (1.0, 0.1))
    model = KernelRidge().fit(X, Y)
    found = {}
    for gamma in (0.5, 4.0):
        for alpha in (1.0, 0.1):
            predicted = np.empty(Y.shape)
            for i in range(len(X)):
                others = np.arange(len(X)) != i
                mean = Y.mean(axis=0)
                fitted = Reference(kernel="rbf", gamma=gamma / model.width_, alpha=alpha)
                fitted.fit(unit(X[others]).astype(float), Y[others] - mean)
                predicted[i] = fitted.predict(unit(X[i : i + 1]).astype(float))[0] + mean
            found[gamma, alpha] = np.nanmean(average_precisions(predicted, Y))
    assert found[model.gamma_, model.alpha_] == pytest.approx(max(found.values()))


def test_landmarks_learn_from_all_images_and_few_are_nearly_as_good(planted):
    exact, some = (
        KernelRidge(gamma=1.0, alpha=0.3, landmarks=most).fit(planted.X_train, planted.Y_train) for most in (1000, 60)
    )
    assert (exact.rows_.shape[0], some.rows_.shape[0]) == (240, 60)
    maps = [np.nanmean(average_precisions(m.decision_function(planted.X_test), planted.Y_test)) for m in (exact, some)]
    assert maps[1] > maps[0] - 0.05


def test_some_landmarks_solve_the_equations_of_all_images(planted):
    model = KernelRidge(gamma=1.0, alpha=0.3, landmarks=60).fit(planted.X_train, planted.Y_train)
    rows = planted.X_train.astype(float) / np.linalg.norm(planted.X_train.astype(float), axis=1, keepdims=True)
    landmarks = model.rows_.astype(float)

    def kernel(A, B):
        return np.exp(-((A[:, None] - B) ** 2).sum(axis=2) / model.width_)

    K, targets = kernel(rows, landmarks), planted.Y_train.toarray() > 0
    dual = np.linalg.solve(K.T @ K + 0.3 * kernel(landmarks, landmarks), K.T @ (targets - targets.mean(axis=0)))
    np.testing.assert_allclose(K @ model.dual_, K @ dual, atol=2e-3)


def test_it_learns_a_tag_that_no_line_divides_from_the_others():
    X = np.array([[1, 0], [1, 0.1], [0, 1], [0.1, 1], [1, 1], [1, 0.9], [0.9, 1]] * 8, np.float32)
    Y = np.array([[1, 0], [1, 0], [1, 0], [1, 0], [0, 1], [0, 1], [0, 1]] * 8)
    bent = KernelRidge(gamma=3.0, alpha=0.03).fit(X, Y).annotate(X, 1).ids[:, 0]
    assert (bent == Y[:, 1]).all()
    line = Ridge(alpha=0.03).fit(unit(X)[:, :1], Y).annotate(unit(X)[:, :1], 1).ids[:, 0]
    assert (line != Y[:, 1]).any()


@pytest.mark.parametrize("wrong", [{"landmarks": 0}, {"gamma": 0}, {"alpha": -1}])
def test_settings_that_cannot_be_used_are_refused(wrong, planted):
    [(name, value)] = wrong.items()
    with refused(name, value=value):
        KernelRidge(**wrong).fit(planted.X_train, planted.Y_train)
