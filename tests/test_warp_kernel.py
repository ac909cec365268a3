"""The loops of WARP: the law of the draws, the weight of the rank, the steps, and the projection."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from reference import warp as reference
from visterm.kernels.dot import dot
from visterm.kernels.random import draw_below, stream_of
from visterm.kernels.row_moves import limit_norm, limit_norms, make_rule, mix_rows, move_rows
from visterm.kernels.rows import add_outer, dense_rows, embed, sparse_rows
from visterm.kernels.warp import (
    Draws,
    Loss,
    PairBatch,
    Pool,
    PositiveTags,
    RankLoss,
    add_tag_steps,
    draw_geometric,
    draw_violators,
    loss_and_slope,
    weigh_pairs,
)
from visterm.models.ranking.warp import Objective, rank_weights

BOTH = pytest.mark.parametrize("at_once", [True, False], ids=["all scores at once", "scores when drawn"])

N_IMAGES, N_FEATURES, N_TAGS, DIM = 20, 30, 11, 13
RATE, MAX_NORM, SEED, EPOCH = 0.1, 0.8, 5, 3


@pytest.fixture(autouse=True)
def _wrapping_integers():
    with np.errstate(over="ignore"):  # 64-bit products wrap on purpose; NumPy warns of it where Numba is switched off
        yield


@pytest.fixture
def block():
    """Images with one to four tags, weights, and all their (image, tag) pairs as one block."""
    rng = np.random.default_rng(0)
    X = (rng.random((N_IMAGES, N_FEATURES)) * (rng.random((N_IMAGES, N_FEATURES)) < 0.4)).astype(np.float32)
    own = [sorted(rng.permutation(N_TAGS)[: 1 + i % 4].tolist()) for i in range(N_IMAGES)]
    A = rng.normal(0, 0.2, (N_FEATURES, DIM)).astype(np.float32)
    V = rng.normal(0, 0.5, (N_TAGS, DIM)).astype(np.float32)
    return X, own, A, V


def _block_of(own):
    """All pairs of images and their tags as one block, and the tags of each image."""
    images = np.repeat(np.arange(len(own)), [len(tags) for tags in own])
    tags = np.concatenate(own).astype(np.int64)
    n = len(tags)
    found = np.empty((2, n), np.int64), np.empty((2, n), np.float32)
    pairs = PairBatch(np.arange(n), images, tags, np.arange(n), *found[0], *found[1])
    return pairs, PositiveTags(np.cumsum([0, *map(len, own)]), tags.astype(np.int32))


NO_SQUARES = np.empty(0, np.float32)
FOUND = ("violators", "trials", "gaps", "gains")


def _draw(own, U, V, at_once, *, max_trials=N_TAGS, epoch=EPOCH, loss=Loss.HINGE):
    """Draw and weigh a block; give the pairs, the steps of the images and the sum of the losses.

    Kernels get plain tuples, as from a training: what is compiled for that is what is tested here.
    """
    pairs, positives = map(tuple, _block_of(own))
    n = len(pairs[0])
    steps, draws = np.empty((n, V.shape[1]), np.float32), tuple(Draws(1.0, max_trials, SEED, epoch))
    if at_once:
        draw_geometric(pairs, 0, n, positives, U @ V.T, draws)
    else:
        pool = Pool(np.empty(0, np.int64), np.empty((n, 0), np.float32))
        draw_violators(pairs, 0, n, positives, dense_rows(U), V, tuple(pool), draws)
    rank_loss = RankLoss(rank_weights("harmonic", len(V)), 0, int(loss))
    total, _, _ = weigh_pairs(pairs, 0, n, positives, tuple(rank_loss), RATE, V, steps)
    return PairBatch(*pairs), steps, total


@pytest.mark.parametrize("max_trials", [1, 3, N_TAGS])
@BOTH
@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
def test_a_block_moves_the_weights_as_the_slow_algorithm_does(block, sparse, at_once, max_trials):
    X, own, A, V = block
    block_pairs, _ = _block_of(own)
    images, tags = block_pairs.images, block_pairs.tags
    triples = list(zip(range(len(tags)), images.tolist(), tags.tolist(), strict=True))
    expected_A, expected_V, expected_violators, expected_trials = reference.train_block(
        X.astype(float), own, triples, A.astype(float), V.astype(float),
        seed=SEED, epoch=EPOCH, rate=RATE, max_norm=MAX_NORM, max_trials=max_trials, counted=at_once,
    )  # fmt: skip

    csr = sp.csr_array(X)
    rows = sparse_rows(csr.data, csr.indices, csr.indptr) if sparse else dense_rows(X)
    U = np.empty((len(tags), DIM), np.float32)
    embed(rows, images, A, U)
    pairs, steps, _ = _draw(own, U, V, at_once, max_trials=max_trials)
    rule = make_rule(RATE, 0.0, MAX_NORM)
    stamps, touched = np.zeros(N_FEATURES, np.int64), np.empty(N_FEATURES, np.int64)
    for first, last in [(0, 7), (7, 7), (7, N_FEATURES)]:
        add_outer(rows, images, pairs.violators, steps, first, last, rule, NO_SQUARES, A, stamps, 1, touched)
    for first, last in [(0, 4), (4, N_TAGS)]:
        add_tag_steps(tuple(pairs), dense_rows(U), rule, NO_SQUARES, first, last, V)

    np.testing.assert_array_equal(pairs.violators, expected_violators)
    np.testing.assert_array_equal(pairs.trials, expected_trials)
    np.testing.assert_allclose(A, expected_A, atol=1e-6)
    np.testing.assert_allclose(V, expected_V, atol=1e-6)


@pytest.mark.parametrize("gap", [-40.0, -1.5, 0.0, 1.0, 2.0, 40.0])
@pytest.mark.parametrize(
    ("loss", "value", "slope"),
    [
        (Loss.HINGE, lambda gap: max(0, 1 - gap), lambda gap: float(gap < 1)),
        (Loss.LOGISTIC, lambda gap: np.logaddexp(0, -gap), lambda gap: 1 / (1 + np.exp(gap))),
    ],
)
def test_the_losses_and_their_slopes(loss, value, slope, gap):
    assert loss_and_slope(int(loss), gap) == pytest.approx((value(gap), slope(gap)))


@pytest.mark.parametrize("loss", Loss)
@pytest.mark.parametrize("max_trials", [1, 3, N_TAGS])
def test_the_kernels_take_the_steps_of_the_plain_algorithm_to_the_same_bytes(block, max_trials, loss):
    X, own, A, V = block
    plain_V, tuned_V = V.copy(), V.copy()
    rule, draws = make_rule(RATE, 0.0, MAX_NORM), Draws(1.0, max_trials, SEED, EPOCH)
    plain, positives = _block_of(own)
    U = X[plain.images] @ A
    objective = Objective(rank_weights("harmonic", N_TAGS), max_trials, loss=loss)
    steps = reference.plain_block(plain, positives, U, plain_V, objective, draws, rule)
    tuned, tuned_steps, _ = _draw(own, U, tuned_V, False, max_trials=max_trials, loss=loss)
    add_tag_steps(tuple(tuned), dense_rows(U), rule, NO_SQUARES, 0, N_TAGS, tuned_V)
    for name in ("violators", "trials", "gains"):
        assert getattr(tuned, name).tobytes() == getattr(plain, name).tobytes()
    assert (tuned_steps.tobytes(), tuned_V.tobytes()) == (steps.tobytes(), plain_V.tobytes())
    assert (plain.violators >= 0).any()
    assert not np.array_equal(plain_V, V)


@BOTH
def test_a_violator_is_drawn_uniformly_among_the_violators_and_never_among_the_own_tags(at_once):
    own = [[1, 4]]
    V = np.zeros((6, 1), np.float32)
    V[[1, 4], 0] = 2.0  # the own tags score 2, two others reach the margin, two do not
    V[[0, 5], 0] = [1.5, 1.01]
    found = np.zeros(6, int)
    for epoch in range(4000):
        pairs, *_ = _draw(own, np.ones((2, 1), np.float32), V, at_once, epoch=epoch)
        for tag in pairs.violators[pairs.violators >= 0]:
            found[tag] += 1
    assert found[[1, 2, 3, 4]].sum() == 0
    assert found[0] == pytest.approx(found[5], rel=0.06)


@BOTH
def test_the_number_of_draws_follows_the_geometric_law_cut_at_the_candidates(at_once):
    own = [[0]]
    V = np.array([[3.0], [3.0], [0.0], [0.0], [0.0]], np.float32)  # one violator among four candidates
    counts = np.zeros(6, int)
    n = 8000
    for epoch in range(n):
        pairs, *_ = _draw(own, np.ones((1, 1), np.float32), V, at_once, epoch=epoch)
        counts[pairs.trials[0] if pairs.violators[0] >= 0 else 5] += 1
    expected = n * np.array([0, 1 / 4, 3 / 16, 9 / 64, 27 / 256, 81 / 256])
    np.testing.assert_allclose(counts[1:], expected[1:], rtol=0.08)


@BOTH
def test_the_loss_is_the_hinge_times_the_weight_of_the_estimated_rank(at_once):
    V = np.array([[2.0], [1.5], [1.5], [1.5], [1.5]], np.float32)  # every candidate violates: N = 1, rank 4
    pairs, steps, loss = _draw([[0]], np.ones((1, 1), np.float32), V, at_once)
    weight = 1 + 1 / 2 + 1 / 3 + 1 / 4
    assert pairs.trials[0] == 1
    assert pairs.violators[0] > 0
    assert loss == pytest.approx(weight * 0.5, rel=1e-6)
    assert steps[0, 0] == pytest.approx(RATE * weight * 0.5, rel=1e-6)


@BOTH
def test_an_image_that_has_every_tag_draws_none_and_makes_no_step(at_once):
    V = np.zeros((3, 2), np.float32)
    pairs, steps, loss = _draw([[0, 1, 2]], np.ones((3, 2), np.float32), V, at_once)
    assert pairs.violators.tolist() == [-1, -1, -1]
    assert pairs.trials.tolist() == [0, 0, 0]
    assert loss == 0
    assert not steps.any()


@BOTH
def test_a_tag_exactly_at_the_margin_is_no_violator(at_once):
    V = np.array([[2.0], [1.0]], np.float32)
    pairs, *_ = _draw([[0]], np.ones((1, 1), np.float32), V, at_once)
    assert pairs.violators[0] == -1
    assert pairs.trials[0] == 1


def test_draws_are_those_of_the_written_formula():
    for seed, epoch, example, draw, n in [(0, 0, 0, 0, 10), (5, 3, 17, 2, 371), (2**62 - 1, 99, 10**9, 10**5, 2**31)]:
        expected = reference.draw_below(seed, epoch, example, draw, n)
        assert draw_below(np.uint64(stream_of(seed, epoch, example)), draw, n) == expected


@pytest.mark.parametrize("along", ["draw", "example", "epoch", "seed"])
def test_draws_are_uniform_and_unrelated_along_every_part_of_the_key(along):
    cells, n = 16, 16_000
    key = {"seed": 1, "epoch": 2, "example": 3, "draw": 4}
    drawn = np.empty(n, int)
    for i in range(n):
        key[along] = i
        stream = np.uint64(stream_of(key["seed"], key["epoch"], key["example"]))
        drawn[i] = draw_below(stream, key["draw"], cells)
    chi_square = lambda counts: ((counts - counts.mean()) ** 2 / counts.mean()).sum()  # noqa: E731
    assert chi_square(np.bincount(drawn, minlength=cells)) < 37.7  # 99.9 % point with 15 degrees of freedom
    pairs = np.bincount(drawn[:-1] * cells + drawn[1:], minlength=cells**2)
    assert chi_square(pairs) < 330.5  # 99.9 % point with 255 degrees of freedom


def test_dot_products_and_norm_limits_are_those_of_numpy():
    rng = np.random.default_rng(1)
    for n in (0, 1, 7, 8, 100, 101):
        a, b = rng.normal(size=(2, n)).astype(np.float32)
        assert dot(a, b) == pytest.approx(float(a @ b), abs=1e-4)
    matrix = rng.normal(size=(5, 9)).astype(np.float32)
    matrix[2] = 0.0
    expected = reference.limit_norms(matrix.astype(float), 1.5)
    change = rng.normal(size=(5, 9)).astype(np.float32)
    changed = reference.limit_norms(matrix.astype(float) + change, 1.5)
    other = matrix.copy()
    limit_norms(matrix, 1.5)
    np.testing.assert_allclose(matrix, expected, rtol=1e-5, atol=1e-7)
    move_rows(other, change, NO_SQUARES, NO_SQUARES, NO_SQUARES, make_rule(1.0, 0.0, 1.5))
    np.testing.assert_allclose(other, changed, rtol=1e-5, atol=1e-7)


def test_a_vector_within_the_limit_is_left_alone():
    vector = np.array([0.3, 0.4], np.float32)
    limit_norm(vector, 0.5001)
    np.testing.assert_array_equal(vector, np.array([0.3, 0.4], np.float32))


def test_rank_weights_are_the_harmonic_numbers():
    np.testing.assert_allclose(rank_weights("harmonic", 4), [0, 1, 3 / 2, 11 / 6, 25 / 12], rtol=1e-6)


def test_a_running_mean_moves_by_its_share_and_tells_of_numbers_that_are_not_finite():
    mean, current = np.zeros((3, 2), np.float32), np.full((3, 2), 4, np.float32)
    assert mix_rows(mean, current, 0.25, 1, 3)
    np.testing.assert_array_equal(mean, [[0, 0], [1, 1], [1, 1]])
    current[2, 1] = np.inf
    with np.errstate(invalid="ignore"):  # where Numba is switched off
        assert not mix_rows(mean, current, 0.25, 2, 3)
