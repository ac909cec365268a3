"""Forms of feature rows in `auto`: length 1, tf-idf, and how one of them is chosen."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from planted import plant_corpus
from refusals import refused
from visterm.core.persist import load_estimator, save_estimator
from visterm.core.tables import MODELS
from visterm.models.blend.auto import Auto
from visterm.models.blend.row_forms import choose_form, feature_weights, weighted_rows

RIDGE = ("ridge", {"alpha": 1.0})
ROWS = np.array([[3, 4, 0], [0, 2, 0], [0, 0, 0]], np.float32)


@pytest.fixture(scope="module")
def counts():
    """Planted rows, each times another number: their lengths say nothing."""
    planted = plant_corpus(n_train=300, random_state=1)
    rng = np.random.default_rng(0)
    parts = (X * np.exp(rng.normal(0, 1.5, (len(X), 1))) for X in (planted.X_train, planted.X_test))
    return *[sp.csr_array(part.astype(np.float32)) for part in parts], planted.Y_train, planted.Y_test


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_rows_get_the_length_1_by_hand(form):
    X = form(ROWS)
    unit = weighted_rows(X, feature_weights(X, "unit"))
    np.testing.assert_allclose(sp.csr_array(unit).toarray(), [[0.6, 0.8, 0], [0, 1, 0], [0, 0, 0]], rtol=1e-6)
    weights = 1 + np.log([4 / 2, 4 / 3, 4 / 1])
    np.testing.assert_allclose(feature_weights(X, "tfidf"), weights, rtol=1e-6)
    expected = ROWS[0] * weights / np.linalg.norm(ROWS[0] * weights)
    tfidf = weighted_rows(X, feature_weights(X, "tfidf"))
    np.testing.assert_allclose(sp.csr_array(tfidf).toarray()[0], expected, rtol=1e-6)
    assert feature_weights(X, "plain") is None
    assert weighted_rows(X, None) is X


def test_lengths_that_say_nothing_are_taken_out_of_sparse_rows_only(counts):
    X, _, Y, _ = counts
    assert choose_form(X, Y, seed=0) in ("unit", "tfidf")
    assert choose_form(X.toarray(), Y, seed=0) == "plain"
    assert choose_form(weighted_rows(X, np.ones(X.shape[1], np.float32)), Y, seed=0) == "plain"


def test_auto_learns_scores_and_explains_by_the_formed_rows(counts, tmp_path):
    X, X_new, Y, _ = counts
    model = Auto(candidates=[RIDGE], lift=0).fit(X, Y)
    weights = model.feature_weights_
    formed = Auto(candidates=[RIDGE], lift=0, row_form="plain").fit(weighted_rows(X, weights), Y)
    expected = formed.decision_function(weighted_rows(X_new, weights))
    np.testing.assert_allclose(model.decision_function(X_new), expected, atol=1e-4)
    np.testing.assert_allclose(model.decision_function(X_new.toarray()), expected, atol=1e-4)
    shares = model.explain(X_new[[0]], 1)
    np.testing.assert_allclose(shares.shares.sum() + shares.constant, expected[0, 1], atol=1e-4)
    np.testing.assert_allclose(shares.shares, X_new.toarray()[0] * shares.weights, rtol=1e-5)
    save_estimator(model, MODELS, tmp_path, "model")
    loaded = load_estimator(MODELS, tmp_path, "model")
    np.testing.assert_array_equal(loaded.decision_function(X_new), model.decision_function(X_new))


def test_a_form_that_is_set_is_used_and_another_word_is_refused(counts):
    X, _, Y, _ = counts
    assert not hasattr(Auto(candidates=[RIDGE], row_form="plain").fit(X, Y), "feature_weights_")
    unit = Auto(candidates=[RIDGE], row_form="unit").fit(X.toarray(), Y)
    np.testing.assert_array_equal(unit.feature_weights_, 1)
    with refused("row_form", value="log"):
        Auto(row_form="log").fit(X, Y)
