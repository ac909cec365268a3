"""Ensembles are the weighted sums that they say they are, and their weights those that rank best."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp

from planted import plant_corpus
from refusals import refused
from visterm.cli.options import settings
from visterm.core.errors import UnknownNameError
from visterm.core.packing import learned_hash
from visterm.core.persist import load_estimator, save_estimator
from visterm.core.tables import MODELS
from visterm.models.baselines import Prior
from visterm.models.blend import ensemble
from visterm.models.blend.ensemble import Ensemble
from visterm.models.blend.mixing import best_mix
from visterm.models.linear.ridge import Ridge
from visterm.models.neighbours.knn import Knn

KNN = ("knn", {"n_neighbors": 10, "power": 2})
RIDGE = ("ridge", {"alpha": 1.0})
SMALL_WSABIE = ("wsabie", {"dim": 6, "bias": 0.0, "epochs": 5, "learning_rate": 0.01})


@pytest.fixture(scope="module")
def planted():
    return plant_corpus(random_state=1)


def slow_map(scores, relevant):
    values = []
    for row, tags in zip(scores, relevant, strict=True):
        hits = tags[np.argsort(-row, kind="stable")] > 0
        if hits.any():
            values.append((np.cumsum(hits) / np.arange(1, len(hits) + 1))[hits].mean())
    return np.mean(values)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_scores_are_the_weighted_sum_of_the_members_scaled_by_their_scores_of_training_images(form, planted):
    X, Y, X_test = form(planted.X_train), planted.Y_train, form(planted.X_test)
    model = Ensemble(members=[KNN, RIDGE, ("prior", {})], weights=[1, 2, 1]).fit(X, Y)
    expected = 0
    parts = (Knn(n_neighbors=10, power=2), Ridge(alpha=1.0), Prior())
    for weight, member in zip((0.25, 0.5, 0.25), parts, strict=True):
        seen = member.fit(X, Y).decision_function(X).astype(float)
        expected = expected + weight * (member.decision_function(X_test) - seen.mean()) / seen.std()
    np.testing.assert_allclose(model.decision_function(X_test), expected, rtol=1e-4, atol=1e-4)


def test_the_width_is_that_of_the_members_and_one_for_the_means(planted):
    model = Ensemble(members=[SMALL_WSABIE, ("prior", {})], weights=[1, 1]).fit(planted.X_train, planted.Y_train)
    assert model.image_rows(planted.X_test).shape == (120, 6 + 1 + 1)
    assert isinstance(model.tag_rows_, np.ndarray)
    model = Ensemble(members=[SMALL_WSABIE, KNN], weights=[1, 1]).fit(planted.X_train, planted.Y_train)
    assert model.image_rows(planted.X_test).shape == (120, 6 + 12 + 1)
    assert sp.issparse(model.tag_rows_)


def test_a_member_alone_ranks_as_the_model_itself_does(planted):
    alone = Ridge(alpha=1.0).fit(planted.X_train, planted.Y_train)
    model = Ensemble(members=[Ridge(alpha=1.0)]).fit(planted.X_train, planted.Y_train)
    assert model.weights_.tolist() == [1]
    np.testing.assert_array_equal(model.annotate(planted.X_test).ids, alone.annotate(planted.X_test).ids)


def test_weights_are_the_best_of_the_grid_on_the_validation_images(planted):
    valid = planted.X_test[:60], planted.Y_test[:60]
    model = Ensemble(members=[KNN, RIDGE]).fit(planted.X_train, planted.Y_train, valid=valid)
    scaled = [
        (member.decision_function(valid[0]) - mean) / scale
        for member, mean, scale in zip(model.members_, model.means_, model.scales_, strict=True)
    ]
    grid = [slow_map(w * scaled[0] + (1 - w) * scaled[1], valid[1].toarray()) for w in np.arange(21) / 20]
    assert model.valid_map_ == pytest.approx(max(grid), abs=1e-3)
    assert grid[round(20 * model.weights_[0])] == pytest.approx(max(grid), abs=1e-3)
    assert model.valid_map_ >= max(grid[0], grid[-1])


def test_without_validation_images_some_are_held_out_for_the_weights_and_learned_from_afterwards(planted, monkeypatch):
    seen = []
    monkeypatch.setattr(ensemble, "best_mix", lambda scores, Y: (seen.append(Y.shape[0]), best_mix(scores, Y))[1])
    model = Ensemble(members=[KNN, RIDGE], valid_share=0.25).fit(planted.X_train, planted.Y_train)
    assert seen == [60]
    assert model.members_[0].rows_.shape[0] == 240
    assert model.weights_.sum() == pytest.approx(1)


@pytest.mark.parametrize("share", [0.0, 0.2])
def test_with_too_few_images_to_hold_out_all_members_weigh_the_same(share, planted):
    model = Ensemble(members=[KNN, RIDGE], valid_share=share).fit(planted.X_train[:100], planted.Y_train[:100])
    assert model.weights_.tolist() == [0.5, 0.5]
    assert model.valid_map_ is None


def test_a_mix_of_three_is_as_good_as_a_full_grid_finds():
    rng = np.random.default_rng(4)
    Y = (rng.random((80, 15)) < 0.2).astype(np.float32)
    scores = [(Y * strength + rng.standard_normal(Y.shape)).astype(np.float32) for strength in (0.5, 1.0, 0.1)]
    weights, value = best_mix(scores, sp.csr_array(Y))
    mixes = [(i / 10, j / 10, (10 - i - j) / 10) for i in range(11) for j in range(11 - i)]
    best = max(slow_map(sum(w * s for w, s in zip(mix, scores, strict=True)), Y) for mix in mixes)
    assert value >= best - 0.005
    assert value == pytest.approx(slow_map(sum(w * s for w, s in zip(weights, scores, strict=True)), Y), abs=1e-6)
    assert weights.sum() == pytest.approx(1)
    assert (weights >= 0).all()


def test_a_member_that_knows_nothing_gets_no_weight():
    Y = np.eye(6, dtype=np.float32)
    weights, value = best_mix([-Y, Y, -Y], sp.csr_array(Y))
    assert (weights[1], value) == (pytest.approx(1), 1)


def test_an_ensemble_of_ensembles_is_saved_with_all_inside(planted, tmp_path):
    inner = Ensemble(members=[KNN, ("prior", {})], weights=[3, 1])
    model = Ensemble(members=[inner, ("knn", {"n_neighbors": 5, "power": 1})], weights=[1, 1], n_jobs=1)
    model.fit(planted.X_train, planted.Y_train)
    save_estimator(model, MODELS, tmp_path, "model")
    loaded = load_estimator(MODELS, tmp_path, "model")
    np.testing.assert_array_equal(loaded.decision_function(planted.X_test), model.decision_function(planted.X_test))
    assert learned_hash(loaded) == learned_hash(model)
    described = json.loads((tmp_path / "model.json").read_text())["params"]["members"]
    assert described[0][0] == "ensemble"
    assert described[0][1]["members"] == [["knn", {"n_neighbors": 10, "power": 2}], ["prior", {}]]
    again = MODELS.create("ensemble", **loaded.get_params(deep=False)).fit(planted.X_train, planted.Y_train)
    assert learned_hash(again) == learned_hash(model)


def test_the_fingerprint_of_what_was_learned_is_that_of_the_members_too(planted):
    first, second = (
        Ensemble(members=[("wsabie", {"dim": 6, "epochs": 1}), RIDGE], weights=[1, 0], random_state=seed)
        .fit(planted.X_train, planted.Y_train) for seed in (0, 1)
    )  # fmt: skip
    second.tag_rows_, second.means_, second.scales_ = first.tag_rows_, first.means_, first.scales_
    assert learned_hash(first) != learned_hash(second)


def test_members_get_seeds_of_their_own_and_the_ensembles_threads(planted):
    model = Ensemble(members=[SMALL_WSABIE, SMALL_WSABIE], n_jobs=1).fit(planted.X_train, planted.Y_train)
    first, second = model.members_
    assert first.random_state != second.random_state
    assert (first.image_map_ != second.image_map_).any()
    model.set_params(n_jobs=2)
    assert [member.n_jobs for member in model.members_] == [2, 2]


def test_members_are_read_from_the_command_line():
    text = 'members=[("wsabie",{"dim":50}),("ridge",{})]'
    assert Ensemble(**settings([text], "--set")).members == [("wsabie", {"dim": 50}), ("ridge", {})]


@pytest.mark.parametrize(
    ("wrong", "setting", "value"),
    [
        ({"members": []}, "members", []),
        ({"members": "wsabie"}, "members", "wsabie"),
        ({"members": ["wsabie"]}, "members", "wsabie"),
        ({"members": [RIDGE, KNN], "weights": [1]}, "weights", [1]),
        ({"members": [RIDGE, KNN], "weights": [1, -1]}, "weights", [1, -1]),
        ({"members": [RIDGE], "weights": [0]}, "weights", [0]),
        ({"members": [RIDGE], "valid_share": 1}, "valid_share", 1),
    ],
)
def test_settings_that_cannot_be_used_are_refused(wrong, setting, value, planted):
    with refused(setting, value=value):
        Ensemble(**wrong).fit(planted.X_train, planted.Y_train)


def test_a_member_of_an_unknown_name_or_setting_is_refused_with_the_nearest(planted):
    for member in (("wsabi", {}), ("wsabie", {"dims": 3})):
        with pytest.raises(UnknownNameError, match="Did you mean"):
            Ensemble(members=[member]).fit(planted.X_train, planted.Y_train)
