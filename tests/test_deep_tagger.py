"""Deep taggers: the same scores without torch, exact resumption, fixed and moving words, and words that are no tags."""

# ruff: noqa: E402 (what follows the skip needs torch)
from __future__ import annotations

import shutil
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed")


from planted import plant_corpus
from refusals import refused
from visterm.core.errors import DataError, MissingExtraError, ShapeError, StorageError, UserError
from visterm.core.persist import load_estimator, save_estimator
from visterm.core.tables import MODELS
from visterm.models.abilities import PlacesWords
from visterm.models.deep import base as deep_tagger
from visterm.models.deep.base import through_layers
from visterm.models.deep.fitting import WORK_PER_THREAD, DeepNetwork
from visterm.models.deep.objectives import SampledObjective
from visterm.models.deep.sampled_tagger import SampledTagger

PAPER_DRAWS = {"negatives": 10, "power": 1.0, "alpha": 0.01, "tag_learning_rate": 0.1}
SMALL = {"hidden": [24], "epochs": 4, "batch_size": 40, "learning_rate": 0.005, "device": "cpu"}


@pytest.fixture(scope="module")
def planted():
    return plant_corpus(n_tags=12, random_state=3)


@pytest.fixture(scope="module")
def words():
    return np.random.default_rng(0).standard_normal((12, 10)).astype(np.float32) * 5


def learned(model):
    return {key: value for key, value in vars(model).items() if key.endswith("_") and isinstance(value, np.ndarray)}


def assert_same(model, other):
    arrays, others = learned(model), learned(other)
    assert arrays.keys() == others.keys()
    for key, array in arrays.items():
        np.testing.assert_array_equal(array, others[key], err_msg=key)


# -- the network ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("hidden", [[], [7], [9, 5]])
def test_numpy_gives_the_rows_that_torch_gives_without_dropout(hidden, batch_norm):
    rng = np.random.default_rng(0)
    network = DeepNetwork([6, *hidden, 4], dropout=0.5, batch_norm=batch_norm, scale=2.0, rng=rng)
    X = rng.standard_normal((30, 6)).astype(np.float32)
    drops = torch.Generator()
    for _ in range(3):  # moves the running means of the norms
        network(torch.from_numpy(X + 1), drops)
    with torch.no_grad():
        x = torch.from_numpy(X) * 2
        for place in range(len(hidden) + 1):
            x = x @ network.weights[place] + network.offsets[place]
            if place < len(hidden):
                x = torch.relu(network.norms[place].eval()(x) if batch_norm else x)
    for features in (X, sp.csr_array(X)):
        np.testing.assert_allclose(through_layers(features, 2.0, network.layers()), x.numpy(), rtol=1e-5, atol=1e-5)


def test_dropout_leaves_out_its_share_and_keeps_the_mean_by_the_generator_given():
    network = DeepNetwork([4, 20_000, 1], dropout=0.25, batch_norm=False, scale=1.0, rng=np.random.default_rng(0))
    with torch.no_grad():
        network.weights[0].fill_(1)
        network.weights[1].fill_(1 / 20_000)
        x = torch.ones((1, 4))
        rows = [network(x, torch.Generator().manual_seed(seed)).item() for seed in (1, 1, 2)]
    assert rows[0] == rows[1] != rows[2]
    assert rows[0] == pytest.approx(4, rel=0.02)
    assert rows[0] != pytest.approx(4, rel=1e-6)


