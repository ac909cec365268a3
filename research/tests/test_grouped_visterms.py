"""Words in groups: all of the nearest where all groups are read, and the same whatever other points are beside."""

from __future__ import annotations

import numpy as np
import pytest

from reference.blocks import nearest_words as slow_nearest_words
from refusals import refused
from visterm.encoders.visterms import Visterms
from visterm_research.encoders.grouped_visterms import GroupedVisterms
from visterm_research.kernels.word_groups import LANES, nearest_in_groups, prepare_groups, score_block


def drawn(n_words, n_points, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(-4, 5, (n_words, 5)).astype(np.float32), rng.integers(-4, 5, (n_points, 5)).astype(np.float32)


@pytest.mark.parametrize(("n_words", "n_groups", "n_points"), [(1, 1, 3), (16, 1, 5), (17, 3, 4), (200, 7, 41)])
def test_where_all_groups_are_read_the_nearest_words_are_those_of_all_distances(n_words, n_groups, n_points):
    codebook, points = drawn(n_words, n_points)
    groups = np.arange(n_words) % n_groups
    n_nearest = min(4, n_words)
    words, scores = nearest_in_groups(points, prepare_groups(codebook, groups, n_groups), n_groups, n_nearest)
    np.testing.assert_array_equal(words, slow_nearest_words(points, codebook, n_nearest))
    best = codebook[words]
    expected = np.einsum("if,ijf->ij", points, best) - np.square(best).sum(axis=2) / 2
    np.testing.assert_allclose(scores, expected)


def test_only_words_of_the_nearest_groups_are_found():
    codebook = np.array([[0, 0], [0, 1], [10, 0], [10, 1], [0, 10]], np.float32)
    book = prepare_groups(codebook, np.array([0, 0, 1, 1, 2]), 3)
    words, scores = nearest_in_groups(np.array([[0, 2], [9, 9]], np.float32), book, 1, 3)
    np.testing.assert_array_equal(words[0], [1, 0, 0])
    assert scores[0, 2] <= -1e29  # there is no third word in the group
    assert set(words[1, :2].tolist()) <= {2, 3} or words[1, 0] == 4


def test_a_point_gets_the_same_words_whatever_points_are_beside_it():
    codebook, points = drawn(300, 50, seed=3)
    book = prepare_groups(codebook, np.arange(300) // 20, 15)
    words, scores = nearest_in_groups(points, book, 4, 3)
    alone = [nearest_in_groups(points[i : i + 1], book, 4, 3) for i in range(50)]
    np.testing.assert_array_equal(words, np.concatenate([each[0] for each in alone]))
    np.testing.assert_array_equal(scores, np.concatenate([each[1] for each in alone]))


def test_scores_are_the_same_bytes_without_compiling():
    rng = np.random.default_rng(0)
    points, block = rng.standard_normal((9, 31), np.float32), rng.standard_normal((32, LANES), np.float32)
    at, worst = np.array([8, 0, 3, 3]), np.array([0, 1e9, 0, -1e9], np.float32)
    found, hits = np.empty((4, LANES), np.float32), np.empty(4, np.int64)
    score_block(points, at, block, worst, found, hits)
    slow = np.repeat(block[-1:], 4, axis=0)
    for feature in range(31):
        slow += points[at, feature, None] * block[feature]
    np.testing.assert_array_equal(found, slow)
    np.testing.assert_array_equal(hits != 0, (slow >= worst[:, None]).any(axis=1))


@pytest.fixture(scope="module")
def pictures():
    return list(np.random.default_rng(0).integers(0, 256, (30, 48, 64, 3)).astype(np.uint8))


def test_few_groups_are_enough_for_nearly_the_same_rows(pictures):
    settings = {"colours": 8, "codebook": 150, "sample_blocks": 3000}
    exact = Visterms(**settings).fit_transform(pictures)
    some = GroupedVisterms(**settings, nearest_groups=3)
    rows = some.fit_transform(pictures)
    cosines = exact.multiply(rows).sum(axis=1)
    assert 0.8 < cosines.mean() < 1 - 1e-6
    alone = some.transform(pictures[4:5])
    np.testing.assert_array_equal(alone.toarray(), rows[[4]].toarray())
    every = GroupedVisterms(**settings, nearest_groups=1000).fit(pictures)
    np.testing.assert_array_equal(every.transform(pictures).toarray(), exact.toarray())


def test_rows_by_groups_have_a_fingerprint_of_their_own():
    fingerprints = {e.fingerprint for e in (GroupedVisterms(), GroupedVisterms(nearest_groups=5), Visterms())}
    assert len(fingerprints) == 3


def test_a_number_of_groups_is_checked():
    with refused("nearest_groups", value=0):
        GroupedVisterms(nearest_groups=0).check_settings()
