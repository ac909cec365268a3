"""The schedule "open": training that finds its own length, by held-out images or tags, and gives them back."""

import numpy as np
import pytest
import scipy.sparse as sp

from planted import plant_corpus
from refusals import refused
from visterm.metrics import average_precisions
from visterm.models import ObjectsAndParts, Pamir, VseEns, Wsabie
from visterm.models.ranking.ranker import DOUBLING_EPOCHS, FINISH_EPOCHS, MAX_HELD_OUT_TAGS


@pytest.fixture(scope="module")
def planted():
    return plant_corpus(n_train=600, n_tags=12, random_state=3)


def longest(model):
    return max(np.linalg.norm(rows, axis=1).max() for rows in (model.image_map_ / model.scale_, model.tag_rows_))


def records_of(model, X, Y, **how):
    heard = []
    model.fit(X, Y, on_epoch=lambda record: heard.append((record["epoch"], record["map"], longest(model))), **how)
    return heard


def test_vectors_may_become_longer_from_epoch_to_epoch_while_something_can_stop_it(planted):
    settings = {"dim": 8, "max_norm": 0.3, "average": 1, "epochs": 25, "patience": 25}
    settings |= {"standardize": False, "init": "random"}
    grown = Wsabie(**settings)
    heard = records_of(grown, planted.X_train, planted.Y_train, valid=(planted.X_test, planted.Y_test))
    limits = [0.3 * (1 + (epoch / DOUBLING_EPOCHS) ** 2) for epoch in range(1, 26)]
    assert [norm for _, _, norm in heard] == pytest.approx(limits, rel=1e-4)
    stays = Wsabie(**settings, valid_share=0).fit(planted.X_train, planted.Y_train)
    assert longest(stays) == pytest.approx(0.3, rel=1e-4)


def test_held_out_images_are_given_back_at_the_end(planted):
    model = Wsabie(dim=8, epochs=40)
    heard = records_of(model, planted.X_train, planted.Y_train)
    first, finish = heard[: -2 * FINISH_EPOCHS], heard[-2 * FINISH_EPOCHS :]
    assert model.n_held_out_ == 60
    assert [epoch for epoch, _, _ in finish] == 2 * list(range(1, FINISH_EPOCHS + 1))
    assert all(found is None for _, found, _ in finish)
    assert [entry["map"] for entry in model.history_] == [found for _, found, _ in first]
    assert model.n_epochs_ == 1 + int(np.argmax([found for _, found, _ in first]))
    held = model.take_held_out()
    assert held.images.size == 60


def test_held_out_images_are_scored_by_a_training_that_ended_alike_without_them(planted):
    model = Wsabie(dim=8, epochs=40, average=6)
    model.fit(planted.X_train, planted.Y_train)
    held = model.take_held_out()
    X, Y = planted.X_train[held.images], planted.Y_train[held.images]
    unseen, seen = held.scores(np.arange(60)), model.decision_function(X)
    assert not np.allclose(unseen, seen, atol=1e-3)
    assert unseen.std() == pytest.approx(seen.std(), rel=0.05)
    assert average_precisions(unseen, Y).mean() < average_precisions(seen, Y).mean() + 0.02


@pytest.mark.parametrize("share", [0.05, 0.7])
@pytest.mark.parametrize("init", ["random", "ridge"])
def test_dense_and_sparse_features_of_any_size_are_learned_alike(planted, share, init):
    X = np.where(planted.X_train >= np.quantile(planted.X_train, 1 - share), planted.X_train, 0)
    model = Wsabie(dim=8, epochs=12, init=init).fit(X, planted.Y_train)
    expected, maps = model.decision_function(X), [entry["map"] for entry in model.history_]
    assert average_precisions(expected, planted.Y_train).mean() > 0.4
    for size in (1e-15, 1.0, 1e12):
        rows = X * np.float32(size)
        for given in (rows, sp.csr_array(rows)):
            other = Wsabie(dim=8, epochs=12, init=init)
            with np.errstate(over="raise", invalid="raise"):
                scores = other.fit(given, planted.Y_train).decision_function(rows)
            other_maps = [entry["map"] for entry in other.history_]
            if init == "random":
                assert other_maps == maps
                np.testing.assert_allclose(scores, expected, rtol=1e-3, atol=1e-3)
            else:  # the normal equations of dense and sparse rows are rounded differently
                assert other_maps == pytest.approx(maps, abs=0.02)


