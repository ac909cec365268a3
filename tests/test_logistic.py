"""Logistic regression of all tags against scikit-learn's, tag by tag, and its choice of a penalty."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from planted import plant_corpus
from refusals import refused
from visterm.models.blend.mixing import image_map
from visterm.models.linear import logistic
from visterm.models.linear.logistic import ALPHAS, Logistic
from visterm.models.linear.normal_equations import mean_square_norm


@pytest.fixture(scope="module")
def planted():
    return plant_corpus(random_state=1)


@pytest.mark.parametrize(
    ("max_rotated", "n", "max_scores"),
    [(4096, None, 2**26), (10, None, 2**26), (4096, 30, 2**26), (4096, 30, 5 * 30)],
    ids=["rotated", "as they are", "fewer images than features", "five tags at a time"],
)
def test_weights_are_those_of_scikit_learn_tag_by_tag(planted, monkeypatch, max_rotated, n, max_scores):
    limits = {"MAX_STEPS": 500, "TOLERANCE": 1e-12, "MAX_ROTATED": max_rotated, "MAX_SCORES": max_scores}
    for name, value in limits.items():
        monkeypatch.setattr(logistic, name, value)
    X, Y = planted.X_train[:n], planted.Y_train[:n]
    assert n is None or n < X.shape[1]
    model = Logistic(alpha=0.05).fit(X, Y)
    C = 1 / (0.05 * mean_square_norm(X))
    for tag in range(0, Y.shape[1], 3):
        single = LogisticRegression(C=C, max_iter=2000, tol=1e-8).fit(X, Y.toarray()[:, tag])
        expected = single.decision_function(planted.X_test)
        np.testing.assert_allclose(model.decision_function(planted.X_test)[:, tag], expected, atol=5e-3)


def test_the_penalty_is_the_best_of_the_path_on_validation_images(planted, monkeypatch):
    valid = planted.X_test, planted.Y_test
    chosen = Logistic().fit(planted.X_train, planted.Y_train, valid=valid).alpha_
    maps = {}
    for alpha in ALPHAS:
        scores = Logistic(alpha=alpha).fit(planted.X_train, planted.Y_train).decision_function(valid[0])
        maps[alpha] = image_map(scores, valid[1])
    assert maps[chosen] == pytest.approx(max(maps.values()), abs=0.01)
    few = Logistic().fit(planted.X_train[:100], planted.Y_train[:100])
    assert few.alpha_ == logistic.DEFAULT_ALPHA


def test_a_strong_penalty_leaves_the_frequencies_of_tags(planted):
    model = Logistic(alpha=1e6).fit(planted.X_train, planted.Y_train)
    share = planted.Y_train.mean(axis=0)
    chances = 1 / (1 + np.exp(-model.decision_function(planted.X_test)))
    np.testing.assert_allclose(chances, np.tile(share, (len(chances), 1)), atol=0.01)


def test_explicit_negatives_count_as_not_given_and_wrong_settings_are_refused(planted):
    Y = planted.Y_train.toarray()
    negative = Y - (Y == 0)
    first, second = (
        Logistic(alpha=0.1).fit(planted.X_train, sp.csr_array(tags)).decision_function(planted.X_test)
        for tags in (Y, negative)
    )
    np.testing.assert_array_equal(first, second)
    with refused("alpha", value=-1):
        Logistic(alpha=-1).fit(planted.X_train, Y)


def test_the_scores_of_all_images_for_all_tags_are_never_in_memory_at_once(planted, monkeypatch):
    X, Y = planted.X_train, planted.Y_train
    monkeypatch.setattr(logistic, "MAX_SCORES", 4 * X.shape[0])
    sizes = []
    monkeypatch.setattr(logistic, "expit", lambda scores, out: sizes.append(scores.size) or expit(scores, out=out))
    Logistic(alpha=0.05).fit(X, Y)
    assert max(sizes) == 4 * X.shape[0] < Y.shape[0] * Y.shape[1]
