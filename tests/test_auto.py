"""`auto` blends what does best on images that no model has seen, keeps to its seconds, and says what it did."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from planted import plant_corpus
from refusals import refused
from visterm.core.errors import TooLargeError, UserError
from visterm.core.learned import check_learned
from visterm.core.persist import load_estimator, read_description, save_estimator
from visterm.core.tables import MODELS
from visterm.data.tag_queries import hold_one_out
from visterm.metrics import average_precisions
from visterm.metrics.report import evaluate
from visterm.models.base import SideKnowledge
from visterm.models.baselines import Prior
from visterm.models.blend import trials
from visterm.models.blend.auto import Auto
from visterm.models.blend.candidates import BY_NUMBER, DEFAULT_CANDIDATES, GROWTHS, PAIRWISE, SMALL, ColumnSet
from visterm.models.blend.ensemble import Ensemble
from visterm.models.blend.kept import explained_by, explains, tag_vectors, vectors_from
from visterm.models.blend.mixing import (
    LIFTS_AND_CENTRES,
    best_mix,
    best_pair,
    best_shape,
    image_map,
    shaped,
    shrunk,
    sure_mix,
)
from visterm.models.blend.trials import Budget, MemberTrial
from visterm.models.linear.ease import Ease
from visterm.models.linear.ridge import Ridge
from visterm.models.neighbours.knn import Knn
from visterm.models.pamir.pamir import Pamir
from visterm.models.ranking.wsabie import Wsabie

KNN = ("knn", {"n_neighbors": 10, "power": 2})
RIDGE = ("ridge", {"alpha": 1.0})
PRIOR = ("prior", {})


@pytest.fixture(scope="module")
def planted():
    return plant_corpus(random_state=1)


@pytest.fixture(scope="module")
def many():
    """Enough images to hold a share out once, all with a tag."""
    return plant_corpus(n_train=600, random_state=1)


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still but for the seconds that fits are said to take; one row is 0.01 s of `slow`."""

    class Clock:
        seconds = 0.0

    monkeypatch.setattr(trials, "now", lambda: Clock.seconds)

    def takes(cls, a_row):
        plain = cls.fit

        def fit(self, X, Y, **more):
            Clock.seconds += a_row * X.shape[0]
            return plain(self, X, Y, **more)

        monkeypatch.setattr(cls, "fit", fit)

    Clock.takes = takes
    return Clock


def reasons(model):
    return {entry["model"]: entry["reason"] for entry in model.report_}


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_scores_are_the_lifted_sum_of_members_scaled_by_their_scores_of_images_they_have_not_seen(form, planted):
    X, Y, valid = form(planted.X_train), planted.Y_train, (form(planted.X_test[:60]), planted.Y_test[:60])
    model = Auto(candidates=[KNN, RIDGE], lift=0.3).fit(X, Y, valid=valid)
    new = form(planted.X_test[60:])
    judged = np.flatnonzero((valid[1].toarray() > 0).any(axis=1))
    blend = seen_blend = 0
    fitted = {"knn": Knn(n_neighbors=10, power=2).fit(X, Y), "ridge": Ridge(alpha=1.0).fit(X, Y)}
    for entry in model.report_:
        member = fitted[entry["model"]]
        seen = member.decision_function(valid[0][judged]).astype(float)
        blend = blend + entry["weight"] * (member.decision_function(new) - seen.mean()) / seen.std()
        seen_blend = seen_blend + entry["weight"] * (seen - seen.mean()) / seen.std()
    factors = seen_blend.std(axis=0) ** -0.3
    np.testing.assert_allclose(model.decision_function(new), blend * factors / factors.mean(), rtol=1e-3, atol=1e-4)


def test_weights_are_the_best_of_the_grid_for_annotation_and_search_together(planted):
    valid = planted.X_test, planted.Y_test
    model = Auto(candidates=[KNN, RIDGE], lift=0).fit(planted.X_train, planted.Y_train, valid=valid)
    tagged = np.flatnonzero((valid[1].toarray() > 0).any(axis=1))
    X, Y = valid[0][tagged], valid[1][tagged]
    scores = []
    for member in (Knn(n_neighbors=10, power=2), Ridge(alpha=1.0)):
        found = member.fit(planted.X_train, planted.Y_train).decision_function(X)
        scores.append((found - found.mean()) / found.std())
    grid = [
        np.nanmean(average_precisions(w * scores[0] + (1 - w) * scores[1], Y))
        + np.nanmean(average_precisions((w * scores[0] + (1 - w) * scores[1]).T, Y.T))
        for w in np.arange(21) / 20
    ]
    assert model.valid_map_ + model.valid_word_map_ == pytest.approx(max(grid), abs=2e-3)


