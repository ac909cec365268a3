"""Rows of an array that are not copied: models learn from them, part by part, what they learn from a copy."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.utils.extmath import randomized_svd

from planted import plant_corpus
from visterm.core.selected_rows import SelectedRows, copied, selected
from visterm.core.tables import MODELS
from visterm.models.linear import logistic
from visterm.models.mlp import Mlp, PrincipalAxes, principal_rows

POSITIONS = np.arange(0, 240, 2)


@pytest.fixture(scope="module")
def planted():
    return plant_corpus(n_train=240, random_state=0)


@pytest.fixture
def halves(planted):
    """Every second training image: selected rows, their copy, and the tags."""
    return SelectedRows(planted.X_train, POSITIONS), planted.X_train[POSITIONS], planted.Y_train[POSITIONS]


def test_an_index_selects_rows_and_columns_like_that_of_a_copy(halves):
    rows, copy, _ = halves
    chosen = np.array([5, 0, 5])
    np.testing.assert_array_equal(rows[2:9], copy[2:9])
    np.testing.assert_array_equal(rows[:, 1:3], copy[:, 1:3])
    np.testing.assert_array_equal(rows[:, chosen], copy[:, chosen])
    np.testing.assert_array_equal(selected(rows, chosen)[:], copy[chosen])
    np.testing.assert_array_equal(copied(rows), copy)
    assert copied(copy) is copy


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("knn", {}),
        ("kernel_ridge", {"landmarks": 40}),
        ("kernel_ridge", {}),
        ("ridge", {}),
        ("logistic", {}),
        ("mlp", {"epochs": 3}),
    ],
)
def test_models_that_read_parts_learn_the_same_as_from_a_copy(name, settings, halves, planted):
    rows, copy, Y = halves
    models = [MODELS.create(name, **settings).set_known(random_state=0) for _ in range(2)]
    assert all(model.reads_parts for model in models)
    scores = [model.fit(X, Y).decision_function(planted.X_test) for model, X in zip(models, (rows, copy), strict=True)]
    np.testing.assert_array_equal(*scores)


def test_axes_of_many_features_are_those_of_scikit_learn_bit_for_bit():
    X = np.random.default_rng(0).standard_normal((900, 600), np.float32)
    positions = np.arange(0, 900)[::-1][:700]
    expected = randomized_svd(X[positions], 512, n_iter=2, random_state=0)[2]
    for rows in (X[positions], SelectedRows(X, positions)):
        np.testing.assert_array_equal(principal_rows(rows, 512), expected)
    axes, mean = PrincipalAxes.of(SelectedRows(X, positions)).axes, X[positions].mean(axis=0, dtype=np.float64)
    deviation = float(np.std(X[positions] @ expected.T - mean @ expected.T))
    np.testing.assert_array_equal(axes, (expected.T / deviation).astype(np.float32))


def test_a_network_that_is_trained_keeps_no_rows_and_continues_on_others(halves):
    rows, copy, Y = halves
    model = Mlp(hidden=8, epochs=2, random_state=0).fit(rows, Y, valid=(copy[:60], Y[:60]))
    assert len(model._unfinished._rows) == 0


def test_logistic_regression_solves_the_same_in_blocks_of_rows_that_are_rotated_late(halves, planted, monkeypatch):
    rows, copy, Y = halves
    whole = MODELS.create("logistic", random_state=0).fit(copy, Y)
    monkeypatch.setattr(logistic, "MAX_ROTATED_BYTES", 0)
    monkeypatch.setattr(logistic, "BLOCK_ROWS", 50)
    parts = MODELS.create("logistic", random_state=0).fit(rows, Y)
    assert parts.alpha_ == whole.alpha_
    scores = [model.decision_function(planted.X_test) for model in (parts, whole)]
    np.testing.assert_allclose(*scores, rtol=0, atol=1e-4)
    monkeypatch.setattr(logistic, "MAX_WEIGHTS", 1)
    monkeypatch.setattr(logistic, "WEIGHTS_AT_ONCE", 1)  # tag by tag
    alone = MODELS.create("logistic", random_state=0, alpha=whole.alpha_).fit(rows, Y).decision_function(planted.X_test)
    assert np.corrcoef(alone.ravel(), scores[1].ravel())[0, 1] > 0.99
