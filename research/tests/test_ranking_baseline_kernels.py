"""The loops of exact ranks and of pairs of tags in small cases, worked out by hand and by their slow twin."""

from __future__ import annotations

import numpy as np
import pytest

from reference import ranking as reference
from visterm.kernels.rows import dense_rows
from visterm.kernels.warp import PairBatch
from visterm.models.ranking.warp import rank_weights
from visterm_research.kernels.owpc import weigh_all
from visterm_research.kernels.separate_tags import separate_tags
from visterm_research.kernels.tag_pairs import rank_in_turn


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


def test_the_factors_of_all_violators_are_those_of_eq_6():
    scores = np.array([[2.0, 1.5, 0.9, 1.2, 3.0], [5.0, 0, 0, 0, 0]], np.float32)
    expected = [reference.owpc_factors(scores[0], 0, {0, 4}), reference.owpc_factors(scores[1], 0, {0})]
    pairs = _block_of(_ints(0, 1), _ints(0, 0))
    positives = _ints(0, 2, 3), _tags(0, 4, 0)
    total, n_trials, n_steps = weigh_all(tuple(pairs), 0, 2, positives, rank_weights("harmonic", 5), scores)
    np.testing.assert_allclose(scores[0], [1.5, -0.75, 0, -0.75, 0])  # tags 1 and 3 violate: L(2) / 2 = 0.75 each
    assert total == pytest.approx(0.75 * (0.5 + 0.2), rel=1e-6)
    assert (pairs.violators.tolist(), pairs.trials.tolist(), n_trials, n_steps) == ([2, -1], [3, 4], 7, 1)
    for row, (factors, _) in zip(scores, expected, strict=True):
        np.testing.assert_allclose(row, factors, atol=1e-6)
    assert total == pytest.approx(sum(loss for _, loss in expected), rel=1e-6)


@pytest.mark.parametrize(("aggressiveness", "step"), [(10.0, 0.1), (0.02, 0.02)])
def test_a_passive_aggressive_ranking_step_goes_just_far_enough_or_as_far_as_it_may(aggressiveness, step):
    rows = dense_rows(np.array([[1, 2]], np.float32))  # |x|² = 5, loss 1 at the start: τ = 1 / (2 · 5)
    W = np.zeros((2, 2), np.float32)
    one = _ints(0), _ints(0), _ints(1), _ints(0, 1), _tags(1), rows, np.array([5], np.float32), aggressiveness, 0, 0
    total, n_trials, n_steps = rank_in_turn(*one, W)
    assert (total, n_trials, n_steps) == (1, 1, 1)
    np.testing.assert_allclose(W, [[-step, -2 * step], [step, 2 * step]], rtol=1e-6)
    if aggressiveness > 1:
        assert rank_in_turn(*one, W)[0] == pytest.approx(0, abs=1e-6)


def test_a_tag_is_separated_from_images_without_it_by_the_smallest_steps():
    rows = dense_rows(np.array([[1, 0], [0, 2]], np.float32))
    W, sums = np.zeros((3, 2), np.float32), np.empty((3, 3))
    separate_tags(
        0, 3, _ints(0, 1, 1, 3), _tags(0, 0, 1), rows, np.array([1, 4], np.float32), np.array([0, 0.5], np.float32), 1,
        10.0, 0, 0, W, sums,
    )  # fmt: skip
    np.testing.assert_allclose(W[0], [1, -0.25])  # image 0 has to score 1, image 1 at most 1 below its offset of 0.5
    np.testing.assert_allclose(W[2], [1, 0.75])  # all images have tag 2: no negatives
    assert sums[0].tolist() == [1.5, 2, 2]
    assert sums[1, 1] == 1  # no image has tag 1: one drawn image is pushed below
    assert W[1].min() < 0


def test_while_a_tag_is_separated_other_tags_stay():
    rows = dense_rows(np.array([[3, 4], [1, 0]], np.float32))
    W, sums = np.ones((2, 2), np.float32), np.empty((2, 3))
    separate_tags(
        1, 2, _ints(0, 1, 2), _tags(0, 0), rows, np.array([25, 1], np.float32), np.array([9, 0], np.float32), 1, 10.0,
        0, 0, W, sums,
    )  # fmt: skip
    np.testing.assert_array_equal(W[0], [1, 1])
    assert (W[1] != 1).any()
