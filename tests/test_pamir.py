"""PAMIR: it learns orders of images from queries, given or made of tags, and tags compare within an image."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from planted import plant_corpus
from refusals import refused
from visterm.core.errors import DataError, ShapeError
from visterm.core.queries import inverse_frequencies, weigh_words
from visterm.data.tag_queries import queries_of_tags
from visterm.metrics.retrieval import rank_queries
from visterm.models.abilities import LearnsQueries
from visterm.models.pamir.pamir import Pamir, set_intercepts


@pytest.fixture(scope="module")
def planted():
    return plant_corpus(n_train=400, random_state=4)


@pytest.fixture(scope="module")
def asked(planted):
    """The queries of the planted training images, weighed."""
    made = queries_of_tags(planted.Y_train)
    idf = inverse_frequencies(np.asarray(planted.Y_train.sum(axis=0)).ravel(), planted.Y_train.shape[0])
    return weigh_words(made.words, idf), made.relevant


def average_precision(model, planted, *, least_words=1):
    queries = queries_of_tags(planted.Y_test)
    kept = queries.n_words >= least_words
    scores = model.decision_function(planted.X_test)
    return rank_queries(scores, queries.words[kept], queries.relevant[kept]).average_precision().mean()


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_given_queries_teach_what_those_made_of_tags_do(form, planted, asked):
    X = form(planted.X_train)
    made = Pamir(epochs=15).fit(X, planted.Y_train)
    given = Pamir(epochs=15).fit_queries(X, *asked)
    assert made.n_queries_ == given.n_queries_ == asked[0].shape[0]
    assert average_precision(given, planted) == pytest.approx(average_precision(made, planted), abs=0.02)


def test_it_can_learn_queries():
    assert isinstance(Pamir(), LearnsQueries)


def test_a_word_that_is_excluded_turns_its_order_round():
    X, Q = np.eye(4), [[1.0, 0.0], [0.0, -1.0]]
    R = [[1, 1, 0, 0], [1, 0, 1, 0]]
    scores = Pamir(epochs=50, average=1).fit_queries(X, Q, R).decision_function(X)
    assert scores[:2, 0].min() > scores[2:, 0].max()
    assert scores[[0, 2], 1].max() < scores[[1, 3], 1].min()


def test_validation_queries_say_when_to_stop(planted, asked):
    test = queries_of_tags(planted.Y_test)
    model = Pamir(patience=3).fit_queries(planted.X_train, *asked, valid=(planted.X_test, test.words, test.relevant))
    measured = [entry["map"] for entry in model.history_]
    assert model.n_epochs_ == int(np.argmax(measured)) + 1 == len(measured) - 3
    scores = model.decision_function(planted.X_test)
    found = rank_queries(scores, test.words, test.relevant).average_precision().mean()
    assert found == pytest.approx(max(measured), abs=1e-9)


def test_validation_queries_without_a_relevant_image_say_nothing(planted, asked):
    test = queries_of_tags(planted.Y_test)
    none = sp.csr_array((1, test.relevant.shape[1]))
    more = sp.vstack([test.words, test.words[:1]]), sp.vstack([test.relevant, none])
    first, second = (
        Pamir(epochs=3).fit_queries(planted.X_train, *asked, valid=(planted.X_test, *valid))
        for valid in ((test.words, test.relevant), more)
    )
    assert [entry["map"] for entry in first.history_] == [entry["map"] for entry in second.history_]
    silent = Pamir(epochs=3).fit_queries(planted.X_train, *asked, valid=(planted.X_test, test.words[:1], none))
    assert [entry["map"] for entry in silent.history_] == [None] * 3


def test_without_validation_images_a_share_is_held_out_and_then_all_are_learned_from(planted):
    model = Pamir(valid_share=0.25, patience=3).fit(planted.X_train[:300], planted.Y_train[:300])
    assert model.n_held_out_ == 75
    assert all(entry["map"] is not None for entry in model.history_)
    assert 1 <= model.n_epochs_ <= len(model.history_)


def test_the_mean_probability_of_a_tag_is_its_share_of_the_training_images(planted):
    model = Pamir(epochs=10, valid_share=0).fit(planted.X_train, planted.Y_train)
    probability = 1 / (1 + np.exp(-model.decision_function(planted.X_train).astype(float)))
    n = len(planted.X_train)
    expected = (np.asarray(planted.Y_train.sum(axis=0)).ravel() + 0.5) / (n + 1)
    np.testing.assert_allclose(probability.mean(axis=0), expected, atol=1e-4)


def test_tags_of_no_image_and_of_all_have_finite_intercepts():
    own = sp.csr_array(np.array([[1, 0], [1, 0], [1, 0]], np.float32))
    rows = np.zeros((2, 3), np.float32)
    set_intercepts(rows, np.eye(3, 2, dtype=np.float32), own)
    np.testing.assert_allclose(rows[:, -1], [np.log(3.5 / 0.5), np.log(0.5 / 3.5)], rtol=1e-6)


def test_learning_on_from_few_images_keeps_the_mean_score_of_each_tag_on_them(planted):
    model = Pamir(epochs=5).fit(planted.X_train, planted.Y_train)
    some = planted.X_test[:20]
    before = model.decision_function(some)
    model.partial_fit(some, planted.Y_test[:20])
    after = model.decision_function(some)
    assert np.abs(after - before).max() > 0.01
    np.testing.assert_allclose(after.mean(axis=0), before.mean(axis=0), atol=1e-4)


def test_a_new_intercept_changes_no_order_of_images(planted):
    model = Pamir(epochs=10).fit(planted.X_train, planted.Y_train)
    before = average_precision(model, planted)
    model.tag_rows_[:, -1] += np.linspace(-2, 2, 12, dtype=np.float32)
    assert average_precision(model, planted) == pytest.approx(before, abs=1e-6)


def test_fewer_words_make_fewer_queries(planted):
    one, three = (Pamir(epochs=2, max_words=n).fit(planted.X_train, planted.Y_train).n_queries_ for n in (1, 3))
    assert one == 12
    assert three > one


def test_images_known_by_number_are_found_by_given_queries():
    Q, R = np.eye(3), [[1, 1, 0, 0], [0, 0, 1, 0], [0, 1, 0, 1]]
    scores = Pamir(epochs=60, average=1).fit_queries(None, Q, R).decision_function(None)
    for row, relevant in zip(scores.T, np.array(R, bool), strict=True):
        assert row[relevant].min() > row[~relevant].max()


def test_queries_that_do_not_fit_are_refused_with_the_sizes(planted, asked):
    X, (Q, R) = planted.X_train, asked
    model = Pamir()
    with pytest.raises(ShapeError, match=r"R judges 399 images, but X has 400"):
        model.fit_queries(X, Q, R[:, :-1])
    with pytest.raises(ShapeError, match=r"`words` has 3 queries, but `relevant` 2"):
        model.fit_queries(X, Q[:3], R[:2])
    with pytest.raises(DataError, match=r"Q contains NaN or infinity"):
        model.fit_queries(X, Q * np.nan, R)
    with pytest.raises(ShapeError, match=r"The validation Q has 5 tags, the training Q 12"):
        model.fit_queries(X, Q, R, valid=(X, Q[:, :5], R))
    with pytest.raises(DataError, match=r"No image is relevant to a query"):
        model.fit_queries(X, Q, R * -1)


@pytest.mark.parametrize("settings", [{"aggressiveness": 0}, {"max_words": 0}, {"max_subsets": 0}])
def test_settings_that_cannot_be_are_refused(settings, planted):
    [(name, value)] = settings.items()
    with refused(name, value=value):
        Pamir(**settings).fit(planted.X_train, planted.Y_train)