def test_a_lift_gives_rare_tags_more_often_and_changes_no_search_for_one_tag(planted):
    Y = planted.Y_train.toarray()
    Y[np.flatnonzero(Y[:, 0])[15:], 0] = 0
    plain, lifted = (Auto(candidates=[RIDGE], lift=lift).fit(planted.X_train, Y) for lift in (0, 0.9))
    given = [(model.annotate(planted.X_test, 3).ids == 0).sum() for model in (plain, lifted)]
    assert given[1] > given[0]
    found, found_lifted = (
        np.argsort(-model.decision_function(planted.X_test), axis=0, kind="stable")[:20] for model in (plain, lifted)
    )
    np.testing.assert_array_equal(found, found_lifted)


def test_the_shape_has_the_best_map_or_nearly_and_then_the_best_f1(planted, monkeypatch):
    monkeypatch.setattr("visterm.models.blend.mixing.SAME_MAP", 0.01)
    monkeypatch.setattr("visterm.models.blend.mixing.SURE_IMAGES", 0)
    rng = np.random.default_rng(0)
    Y = sp.csr_array(planted.Y_test)
    noise = rng.random(12) + 0.2  # Tags of different spread
    scores = ((Y.toarray() + rng.standard_normal(Y.shape)) * noise - noise).astype(np.float32)
    maps = {shape: image_map(shaped(scores, *shape), Y) for shape in LIFTS_AND_CENTRES}
    f1s = {shape: evaluate(shaped(scores, *shape), Y, ["tag_f1@5"])["tag_f1@5"] for shape in LIFTS_AND_CENTRES}
    found = best_shape(scores, Y)
    near = [shape for shape in LIFTS_AND_CENTRES if maps[shape] >= max(maps.values()) - 0.01]
    assert 1 < len(near) < len(LIFTS_AND_CENTRES)
    assert f1s[found] == max(f1s[shape] for shape in near)


def test_scores_that_know_better_gain_and_those_that_know_less_do_not(planted):
    Y = sp.csr_array(planted.Y_test)
    rng = np.random.default_rng(0)
    right, noise = Y.toarray().astype(np.float32), rng.standard_normal(Y.shape).astype(np.float32)
    mix, gain = best_pair(right, noise, Y)
    assert image_map(mix, Y) == pytest.approx(1)
    assert gain == pytest.approx(1 - image_map(noise, Y), abs=1e-6)
    assert best_pair(noise, right, Y)[1] == 0


def test_a_centre_leaves_a_score_of_the_tags_mean_as_it_is():
    scores = np.array([[0, 10], [2, 40], [4, 100]], np.float32)
    found = shaped(scores, 0.5, 1.0)
    np.testing.assert_allclose(found.mean(axis=0), scores.mean(axis=0))
    assert np.ptp(found[:, 0]) / np.ptp(found[:, 1]) == pytest.approx(
        4 / 90 * np.sqrt(scores[:, 1].std() / scores[:, 0].std())
    )


def test_few_images_draw_weights_to_the_priors_of_good_models():
    weights = shrunk(np.array([1.0, 0.0, 0.0, 0.0]), [0.9, 0.6, 0.5, 0.9], [1, 1, 1, 0], 150)
    np.testing.assert_allclose(weights, [0.8, 0.2, 0, 0])
    np.testing.assert_allclose(shrunk(np.array([1.0, 0.0]), [0.9, 0.9], [1, 4], 100), [0.6, 0.4])
    np.testing.assert_allclose(shrunk(np.array([0.0, 1.0]), [0.9, 0.1], [0, 1], 100), [0.5, 0.5])


def test_few_images_do_not_draw_weights_to_neighbours(planted):
    model = Auto(candidates=[KNN, RIDGE, ("kernel_ridge", {})]).fit(planted.X_train[:60], planted.Y_train[:60])
    weights = {entry["model"]: entry["weight"] for entry in model.report_}
    assert min(weights["ridge"], weights["kernel_ridge"]) > 50 / 160 - 0.01
    assert weights["knn"] < 60 / 160


