"""Scores standardized over the tags of each image: what stays within an image, what can be compared across images."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from planted import plant_corpus
from refusals import refused
from visterm.core.persist import load_estimator, save_estimator
from visterm.core.tables import MODELS
from visterm.metrics import evaluate
from visterm.models.blend.ensemble import Ensemble
from visterm.models.ranking.wsabie import Wsabie

SHORT = {
    "dim": 16, "epochs": 10, "learning_rate": 0.01, "max_norm": 0.7, "row_length": 6.0, "step": "sgd",
    "schedule": "constant", "block": 128, "n_jobs": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def planted():
    return plant_corpus(n_tags=12, n_train=300, random_state=2)


@pytest.fixture(scope="module")
def both(planted):
    """The same training with and without; tests must not change the models."""
    return [
        Wsabie(standardize=standardize, bias=0.5, **SHORT).fit(planted.X_train, planted.Y_train)
        for standardize in (True, False)
    ]


def test_scores_are_those_of_training_minus_their_mean_over_their_damped_deviation(planted, both):
    ours, plain = both
    raw = plain.decision_function(planted.X_test).astype(np.float64)
    expected = (raw - raw.mean(axis=1, keepdims=True)) / np.sqrt(
        (12 * raw.var(axis=1, keepdims=True) + 50) / (12 + 100)
    )
    np.testing.assert_allclose(ours.decision_function(planted.X_test), expected, atol=1e-5)


def test_no_tag_changes_its_place_within_an_image(planted, both):
    ours, plain = both
    np.testing.assert_array_equal(ours.annotate(planted.X_test, 0).ids, plain.annotate(planted.X_test, 0).ids)


def test_searches_find_images_whose_scores_of_training_are_all_low(planted, both):
    features = planted.X_test.copy()
    features[:, :5] += np.linspace(0, 3, len(features), dtype=np.float32)[:, None]  # moves all scores of an image
    measured = [evaluate(model.decision_function(features), planted.Y_test, ["map", "word_map"]) for model in both]
    assert measured[0]["map"] == measured[1]["map"]
    assert measured[0]["word_map"] > 1.1 * measured[1]["word_map"]


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_an_image_without_features_scores_nought_for_all_tags(form, planted):
    model = Wsabie(bias=0.0, **SHORT).fit(form(planted.X_train), planted.Y_train)
    empty = form(np.zeros((1, planted.X_train.shape[1]), np.float32))
    np.testing.assert_array_equal(model.decision_function(empty), 0)
    assert model.explain(empty, 3).constant == 0


@pytest.mark.parametrize("bias", [0.0, 0.5])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_what_explains_a_score_sums_to_it_in_a_blend_too(bias, form, planted):
    members = [["wsabie", {"bias": bias, **SHORT}], ["ridge", {}]]
    X = form(planted.X_train)
    for model in (Wsabie(bias=bias, **SHORT), Ensemble(members=members, weights=[0.5, 0.5], n_jobs=1)):
        model.fit(X, planted.Y_train)
        for image, tag in ((0, 3), (7, 11)):
            found = model.explain(X[[image]], tag)
            score = model.decision_function(X[[image]])[0, tag]
            assert found.shares.sum() + found.constant == pytest.approx(score, abs=1e-4)


def test_learning_on_without_images_and_new_tags_leave_mean_and_deviation_as_they_were(planted):
    X, Y = planted.X_train, planted.Y_train
    model = Wsabie(**SHORT).fit(X, Y)
    spread, rows = model.tag_spread_.copy(), model.image_rows(planted.X_test)
    model.partial_fit(X, Y[:, ::-1], images=False)
    model.add_tags(X, Y[:, :2])
    np.testing.assert_array_equal(model.tag_spread_, spread)
    np.testing.assert_array_equal(model.image_rows(planted.X_test), rows)
    model.partial_fit(X, sp.csr_array(sp.hstack([Y, Y[:, :2]])))
    assert (model.tag_spread_ != spread).any()
    np.testing.assert_allclose(model.decision_function(X).mean(axis=1), 0, atol=1e-5)


def test_a_run_that_was_written_without_loads_and_keeps_its_scores_as_tags_learn_on(planted, tmp_path):
    written = Wsabie(standardize=False, **SHORT).fit(planted.X_train, planted.Y_train)
    written.standardize = True  # what a run from before this setting is taken to have been made with
    save_estimator(written, MODELS, tmp_path, "model")
    model = load_estimator(MODELS, tmp_path, "model")
    rows = written.image_rows(planted.X_test)
    np.testing.assert_array_equal(model.image_rows(planted.X_test), rows)
    model.partial_fit(planted.X_train, planted.Y_train, images=False)
    np.testing.assert_array_equal(model.image_rows(planted.X_test), rows)


def test_a_setting_that_is_neither_true_nor_false_is_refused(planted):
    with refused("standardize", value="no"):
        Wsabie(standardize="no").fit(planted.X_train, planted.Y_train)
