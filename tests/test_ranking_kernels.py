"""The other loops of the ranking family: their laws, and their steps by hand and against the slow twins."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from reference import ranking as reference
from refusals import refused
from visterm.kernels.dot import prefetch_row
from visterm.kernels.random import draw_many, draw_unit, stream_of
from visterm.kernels.row_moves import make_rule
from visterm.kernels.rows import add_outer, add_row, dense_rows, row_dot, row_squares, sparse_rows
from visterm.kernels.sorted_lists import contains, fill_buckets, nth_absent, nth_absent_near
from visterm.kernels.warp import (
    Draws,
    PairBatch,
    Pool,
    PositiveTags,
    RankLoss,
    SortedTags,
    add_tag_steps,
    draw_adaptive,
    draw_dimension,
    draw_rank,
    draw_violators,
    sort_tags,
    weigh_pairs,
)
from visterm.models.epochs import rate_factor
from visterm.models.ranking.image_sides import EmbeddedImages, StepSettings
from visterm.models.ranking.warp import interleave, rank_weights
from visterm.models.ranking.wsabie import Wsabie


@pytest.fixture(autouse=True)
def _wrapping_integers():
    with np.errstate(over="ignore"):  # 64-bit products wrap on purpose; NumPy warns of it where Numba is switched off
        yield


def _ints(*values):
    return np.array(values, np.int64)


def _tags(*values):
    """Tags of images, in the integers that a training has them in."""
    return np.array(values, np.int32)


def _block_of(images, tags):
    """Pairs of images and tags as a block of which nothing is known yet; kernels get it as a plain tuple."""
    n = len(tags)
    found = np.empty((2, n), np.int64), np.empty((2, n), np.float32)
    return PairBatch(np.arange(n), images, tags, np.arange(n), *found[0], *found[1])


def _sparse(X):
    csr = sp.csr_array(X)
    return sparse_rows(csr.data, csr.indices, csr.indptr)


def test_a_sorted_list_counts_the_numbers_that_are_not_in_it():
    own = _ints(9, 1, 4, 5, 9)
    assert [nth_absent(own, 1, 4, r) for r in range(5)] == [0, 2, 3, 6, 7]
    assert [number for number in range(8) if contains(own, 1, 4, number)] == [1, 4, 5]


@pytest.mark.parametrize(("n_numbers", "n_buckets"), [(0, 4), (1, 1), (30, 8), (100, 16), (199, 16)])
def test_buckets_lead_to_the_same_missing_numbers(n_numbers, n_buckets):
    numbers = np.sort(np.random.default_rng(n_numbers).permutation(200)[:n_numbers]).astype(np.int32)
    n_absent, buckets = 200 - n_numbers, np.empty(n_buckets, np.int64)
    shift = fill_buckets(numbers, 0, n_numbers, n_absent, buckets)
    near = [nth_absent_near(numbers, 0, n_numbers, r, buckets[r >> shift]) for r in range(n_absent)]
    assert near == np.setdiff1d(np.arange(200), numbers).tolist()


@pytest.mark.parametrize(("gap", "loss", "gain"), [(0.25, 0.75, 1.0), (1.0, 0.0, 0.0), (-2.0, 3.0, 1.0)])
def test_the_loss_is_the_hinge_of_the_gap_and_without_it_no_step_is_made(gap, loss, gain):
    pairs = _block_of(_ints(0), _ints(0))._replace(
        violators=_ints(1), trials=_ints(1), gaps=np.array([gap], np.float32)
    )
    V, steps = np.array([[3.0], [1.0]], np.float32), np.ones((1, 1), np.float32)
    ones = np.ones(3, np.float32)
    found = weigh_pairs(tuple(pairs), 0, 1, (_ints(0, 1), _tags(0)), tuple(RankLoss(ones, 0)), 0.5, V, steps)
    assert found == (loss, 1, gain)
    assert (pairs.gains[0], steps[0, 0], pairs.violators[0]) == (gain, gain, 1 if gain else -1)


@pytest.mark.parametrize(
    ("weight", "expected"),
    [
        ("constant", [0, 0.25, 0.5, 0.75, 1]),
        ("top", [0, 1, 1, 1, 1]),
        ("harmonic", [0, 1, 3 / 2, 11 / 6, 25 / 12]),
        ("truncated", [0, 1, 3 / 2, 3 / 2, 3 / 2]),
    ],
)
def test_the_weights_of_the_ranks(weight, expected):
    np.testing.assert_allclose(rank_weights(weight, 4, truncate=2), expected, rtol=1e-6)


def test_schedules_start_at_one_and_unknown_ones_are_refused():
    assert [rate_factor("constant", epoch, 10) for epoch in (1, 10)] == [1, 1]
    assert [rate_factor("inverse", epoch, 10) for epoch in (1, 2, 4)] == [1, 0.5, 0.25]
    assert rate_factor("cosine", 1, 10) == 1
    assert rate_factor("cosine", 6, 10) == pytest.approx(0.5)
    with refused("schedule", value="step"):
        Wsabie(schedule="step").fit(np.eye(4, dtype=np.float32), np.eye(4))
    with refused("weight", value="flat"):
        Wsabie(weight="flat").fit(np.eye(4, dtype=np.float32), np.eye(4))


def test_rows_with_gaps_and_without_multiply_and_add_alike():
    X = np.array([[0, 2, 0, 1], [1, 2, 3, 4]], np.float32)
    weights = np.array([1, 10, 100, 1000], np.float32)
    for rows in (dense_rows(X), _sparse(X)):
        assert [row_dot(rows, i, weights) for i in (0, 1)] == [1020, 4321]
        target = np.ones(4, np.float32)
        add_row(rows, 0, np.float32(3), target)
        np.testing.assert_array_equal(target, [1, 7, 1, 4])
        squares = np.empty(2, np.float32)
        row_squares(rows, squares)
        np.testing.assert_array_equal(squares, [5, 30])


@pytest.mark.parametrize("scale", [0.05, 1.5, 40.0])
def test_ranks_follow_the_cut_exponential_law(scale):
    n, n_draws = 8, 20_000
    stream = np.uint64(stream_of(1, 0, 0))
    found = np.bincount([draw_rank(draw_unit(stream, d), scale, n) for d in range(n_draws)], minlength=n)
    expected = np.exp(-np.arange(n) / scale)
    expected *= n_draws / expected.sum()
    assert len(found) == n
    assert (np.abs(found - expected) < 4 * np.sqrt(expected) + 1).all()


def test_dimensions_follow_size_times_deviation_and_are_uniform_where_all_is_zero():
    u, sigmas = np.array([1, 0, -3, 2], np.float32), np.array([2.0, 5.0, 1.0, 0.0])
    stream, n_draws = np.uint64(stream_of(2, 0, 0)), 20_000
    units = [draw_unit(stream, d) for d in range(n_draws)]
    found = np.bincount([draw_dimension(unit, u, sigmas) for unit in units], minlength=4) / n_draws
    np.testing.assert_allclose(found, [0.4, 0, 0.6, 0], atol=0.015)
    found = np.bincount([draw_dimension(unit, u, np.zeros(4)) for unit in units], minlength=4) / n_draws
    np.testing.assert_allclose(found, np.full(4, 0.25), atol=0.015)


def _draw_adaptive(pairs, positives, U, V, lists, draws):
    draw_adaptive(tuple(pairs), 0, len(U), tuple(positives), U, V, tuple(lists), tuple(draws))


def test_adaptive_draws_follow_the_papers_mixture_without_the_tags_that_the_image_has():
    rng = np.random.default_rng(0)
    V, u = rng.normal(size=(9, 4)).astype(np.float32), rng.normal(size=4).astype(np.float32)
    lists = SortedTags(np.empty((4, 9), np.int64), np.empty(4), 2.0)
    sort_tags(V, 0, 4, lists)
    np.testing.assert_array_equal(lists.order, np.argsort(-V, axis=0, kind="stable").T)
    np.testing.assert_allclose(lists.sigmas, V.astype(float).std(axis=0), rtol=1e-6)
    n = 20_000
    zeros = np.zeros(n, np.int64)
    pairs = _block_of(zeros, zeros + 3)
    positives = PositiveTags(_ints(0, 2), _tags(3, 5))
    _draw_adaptive(pairs, positives, np.tile(u, (n, 1)), V, lists, Draws(np.inf, 100, 5, 0))
    law = reference.adaptive_law(u.astype(float), V.astype(float), 2.0)
    owned = law[[3, 5]].sum()
    law[[3, 5]] = 0
    np.testing.assert_allclose(np.bincount(pairs.violators, minlength=9) / n, law / law.sum(), atol=0.015)
    assert pairs.trials.mean() == pytest.approx(1 / (1 - owned), rel=0.02)
    np.testing.assert_allclose(pairs.gaps, (V @ u)[3] - (V @ u)[pairs.violators], atol=1e-5)


def test_an_adaptive_draw_that_finds_only_own_tags_becomes_uniform_and_none_is_drawn_where_none_is_left():
    V = np.array([[3.0], [2.0], [1.0], [0.0]], np.float32)
    lists = SortedTags(np.empty((1, 4), np.int64), np.empty(1), 1e-3)
    sort_tags(V, 0, 1, lists)
    n = 2000
    pairs = _block_of(np.repeat([0, 1], n // 2), np.zeros(n, np.int64))
    positives = PositiveTags(_ints(0, 2, 6), _tags(0, 1, 0, 1, 2, 3))
    _draw_adaptive(pairs, positives, np.ones((n, 1), np.float32), V, lists, Draws(np.inf, 7, 1, 0))
    drawn = pairs.violators
    assert (pairs.trials[: n // 2] == 8).all()
    np.testing.assert_allclose(np.bincount(drawn[: n // 2], minlength=4) / (n // 2), [0, 0, 0.5, 0.5], atol=0.06)
    assert (drawn[n // 2 :] == -1).all()


@pytest.mark.parametrize("adagrad", [True, False], ids=["adagrad", "sgd"])
@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_rows_of_features_and_tags_move_as_the_slow_rule_does(adagrad, l2):
    rng = np.random.default_rng(4)
    n, d, dim, n_tags, rate, max_norm = 12, 7, 5, 4, 0.2, 0.9
    X = (rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.5)).astype(np.float32)
    gradients = rng.normal(size=(n, dim)).astype(np.float32)
    active = np.where(rng.random(n) < 0.7, 1, -1)
    gradients[active < 0] = 0
    start = rng.normal(0, 0.3, (d, dim)).astype(np.float32)
    rule, seen = make_rule(rate, l2, max_norm), np.full(d if adagrad else 0, 1.5, np.float32)
    settings = {"rate": rate, "l2": l2, "max_norm": max_norm, "adagrad": adagrad}
    expected = np.empty((d, dim))
    for j in range(d):
        terms = [X[p, j] * gradients[p].astype(float) for p in range(n) if active[p] > 0 and X[p, j]]
        expected[j], _ = reference.block_sum(start[j], 1.5, terms, **settings)
    sparse_map, dense_map = start.copy(), start.copy()
    steps = gradients * np.float32(rate)
    squares = seen.copy()
    add_outer(
        _sparse(X), np.arange(n), active, steps, 0, d, rule, squares, sparse_map, np.zeros(d, np.int64), 1,
        np.empty(d, np.int64),
    )  # fmt: skip
    side = EmbeddedImages(X, dense_map, StepSettings(n, max_norm, l2, adagrad), scale=1.0, n_jobs=1)
    side.squares[:], side.steps[:] = seen, steps
    side.set_rate(rate)
    side.take(np.arange(n))
    side.move(0, active)
    np.testing.assert_allclose(sparse_map, expected, atol=1e-5)
    np.testing.assert_allclose(dense_map, expected, atol=1e-5)

    tags, others = rng.integers(0, 2, n), np.where(active > 0, rng.integers(2, n_tags, n), -1)
    gains, U, V = rng.random(n).astype(np.float32), rng.normal(size=(n, dim)).astype(np.float32), start[:n_tags].copy()
    squares = np.full(n_tags if adagrad else 0, 1.5, np.float32)
    moved = np.empty((n_tags, dim))
    for t in range(n_tags):
        terms = [gains[p] * U[p].astype(float) for p in range(n) if others[p] >= 0 and tags[p] == t]
        terms += [-gains[p] * U[p].astype(float) for p in range(n) if others[p] == t]
        moved[t], _ = reference.block_sum(V[t], 1.5, terms, **settings)
    pairs = _block_of(tags, tags)._replace(violators=others, gains=gains)
    for first, last in ((0, 1), (1, n_tags)):
        add_tag_steps(tuple(pairs), dense_rows(U), rule, squares, first, last, V)
    np.testing.assert_allclose(V, moved, atol=1e-5)


def test_draws_from_a_pool_follow_the_law_of_draws_one_by_one():
    positives = _ints(0, 2), _tags(1, 4)
    V = np.array([[1.5], [2], [0], [0], [2], [1.2], [0], [0]], np.float32)  # of six candidates 0 and 5 violate
    found, counts, n = np.zeros(8, int), np.zeros(7, int), 6000
    for epoch in range(n):
        pool = np.empty(3, np.int64)  # shorter than the draws that may be needed
        draw_many(3, epoch, 99, 8, pool)
        u = np.ones((1, 1), np.float32)
        pairs = _block_of(_ints(0), _ints(1))
        shared = tuple(Pool(pool, u @ V[pool].T))
        draw_violators(tuple(pairs), 0, 1, positives, dense_rows(u), V, shared, tuple(Draws(1.0, 6, 3, epoch)))
        if pairs.violators[0] >= 0:
            found[pairs.violators[0]] += 1
            assert pairs.gaps[0] == pytest.approx(2 - V[pairs.violators[0], 0])
            counts[pairs.trials[0]] += 1
        else:
            assert pairs.trials[0] == 6
    assert found[[1, 2, 3, 4, 6, 7]].sum() == 0
    assert found[0] == pytest.approx(found[5], rel=0.08)
    expected = n * (1 / 3) * (2 / 3) ** np.arange(6)
    assert (np.abs(counts[1:] - expected) < 4 * np.sqrt(expected)).all()


@pytest.mark.parametrize(("first", "second"), [(2, 2), (1, 4), (10, 3), (0, 2), (16, 16)])
def test_either_half_of_the_shares_has_half_of_both_sides(first, second):
    """Two threads take shares from the two ends, so that neither moves all images while the other moves all tags."""
    order = interleave(first, second)
    assert sorted(order) == list(range(first + second))
    half = order[: len(order) // 2]
    assert abs(sum(share < first for share in half) - first / 2) <= 1


@pytest.mark.parametrize("width", [1, 15, 16, 100, 1000])
def test_asking_for_a_row_changes_nothing(width):
    rows = np.arange(3 * width, dtype=np.float32).reshape(3, width)
    before = rows.copy()
    for row in (0, np.int32(2), np.int64(2)):
        prefetch_row(rows, row)
    assert np.array_equal(rows, before)