def test_with_few_images_a_lift_must_gain_more_than_two_standard_errors(planted):
    rng = np.random.default_rng(0)
    Y = sp.csr_array(planted.Y_test)
    scores = (Y.toarray() + rng.standard_normal(Y.shape)).astype(np.float32)
    assert best_shape(scores, Y)[0] == 0
    spread = np.linspace(0.1, 3, Y.shape[1], dtype=np.float32)
    assert best_shape(scores * spread, Y)[0] > 0


def test_models_that_add_nothing_are_dropped_and_the_report_says_so(many, tmp_path):
    planted = many
    model = Auto(candidates=[PRIOR, RIDGE, KNN]).fit(planted.X_train, planted.Y_train)
    assert reasons(model)["prior"] == "adds nothing to the others"
    assert "prior" not in [MODELS.name_of(member) for member in model.members_]
    assert sum(entry["weight"] for entry in model.report_) == pytest.approx(1)
    best = max(entry["map"] + entry["word_map"] for entry in model.report_)
    assert model.valid_map_ + model.valid_word_map_ >= best - 0.01  # what a lift may cost
    assert model.report_[1]["settings"] == {"alpha": 1.0}
    save_estimator(model, MODELS, tmp_path, "model")
    assert read_description(tmp_path, "model")["values"]["report_"]["value"] == model.report_
    loaded = load_estimator(MODELS, tmp_path, "model")
    assert loaded.report_ == model.report_


def test_where_no_model_of_the_blend_explains_one_that_does_is_kept_and_ranks_nothing(planted, tmp_path, monkeypatch):
    valid, kernel = (planted.X_test, planted.Y_test), ("kernel_ridge", {"gamma": 1.0, "alpha": 0.1})
    alone = Auto(candidates=[kernel], lift=0, explainable=False).fit(planted.X_train, planted.Y_train, valid=valid)
    assert not explains(alone)
    with pytest.raises(UserError, match=r"blend \(kernel_ridge\) .* without the setting"):
        alone.explain(planted.X_test[:1], 0)
    monkeypatch.setattr("visterm.models.blend.mixing.without_idlers", lambda weights, *more: np.eye(len(weights))[0])
    model = Auto(candidates=[kernel, KNN, RIDGE], lift=0).fit(planted.X_train, planted.Y_train, valid=valid)
    assert model.weights_.tolist() == [1, 0]
    assert reasons(model)["knn"] == "adds nothing to the others"
    assert reasons(model)["ridge"] == "ranks nothing: kept to explain scores and compare tags"
    np.testing.assert_array_equal(model.image_rows(planted.X_test), alone.image_rows(planted.X_test))
    scores = model.decision_function(planted.X_test)
    np.testing.assert_array_equal(scores, alone.decision_function(planted.X_test))
    save_estimator(model, MODELS, tmp_path, "model")
    loaded = load_estimator(MODELS, tmp_path, "model")
    np.testing.assert_array_equal(loaded.decision_function(planted.X_test), scores)
    for each in (model, loaded):
        found = each.explain(planted.X_test[:1], 2)
        assert explained_by(each) == ["ridge"]
        assert found.shares.sum() + found.constant + found.elsewhere == pytest.approx(scores[0, 2], abs=1e-5)
        ridge = each.members_[1].explain(planted.X_test[:1], 2)
        np.testing.assert_allclose(found.shares, ridge.shares / each.scales_[1])
        assert explains(each)
        assert tag_vectors(each).shape == (
            planted.Y_train.shape[1],
            planted.X_train.shape[1] + hasattr(each.members_[1], "tag_rows_"),
        )


