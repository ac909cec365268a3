"""FastTag: its closed form beside the paper's turns and drawn corruption, and what it does for missing tags."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import Ridge as SklearnRidge

from planted import plant_corpus
from visterm.core.errors import TooLargeError, UserError
from visterm.models.linear.normal_equations import mean_square_norm
from visterm_research.models.linear import fasttag
from visterm_research.models.linear.fasttag import CORRUPTIONS, TRUSTS, FastTag


@pytest.fixture(scope="module")
def planted():
    return plant_corpus(n_tags=12, random_state=4)


def in_turns(X, Y, penalty, corruption, trust, rounds=300):
    """Solve for the scorer and the map of tags in turn, as the paper writes it, with an intercept."""
    S = Y.T @ Y
    P = (1 - corruption) * S
    Q = (1 - corruption) ** 2 * S
    np.fill_diagonal(Q, (1 - corruption) * np.diag(S))
    B = np.eye(Y.shape[1])
    for _ in range(rounds):
        scorer = SklearnRidge(alpha=penalty).fit(X, Y @ B.T)
        B = (trust * P + scorer.predict(X).T @ Y) @ np.linalg.inv(trust * Q + S)
    return B, scorer


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize(("corruption", "trust"), [(0.3, 1.0), (0.8, 0.5)])
def test_both_parts_are_those_that_the_papers_turns_end_at(corruption, trust, form, planted):
    X, Y = planted.X_train, planted.Y_train
    model = FastTag(alpha=0.5, corruption=corruption, trust=trust).fit(form(X), Y)
    penalty = 0.5 * mean_square_norm(X)
    B, scorer = in_turns(X.astype(float), Y.toarray().astype(float), penalty, corruption, trust)
    np.testing.assert_allclose(model.completion_, B, atol=1e-4)
    expected = scorer.predict(planted.X_test.astype(float))
    np.testing.assert_allclose(model.decision_function(form(planted.X_test)), expected, atol=1e-4)


def test_the_map_restores_dropped_tags_as_a_regression_on_many_drawn_corruptions_does(planted):
    Y = planted.Y_train.toarray().astype(float)
    rng = np.random.default_rng(0)
    dropped = np.vstack([Y * (rng.random(Y.shape) >= 0.4) for _ in range(2000)])
    expected = np.linalg.lstsq(dropped, np.tile(Y, (2000, 1)), rcond=None)[0].T
    S = Y.T @ Y
    found = fasttag.completion(S, S, 0.4, 1.0)  # predictions that agree with every map leave the map to the tags alone
    np.testing.assert_allclose(found, expected, atol=0.02)


def test_the_map_adds_tags_that_go_with_those_given_and_no_others():
    rng = np.random.default_rng(5)
    sea = rng.random(400) < 0.4
    water = sea & (rng.random(400) < 0.25)
    Y = np.stack([sea, water, ~sea], axis=1)
    X = np.stack([sea + 0.3 * rng.normal(size=400), rng.normal(size=400)], axis=1)
    B = FastTag(alpha=0.01, corruption=0.3, trust=1).fit(X, Y).completion_
    of_sea, of_land = B @ [1, 0, 0], B @ [0, 0, 1]
    assert of_sea[1] > 0.1 > abs(of_land[1])
    assert of_sea[0] > 0.8 > 0.2 > abs(of_sea[2])


def test_settings_are_chosen_among_those_written_down_and_given_ones_kept(planted):
    model = FastTag().fit(planted.X_train, planted.Y_train)
    assert model.corruption_ in CORRUPTIONS
    assert model.trust_ in TRUSTS
    model = FastTag(alpha=0.2, trust=3).fit(planted.X_train, planted.Y_train)
    assert (model.alpha_, model.trust_) == (0.2, 3)


def test_explained_shares_sum_to_the_score(planted):
    model = FastTag().fit(planted.X_train, planted.Y_train)
    found = model.explain(planted.X_test[:1], 3)
    score = model.decision_function(planted.X_test[:1])[0, 3]
    assert found.shares.sum() + found.constant == pytest.approx(score, abs=1e-5)


@pytest.mark.parametrize("settings", [{"alpha": 0}, {"corruption": 1.0}, {"corruption": 0}, {"trust": 0}])
def test_settings_that_cannot_be_used_are_refused(settings, planted):
    with pytest.raises(UserError, match=r"is .*; expected a (finite )?number above 0.* or None to have it chosen"):
        FastTag(**settings).fit(planted.X_train, planted.Y_train)


def test_maps_of_more_tags_than_memory_should_take_are_refused(monkeypatch, planted):
    monkeypatch.setattr(fasttag, "MAX_TAG_BYTES", 1000)
    with pytest.raises(TooLargeError, match=r"12 × 12 tags.*ridge"):
        FastTag().fit(planted.X_train, planted.Y_train)


def test_a_trust_that_drowns_in_roundings_is_refused_with_advice():
    S = np.array([[4.0, 1.0], [1.0, 2.0]])
    with pytest.raises(UserError, match=r"trust is 1e-12, less than the rounding errors .* a larger trust or alpha"):
        fasttag.completion(S, S * (1 + 1e-6), 0.5, 1e-12)
