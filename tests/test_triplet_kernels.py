"""The loops of PAMIR: the law of the draws, the step by hand, a slow twin, and what makes no step."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import scipy.sparse as sp

from reference import pamir as reference
from visterm.kernels.passive_aggressive import draw_triplet
from visterm.kernels.random import stream_of
from visterm.kernels.sorted_lists import intersect_lists
from visterm.models.pamir.pamir import TripletTraining

FORMS = pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])


@pytest.fixture(autouse=True)
def _wrapping_integers():
    with np.errstate(over="ignore"):  # 64-bit products wrap on purpose; NumPy warns of it where Numba is switched off
        yield


def csr(rows):
    return sp.csr_array(np.asarray(rows, np.float32))


@pytest.fixture
def problem():
    """Sparse images, queries of one to three words, and random relevant images of each."""
    rng = np.random.default_rng(0)
    X = (rng.random((30, 25)) * (rng.random((30, 25)) < 0.4)).astype(np.float32)
    Q = (rng.random((12, 7)) * (rng.random((12, 7)) < 0.3)).astype(np.float32)
    Q[np.arange(12), np.arange(12) % 7] = 1
    R = (rng.random((12, 30)) < 0.2).astype(np.float32)
    R[:, 3] = 1
    return X, csr(Q), csr(R)


def train(X, Q, R, n_steps, c, seed=1):
    W = np.zeros((Q.shape[1], X.shape[1]), np.float32)
    training = TripletTraining(X, Q, R, W, rng=np.random.default_rng(seed))
    return W, training, training.run(n_steps, c)


def test_the_query_is_drawn_first_then_a_relevant_image_then_another_each_uniformly():
    r_start, r_images = np.array([0, 1, 3]), np.array([2, 0, 3], np.int32)
    stream = np.uint64(stream_of(4, 0, 0))
    drawn = Counter(draw_triplet(stream, step, r_start, r_images, 4) for step in range(12_000))
    expected = {(0, 2, minus): 1 / 6 for minus in (0, 1, 3)}
    expected |= {(1, plus, minus): 1 / 8 for plus in (0, 3) for minus in (1, 2)}
    assert drawn.keys() == expected.keys()
    for triplet, chance in expected.items():
        assert drawn[triplet] / 12_000 == pytest.approx(chance, abs=0.015)


@FORMS
def test_one_step_goes_just_as_far_as_the_margin_wants(form):
    X, Q, R = form(np.array([[2, 0], [0, 1]], np.float32)), csr([[0.6, 0, 0.8]]), csr([[1, 0]])
    W, _, (loss, n_moved) = train(X, Q, R, 1, c=10.0)
    assert (loss, n_moved) == (1.0, 1)
    step = 1 / 5  # the loss is 1, |q|² is 1, |p+ - p-|² is 5
    np.testing.assert_allclose(W, step * np.outer([0.6, 0, 0.8], [2, -1]), rtol=1e-6)
    assert np.dot([0.6, 0, 0.8], W @ [2, -1]) == pytest.approx(1.0)


@FORMS
def test_no_step_is_longer_than_the_aggressiveness(form):
    X, Q, R = form(np.array([[2, 0], [0, 1]], np.float32)), csr([[0.6, 0.8]]), csr([[1, 0]])
    W, _, _ = train(X, Q, R, 1, c=0.05)
    np.testing.assert_allclose(W, 0.05 * np.outer([0.6, 0.8], [2, -1]), rtol=1e-6)


@FORMS
@pytest.mark.parametrize("c", [0.02, 5.0])
def test_training_is_that_of_the_slow_twin(form, c, problem):
    X, Q, R = problem
    W, training, (loss, n_moved) = train(form(X), Q, R, 600, c)
    relevant = [images for images, _ in reference.slices(R)]
    triplets = reference.drawn_triplets(relevant, len(X), 600, training._seed, 0)
    expected = np.zeros(W.shape)
    losses = reference.train(triplets, reference.slices(Q), reference.slices(csr(X)), c, expected)
    np.testing.assert_allclose(W, expected, rtol=2e-4, atol=2e-5)
    assert loss == pytest.approx(sum(losses), rel=1e-4)
    assert n_moved == np.count_nonzero(losses)


def test_an_epoch_is_a_triplet_for_each_query_and_image_relevant_to_it_drawn_anew(problem):
    X, Q, R = problem
    W = np.zeros((Q.shape[1], X.shape[1]), np.float32)
    training = TripletTraining(X, Q, R, W, rng=np.random.default_rng(1))
    assert training.n_pairs == R.nnz
    first = training.run_epoch(0.1)
    assert first.draws == 1
    assert 0 < first.violated <= 1
    after_one = W.copy()
    assert training.run_epoch(0.1).loss < first.loss
    assert (after_one != W).any()


def test_a_sparse_row_without_gaps_is_taken_as_any_other():
    rng = np.random.default_rng(2)
    X = rng.random((6, 5)).astype(np.float32)
    X[3:, 1] = 0
    Q, R = csr(np.eye(2)), csr([[1, 0, 0, 1, 0, 0], [0, 1, 0, 0, 1, 0]])
    dense, sparse = (train(form(X), Q, R, 200, 0.3)[0] for form in (np.asarray, sp.csr_array))
    np.testing.assert_allclose(dense, sparse, rtol=1e-4, atol=1e-5)


@FORMS
def test_images_that_are_alike_make_no_step_and_no_infinity(form):
    X = form(np.array([[0.3, 0, 0.7], [0.3, 0, 0.7]], np.float32))
    W, _, (loss, n_moved) = train(X, csr([[1.0]]), csr([[1, 0]]), 5, c=1.0)
    assert (loss, n_moved) == (5.0, 0)
    assert not W.any()


def test_queries_that_order_nothing_are_left_out(problem):
    X, Q, R = problem
    none, every, wordless = np.zeros(30), np.ones(30), R.toarray()[0]
    Q_more = csr(np.vstack([Q.toarray(), np.eye(7)[:2], np.zeros(7)]))
    R_more = csr(np.vstack([R.toarray(), none, every, wordless]))
    np.testing.assert_array_equal(train(X, Q_more, R_more, 300, 0.1)[0], train(X, Q, R, 300, 0.1)[0])
    W, training, sums = train(X, Q_more[-1:], R_more[-1:], 300, 0.1)
    assert (training.n_pairs, sums) == (0, (0.0, 0))
    assert not W.any()


def test_lists_meet_in_what_all_of_them_have():
    lists = [[1, 2, 5, 7], [2, 7, 8], [0, 2, 3, 4, 5, 7], []]
    start, members = np.cumsum([0, *map(len, lists)]), np.array([m for one in lists for m in one], np.int32)
    wanted = [[0, 1], [2], [], [0, 3], [0, 1, 2], [1, 1]]
    wanted_start = np.cumsum([0, *map(len, wanted)])
    which = np.array([t for one in wanted for t in one], np.int32)
    counts = np.zeros(len(wanted), np.int64)
    intersect_lists(start, members, wanted_start, which, counts, np.empty(0, np.int64), np.empty(0, np.int32))
    assert counts.tolist() == [2, 6, 0, 0, 2, 3]
    out_start, out = np.cumsum([0, *counts]), np.empty(counts.sum(), np.int32)
    intersect_lists(start, members, wanted_start, which, counts, out_start, out)
    assert [part.tolist() for part in np.split(out, out_start[1:-1])] == [[2, 7], lists[2], [], [], [2, 7], lists[1]]