def test_the_first_candidate_alone_is_joined_by_one_that_explains(planted):
    model = Auto(candidates=[KNN, PRIOR, RIDGE], valid_share=0).fit(planted.X_train, planted.Y_train)
    alone = Knn(n_neighbors=10, power=2).fit(planted.X_train, planted.Y_train)
    np.testing.assert_allclose(model.decision_function(planted.X_test), alone.decision_function(planted.X_test))
    assert explains(model)
    assert model.weights_.tolist() == [1, 0]


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("valid_share", [0.25, 0])
def test_where_no_candidate_explains_a_ridge_is_kept_and_no_answer_has_another_byte(form, valid_share, planted):
    X, Y, new = form(planted.X_train), planted.Y_train, form(planted.X_test)
    plain, model = (
        Auto(candidates=[KNN, PRIOR], valid_share=valid_share, explainable=explainable).fit(X, Y)
        for explainable in (False, True)
    )
    assert [MODELS.name_of(member) for member in model.members_] == ["knn", "ridge"]
    assert reasons(model)["ridge"] == "no candidate: kept to explain scores and compare tags"
    assert model.members_[1].n_features_in_ == X.shape[1]
    assert vectors_from(model) == ["ridge"]
    assert vectors_from(plain) == []
    for ask in (lambda m: m.image_rows(new), lambda m: m.tag_rows_, lambda m: m.decision_function(new)):
        one, other = ask(plain), ask(model)
        assert (one != other).sum() == 0
    found = model.explain(new[[0]], 1)
    assert found.shares.sum() + found.constant + found.elsewhere == pytest.approx(model.decision_function(new)[0, 1])
    one, other = plain.take_held_out(), model.take_held_out()
    assert (one is None) == (other is None) == (valid_share == 0)
    if one is not None:
        np.testing.assert_array_equal(one.image_rows, other.image_rows)


def test_a_budget_that_is_too_small_for_a_model_that_explains_keeps_one_of_some_images(clock, planted, monkeypatch):
    monkeypatch.setattr("visterm.models.blend.trials.SPARE_ROWS", 30)
    clock.takes(Knn, 1)
    clock.takes(Ridge, 0.01)
    model = Auto(candidates=[KNN, RIDGE], budget=10).fit(planted.X_train, planted.Y_train)
    assert model.weights_.tolist() == [1, 0]
    assert [entry["reason"] for entry in model.report_] == [
        "in the blend, as fitted on 190 of 240 images: no time was left",
        "left out: no time was left",
        "no candidate: kept to explain scores and compare tags, as fitted on 30 of 240 images: no time was left",
    ]
    assert explained_by(model) == ["ridge"]
    assert model.explain(planted.X_test[:1], 0).elsewhere != 0


def test_where_no_model_that_explains_can_be_fitted_the_refusal_says_why(planted, monkeypatch):
    def fit(self, X, Y, **more):
        raise TooLargeError("The weights would take 9 GiB.")

    monkeypatch.setattr(Ridge, "fit", fit)
    model = Auto(candidates=[KNN, RIDGE]).fit(planted.X_train, planted.Y_train)
    assert [MODELS.name_of(member) for member in model.members_] == ["knn"]
    with pytest.raises(UserError, match=r"ridge: left out: The weights would take 9 GiB\. Fit a model that can"):
        model.explain(planted.X_test[:1], 0)


def test_a_share_is_held_out_and_learned_from_in_the_end(many):
    model = Auto(candidates=[KNN, RIDGE], valid_share=0.25).fit(many.X_train, many.Y_train)
    assert model.n_held_out_ == 150
    assert all(member.rows_.shape[0] == 600 for member in model.members_ if isinstance(member, Knn))
    given = Auto(candidates=[KNN]).fit(many.X_train, many.Y_train, valid=(many.X_test, many.Y_test))
    assert (given.n_held_out_, given.members_[0].rows_.shape[0]) == (120, 600)


def test_the_fit_of_all_images_keeps_the_settings_that_the_first_fit_chose(many):
    model = Auto(candidates=[("knn", {}), ("ridge", {})], random_state=2).fit(many.X_train, many.Y_train)
    for member in model.members_:
        assert all(value is not None for name, value in member.get_params().items() if name != "n_jobs")


def test_a_model_that_the_judged_images_stopped_continues_on_all_images(many, monkeypatch):
    finished = []
    plain = Wsabie.finish
    monkeypatch.setattr(
        Wsabie, "finish", lambda self, X, Y, **more: finished.append(X.shape) or plain(self, X, Y, **more)
    )
    model = Auto(candidates=[("wsabie", {"dim": 8})]).fit(many.X_train, many.Y_train)
    assert finished == [many.X_train.shape]
    assert model.members_[0].n_held_out_ == 0


