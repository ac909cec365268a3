"""2PKNN: votes against a slow twin, rare tags heard, and the choice of its settings."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from planted import plant_corpus
from reference.neighbours import distance, two_pass_shares
from visterm.core.errors import UserError
from visterm.models.neighbours.knn import Knn
from visterm_research.models.neighbours.two_pass_knn import BANDWIDTHS, NEIGHBORS, TwoPassKnn


@pytest.fixture(scope="module")
def planted():
    return plant_corpus(n_tags=12, random_state=7)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize(("n_neighbors", "bandwidth"), [(1, 7.0), (3, 0.0), (5000, 20.0)])
def test_scores_are_shares_of_the_votes_of_each_tags_nearest_images(n_neighbors, bandwidth, form, planted):
    X, given = planted.X_train, planted.Y_train.toarray()
    model = TwoPassKnn(distances="l2", n_neighbors=n_neighbors, bandwidth=bandwidth).fit(form(X), planted.Y_train)
    scores = model.decision_function(form(planted.X_test[:10]))
    for x, row in zip(planted.X_test, scores, strict=False):
        apart = np.array([distance("l2", x, y) for y in X]) / model.scales_[0]
        np.testing.assert_allclose(row, two_pass_shares(apart, given, -1, n_neighbors, bandwidth), atol=1e-5)


def test_equally_near_images_of_a_tag_are_taken_in_order():
    X, Y = np.ones((4, 1)), [[1, 1, 0], [1, 0, 1], [1, 0, 1], [0, 0, 1]]
    scores = TwoPassKnn(n_neighbors=2, bandwidth=1).fit(X, Y).decision_function([[1.0]])
    np.testing.assert_allclose(scores, [[1, 1 / 3, 2 / 3]], rtol=1e-6)  # images 0 and 1; 0; 1 and 2


def test_a_rare_tag_is_heard_where_its_images_are_far_behind_those_of_a_frequent_one():
    X = np.concatenate([np.zeros((50, 1)), np.full((2, 1), 0.3), np.ones((1, 1))]) + 1
    Y = np.zeros((53, 3))
    Y[:50, 0], Y[50:52, 1], Y[52, 2] = 1, 1, 1
    asked = np.array([[1.1]])
    assert TwoPassKnn(n_neighbors=2, bandwidth=1).fit(X, Y).decision_function(asked)[0, 1] > 0.3
    assert Knn(n_neighbors=20, power=1).fit(X, Y).decision_function(asked)[0, 1] == 0


def test_the_settings_are_those_that_rank_left_out_images_best(planted):
    X, given = planted.X_train, planted.Y_train.toarray()
    model = TwoPassKnn().fit(X, planted.Y_train)
    apart = np.array([[distance("l2", x, y) for y in X] for x in X[:80]]) / model.scales_[0]

    def reached(n_neighbors, bandwidth):
        values = []
        for i in range(80):
            row = two_pass_shares(apart[i], given, i, n_neighbors, bandwidth)
            hits = given[i, np.argsort(-row, kind="stable")] > 0
            values.append((np.cumsum(hits) / np.arange(1, 13))[hits].mean())
        return np.mean(values)

    chosen = reached(model.n_neighbors_, model.bandwidth_)
    assert (model.n_neighbors_, model.bandwidth_) in [(k, b) for k in NEIGHBORS for b in BANDWIDTHS]
    assert chosen > max(reached(1, 5.0), reached(1, 80.0), reached(8, 80.0)) - 0.02


def test_given_settings_are_kept(planted):
    model = TwoPassKnn(n_neighbors=3).fit(planted.X_train, planted.Y_train)
    assert model.n_neighbors_ == 3
    assert model.bandwidth_ in BANDWIDTHS


@pytest.mark.parametrize("settings", [{"n_neighbors": 0}, {"bandwidth": -1.0}, {"bandwidth": float("nan")}])
def test_settings_that_cannot_be_used_are_refused(settings, planted):
    with pytest.raises(UserError, match=r"is .*; expected .* or None to have it chosen"):
        TwoPassKnn(**settings).fit(planted.X_train, planted.Y_train)
