"""A number of each tag that counts whatever the image shows: one more coordinate, the same for all images."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from planted import plant_corpus
from refusals import refused
from visterm.core.persist import load_estimator, save_estimator
from visterm.core.tables import MODELS
from visterm.models.ranking.wsabie import Wsabie

SETTINGS = {"dim": 8, "epochs": 6, "learning_rate": 0.02, "bias": 0.5, "valid_share": 0, "block": 32}


@pytest.fixture(scope="module")
def planted():
    return plant_corpus(n_train=200, n_test=20, random_state=2)


def test_images_that_show_nothing_get_the_tags_that_are_common():
    Y = np.eye(4)[np.repeat(np.arange(4), [50, 5, 100, 20])]
    model = Wsabie(**(SETTINGS | {"epochs": 40, "average": 1})).fit(np.zeros((len(Y), 3)), Y)
    assert model.annotate(np.zeros((1, 3)), 2).ids[0].tolist() == [2, 0]
    plain = Wsabie(**(SETTINGS | {"bias": 0.0})).fit(np.zeros((len(Y), 3)), Y)
    assert not plain.decision_function(np.zeros((1, 3))).any()


@pytest.mark.parametrize("step", ["sgd", "adagrad"])
def test_dense_and_sparse_features_train_the_same_model_on_any_number_of_threads(planted, step):
    models = [
        Wsabie(**SETTINGS, step=step, n_jobs=n_jobs).fit(form(planted.X_train), planted.Y_train)
        for form in (np.asarray, sp.csr_array)
        for n_jobs in (1, 3)
    ]
    scores = [model.decision_function(planted.X_test) for model in models]
    np.testing.assert_array_equal(scores[0], scores[1])
    np.testing.assert_array_equal(scores[2], scores[3])
    np.testing.assert_allclose(scores[0], scores[2], atol=1e-4)


def test_image_rows_end_in_the_constant_and_come_back_with_the_model(planted, tmp_path):
    model = Wsabie(standardize=False, **SETTINGS).fit(planted.X_train, planted.Y_train)
    rows = model.image_rows(planted.X_test)
    assert rows.shape == (20, 9)
    assert (rows[:, -1] == np.float32(0.5)).all()
    assert model.tag_rows_.shape == (12, 9)
    np.testing.assert_allclose(model.decision_function(planted.X_test), rows @ model.tag_rows_.T, atol=1e-6)
    save_estimator(model, MODELS, tmp_path, "model")
    loaded = load_estimator(MODELS, tmp_path, "model").set_params(bias=3.0)
    np.testing.assert_array_equal(loaded.image_rows(planted.X_test), rows)


def test_images_known_by_number_and_new_tags_take_the_bias_too(planted):
    model = Wsabie(**SETTINGS).fit(None, planted.Y_train)
    model.partial_fit(None, planted.Y_train, images=False)
    before = model.tag_rows_.copy()
    assert model.image_rows(None).shape == (200, 9)
    model.add_tags(None, planted.Y_train[:, [0]])
    assert model.tag_rows_.shape == (13, 9)
    np.testing.assert_array_equal(model.tag_rows_[:12], before)


def test_a_negative_bias_is_refused(planted):
    with refused("bias", value=-1):
        Wsabie(bias=-1).fit(planted.X_train, planted.Y_train)