@pytest.mark.parametrize(("n", "held"), [(19, 0), (20, 20), (200, 200)])
def test_each_image_of_a_small_library_is_held_out_in_one_of_five_folds(n, held, planted):
    model = Auto(candidates=[RIDGE, KNN]).fit(planted.X_train[:n], planted.Y_train[:n])
    assert model.n_held_out_ == held
    fit = model.take_held_out()
    if held:
        tagged = np.flatnonzero(np.diff(planted.Y_train[:n].indptr))
        np.testing.assert_array_equal(np.sort(fit.images), tagged)
    budgeted = Auto(candidates=[RIDGE, KNN], budget=1e6).fit(planted.X_train[:100], planted.Y_train[:100])
    assert budgeted.n_held_out_ == 50


def test_without_images_to_judge_by_the_first_candidate_is_fitted_alone(planted):
    model = Auto(candidates=[RIDGE, KNN], valid_share=0).fit(planted.X_train, planted.Y_train)
    alone = Ridge(alpha=1.0).fit(planted.X_train, planted.Y_train)
    np.testing.assert_allclose(model.decision_function(planted.X_test), alone.decision_function(planted.X_test))
    assert reasons(model) == {
        "ridge": "alone: there are no images to judge by",
        "knn": "left out: there are no images to judge by",
    }


def test_a_candidate_that_would_take_longer_than_is_left_is_left_out_and_the_report_says_so(clock, planted):
    clock.takes(Ridge, 0.01)  # 1.9 s for 190 images, 2.7 s again for all
    clock.takes(Pamir, 0.1)  # 5 s for 50 images: by the square 72 s for 190, and 115 s for all
    model = Auto(candidates=[RIDGE, ("pamir", {}), PRIOR], budget=60).fit(planted.X_train, planted.Y_train)
    assert reasons(model)["pamir"] == "left out: about 187 s, 50 s were left"
    assert reasons(model)["prior"] in ("in the blend", "adds nothing to the others")
    assert clock.seconds < 60


def test_the_first_candidate_is_fitted_whatever_it_takes_and_kept_if_no_time_is_left(clock, planted):
    clock.takes(Ridge, 1)
    model = Auto(candidates=[RIDGE, KNN], budget=10).fit(planted.X_train, planted.Y_train)
    assert clock.seconds == pytest.approx(190 + 50)  # 50 rows, so that all is compiled
    assert reasons(model)["ridge"] == "in the blend, as fitted on 190 of 240 images: no time was left"
    assert reasons(model)["knn"] == "left out: no time was left"


def test_what_the_first_fits_take_to_compile_leaves_no_candidate_out(clock, planted, monkeypatch):
    for cls in (Knn, Ridge):
        clock.takes(cls, 0.01)
        compiled = []

        def fit(self, X, Y, *, plain=cls.fit, compiled=compiled, **more):
            clock.seconds += 0 if compiled else 500
            compiled.append(True)
            return plain(self, X, Y, **more)

        monkeypatch.setattr(cls, "fit", fit)
    model = Auto(candidates=[KNN, RIDGE], budget=30).fit(planted.X_train, planted.Y_train)
    assert clock.seconds > 1000
    assert all(entry["seconds"] == pytest.approx(1.9) for entry in model.report_)
    assert all(member.n_features_in_ for member in model.members_)
    assert not any("time" in entry["reason"] for entry in model.report_)


def test_scores_of_held_out_images_are_given_once_and_are_those_of_the_first_fits(many):
    X, Y = many.X_train, many.Y_train
    model = Auto(candidates=[RIDGE], lift=0).fit(X, Y)
    held = model.take_held_out()
    assert len(held.images) == 120
    learned = np.setdiff1d(np.arange(X.shape[0]), held.images)
    expected = Ridge(alpha=1.0).fit(X[learned], Y[learned]).decision_function(X[held.images])
    expected = (expected - expected.mean()) / expected.std()
    np.testing.assert_allclose(held.scores(np.arange(len(held.images))), expected, atol=1e-4)
    assert model.take_held_out() is None


def test_scores_of_folds_are_those_of_a_fit_on_the_other_folds(planted):
    X, Y = planted.X_train[:100], planted.Y_train[:100]
    held = Auto(candidates=[RIDGE], lift=0).fit(X, Y).take_held_out()
    scores = held.scores(np.arange(100))
    for start in range(0, 100, 20):  # One fold after the other
        images = held.images[start : start + 20]
        others = np.setdiff1d(np.arange(100), images)
        expected = Ridge(alpha=1.0).fit(X[others], Y[others]).decision_function(X[images])
        expected = (expected - expected.mean()) / expected.std()
        np.testing.assert_allclose(scores[start : start + 20], expected, atol=1e-4)