def test_by_number_held_out_tags_find_the_length_and_known_tags_are_no_mistakes():
    Y = plant_corpus(n_train=800, n_test=1, n_tags=12, random_state=4).Y_train
    several = np.flatnonzero(np.diff(sp.csr_array(Y > 0).indptr) > 1)
    assert several.size > 80
    model = Wsabie(dim=8, epochs=30).fit(None, Y)
    assert model.n_held_out_ == 80 <= MAX_HELD_OUT_TAGS
    assert all(0 < entry["map"] <= 1 for entry in model.history_)
    assert model.take_held_out() is None
    rows = sp.eye_array(800, dtype=np.float32, format="csr")[several]
    right, known = np.zeros((2, several.size, 12), np.float32)
    for row, image in enumerate(several):
        tags = np.flatnonzero(Y[[image]].toarray()[0] > 0)
        right[row, tags[0]], known[row, tags[1:]] = 1, 1
    learned = sp.csr_array(Y > 0, dtype=np.float32).tolil()
    learned[several, right.argmax(1)] = 0
    judged = Wsabie(dim=8, epochs=6)
    judged.fit(None, sp.csr_array(learned), valid=(rows, right))
    expected = average_precisions(judged.decision_function(rows), right, exclude=known).mean()
    assert max(entry["map"] for entry in judged.history_) == pytest.approx(expected, abs=1e-6)


def test_a_further_pass_keeps_vectors_as_long_as_training_let_them_become(planted):
    model = Wsabie(dim=8, epochs=30, max_norm=0.3, average=1, patience=30, standardize=False)
    model.fit(planted.X_train, planted.Y_train, valid=(planted.X_test, planted.Y_test))
    before = longest(model)
    assert before > 0.31
    model.partial_fit(planted.X_train[:50], planted.Y_train[:50])
    assert longest(model) == pytest.approx(before, rel=0.02)


def test_with_very_many_tags_more_are_drawn_for_a_pair():
    model = Wsabie()
    assert model._objective(500).max_trials == 100
    assert model._objective(90_000).max_trials == 300
    assert model.set_params(max_trials=7)._objective(500).max_trials == 7
    assert model.set_params(max_trials=None, schedule="constant")._objective(500).max_trials == 500


@pytest.mark.parametrize("model", [VseEns, ObjectsAndParts])
def test_every_ranking_model_with_a_maximum_norm_finds_its_length(planted, model):
    settings = {"dim": 8, "max_norm": 0.3, "learning_rate": 0.1, "average": 1, "schedule": "open", "patience": 20}
    settings |= {} if model is ObjectsAndParts else {"standardize": False}
    heard = records_of(
        model(**settings, epochs=20), planted.X_train, planted.Y_train, valid=(planted.X_test, planted.Y_test)
    )
    limits = [0.3 * (1 + (epoch / DOUBLING_EPOCHS) ** 2) for epoch in range(1, 21)]
    assert all(norm <= limit * 1.0001 for (_, _, norm), limit in zip(heard, limits, strict=True))
    assert max(norm for _, _, norm in heard) > 0.31
    finished = model(**settings, epochs=20).fit(planted.X_train, planted.Y_train)
    assert finished.n_held_out_ == 60
    assert finished.n_epochs_ == 1 + int(np.argmax([entry["map"] for entry in finished.history_]))


def test_models_without_a_maximum_norm_refuse_it(planted):
    with refused("schedule", value="open"):
        Pamir(schedule="open").fit(planted.X_train, planted.Y_train)