def test_a_trained_model_is_loaded_and_scores_without_torch(planted, tmp_path):
    model = SampledTagger(**SMALL, dim=8).fit(planted.X_train, planted.Y_train)
    save_estimator(model, MODELS, tmp_path, "model")
    np.save(tmp_path / "X.npy", planted.X_test)
    code = (
        "import sys, numpy as np\n"
        "from pathlib import Path\n"
        "from visterm.core.persist import load_estimator\n"
        "from visterm.core.tables import MODELS\n"
        f"folder = Path({str(tmp_path)!r})\n"
        "scores = load_estimator(MODELS, folder, 'model').decision_function(np.load(folder / 'X.npy'))\n"
        "assert 'torch' not in sys.modules\n"
        "np.save(folder / 'scores.npy', scores)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "scores.npy"), model.decision_function(planted.X_test))


def test_training_without_torch_says_which_extra_brings_it(monkeypatch):
    monkeypatch.setattr(deep_tagger, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'visterm\[torch\]'"):
        SampledTagger().check_settings()


def test_bfloat16_trains_to_other_bytes_and_tags_as_well(planted):
    full, half = (
        SampledTagger(**{**SMALL, "epochs": 25}, dim=8, half=half).fit(planted.X_train, planted.Y_train)
        for half in (False, True)
    )
    assert (full.weights_0_ != half.weights_0_).any()
    assert half.weights_0_.dtype == half.tag_rows_.dtype == np.float32
    assert half.history_[-1]["loss"] == pytest.approx(full.history_[-1]["loss"], rel=0.1)


def test_two_threads_give_the_same_bytes_each_time(planted):
    params = {**SMALL, "hidden": [700, 500], "epochs": 2, "batch_size": 240, "n_jobs": 2}
    model = SampledTagger(**params)
    assert model._work(40, 12) > 2 * WORK_PER_THREAD
    assert_same(
        model.fit(planted.X_train, planted.Y_train), SampledTagger(**params).fit(planted.X_train, planted.Y_train)
    )


def test_a_gradient_that_is_too_long_is_scaled_down(planted):
    # Adam and Adagrad take no heed of a constant factor: only gradients far below their floor of 1e-8 move less.
    free, held = (
        SampledTagger(**SMALL, dim=8, max_gradient=longest).fit(planted.X_train, planted.Y_train)
        for longest in (1e9, 1e-12)
    )
    start = SampledTagger(**{**SMALL, "learning_rate": 1e-30}, dim=8).fit(planted.X_train, planted.Y_train)
    moved = [np.abs(model.weights_0_ - start.weights_0_).max() for model in (free, held)]
    assert moved[1] < 0.01 * moved[0]


# -- going on after a kill --------------------------------------------------------------------------------------------


class KilledError(Exception):
    pass


def fit_until_killed(monkeypatch, batches, model, planted):
    """Fit, and let the training die in the middle of the batch after so many."""
    ask, done = SampledObjective.loss, iter(range(batches))

    def loss(self, *args):
        if next(done, None) is None:
            raise KilledError
        return ask(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(SampledObjective, "loss", loss)
        with pytest.raises(KilledError):
            model.fit(planted.X_train, planted.Y_train)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6, 0.8, 0.97])
def test_a_killed_training_goes_on_to_the_same_bytes(planted, words, tmp_path, monkeypatch, share):
    # 168 images of 240 are learned from at first: 5 batches an epoch; then all: 6.
    params = {
        **SMALL, "dropout": 0.3, "batch_norm": True, "valid_share": 0.3, "background": "subset", "subset_size": 6,
        "word_vectors": words, "hidden": (20, 12),
    }  # fmt: skip
    whole = SampledTagger(**params).fit(planted.X_train, planted.Y_train)
    assert whole.n_held_out_ == 72
    batches = int(share * (5 * len(whole.history_) + 6 * whole.n_epochs_))
    kept = {"checkpoint": tmp_path / "state", "checkpoint_batches": 4}
    fit_until_killed(monkeypatch, batches, SampledTagger(**params, **kept), planted)
    assert (tmp_path / "state").exists() == (batches >= 4)
    resumed = SampledTagger(**params, **kept).fit(planted.X_train, planted.Y_train)
    assert_same(resumed, whole)
    for entry, expected in zip(resumed.history_, whole.history_, strict=True):
        assert (entry["epoch"], entry["loss"], entry["map"]) == (expected["epoch"], expected["loss"], expected["map"])
    for part, expected in zip(resumed.take_held_out(), whole.take_held_out(), strict=True):
        np.testing.assert_array_equal(part, expected)
    assert not (tmp_path / "state").exists()


def test_a_checkpoint_holds_the_seed_where_none_was_given(planted, tmp_path, monkeypatch):
    params = {**SMALL, "dim": 8, "checkpoint": tmp_path / "state", "checkpoint_batches": 2, "random_state": None}
    fit_until_killed(monkeypatch, 7, SampledTagger(**params), planted)
    shutil.copytree(tmp_path / "state", tmp_path / "copy")
    first = SampledTagger(**params).fit(planted.X_train, planted.Y_train)
    shutil.copytree(tmp_path / "copy", tmp_path / "state")
    assert_same(SampledTagger(**params).fit(planted.X_train, planted.Y_train), first)
    assert (SampledTagger(**params).fit(planted.X_train, planted.Y_train).weights_0_ != first.weights_0_).any()


def test_a_checkpoint_of_other_data_or_settings_is_refused_with_what_differs(planted, tmp_path, monkeypatch):
    params = {**SMALL, "dim": 8, "checkpoint": tmp_path / "state", "checkpoint_batches": 2}
    fit_until_killed(monkeypatch, 3, SampledTagger(**params), planted)
    with pytest.raises(StorageError, match=r"another training; different: batch_size \(40, now 30\)\. Resume it with"):
        SampledTagger(**{**params, "batch_size": 30}).fit(planted.X_train, planted.Y_train)
    with pytest.raises(StorageError, match=r"different: X \('"):
        SampledTagger(**params).fit(planted.X_train * 2, planted.Y_train)
    with pytest.raises(StorageError, match=r"different: Y \('"):
        SampledTagger(**params).fit(planted.X_train, planted.Y_train[:, ::-1])
    assert (tmp_path / "state").exists()


def test_the_best_epoch_by_the_validation_map_is_kept_and_training_stops_after_it(planted):
    valid = (planted.X_test, planted.Y_test)
    params = {**SMALL, "dim": 8, "learning_rate": 0.05, "schedule": "constant", "epochs": 40, "patience": 3}
    model = SampledTagger(**params).fit(planted.X_train, planted.Y_train, valid=valid)
    maps = [entry["map"] for entry in model.history_]
    assert model.n_epochs_ == 1 + int(np.argmax(maps))
    assert len(maps) == min(40, model.n_epochs_ + 3) < 40
    again = SampledTagger(**{**params, "patience": 40, "epochs": 40}).fit(planted.X_train, planted.Y_train, valid=valid)
    assert [entry["map"] for entry in again.history_][: len(maps)] == maps
    assert model.take_held_out() is None


# -- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sampled_tagger"])
def test_fixed_vectors_stay_at_one_length_and_moving_ones_move(name, planted, words):
    fixed, moving = (
        MODELS.create(name, **SMALL, word_vectors=words, fixed_vectors=fixed).fit(planted.X_train, planted.Y_train)
        for fixed in (True, False)
    )
    factor = np.sqrt(len(words) / np.square(words).sum())
    np.testing.assert_allclose(fixed.tag_rows_, words * factor, rtol=1e-5)
    assert fixed.vector_scale_ == pytest.approx(factor, rel=1e-5)
    assert (moving.tag_rows_ != fixed.tag_rows_).any(axis=1).all()


STILL = {"hidden": [], "epochs": 1, "batch_size": 40, "learning_rate": 1e-9, "tag_learning_rate": 1e-9, "device": "cpu"}
"""Nothing is learned: scores stay as they start."""


@pytest.mark.parametrize("dim", [20, None])
def test_scores_that_start_low_start_at_the_log_odds_of_what_is_drawn(planted, dim):
    X, Y = planted.X_train, planted.Y_train
    drawn = SampledTagger(**STILL, dim=dim, start_low=True, positives=5, negatives=100).fit(X, Y)
    scores = np.concatenate([block for _, block in drawn.score_blocks(X)])
    assert scores.mean() == pytest.approx(np.log(5 / 100), abs=0.1)
    assert np.linalg.norm(drawn.tag_rows_, axis=1).mean() == pytest.approx(1, abs=0.1)
    plain = SampledTagger(**STILL, dim=dim, start_low=False).fit(X, Y)
    assert abs(np.concatenate([block for _, block in plain.score_blocks(X)]).mean()) < 0.1


def test_given_vectors_that_share_a_number_start_low_and_stay_what_they_are(planted, words):
    common = np.hstack([words / 5, np.ones((12, 1), np.float32)])
    model = SampledTagger(**STILL, word_vectors=common, start_low=True, negatives=50)
    model.fit(planted.X_train, planted.Y_train)
    np.testing.assert_allclose(model.tag_rows_, common * model.vector_scale_, atol=1e-6)
    scores = np.concatenate([block for _, block in model.score_blocks(planted.X_train)])
    assert scores.mean(axis=0) == pytest.approx(np.full(12, np.log(5 / 50)), abs=0.3)


def test_a_tag_without_a_vector_starts_at_random(planted, words):
    some = words.copy()
    some[[3, 7]] = 0
    model = SampledTagger(**SMALL, word_vectors=some, fixed_vectors=True).fit(planted.X_train, planted.Y_train)
    factor = np.sqrt(10 / np.square(some).sum())
    given = some.any(axis=1)
    np.testing.assert_allclose(model.tag_rows_[given], some[given] * factor, rtol=1e-5)
    assert 0.2 < np.linalg.norm(model.tag_rows_[3]) < 3
    assert (model.tag_rows_[3] != model.tag_rows_[7]).all()


def test_word_vectors_are_read_from_a_memory_map_and_not_saved_as_a_setting(planted, words, tmp_path):
    np.save(tmp_path / "words.npy", words)
    expected = SampledTagger(**SMALL, word_vectors=words).fit(planted.X_train, planted.Y_train)
    model = SampledTagger(**SMALL, word_vectors=np.load(tmp_path / "words.npy", mmap_mode="r"))
    assert_same(model.fit(planted.X_train, planted.Y_train), expected)
    save_estimator(model, MODELS, tmp_path, "model")
    loaded = load_estimator(MODELS, tmp_path, "model")
    assert loaded.word_vectors is None
    np.testing.assert_array_equal(loaded.tag_rows_from(words[:3] + 1), model.tag_rows_from(words[:3] + 1))


def test_words_take_the_places_of_tags_with_the_same_vectors(planted, words):
    still, moved = (
        SampledTagger(**{**SMALL, **PAPER_DRAWS, "epochs": 20}, word_vectors=words, fixed_vectors=fixed)
        .fit(planted.X_train, planted.Y_train)
        for fixed in (True, False)
    )  # fmt: skip
    np.testing.assert_allclose(still.tag_rows_from(words), still.tag_rows_, rtol=1e-6)
    # Words follow the tags that moved, so that their relations to them stay more as they were than if they had stayed.
    others = np.random.default_rng(1).standard_normal((4, 10)).astype(np.float32) * 5
    before, tags = others * moved.vector_scale_, words * moved.vector_scale_
    found = moved.tag_rows_from(others)
    lost = [np.abs(expit(rows @ moved.tag_rows_.T) - expit(before @ tags.T)).mean() for rows in (found, before)]
    assert isinstance(moved, PlacesWords)
    assert found.shape == (4, 10)
    assert lost[0] < 0.7 * lost[1]


def test_words_have_no_place_in_a_model_without_vectors(planted, words):
    model = SampledTagger(**SMALL, dim=10).fit(planted.X_train, planted.Y_train)
    with pytest.raises(UserError, match="fitted without"):
        model.tag_rows_from(words)
    model = SampledTagger(**SMALL, word_vectors=words).fit(planted.X_train, planted.Y_train)
    with pytest.raises(ShapeError, match=r"shape \(1, 4\); expected 10 numbers per word"):
        model.tag_rows_from(np.ones(4))


# -- what single models promise ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "setting", "value", "error"),
    [
        ({"hidden": 512}, "hidden", 512, UserError),
        ({"hidden": [512, 0]}, "hidden", 0, UserError),
        ({"dropout": 1.0}, "dropout", 1.0, UserError),
        ({"schedule": "linear"}, "schedule", "linear", UserError),
        ({"word_vectors": np.ones((5, 4))}, "word_vectors", (5, 4), ShapeError),
        ({"word_vectors": np.ones((12, 4)), "dim": 5}, "dim", 5, UserError),
    ],
)
def test_settings_that_cannot_be_used_are_refused(planted, params, setting, value, error):
    with refused(setting, value=value, error=error):
        SampledTagger(**{**SMALL, **params}).fit(planted.X_train, planted.Y_train)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"word_vectors": np.full((12, 4), np.nan)}, r"tag 0 has infinity or NaN"),
        ({"hidden": [10**9]}, r"40 → 1,000,000,000 → 300 numbers"),
        ({"dim": 10**9}, r"A network of .* smaller layers"),
        ({"negatives": 3_000_000}, r"3,000,005 drawn tags"),
    ],
)
def test_vectors_that_are_not_finite_and_too_large_trainings_are_refused(planted, params, message):
    with pytest.raises(DataError, match=message):
        SampledTagger(**{**SMALL, **params}).fit(planted.X_train, planted.Y_train)


def test_a_device_that_does_not_exist_is_refused(planted):
    with pytest.raises(UserError, match="device"):
        SampledTagger(**{**SMALL, "device": "abacus"}).fit(planted.X_train, planted.Y_train)


@pytest.mark.parametrize("name", ["sampled_tagger"])
def test_images_without_tags_are_passed_over_and_no_tags_at_all_refused(name, planted):
    empty = sp.csr_array((30, 12))
    X = np.vstack([planted.X_train, np.ones((30, 40), np.float32)])
    model = MODELS.create(name, **SMALL, dim=8).fit(X, sp.vstack([planted.Y_train, empty]))
    assert np.isfinite(model.history_[-1]["loss"])
    with pytest.raises(DataError, match="No image has a tag"):
        MODELS.create(name, **SMALL, dim=8).fit(X, sp.csr_array((270, 12)))
