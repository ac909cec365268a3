"""WSABIE: the training of Algorithm 1 in blocks, its stopping, and what its settings do."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from planted import plant_corpus
from reference import warp as reference
from refusals import refused
from visterm.core.errors import DataError, UserError
from visterm.core.threads import Team
from visterm.models.ranking import warp
from visterm.models.ranking.image_sides import EmbeddedImages, StepSettings
from visterm.models.ranking.warp import PairTraining
from visterm.models.ranking.wsabie import Wsabie

FORMS = {"dense": np.asarray, "sparse": sp.csr_array}

PAPER = {
    "step": "sgd", "schedule": "constant", "learning_rate": 0.0015, "max_norm": 0.7, "row_length": 6.0, "bias": 0.0,
    "average": 20, "patience": 10,
}  # fmt: skip


def paper_wsabie(**settings):
    return Wsabie(**{**PAPER, **settings})


@pytest.fixture(scope="module")
def planted():
    return plant_corpus(n_train=600, n_test=200, random_state=5)


def slow_map(model, X, Y):
    values = []
    for row, tags in zip(model.decision_function(X), Y.toarray(), strict=True):
        hits = tags[np.argsort(-row, kind="stable")] > 0
        values.append((np.cumsum(hits) / np.arange(1, len(hits) + 1))[hits].mean())
    return np.mean(values)


@pytest.fixture(scope="module")
def plain_map(planted):
    """What the plain variant reaches in 40 epochs."""
    model = paper_wsabie(dim=16, epochs=40, valid_share=0).fit(planted.X_train, planted.Y_train)
    return slow_map(model, planted.X_test, planted.Y_test)


class Listener:
    """A progress object that remembers what it was told."""

    def __init__(self):
        self.heard = []

    def start(self, task, total=None):
        self.heard.append(("start", task, total))

    def advance(self, steps=1, note=""):
        self.heard.append(("advance", steps, note))

    def finish(self):
        self.heard.append(("finish",))


@pytest.mark.parametrize("n_jobs", [1, 2, 5])
@pytest.mark.parametrize(
    "table_floats", [2**20, 9 * 3, 0], ids=["scores at once", "for three pairs at once", "scores when drawn"]
)
@pytest.mark.parametrize("form", FORMS)
def test_two_epochs_in_blocks_are_those_of_the_slow_algorithm(form, table_floats, n_jobs, monkeypatch):
    monkeypatch.setattr(warp, "TABLE_FLOATS", table_floats)
    monkeypatch.setattr(warp, "MIN_TABLE_ROWS", 2)
    monkeypatch.setattr(warp, "MIN_TABLE_DRAWS", 0)
    monkeypatch.setattr(warp, "MIN_PART_PAIRS", 4)
    corpus = plant_corpus(n_train=30, n_test=1, n_tags=9, n_features=200, random_state=0)
    own = corpus.Y_train
    rng = np.random.default_rng(3)
    V, W = (reference.limit_norms(rng.normal(0, 0.3, (n, 6)), 0.7).astype(np.float32) for n in (200, 9))
    slow_V, slow_W, scale = V.astype(float), W.astype(float), 1.7
    slow_X = scale * corpus.X_train.astype(float)
    V *= np.float32(scale)
    settings = {"rate": 0.05, "max_norm": 0.7, "max_trials": 9}
    with Team(n_jobs) as team:
        steps, objective = StepSettings(10, 0.7), warp.Objective(warp.rank_weights("harmonic", 9), 9)
        side = EmbeddedImages(FORMS[form](corpus.X_train), V, steps, scale=scale, n_jobs=n_jobs)
        training = PairTraining(side, own, W, objective, steps, rng=np.random.default_rng(4), team=team)
        sums = [training.run_epoch(0.05) for _ in range(2)]

    same_rng = np.random.default_rng(4)
    seed = int(same_rng.integers(2**62))
    images, tags = own.nonzero()
    tags_of = [own.indices[own.indptr[i] : own.indptr[i + 1]].tolist() for i in range(30)]
    for epoch in range(2):
        order = same_rng.permutation(own.nnz)
        draws = []
        counted = epoch == 1 and table_floats > 0
        for start in range(0, own.nnz, 10):
            examples = [(int(e), int(images[e]), int(tags[e])) for e in order[start : start + 10]]
            slow_V, slow_W, _, trials = reference.train_block(
                slow_X, tags_of, examples, slow_V, slow_W, seed=seed, epoch=epoch, counted=counted, **settings
            )
            draws += trials
        assert sums[epoch].draws == pytest.approx(np.mean(draws))
    np.testing.assert_allclose(V, scale * slow_V, atol=2e-5)
    np.testing.assert_allclose(W, slow_W, atol=2e-5)


@pytest.mark.parametrize("form", FORMS)
def test_all_vectors_stay_within_the_norm_limit(form, planted):
    model = paper_wsabie(dim=8, max_norm=0.5, learning_rate=0.05, epochs=10, average=1, standardize=False).fit(
        FORMS[form](planted.X_train), planted.Y_train
    )
    for vectors in (model.image_map_ / model.scale_, model.tag_rows_):
        norms = np.linalg.norm(vectors, axis=1)
        assert norms.max() <= 0.5 * (1 + 1e-5)
        assert norms.max() > 0.45


def test_start_values_have_the_deviation_of_the_paper_and_are_projected():
    one_tag = sp.csr_array(np.ones((1, 1)))  # nothing to rank: the start values stay as they are
    model = paper_wsabie(dim=50, max_norm=10, epochs=1).fit(np.ones((1, 400)), one_tag)
    start = model.image_map_ / model.scale_
    assert start.std() == pytest.approx(1 / 20, rel=0.02)
    assert start.mean() == pytest.approx(0, abs=0.002)
    limited = paper_wsabie(dim=50, max_norm=0.1, epochs=1).fit(np.ones((1, 400)), one_tag)
    np.testing.assert_allclose(np.linalg.norm(limited.image_map_ / limited.scale_, axis=1), 0.1, rtol=1e-5)


@pytest.mark.parametrize("form", FORMS)
def test_the_unit_of_the_features_does_not_matter(form, planted):
    X = FORMS[form](planted.X_train)
    assert paper_wsabie(dim=4, epochs=3).fit(X, planted.Y_train).scale_ == pytest.approx(6)
    for unit in (2.0**-20, 2.0**12):  # powers of two scale without rounding
        plain = paper_wsabie(dim=4, epochs=3).fit(X, planted.Y_train)
        scaled = paper_wsabie(dim=4, epochs=3).fit(X * np.float32(unit), planted.Y_train)
        np.testing.assert_allclose(scaled.tag_rows_, plain.tag_rows_, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(scaled.image_map_ * unit, plain.image_map_, rtol=1e-4, atol=1e-6)


def test_training_stops_when_the_validation_measure_no_longer_improves_and_keeps_the_best_weights(planted):
    valid = planted.X_test, planted.Y_test
    model = Wsabie(dim=16, epochs=60, patience=4).fit(planted.X_train, planted.Y_train, valid=valid)
    found = [entry["map"] for entry in model.history_]
    assert len(found) < 60
    assert model.n_epochs_ == int(np.argmax(found)) + 1 == len(found) - 4
    assert slow_map(model, *valid) == pytest.approx(max(found), abs=1e-6)


def test_validation_images_without_tags_are_left_out(planted):
    empty = sp.csr_array(planted.Y_test.shape)
    model = Wsabie(dim=4, epochs=2).fit(planted.X_train, planted.Y_train, valid=(planted.X_test, empty))
    assert [entry["map"] for entry in model.history_] == [None, None]


def test_without_validation_rows_some_images_choose_the_epochs_and_then_all_are_learned(planted):
    model = paper_wsabie(dim=16, epochs=60, patience=3).fit(planted.X_train, planted.Y_train)
    assert len(model.history_) == model.n_epochs_ + 3
    assert all(0 < entry["map"] <= 1 for entry in model.history_)
    fixed = paper_wsabie(dim=16, epochs=7, valid_share=0).fit(planted.X_train, planted.Y_train)
    assert fixed.n_epochs_ == len(fixed.history_) == 7
    assert fixed.history_[-1]["map"] is None


def test_of_too_few_images_none_are_held_out(planted):
    model = Wsabie(dim=4, epochs=3).fit(planted.X_train[:100], planted.Y_train[:100])
    assert model.n_epochs_ == 3
    assert model.history_[0]["map"] is None


def test_the_history_tells_what_each_epoch_did_and_the_listener_hears_it(planted):
    listener = Listener()
    model = Wsabie(dim=8, epochs=12, valid_share=0).fit(planted.X_train, planted.Y_train, monitor=listener)
    assert [entry["epoch"] for entry in model.history_] == list(range(1, 13))
    first, last = model.history_[0], model.history_[-1]
    assert last["loss"] < first["loss"]
    assert last["draws"] > first["draws"] >= 1
    assert 0 < last["violated"] < first["violated"] <= 1
    assert all(entry["seconds"] > 0 for entry in model.history_)
    assert listener.heard[0] == ("start", "train", 12)
    assert listener.heard[-1] == ("finish",)
    assert sum(entry[0] == "advance" for entry in listener.heard) == 12


def test_fewer_trials_mean_fewer_draws(planted):
    few, all_ = (
        Wsabie(dim=8, epochs=5, valid_share=0, max_trials=trials).fit(planted.X_train, planted.Y_train).history_[-1]
        for trials in (2, None)
    )
    assert few["draws"] <= 2 < all_["draws"]


def test_an_average_over_one_epoch_is_the_last_weights_and_a_longer_one_their_mean(planted):
    def weights(epochs, average):
        model = Wsabie(dim=4, epochs=epochs, average=average, valid_share=0)
        return model.fit(planted.X_train, planted.Y_train).tag_rows_

    each = [weights(epochs, 1) for epochs in (1, 2, 3)]
    np.testing.assert_allclose(weights(3, 10), np.mean(each, axis=0), atol=1e-6)


def test_small_libraries_of_few_tags_are_learned_by_the_defaults():
    corpus = plant_corpus(n_train=40, n_test=100, n_tags=6, n_features=30, random_state=2)
    model = Wsabie().fit(corpus.X_train, corpus.Y_train)
    prior = corpus.Y_train.toarray().mean(axis=0)
    hits = corpus.Y_test.toarray()
    guess = hits[:, prior.argmax()].mean()
    found = hits[np.arange(100), model.annotate(corpus.X_test, 1).ids[:, 0]].mean()
    assert found > 1.5 * guess


def test_tags_of_one_kind_of_image_end_up_near_each_other():
    rng = np.random.default_rng(0)
    kind = rng.integers(0, 2, 300)
    Y = np.zeros((300, 4))
    Y[np.arange(300), 2 * kind + rng.integers(0, 2, 300)] = 1  # tags 0 and 1 share a kind, so do 2 and 3
    X = np.eye(2)[kind] + rng.normal(0, 0.05, (300, 2))
    W = paper_wsabie(dim=8, epochs=60, learning_rate=0.02, valid_share=0).fit(X, Y).tag_rows_
    unit = W / np.linalg.norm(W, axis=1, keepdims=True)
    cosines = unit @ unit.T
    assert min(cosines[0, 1], cosines[2, 3]) > max(cosines[0, 2], cosines[0, 3], cosines[1, 2], cosines[1, 3])


@pytest.mark.parametrize(
    "settings",
    [
        {"dim": 0},
        {"epochs": 2.5},
        {"patience": True},
        {"learning_rate": 0},
        {"max_norm": float("inf")},
        {"row_length": -1},
        {"max_trials": 0},
        {"block": -1},
        {"valid_share": 1},
        {"l2": -1},
        {"init_scale": "small"},
        {"step": "adam"},
        {"sampler": "all"},
        {"weight": "flat"},
        {"truncate": 0},
        {"schedule": "linear"},
    ],
)
def test_settings_that_cannot_be_are_refused_with_what_is_accepted(settings, planted):
    [(name, value)] = settings.items()
    with refused(name, value=value):
        Wsabie(**settings).fit(planted.X_train, planted.Y_train)


def test_no_threads_are_refused(planted):
    with pytest.raises(UserError, match="n_jobs"):
        Wsabie(n_jobs=0).fit(planted.X_train, planted.Y_train)


def test_images_without_a_single_tag_are_refused():
    with pytest.raises(DataError, match="No image has a tag"):
        Wsabie().fit(np.eye(3), -np.eye(3))


def test_a_part_that_fails_in_a_thread_is_heard():
    def part(number):
        if number == 3:
            raise ValueError("part 3")
        return number

    with Team(2) as team:
        assert team.run(lambda number: number * number, 5) == [0, 1, 4, 9, 16]
        with pytest.raises(ValueError, match="part 3"):
            team.run(part, 6)


MOVING = [{"sampler": "pool"}, {"step": "adagrad", "learning_rate": 0.02}, {"l2": 0.01}]
"""Variants that move image vectors otherwise, and so are tried on sparse features, too."""
OTHERS = [
    {"schedule": "cosine", "learning_rate": 0.004},
    {"weight": "truncated", "truncate": 3},
    {"weight": "top", "learning_rate": 0.003},
]


@pytest.mark.parametrize(
    ("form", "settings"),
    [*((form, settings) for form in FORMS for settings in MOVING), *(("dense", settings) for settings in OTHERS)],
    ids=str,
)
def test_every_variant_learns_with_the_same_bytes_for_any_number_of_threads(settings, form, planted, plain_map):
    def fit(n_jobs):
        model = paper_wsabie(**{"dim": 16, "epochs": 40, "valid_share": 0, **settings}, n_jobs=n_jobs)
        return model.fit(FORMS[form](planted.X_train), planted.Y_train)

    one, two = fit(1), fit(2)
    np.testing.assert_array_equal(one.tag_rows_, two.tag_rows_)
    np.testing.assert_array_equal(one.image_map_, two.image_map_)
    assert slow_map(one, planted.X_test, planted.Y_test) > 0.95 * plain_map


def test_images_known_by_number_rank_their_own_tags_first():
    Y = plant_corpus(n_train=200, n_test=1, random_state=4).Y_train
    X = sp.eye_array(200, format="csr")
    settings = {"learning_rate": 0.02, "init_scale": 0.01, "row_length": 1, "max_norm": 3}
    for model in (paper_wsabie(dim=32, epochs=60, valid_share=0, **settings), Wsabie(dim=32, valid_share=0)):
        assert slow_map(model.fit(X, Y), X, Y) > 0.9


@pytest.mark.parametrize(("value", "name"), [(np.nan, "NaN"), (np.inf, "infinity")])
def test_features_that_are_not_finite_are_refused_with_what_to_do(value, name):
    X = np.eye(4, dtype=np.float32)
    X[1, 2] = value
    with pytest.raises(
        DataError, match=rf"contains {name}.*\. Every feature has to be a finite .* leave these"
    ) as refused:
        Wsabie(epochs=1).fit(X, np.eye(4))
    assert "HistGradientBoosting" not in str(refused.value)