def test_a_budget_that_is_not_the_limit_changes_nothing(many):
    free, ample = (
        Auto(candidates=[RIDGE, KNN], budget=budget).fit(many.X_train, many.Y_train) for budget in (None, 1e6)
    )
    np.testing.assert_array_equal(free.decision_function(many.X_test), ample.decision_function(many.X_test))
    np.testing.assert_array_equal(free.weights_, ample.weights_)


def test_a_candidate_that_is_too_large_is_left_out_with_its_reason(planted, monkeypatch):
    def fit(self, X, Y, **more):
        raise TooLargeError("The weights would take 9 GiB.")

    monkeypatch.setattr(Knn, "fit", fit)
    model = Auto(candidates=[RIDGE, KNN]).fit(planted.X_train, planted.Y_train)
    assert reasons(model)["knn"] == "left out: The weights would take 9 GiB."


def test_if_no_candidate_can_be_fitted_its_error_is_raised(planted, monkeypatch):
    def fit(self, X, Y, **more):
        raise TooLargeError("The weights would take 9 GiB.")

    monkeypatch.setattr(Knn, "fit", fit)
    with pytest.raises(TooLargeError, match="9 GiB"):
        Auto(candidates=[KNN]).fit(planted.X_train, planted.Y_train)


def test_a_model_that_adds_little_on_an_eighth_of_the_images_is_not_fitted_on_all(many, monkeypatch):
    monkeypatch.setattr(trials, "MIN_PROBED_IMAGES", 400)
    monkeypatch.setattr("visterm.models.blend.candidates.PROBED", {"wsabie": {}})
    rows = []
    plain = Wsabie.fit
    monkeypatch.setattr(Wsabie, "fit", lambda self, X, Y, **more: rows.append(len(X)) or plain(self, X, Y, **more))
    for error, fits in ((100.0, [60]), (0.0, [60, 480])):
        monkeypatch.setattr(trials, "GAIN_ERROR", error)
        model = Auto(candidates=[RIDGE, ("wsabie", {"dim": 8, "epochs": 5})]).fit(many.X_train, many.Y_train)
        assert rows == fits
        assert ("left out: after an eighth" in reasons(model)["wsabie"]) == (error > 0)
        rows.clear()


@pytest.mark.parametrize(
    ("wrong", "value"),
    [({"budget": 0}, 0), ({"valid_share": 1}, 1), ({"candidates": []}, []), ({"candidates": ["ridge"]}, "ridge")],
)
def test_settings_that_cannot_be_used_are_refused(wrong, value, planted):
    with refused(next(iter(wrong)), value=value):
        Auto(**wrong).fit(planted.X_train, planted.Y_train)


def test_what_is_tried_by_default_is_known_with_every_setting():
    for name, settings in (*BY_NUMBER, *SMALL, *DEFAULT_CANDIDATES):
        MODELS.create(name, **settings).check_settings()
        assert name in GROWTHS
    assert GROWTHS["knn"] < PAIRWISE == 2
    assert "pamir" not in GROWTHS


@pytest.fixture
def without_implicit(monkeypatch):
    """As if the package implicit weren't installed."""
    monkeypatch.setattr("visterm.models.blend.candidates.find_spec", lambda name: None)


@pytest.mark.usefixtures("without_implicit")
def test_images_known_only_by_number_are_judged_by_held_out_tags():
    Y = plant_corpus(n_train=600, n_tags=12, random_state=3).Y_train
    model = Auto().fit(None, Y)
    assert [entry["model"] for entry in model.report_] == ["ease", "wsabie"]
    assert sum(entry["weight"] for entry in model.report_) == pytest.approx(1)
    assert 50 <= model.n_held_out_ <= 120
    assert (model.lift_, model.take_held_out()) == (0, None)
    assert model.valid_map_ >= max(entry["map"] or 0 for entry in model.report_) - 1e-6


