"""The network with one hidden layer: its gradients, when it stops, and what its scores are."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from planted import plant_corpus
from refusals import refused
from visterm.core.errors import DataError
from visterm.models import mlp
from visterm.models.blend.mixing import image_map
from visterm.models.linear.ridge import Ridge
from visterm.models.mlp import Mlp, NetworkTraining, PrincipalAxes

SMALL = {"hidden": 32, "batch_size": 16, "dropout": 0.2, "learning_rate": 0.003}


@pytest.fixture(scope="module")
def planted():
    return plant_corpus(random_state=1)


def test_gradients_are_those_of_finite_differences():
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((20, 4)).astype(np.float32), (rng.random((20, 3)) < 0.4).astype(np.float32)
    model = Mlp(hidden=6, dropout=0.5, epochs=1).fit(X, Y)
    training = NetworkTraining(model, PrincipalAxes.of(X), X, sp.csr_array(Y), rng)
    training.weights = tuple(weight.astype(np.float64) for weight in training.weights)
    kept = rng.random((20, 6)) < 0.5
    _, gradients = training.gradients(X, Y, kept)
    step = 1e-5
    for weight, gradient in zip(training.weights, gradients, strict=True):
        flat, expected = weight.reshape(-1), np.empty(weight.size)
        for entry in range(weight.size):
            value, losses = flat[entry], []
            for moved in (value + step, value - step):
                flat[entry] = moved
                losses.append(training.gradients(X, Y, kept)[0])
            flat[entry] = value
            expected[entry] = (losses[0] - losses[1]) / (2 * step)
        np.testing.assert_allclose(gradient.reshape(-1), expected, atol=1e-5)


def test_it_learns_what_no_linear_model_can():
    rng = np.random.default_rng(0)
    X = rng.choice([-1.0, 1.0], (400, 2)) + 0.1 * rng.standard_normal((400, 2))
    same = X[:, 0] * X[:, 1] > 0
    Y = np.column_stack([same, ~same]).astype(np.float32)
    model = Mlp(**SMALL, epochs=30, valid_share=0).fit(X[:300], Y[:300])
    assert image_map(model.decision_function(X[300:]), sp.csr_array(Y[300:])) > 0.99
    assert image_map(Ridge().fit(X[:300], Y[:300]).decision_function(X[300:]), sp.csr_array(Y[300:])) < 0.9


def test_validation_images_choose_when_to_stop(planted):
    valid = planted.X_test, planted.Y_test
    model = Mlp(**SMALL, epochs=60, patience=2).fit(planted.X_train, planted.Y_train, valid=valid)
    maps = [record["map"] for record in model.history_]
    assert len(maps) < 60
    assert maps[model.n_epochs_ - 1] == max(maps)
    assert image_map(model.decision_function(valid[0]), valid[1]) == pytest.approx(max(maps))
    assert model.n_held_out_ == 0


def test_without_validation_images_it_holds_some_out_and_then_learns_from_all(planted):
    settings = {**SMALL, "epochs": 20, "patience": 2}
    model = Mlp(**settings, valid_share=0.3).fit(planted.X_train, planted.Y_train)
    assert model.n_held_out_ == 72
    held = model.take_held_out()
    assert held.images.size == 72
    other = Mlp(**settings).fit(planted.X_train, planted.Y_train)  # a tenth is too few
    assert other.n_held_out_ == 0
    assert other.n_epochs_ == 20


def test_many_features_are_seen_along_principal_axes_with_the_same_scores_in_features(planted, monkeypatch):
    monkeypatch.setattr(mlp, "MAX_AXES", 10)
    axes = PrincipalAxes.of(planted.X_train)
    centred = planted.X_train - planted.X_train.mean(axis=0)
    rows = axes.rows(planted.X_train)
    assert rows.shape[1] == 10
    assert rows.std() == pytest.approx(1, abs=1e-3)
    best = np.linalg.svd(planted.X_train, full_matrices=False)[2][:10]
    kept = np.square(centred @ axes.axes).sum() / np.square(centred @ best.T).sum()
    assert kept == pytest.approx(np.square(axes.axes[:, 0]).sum(), rel=0.05)
    model = Mlp(**SMALL, epochs=10).fit(planted.X_train, planted.Y_train)
    assert model.hidden_weights_.shape == (planted.X_train.shape[1], 32)
    prior = image_map(np.tile(planted.Y_train.mean(axis=0), (len(planted.X_test), 1)), planted.Y_test)
    assert image_map(model.decision_function(planted.X_test), planted.Y_test) > 1.3 * prior


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_scores_are_one_product_of_the_hidden_layer_and_the_tags(form, planted):
    model = Mlp(**SMALL, epochs=3).fit(form(planted.X_train), planted.Y_train)
    hidden = np.maximum(planted.X_test @ model.hidden_weights_ + model.hidden_offsets_, 0)
    expected = hidden @ model.tag_rows_[:, :-1].T + model.tag_rows_[:, -1]
    np.testing.assert_allclose(model.decision_function(form(planted.X_test)), expected, atol=1e-4)


def test_no_tags_and_wrong_settings_are_refused(planted):
    with pytest.raises(DataError, match="nothing to learn"):
        Mlp().fit(planted.X_train, np.zeros(planted.Y_train.shape))
    for name, value in (("dropout", 1), ("hidden", 0), ("learning_rate", 0)):
        with refused(name, value=value):
            Mlp(**{name: value}).fit(planted.X_train, planted.Y_train)
