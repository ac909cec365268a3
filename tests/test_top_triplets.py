"""PAMIR's losses of the top of the ranking: weights by rank by hand, a slow twin, grades, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from planted import plant_corpus
from reference import pamir as reference
from refusals import refused
from visterm.core.errors import UserError
from visterm.metrics.retrieval import measure_queries, rank_queries
from visterm.models.pamir.pamir import TOP_LOSSES, Pamir, TopTripletTraining, ideal_gains, rank_weights


@pytest.fixture(autouse=True)
def _wrapping_integers():
    with np.errstate(over="ignore"):  # 64-bit products wrap on purpose; NumPy warns of it where Numba is switched off
        yield


def csr(rows):
    return sp.csr_array(np.asarray(rows, np.float32))


def test_ranks_weigh_by_the_places_that_count():
    np.testing.assert_allclose(rank_weights("p10", 30)[[0, 1, 5, 10, 30]], [0, 0.1, 0.5, 1, 1])
    np.testing.assert_allclose(rank_weights("warp", 3), np.array([0, 1, 1.5, 11 / 6]) / (11 / 6), rtol=1e-6)
    np.testing.assert_allclose(rank_weights("ndcg", 2), [0, 1 - 1 / np.log2(3), 1 / 2], rtol=1e-6)


def test_the_ideal_gain_has_the_largest_gains_first():
    found = ideal_gains(np.array([0, 3, 4]), np.array([1, 3, 2, 0.5], np.float32))
    np.testing.assert_allclose(found, [3 + 2 / np.log2(3) + 1 / 2, 0.5])


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("loss", TOP_LOSSES)
def test_steps_are_those_of_the_slow_twin(loss, form):
    rng = np.random.default_rng(0)
    X = (rng.random((40, 15)) * (rng.random((40, 15)) < 0.5)).astype(np.float32)
    Q = (rng.random((6, 5)) * (rng.random((6, 5)) < 0.5)).astype(np.float32)
    Q[np.arange(6), np.arange(6) % 5] = 1
    R = csr(rng.integers(1, 4, (6, 40)) * (rng.random((6, 40)) < 0.3))
    start = rng.normal(size=(5, 15))
    W = start.astype(np.float32)
    training = TopTripletTraining(form(X), csr(Q), R, W, loss=loss, max_trials=12, rng=np.random.default_rng(1))
    total, n_moved = training.run(400, 0.02)
    gains = R.data if loss == "ndcg" else np.ones_like(R.data)
    relevant = [
        dict(zip(R.indices[a:b].tolist(), gains[a:b].astype(float), strict=True))
        for a, b in zip(R.indptr[:-1], R.indptr[1:], strict=True)
    ]
    shares = np.diff(R.indptr) / ideal_gains(R.indptr.astype(np.int64), gains) if loss == "ndcg" else np.ones(6)
    expected = start.astype(np.float32).astype(float)
    seed = int(np.random.default_rng(1).integers(2**62))
    twin = relevant, shares, rank_weights(loss, 40), reference.slices(csr(Q)), X.astype(float)
    losses, n_trials = reference.train_top(*twin, 400, 12, 0.02, seed, 0, expected)
    np.testing.assert_allclose(W, expected, atol=5e-4)
    np.testing.assert_allclose(total, sum(losses), rtol=1e-3)
    assert n_moved == len(losses)
    assert 0 < n_moved < 400
    assert n_trials > 400


def test_a_relevant_image_that_none_of_the_draws_outranks_makes_no_step():
    W = np.array([[2.0, 0.0]], np.float32)
    X = np.array([[1, 0], [0, 1], [0, 1]], np.float32)
    settings = {"loss": "warp", "max_trials": 5, "rng": np.random.default_rng(0)}
    training = TopTripletTraining(X, csr([[1]]), csr([[1, 0, 0]]), W, **settings)
    sums = training.run_epoch(1.0)
    assert (sums.loss, sums.draws, sums.violated) == (0, 5, 0)
    np.testing.assert_array_equal(W, [[2, 0]])


def test_ndcg_orders_images_by_grade_where_all_are_relevant_and_other_losses_see_no_difference():
    X = np.eye(4, dtype=np.float32)
    R = [[1, 2, 3, 4]]
    scores = {}
    for loss in ("ndcg", "p10", "triplet"):
        model = Pamir(loss=loss, epochs=60, aggressiveness=1.0, valid_share=0, average=1, random_state=0)
        scores[loss] = model.fit_queries(X, [[1.0]], R).decision_function(X)[:, 0]
    assert (np.diff(scores["ndcg"]) > 0).all()
    assert np.ptp(scores["p10"]) == np.ptp(scores["triplet"]) == 0


def graded_problem():
    """Images of which some have both words of a query and some one, which is half as relevant."""
    corpus = plant_corpus(n_train=300, n_test=200, n_tags=6, tags_an_image=3, noise=0.6, random_state=1)
    Q = np.array([[a == t or b == t for t in range(6)] for a in range(6) for b in range(a)], np.float32) / np.sqrt(2)
    return corpus, Q, *(csr((Q > 0).astype(float) @ Y.toarray().T) for Y in (corpus.Y_train, corpus.Y_test))


def test_learned_from_grades_ndcg_ranks_graded_images_better_than_the_loss_without():
    corpus, Q, R, R_test = graded_problem()
    found = {}
    for loss in ("ndcg", "triplet"):
        model = Pamir(loss=loss, epochs=30, valid_share=0).fit_queries(corpus.X_train, Q, R)
        ranks = rank_queries(model.decision_function(corpus.X_test), Q, R_test)
        found[loss] = measure_queries(ranks, R_test)["nDCG10"].mean()
    assert found["ndcg"] > found["triplet"] + 0.03


def test_validation_stops_by_ndcg_of_graded_images_with_its_loss():
    corpus, Q, R, R_test = graded_problem()
    model = Pamir(loss="ndcg", epochs=3, average=1, aggressiveness=1.0)
    model.fit_queries(corpus.X_train, Q, R, valid=(corpus.X_test, Q, R_test))
    best = max(entry["map"] for entry in model.history_)
    ranks = rank_queries(model.decision_function(corpus.X_test), Q, R_test)
    np.testing.assert_allclose(measure_queries(ranks, R_test)["nDCG10"].mean(), best, rtol=1e-5)


@pytest.mark.parametrize("loss", TOP_LOSSES)
def test_all_losses_learn_from_tags_with_the_same_bytes_each_time(loss):
    corpus = plant_corpus(n_train=120, n_test=100)
    first, second = (
        Pamir(loss=loss, epochs=10, aggressiveness=1.0).fit(corpus.X_train, corpus.Y_train) for _ in range(2)
    )
    np.testing.assert_array_equal(first.tag_rows_, second.tag_rows_)
    assert first.history_[-1]["draws"] > 1
    ranks = rank_queries(first.decision_function(corpus.X_test), np.eye(12), corpus.Y_test.T)
    assert np.nanmean(ranks.average_precision()) > 0.6
    first.partial_fit(corpus.X_test, corpus.Y_test)


def test_unknown_losses_are_refused():
    X, Y = np.eye(4), np.eye(4)
    with refused("loss", value="p1"):
        Pamir(loss="p1").fit(X, Y)
    with pytest.raises(UserError, match="max_trials"):
        Pamir(max_trials=0).fit(X, Y)