@pytest.mark.usefixtures("without_implicit")
def test_with_few_images_known_by_number_the_first_candidate_is_fitted_alone():
    Y = plant_corpus(n_tags=12, random_state=3).Y_train[:60]
    model = Auto().fit(None, Y)
    assert reasons(model) == {
        "ease": "alone: there are no images to judge by",
        "wsabie": "left out: there are no images to judge by",
    }
    alone = Ease(alpha=model.members_[0].alpha_).fit(None, Y)
    np.testing.assert_array_equal(model.members_[0].tag_rows_, alone.tag_rows_)
    assert model.n_held_out_ == 0


def test_als_is_tried_by_number_and_changes_nothing_unless_it_surely_adds(monkeypatch):
    pytest.importorskip("implicit")
    Y = plant_corpus(n_train=600, n_tags=12, random_state=3).Y_train
    model = Auto(n_jobs=1).fit(None, Y)
    assert [entry["model"] for entry in model.report_] == ["ease", "wsabie", "als"]
    assert model.report_[2]["reason"].startswith("left out: ")
    monkeypatch.setattr("visterm.models.blend.candidates.find_spec", lambda name: None)
    without = Auto(n_jobs=1).fit(None, Y)
    np.testing.assert_array_equal(model.decision_function(None), without.decision_function(None))


def test_training_als_is_stopped_early_and_left_out_beside_a_model_that_knows_more():
    pytest.importorskip("implicit")
    Y = plant_corpus(n_train=600, n_tags=12, random_state=3).Y_train
    weak = ("als", {"dim": 12, "regularization": 1e-6})  # overfits
    model = Auto(candidates=[("ease", {}), weak], n_jobs=1).fit(None, Y)
    assert model.report_[1]["reason"].startswith("left out: after 4 epochs, it adds only 0.0")
    assert model.report_[1]["map"] is None


def test_all_candidates_learn_from_the_weights_of_pairs():
    Y = plant_corpus(n_train=600, n_tags=12, random_state=3).Y_train
    weights = sp.csr_array((np.random.default_rng(0).integers(1, 9, Y.nnz), Y.indices, Y.indptr), shape=Y.shape)
    side = SideKnowledge(pair_weights=weights)
    model = Auto(candidates=[("ease", {"alpha": 5.0})]).fit(None, Y, side=side)
    alone = Ease(alpha=5.0).fit(None, Y, side=side)
    np.testing.assert_array_equal(model.members_[0].tag_rows_, alone.tag_rows_)
    scores = [
        Auto(candidates=[("wsabie", {"dim": 8})], n_jobs=1).fit(None, Y, side=known).decision_function(None)
        for known in (None, side)
    ]
    assert not np.array_equal(*scores)
    with refused("weight"):
        Auto(candidates=[("ease", {}), ("prior", {})]).fit(None, Y, side=side)


def test_a_budget_counts_down_and_seconds_grow_with_the_rows():
    assert not Budget(None).limited
    assert Budget(None).left() == np.inf
    assert 0 < Budget(5).left() <= 5
    for name, seconds in (("knn", 6), ("pamir", 18)):
        assert MemberTrial(name, Prior(), {}, 0, ColumnSet(0, 0, 1, 0)).seconds_for(2.0, 10, 30) == pytest.approx(
            seconds
        )
    put_off = Budget(5)
    put_off.extend(100)
    assert 100 < put_off.left() <= 105
    assert Prior().fit([[1.0]], [[1]]).n_tags_ == 1


def test_tags_are_compared_by_the_members_that_have_vectors_of_tags():
    planted = plant_corpus(n_tags=12, random_state=0)
    noise = np.random.default_rng(0).standard_normal(planted.X_train.shape).astype(np.float32)
    X = sp.csr_array(planted.X_train + noise)  # sparse: ridge then keeps vectors of tags
    candidates = [["knn", {"n_neighbors": 10, "power": 2}], ["ridge", {"alpha": 1.0}]]
    model = MODELS.create("auto", candidates=candidates, valid_share=0.3, n_jobs=1).fit(X, planted.Y_train)
    knn, ridge = sorted(model.members_, key=MODELS.name_of)
    at = model.members_.index(ridge)
    expected = np.float32(model.weights_[at] / model.scales_[at]) * ridge.tag_rows_
    np.testing.assert_allclose(tag_vectors(model), expected)
    assert tag_vectors(knn) is None


