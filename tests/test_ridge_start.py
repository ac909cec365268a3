"""Start values of an embedding from ridge regression."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from visterm.models import Ridge, Wsabie
from visterm.models.ranking import embedding_ranking
from visterm.models.ranking.embedding_ranking import ALPHA, SPREAD, ridge_factors

RNG = np.random.default_rng


def drawn(n=200, d=12, n_tags=9):
    rng = RNG(4)
    X = rng.normal(size=(n, d)).astype(np.float32)
    scores = X @ rng.normal(size=(d, n_tags)) + rng.normal(size=n_tags)
    return X, sp.csr_array((scores > np.quantile(scores, 0.8)).astype(np.float32))


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_the_factors_are_those_of_ridge_regression_and_scores_have_the_spread_of_a_trained_model(form):
    X, Y = drawn()
    factors = ridge_factors(form(X[:150]), Y[:150], form(X[150:]), 8, RNG(0))
    scores = X[150:] @ factors.image_map @ factors.tag_rows.T + factors.intercepts
    expected = Ridge(alpha=ALPHA).fit(X[:150], Y[:150]).decision_function(X[150:])
    expected = expected - expected.mean(axis=1, keepdims=True)
    expected *= SPREAD / expected.std(axis=1).mean()
    np.testing.assert_allclose(scores, expected, atol=1e-4)  # centred weights of 9 tags have the rank 8
    assert factors.image_map.shape == (12, 8)


def test_a_lower_rank_keeps_the_largest_part():
    X, Y = drawn()
    full, part = (ridge_factors(X, Y, X, rank, RNG(0)) for rank in (8, 3))
    weights = full.image_map @ full.tag_rows.T
    values = np.linalg.svd(weights, compute_uv=False)
    error = np.linalg.norm(weights - part.image_map @ part.tag_rows.T)
    assert error == pytest.approx(np.sqrt((values[3:] ** 2).sum()), rel=0.05)


def test_too_many_weights_or_too_few_tags_have_no_factors_and_training_starts_at_random(monkeypatch):
    X, Y = drawn(700)
    assert ridge_factors(X, Y[:, :2], X, 5, RNG(0)) is None
    random = Wsabie(init="random", dim=6, epochs=3, random_state=1).fit(X, Y)
    monkeypatch.setattr(embedding_ranking, "MAX_WEIGHTS", 100)
    other = Wsabie(init="ridge", dim=6, epochs=3, random_state=1).fit(X, Y)
    np.testing.assert_array_equal(other.tag_rows_, random.tag_rows_)


def test_more_features_and_images_than_can_be_solved_are_sampled(monkeypatch):
    from visterm.models.linear import normal_equations

    X, Y = drawn(400)
    whole = ridge_factors(X, Y, X, 8, RNG(0))
    monkeypatch.setattr(normal_equations, "DIRECT_SIZE", 11)
    sample = ridge_factors(X, Y, X, 8, RNG(0))
    assert not np.array_equal(sample.tag_rows, whole.tag_rows)
    assert np.isfinite(sample.image_map).all()


def test_training_goes_on_from_ridge_regression_and_is_better_after_one_epoch():
    X, Y = drawn(900, n_tags=20)
    maps = {}
    for init in ("random", "ridge"):
        model = Wsabie(init=init, dim=12, epochs=1, patience=1, random_state=0)
        maps[init] = model.fit(X[:700], Y[:700], valid=(X[700:], Y[700:])).history_[0]["map"]
    assert maps["ridge"] > maps["random"] + 0.05
    few = Wsabie(dim=30, epochs=4, random_state=0).fit(X, Y[:, :5])  # more columns than ridge regression fills
    assert np.linalg.matrix_rank(few.tag_rows_) >= 4
