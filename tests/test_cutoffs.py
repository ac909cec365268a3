"""Cut-offs for a wanted precision and for the best F1, and confidences that are bent until they hold."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit, logit

from visterm.models.confidence.calibration import Bend, Calibration, HeldOutChances, doubted
from visterm.models.confidence.cutoffs import cutoff_for_precision, cutoff_of_best_f1, expected_cuts
from visterm.models.confidence.fit_calibration import fit_bend, fit_calibration


def kept(chances, right=None, counts=None):
    chances = np.asarray(chances, np.float64)
    given = np.zeros(chances.shape, bool) if right is None else np.asarray(right, bool)
    return HeldOutChances.of(chances, given, np.full(chances.shape[1], 50) if counts is None else np.asarray(counts))


def test_the_chances_of_each_tag_are_kept_largest_first_and_small_ones_are_not():
    held = kept([[0.5, 0.01], [0.9, 0.3], [0.02, 0.001]], [[1, 0], [0, 1], [0, 1]], [3, 100])
    assert held.starts.tolist() == [0, 3, 4]
    np.testing.assert_allclose(held.chances, [0.9, 0.5, 0.02, 0.3], rtol=1e-6)
    assert held.right.tolist() == [False, True, False, True]
    assert held.tags.tolist() == [0, 0, 0, 1]
    assert held.groups.tolist() == [0, 1]  # 1 to 4, and 100 or more training images
    assert held.n_given == 3


def test_a_tag_is_given_down_to_where_its_expected_precision_is_as_wanted_with_one_more_entry_there():
    held = kept([[0.95, 0.6], [0.9, 0.5], [0.8, 0.4], [0.3, 0.1]])
    # (0.95 + 0.9 + 0.8 + 0.8) / 4 = 0.8625, and (0.95 + 0.9 + 0.8 + 0.3 + 0.3) / 5 = 0.65
    assert expected_cuts(held, 0.86).tolist() == pytest.approx([0.8, 0.86])
    assert expected_cuts(held, 0.65).tolist() == pytest.approx([0.3, 0.65])
    assert expected_cuts(held, 0.47).tolist() == pytest.approx([0.3, 0.4])  # (0.6 + 0.5 + 0.4 + 0.4) / 4 = 0.475


def column(*runs):
    """Make the chances of one tag, and what is right: of each run its chance, how many entries, how many right."""
    chances = np.concatenate([np.full(n, chance) for chance, n, _ in runs])
    return chances, np.concatenate([np.arange(n) < n_right for _, n, n_right in runs])


def test_where_less_is_right_than_expected_a_group_of_tags_is_given_less_and_others_are_left_alone():
    bad, right = column((0.955, 100, 80), (0.4, 200, 0))
    good, as_expected = column((0.955, 100, 95), (0.4, 200, 80))
    held = kept(np.stack([bad, good], 1), np.stack([right, as_expected], 1), [3, 100])
    # Down to 0.4 both are expected to be right in 175.5 of 300; of the first 80 of 300 are, above it 80 of 100.
    assert cutoff_for_precision(held, 0.5).least.tolist() == pytest.approx([0.95, 0.4])
    same = kept(np.stack([bad, good], 1), np.stack([right, as_expected], 1), [100, 100])
    # Together: 255 of 600 right, less than half; 175 of 200 above.
    assert cutoff_for_precision(same, 0.5).least.tolist() == pytest.approx([0.95, 0.95])


def test_few_held_out_images_change_little_and_tags_that_never_are_right_are_never_given():
    few, wrong = column((0.91, 2, 0))
    held = kept(few[:, None], wrong[:, None])
    assert cutoff_for_precision(held, 0.8).least.tolist() == pytest.approx([0.92])
    # 2 · 0.91 promised and none right, so 20 / 21.8 of what is expected: (0 + 20 · 0.91 · 20 / 21.8) / 22 = 0.76 down
    # to 0.91, and above, where there are no entries, 0.92 · 20 / 21.8 = 0.84.
    assert cutoff_for_precision(held, 0.7).least.tolist() == pytest.approx([0.7])  # 0.76 is enough
    many, wrong = column((0.999, 100, 0))
    assert np.isinf(cutoff_for_precision(kept(many[:, None], wrong[:, None]), 0.5).least).all()


def test_the_best_f1_gives_each_tag_down_to_the_same_share_of_its_own_chances():
    often, rare = [0.9] * 8 + [0.8, 0.3], [0.3] + [0.2] + [0.03] * 8
    held = kept(np.stack([often, rare], 1), np.stack([[1] * 9 + [0], [1, 1] + [0] * 8], 1))
    # Σ p² / Σ p is 7.21 / 8.3 = 0.869 and 0.1372 / 0.74 = 0.185. From a share of 0.3 / 0.869 = 0.345 on only what is
    # right is given, and the first of these shares counts.
    assert cutoff_of_best_f1(held).least.tolist() == pytest.approx([0.35 * 0.8687, 0.35 * 0.1854], rel=1e-3)
    assert np.isinf(cutoff_of_best_f1(kept([[0.01]])).least).all()


def test_a_bend_finds_how_much_less_is_right_and_leaves_alone_what_holds():
    rng = np.random.default_rng(0)
    odds = rng.normal(0, 2, 40_000)
    true = logit(0.9 * expit(odds))  # of what is sure, a tenth is not right
    bend = fit_bend(odds, rng.random(odds.size) < expit(true), rng)
    np.testing.assert_allclose(expit(bend([-2.0, 0.0, 2.0, 4.0])), 0.9 * expit([-2.0, 0.0, 2.0, 4.0]), atol=0.03)
    assert (np.diff(bend(np.linspace(-20, 20, 99))) > 0).all()
    kept_as_is = fit_bend(odds, rng.random(odds.size) < expit(odds), rng)
    np.testing.assert_allclose(kept_as_is, Bend(), atol=0.08)
    one = fit_bend(np.array([3.0]), np.array([False]), rng)
    assert 0 < 3 - float(one(3.0)) < 1.5
    assert Bend()(1.25) == 1.25


def library(n, rng, n_tags=40):
    """Draw scores and tags, of which one of seven is left out by the people who tag, however sure it looks."""
    offsets = np.linspace(-1, -6, n_tags)
    scores = rng.normal(0, 1.5, (n, n_tags)).astype(np.float32)
    given = rng.random(scores.shape) < 6 / 7 * expit(3 * scores + offsets)
    return scores, sp.csr_array(given.astype(np.float32))


@pytest.fixture(scope="module")
def calibrated():
    rng = np.random.default_rng(3)
    return fit_calibration(*library(700, rng), library(1500, rng)[1]), *library(4000, rng)


@pytest.mark.parametrize("wanted", [0.5, 0.7, 0.8])
def test_the_wanted_precision_is_reached_on_new_images_by_frequent_and_by_rare_tags(calibrated, wanted):
    calibration, scores, Y = calibrated
    given = calibration.confidences(scores) >= cutoff_for_precision(calibration.held_out, wanted).least
    right = given & (Y.toarray() > 0)
    for tags in (slice(0, 13), slice(13, 27), slice(27, 40)):
        precision = right[:, tags].sum() / given[:, tags].sum()
        assert wanted - 0.04 < precision < wanted + 0.09


def test_more_precision_means_fewer_tags(calibrated):
    calibration, scores, _ = calibrated
    chances = calibration.confidences(scores)
    n = [(chances >= cutoff_for_precision(calibration.held_out, p).least).sum() for p in (0.4, 0.6, 0.8, 0.95)]
    assert n == sorted(n, reverse=True)
    assert n[0] > 2 * n[2] > 0


def test_no_single_confidence_reaches_the_f1_of_the_means_over_tags(calibrated):
    calibration, scores, Y = calibrated
    chances, has = calibration.confidences(scores), Y.toarray() > 0

    def f1(least):
        given = chances >= least
        right = (given & has).sum(axis=0)
        precision, recall = (right / np.maximum(given.sum(axis=0), 1)).mean(), (right / has.sum(axis=0)).mean()
        return 2 * precision * recall / (precision + recall)

    chosen = cutoff_of_best_f1(calibration.held_out).least
    assert f1(chosen) > max(f1(least) for least in np.linspace(0.05, 0.95, 19))


def test_a_calibration_comes_back_with_its_bend_and_its_held_out_chances_if_it_has_any(calibrated):
    calibration = calibrated[0]
    again = Calibration.of_arrays(calibration.arrays(), len(calibration.slope))
    assert again.bend == calibration.bend != Bend()
    assert again.held_out.n_given == calibration.held_out.n_given
    np.testing.assert_array_equal(again.held_out.chances, calibration.held_out.chances)
    plain = Calibration(calibration.slope, calibration.offset, 0.4, 100)
    assert Calibration.of_arrays(plain.arrays(), len(plain.slope))[4:] == (Bend(), None, None)
    np.testing.assert_array_equal(again.doubt, calibration.doubt)


def rare_library(n, rng):
    """Draw scores and tags: 20 frequent ones, and 300 rare ones, of which the scores say much of every fourth only."""
    slopes = np.concatenate([np.full(20, 2.5), np.where(np.arange(300) % 4 == 0, 2.5, 0.3)])
    scores = rng.normal(0, 1.5, (n, 320)).astype(np.float32)
    chances = expit(slopes * scores + np.repeat([-1.5, -5.0], [20, 300]))
    return scores, sp.csr_array((rng.random(scores.shape) < chances).astype(np.float32))


def test_no_more_rare_tags_are_given_than_few_images_can_support_and_frequent_ones_stay():
    rng = np.random.default_rng(0)
    (_, learned), (held_scores, held), (scores, Y) = (rare_library(n, rng) for n in (1200, 300, 4000))
    counts = (learned.sum(axis=0) + held.sum(axis=0)).astype(int)
    calibration = fit_calibration(held_scores, held, learned, counts)
    chances, right = calibration.confidences(scores), Y.toarray() > 0
    rare = (counts >= 5) & (counts < 20)
    assert rare.sum() > 200
    sure = (chances >= 0.5) & rare
    assert chances[sure].sum() - right[sure].sum() < 10  # without doubts: 110 promised of 172, and 7 right
    for wanted in (0.5, 0.7):
        given = chances >= cutoff_for_precision(calibration.held_out, wanted).least
        assert wanted * (given & rare).sum() - right[given & rare].sum() < 5
        assert wanted - 0.04 < right[given & ~rare].mean() < wanted + 0.09
    np.testing.assert_array_equal(np.argsort(chances[:, rare], axis=0), np.argsort(scores[:, rare], axis=0))


def test_a_doubt_lowers_large_chances_and_leaves_small_ones_and_the_order():
    odds = np.array([-9.0, -4.0, 0.0, 4.0, 9.0])
    np.testing.assert_allclose(doubted(odds, 0.0), odds, atol=1e-300)
    np.testing.assert_allclose(1 / np.exp(doubted(odds, 3.0)), 1 / np.exp(odds) + 3 / np.exp(0.2 * odds))
    assert expit(doubted(odds, 3.0))[0] == pytest.approx(expit(-9.0), rel=0.01)
    plain = Calibration(np.array([2.0, 2.0]), np.array([0.0, 0.0]), 0.4, 100)
    sceptical = plain._replace(doubt=np.array([0.0, 3.0]))
    scores = np.array([[1.0, 1.0], [2.0, 2.0]])
    np.testing.assert_array_equal(sceptical.confidences(scores)[:, 0], plain.confidences(scores)[:, 0])
    np.testing.assert_array_equal(sceptical.confidences([1.0, 2.0], [1, 1]), sceptical.confidences(scores)[:, 1])
    assert (sceptical.confidences(scores)[:, 1] < 0.6).all()
