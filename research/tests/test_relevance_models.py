"""CMRM and MBRM against their formulas, computed slowly and by hand, and what their settings do."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from planted import plant_corpus
from reference.generative import cmrm_scores, mbrm_scores, mean_squared_distance
from visterm.core.errors import DataError, ShapeError, UserError
from visterm.metrics.ranking import average_precisions
from visterm_research.models.generative.cmrm import Cmrm
from visterm_research.models.generative.mbrm import Mbrm

forms = pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])


@pytest.fixture(scope="module")
def planted():
    return plant_corpus(random_state=1)


@pytest.fixture(scope="module")
def bags():
    """Small counts of visterms with tags: images without visterms, and a visterm and a tag that no image has."""
    rng = np.random.default_rng(4)
    X, Y = rng.poisson(0.8, (9, 6)).astype(float), (rng.random((9, 4)) < 0.5).astype(float)
    X[:, 3], X[2], Y[:, 1], Y[5] = 0, 0, 0, [1, 0, 0, 0]
    Y[Y.sum(axis=1) == 0, 2] = 1
    return X, Y, rng.poisson(0.8, (5, 6)).astype(float)


def test_cmrm_by_hand():
    X, Y = [[2, 0], [1, 1]], [[1, 0, 0], [0, 1, 1]]
    scores = Cmrm(alpha=0.3, beta=0.4).fit(X, Y).decision_function([[0, 2]])
    first, second = (0.4 * 1 / 4) ** 2, (0.6 * 1 / 2 + 0.4 * 1 / 4) ** 2  # P(p|j), of two visterms that one of 4 is
    own = np.array([first, second / 2, second / 2]) / (first + second)
    np.testing.assert_allclose(scores, [0.7 * own + 0.3 / 3], rtol=1e-6)


@forms
def test_cmrm_gives_the_papers_conditional(form, bags):
    X, Y, new = bags
    scores = Cmrm(alpha=0.2, beta=0.3).fit(form(X), Y).decision_function(form(new))
    np.testing.assert_allclose(scores, [cmrm_scores(X, Y, x, 0.2, 0.3) for x in new], atol=1e-6)
    np.testing.assert_allclose(scores.sum(axis=1), 1, rtol=1e-6)


def test_an_image_with_more_visterms_is_no_less_about_its_tag_than_one_with_fewer():
    model = Cmrm(alpha=0.1, beta=0.1).fit([[1, 0], [0, 1]], [[1, 0], [0, 1]])
    few, many = model.decision_function([[1, 0], [300, 0]])[:, 0]
    assert 0.5 < few < many


def test_images_without_a_tag_and_visterms_of_no_image_say_nothing(bags):
    X, Y, new = bags
    model = Cmrm(alpha=0.2, beta=0.3).fit(np.vstack([X, 7 * np.ones(6)]), np.vstack([Y, [0, -1, 0, 0]]))
    expected = Cmrm(alpha=0.2, beta=0.3).fit(X, Y).decision_function(new)
    new[:, 3] += 5
    np.testing.assert_array_equal(model.decision_function(new), expected)


def test_an_image_without_visterms_gets_the_mean_of_all_captions(bags):
    X, Y, _ = bags
    scores = Cmrm(alpha=0, beta=0.3).fit(X, Y).decision_function(np.zeros((1, 6)))
    np.testing.assert_allclose(scores[0], (Y / Y.sum(axis=1, keepdims=True)).mean(axis=0), rtol=1e-6)


def test_thousands_of_visterms_an_image_are_as_good_as_few(bags):
    X, Y, _ = bags
    scores = Cmrm(alpha=0, beta=0.3).fit(X, Y).decision_function(1e6 * X[:1])
    np.testing.assert_allclose(scores, Y[:1] / Y[0].sum(), atol=1e-6)


@forms
def test_the_length_stands_in_for_the_number_of_visterms(form, bags):
    X, Y, new = bags
    model = Cmrm(alpha=0.2, beta=0.3, length=4).fit(form(0.01 * X), Y)
    counts = new / np.maximum(new.sum(axis=1, keepdims=True), 1) * 4
    known = 4 * X / np.maximum(X.sum(axis=1, keepdims=True), 1)
    expected = [cmrm_scores(known, Y, x, 0.2, 0.3) for x in counts]
    np.testing.assert_allclose(model.decision_function(form(100 * new)), expected, atol=1e-6)


@pytest.mark.parametrize("model", [Cmrm, Mbrm])
def test_smoothing_of_tags_moves_frequent_ones_up_and_changes_no_search_by_one_word(model, planted):
    name, little, much = ("alpha", 0.1, 0.9) if model is Cmrm else ("mu", 10.0, 0.05)
    sharpness = {"beta": 0.5} if model is Cmrm else {"bandwidth": 0.1}
    own, smooth = (
        model(**sharpness, **{name: value}).fit(planted.X_train, planted.Y_train).decision_function(planted.X_test)
        for value in (little, much)
    )
    for tag in range(12):
        assert np.corrcoef(own[:, tag], smooth[:, tag])[0, 1] > 1 - 1e-5
    frequent = np.asarray(planted.Y_train.sum(axis=0)).ravel().argmax()
    rank_of = [(-scores).argsort(axis=1).argsort(axis=1)[:, frequent].mean() for scores in (own, smooth)]
    assert rank_of[1] < rank_of[0]


@forms
@pytest.mark.parametrize("regions", [1, 3])
def test_mbrm_gives_the_density_of_gaussian_kernels_over_regions(form, regions):
    rng = np.random.default_rng(2)
    X, new = rng.normal(size=(8, 6)), rng.normal(size=(4, 6))
    Y = (rng.random((8, 4)) < 0.4).astype(float)
    Y[:, 0] = 1
    model = Mbrm(bandwidth=0.2, mu=0.5, regions=regions).fit(form(X), Y)
    assert model.spread_ == pytest.approx(mean_squared_distance(X, regions), rel=1e-5)
    width = 0.2 * mean_squared_distance(X, regions)
    expected = [mbrm_scores(X, Y, x, width, 0.5 * 8, regions) for x in new]
    np.testing.assert_allclose(model.decision_function(form(new)), expected, rtol=1e-4)


def test_tiles_change_no_score(monkeypatch, planted):
    whole = Mbrm(bandwidth=0.1, mu=1, regions=4).fit(planted.X_train, planted.Y_train).decision_function(planted.X_test)
    monkeypatch.setattr("visterm_research.models.generative.mbrm.TILE_BYTES", 1)
    monkeypatch.setattr("visterm_research.models.generative.relevance.BLOCK_BYTES", 2**15)
    tiled = Mbrm(bandwidth=0.1, mu=1, regions=4).fit(planted.X_train, planted.Y_train).decision_function(planted.X_test)
    np.testing.assert_allclose(tiled, whole, rtol=1e-6)


def test_an_image_far_from_all_others_is_ranked_by_the_nearest():
    model = Mbrm(bandwidth=0.01, mu=100.0).fit([[0.0], [1.0], [1.1]], [[1, 0], [0, 1], [0, 1]])
    scores = model.decision_function([[50.0]])
    assert scores[0, 1] > 0.9 > 0.1 > scores[0, 0]


def test_images_that_are_all_the_same_leave_the_tag_frequencies():
    scores = Mbrm().fit(np.full((4, 2), 3.0), [[1, 0], [1, 0], [1, 1], [0, 1]]).decision_function([[3.0, 3.0]])
    np.testing.assert_allclose(scores, [[0.75, 0.5]])


@pytest.mark.parametrize("model", [Cmrm(length=20), Mbrm()], ids=["cmrm", "mbrm"])
def test_the_settings_are_those_that_rank_left_out_images_best(model, planted):
    X, Y = planted.X_train[:120], planted.Y_train[:120].toarray()
    names = (model.likelihood_setting, model.caption_setting)
    chosen = [
        tuple(getattr(model.fit(form(X), Y), f"{name}_") for name in names) for form in (np.asarray, sp.csr_array)
    ]
    assert chosen[0] == chosen[1]
    found = {}
    for values in dict.fromkeys([chosen[0], *[(a, chosen[0][1]) for a in model.likelihood_choices]]):
        scores = []
        for i in range(0, 120, 4):
            one = type(model)(**{**model.get_params(), **dict(zip(names, values, strict=True))})
            one.fit(np.delete(X, i, axis=0), np.delete(Y, i, axis=0))
            scores.append(one.decision_function(X[i : i + 1])[0])
        found[values] = np.nanmean(average_precisions(np.array(scores), Y[::4]))
    assert found[chosen[0]] >= max(found.values()) - 0.03
    assert len(set(found.values())) > 1


def test_a_setting_that_is_given_is_kept_and_the_other_chosen(planted):
    model = Cmrm(beta=0.37).fit(planted.X_train, planted.Y_train)
    assert model.beta_ == 0.37
    assert model.alpha_ in model.caption_choices


def test_counts_below_0_are_refused_by_cmrm_and_taken_by_mbrm():
    X, Y = [[1.0, -0.5], [0.0, 2.0]], [[1, 0], [0, 1]]
    with pytest.raises(DataError, match=r"the lowest is -0.5. .* 0 or more. .*mbrm"):
        Cmrm().fit(X, Y)
    model = Cmrm(alpha=0.1, beta=0.1).fit(np.abs(X), Y)
    with pytest.raises(DataError, match=r"the lowest is -0.5"):
        model.annotate(sp.csr_array(X))
    assert Mbrm(bandwidth=0.1, mu=1).fit(X, Y).annotate(X, 1).ids.tolist() == [[0], [1]]


def test_without_a_single_tag_there_is_nothing_to_learn():
    with pytest.raises(DataError, match="No image has a tag"):
        Cmrm().fit(np.ones((2, 2)), [[0, -1], [0, 0]])


@pytest.mark.parametrize(
    "model",
    [Cmrm(alpha=1), Cmrm(alpha=-0.1), Cmrm(beta=0), Cmrm(beta=1), Cmrm(length=0), Mbrm(mu=0), Mbrm(bandwidth=0)],
)
def test_settings_that_make_no_probability_are_refused(model, planted):
    with pytest.raises(UserError, match=r"is -?[\d.]+; expected a (finite )?number .*, or None to"):
        model.fit(planted.X_train, planted.Y_train)


def test_regions_must_share_the_features_out(planted):
    with pytest.raises(ShapeError, match="40 features, which cannot be those of 7 regions"):
        Mbrm(regions=7).fit(planted.X_train, planted.Y_train)
    with pytest.raises(UserError, match="regions is 0; expected a whole number"):
        Mbrm(regions=0).fit(planted.X_train, planted.Y_train)