def test_training_by_number_ends_early_if_a_candidate_adds_nothing_unless_it_costs_little(monkeypatch):
    Y = plant_corpus(n_train=600, n_tags=12, random_state=3).Y_train
    slow = ("wsabie", {"learning_rate": 1e-4, "epochs": 8})  # stays near its start values
    model = Auto(candidates=[("ease", {}), slow]).fit(None, Y)
    first, second = model.report_
    assert (first["weight"], second["weight"], second["map"]) == (1, 0, None)
    assert second["reason"].startswith("left out: after 4 epochs, it adds 0.0")
    alone = Ease(alpha=model.members_[0].alpha_).fit(None, Y)  # in the end, ease is fitted on all tags
    np.testing.assert_array_equal(model.members_[0].tag_rows_, alone.tag_rows_)
    monkeypatch.setattr("visterm.models.blend.trials.SMALL_COST", 1e6)
    assert Auto(candidates=[("ease", {}), slow]).fit(None, Y).report_[1]["map"] is not None


def test_a_blend_adds_tags_by_the_sum_of_its_members_and_drops_those_that_only_explain():
    planted = plant_corpus(n_tags=12, random_state=3)
    X, Y = planted.X_train, planted.Y_train
    model = Auto(candidates=[("ease", {}), ("wsabie", {"dim": 16, "epochs": 3})]).fit(None, Y[:, :9])
    model.members_.append(Ridge().fit(sp.eye_array(X.shape[0], format="csr"), Y[:, :9]))
    model.weights_, model.means_ = np.append(model.weights_, 0), np.append(model.means_, 0)
    model.scales_, model.columns_ = np.append(model.scales_, 1), np.vstack([model.columns_, model.columns_[0]])
    model.add_tags(None, Y[:, 9:])
    assert "ridge" not in [MODELS.name_of(member) for member in model.members_]
    check_learned(model)
    scores = sum(
        weight * (member.decision_function(None)[:, 9:] - mean) / scale
        for weight, member, mean, scale in zip(model.weights_, model.members_, model.means_, model.scales_, strict=True)
    )
    np.testing.assert_allclose(model.decision_function(None)[:, 9:], scores, atol=1e-5)


def test_a_blend_with_a_member_that_cannot_add_tags_refuses_and_stays_as_it_was():
    planted = plant_corpus(n_tags=12, random_state=3)
    model = Ensemble(members=[("ease", {}), ("knn", {})], weights=[1, 1]).fit(planted.X_train, planted.Y_train[:, :9])
    with pytest.raises(UserError, match="members that cannot add tags: knn"):
        model.add_tags(planted.X_train, planted.Y_train[:, 9:])
    assert [member.n_tags_ for member in model.members_] == [9, 9]


def test_by_number_a_blend_must_gain_more_than_two_standard_errors():
    rng = np.random.default_rng(0)
    Y = sp.csr_array(np.eye(6, dtype=np.float32)[rng.integers(0, 6, 400)])
    noise = [rng.standard_normal(Y.shape).astype(np.float32) for _ in range(3)]
    first, second = noise[0] + 2 * Y.toarray(), noise[1] + 2 * Y.toarray()
    shares, value = sure_mix([first, second], Y)
    assert (shares > 0).all()
    assert value == pytest.approx(image_map(shares[0] * first + shares[1] * second, Y))
    chance = [first, noise[2]]
    assert best_mix(chance, Y)[1] > image_map(first, Y)  # by chance
    assert sure_mix(chance, Y) == (pytest.approx([1, 0]), pytest.approx(image_map(first, Y)))


def test_validation_tags_of_images_known_by_number_judge_and_are_not_learned():
    tags = hold_one_out(
        plant_corpus(n_train=600, n_tags=12, random_state=3).Y_train, np.random.default_rng(0), at_most=200
    )
    eye = sp.eye_array(600, format="csr", dtype=np.float32)
    model = Auto(candidates=[("ease", {})]).fit(None, tags.rest, valid=(eye[tags.images], tags.held))
    assert (model.n_held_out_, model.members_[0].given_.nnz) == (200, (tags.rest > 0).sum())
    alone = Ease(alpha=model.members_[0].alpha_).fit(None, tags.rest)
    scores = np.where(tags.known.toarray() > 0, -np.inf, alone.decision_function(eye[tags.images]))
    assert model.valid_map_ == pytest.approx(np.mean(average_precisions(np.maximum(scores, -1e9), tags.held)))
