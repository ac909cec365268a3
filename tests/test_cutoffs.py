"""Confidences that hold where they are large, and the cut-offs for a wanted precision and for the best F1."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit, logit

from visterm.core.errors import DataError
from visterm.metrics.significance import share_of_right
from visterm.models.confidence.calibration import (
    MEANS,
    Calibration,
    Curve,
    HeldOutChances,
    cutoff_for_precision,
    cutoff_of_best_f1,
    f1_score,
)
from visterm.models.confidence.fit_calibration import fit_calibration, fit_curve


def kept(chances, right=None):
    chances = np.asarray(chances, np.float64)
    return HeldOutChances.of(chances, np.zeros(chances.shape, bool) if right is None else np.asarray(right, bool))


def column(*runs):
    """Make the chances of one tag, and what is right: of each run its chance, how many entries, how many right."""
    chances = np.concatenate([np.full(n, chance) for chance, n, _ in runs])
    return chances[:, None], np.concatenate([np.arange(n) < n_right for _, n, n_right in runs])[:, None]


def test_held_out_chances_are_kept_largest_first_and_small_ones_are_not():
    held = kept([[0.5, 0.01], [0.9, 0.3], [0.02, 0.001]], [[1, 0], [0, 1], [0, 1]])
    np.testing.assert_allclose(held.chances, [0.9, 0.5, 0.3, 0.02], rtol=1e-6)
    assert held.right.tolist() == [False, True, True, False]
    assert held.tags.tolist() == [0, 0, 1, 0]
    assert held.images.tolist() == [1, 0, 1, 2]
    assert held.tag_counts.tolist() == [1, 2]
    assert held.image_counts.tolist() == [1, 1, 1]


def test_tags_are_given_down_to_where_all_together_are_right_often_enough():
    held = kept(*column((0.95, 100, 98), (0.8, 100, 82), (0.4, 100, 40)))
    # Down to 0.8: (180 + 20 · 0.875) / 220 = 0.898; down to 0.4: (220 + 20 · 0.717) / 320 = 0.732; to 0.95: 0.975
    for wanted, least in ((0.9, 0.95), (0.89, 0.8), (0.74, 0.8), (0.73, 0.4)):
        assert cutoff_for_precision(held, wanted).tolist() == pytest.approx([least])


def test_equal_chances_are_given_together_or_not_at_all():
    right_first = kept(*column((0.8, 100, 50)))  # the 50 that are right stand first
    assert np.isinf(cutoff_for_precision(right_first, 0.75)).all()


def test_a_tag_that_its_own_images_speak_against_is_given_less_and_the_others_are_left_alone():
    bad, few_right = column((0.96, 50, 25), (0.95, 50, 10))
    good, right = column((0.96, 50, 49), (0.95, 50, 47))
    held = kept(np.hstack([bad, good]), np.hstack([few_right, right]))
    least = cutoff_for_precision(held, 0.9)
    assert np.isinf(least).all()  # together only 131 of 200 are right
    least = cutoff_for_precision(held, 0.62)
    assert least.tolist() == pytest.approx([0.96, 0.95])  # of the first 35 of 100, of the second nearly all
    assert cutoff_for_precision(held, 0.2).tolist() == pytest.approx([0.95, 0.95])


def test_where_nothing_was_as_sure_as_is_wanted_new_images_may_be_and_what_was_always_wrong_is_never_given():
    assert cutoff_for_precision(kept(*column((0.6, 30, 18))), 0.9).tolist() == [0.9]
    assert np.isinf(cutoff_for_precision(kept(*column((0.95, 100, 0))), 0.5)).all()
    assert cutoff_for_precision(kept([[0.01]]), 0.5).tolist() == [0.5]


def test_a_tag_that_no_image_was_learned_from_is_never_given_at_a_wanted_precision():
    chances, right = column((0.95, 100, 98))
    held = HeldOutChances.of(np.hstack([chances, 0 * chances]), np.hstack([right, right & False]), np.array([9, 0]))
    assert cutoff_for_precision(held, 0.9).tolist() == pytest.approx([0.95, np.inf])


@pytest.mark.parametrize("mean", MEANS)
def test_the_best_f1_is_at_least_that_of_one_confidence_for_all_tags(mean):
    rng = np.random.default_rng(1)
    chances = rng.beta(0.3, 3, (300, 20)) * np.linspace(0.3, 1, 20)
    held = kept(chances, rng.random(chances.shape) < chances)
    chosen = f1_score(held, held.chances >= cutoff_of_best_f1(held, mean)[held.tags], mean)
    assert chosen >= max(f1_score(held, held.chances >= level, mean) for level in np.arange(0.02, 1, 0.02))
    assert np.isinf(cutoff_of_best_f1(kept([[0.01]]), mean)).all()


def test_for_the_f1_of_tags_a_rare_tag_has_a_lower_cutoff():
    rng = np.random.default_rng(2)
    shares = np.repeat([0.3, 0.02], 10)
    right = rng.random((400, 20)) < shares
    log_odds = np.log(shares / (1 - shares)) + rng.normal(np.where(right, 2, 0), 1, right.shape)
    held = kept(1 / (1 + np.exp(-log_odds)), right)
    cutoffs = cutoff_of_best_f1(held, "macro")
    assert cutoffs[10:].max() < 0.5 * cutoffs[:10].min()
    one = max(f1_score(held, held.chances >= level, "macro") for level in np.arange(0.02, 1, 0.02))
    assert f1_score(held, held.chances >= cutoffs[held.tags], "macro") > one
    assert np.unique(cutoff_of_best_f1(held, "photo")).size == 1


def test_f1_of_a_photo_of_all_entries_and_of_tags():
    held = kept([[0.9, 0.9], [0.9, 0.1], [0.1, 0.1]], [[1, 0], [1, 1], [0, 0]])
    given = held.chances >= 0.5
    assert f1_score(held, given, "photo") == pytest.approx((2 / 3 + 2 / 3) / 2)  # nobody tagged the third
    assert f1_score(held, given, "micro") == pytest.approx(4 / 6)  # 2 right of 3 given and 3 that people gave
    assert f1_score(held, given, "macro") == pytest.approx(0.5)  # precision (1 + 0) / 2, recall (1 + 0) / 2


CURVE = Curve(np.array([-5.0, 0.0, 2.0]), np.array([-6.0, -1.0, 1.5]), 1.2, 2.0, 90)


def test_a_curve_joins_its_knots_by_lines_rises_everywhere_and_never_reaches_its_bound():
    np.testing.assert_allclose(CURVE([-7.0, -5.0, -2.5, 0.0, 1.0, 2.0]), [-8.4, -6.0, -3.5, -1.0, 0.25, 1.5])
    assert CURVE(2.5) == pytest.approx(1.75)  # as far above the last knot as there is room: half of it
    x = np.concatenate([np.linspace(-50, 50, 2001), np.geomspace(51, 1e6, 200)])
    assert (np.diff(CURVE(x)) > 0).all()
    assert (CURVE(x) < CURVE.bound).all()


def test_no_chance_is_above_what_the_surest_held_out_entries_support():
    rng = np.random.default_rng(0)
    odds = np.concatenate([np.linspace(6, 8, 60), rng.normal(-3, 1, 20_000)])
    right = np.concatenate([np.ones(60, bool), rng.random(20_000) < expit(odds[60:])])
    curve = fit_curve(odds, right)
    n = 60 + int(np.argmin(right[60:][np.argsort(-odds[60:])]))  # all right down to here
    assert curve.n_top == n
    z = 1.645
    assert expit(curve.bound) == pytest.approx(n / (n + z**2), rel=1e-3)  # Wilson's lower end where all are right
    assert expit(curve(100.0)) < expit(curve.bound)
    middle = rng.normal(-3, 1, 20_000)
    np.testing.assert_allclose(expit(curve(middle)).sum(), expit(middle).sum(), rtol=0.1)


def true_chances(scores, offsets):
    """Return chances that no sigmoid has: scores say little in the middle and much at the top, and 3 % are left out."""
    odds = 1.5 * scores + offsets
    return 0.97 * expit(np.where(odds > 0, 4 * odds, 0.8 * odds) - 0.5)


def planted(n, seed, n_tags=60):
    rng = np.random.default_rng(seed)
    offsets = np.linspace(-1.5, -6, n_tags)
    scores = rng.normal(0, 1.5, (n, n_tags)).astype(np.float32)
    chances = true_chances(scores, offsets)
    return scores, sp.csr_array((rng.random(scores.shape) < chances).astype(np.float32)), chances


@pytest.fixture(scope="module")
def calibrated():
    scores, Y, _ = planted(800, 3)
    return fit_calibration(scores, Y, planted(2000, 4)[1]), *planted(6000, 5)


@pytest.mark.parametrize("wanted", [0.5, 0.7, 0.9])
def test_a_wanted_precision_gives_most_of_what_hindsight_gives_and_holds_on_new_images(calibrated, wanted):
    calibration, scores, Y, chances = calibrated
    given = calibration.confidences(scores) >= cutoff_for_precision(calibration.held_out, wanted)
    by_truth = np.sort(chances.ravel())[::-1]
    most = np.flatnonzero(np.cumsum(by_truth) >= wanted * np.arange(1, by_truth.size + 1))[-1] + 1
    assert given.sum() >= 0.7 * most
    right = given & (Y.toarray() > 0)
    assert share_of_right(right.sum(axis=1), given.sum(axis=1)).high >= wanted - 0.03  # of the held-out images


def test_confidences_are_the_chances_that_were_planted(calibrated):
    calibration, scores, _, chances = calibrated
    found = calibration.confidences(scores)
    likely = found >= 0.05
    for low in np.arange(0.1, 0.9, 0.1):
        some = likely & (found >= low) & (found < low + 0.1)
        assert abs(found[some].mean() - chances[some].mean()) < 0.08
    assert abs(found[likely].mean() - chances[likely].mean()) < 0.02
    top = found >= np.quantile(found[likely], 0.98)
    assert found[top].mean() < chances[top].mean() + 0.01
    assert found[top].mean() > 0.9


def test_the_order_by_chance_of_one_tag_is_the_order_by_score(calibrated):
    calibration = calibrated[0]
    scores = np.unique(np.concatenate([np.linspace(-30, 30, 4001), [-1e4, 1e4]]).astype(np.float32))
    for tag in range(60):
        assert (np.diff(calibration.log_odds(scores, np.full(scores.size, tag))) > 0).all()
    assert calibration.log_odds(np.full((1, 60), 1e4, np.float32)).max() < calibration.curve.bound


def test_more_precision_means_fewer_tags(calibrated):
    calibration, scores, *_ = calibrated
    chances = calibration.confidences(scores)
    n = [(chances >= cutoff_for_precision(calibration.held_out, p)).sum() for p in (0.4, 0.6, 0.8, 0.95)]
    assert n == sorted(n, reverse=True)
    assert n[0] > 2 * n[2] > 0


@pytest.mark.parametrize(("n", "most"), [(30, 0.12), (100, 0.06), (300, 0.04)])
def test_small_libraries_promise_no_more_than_they_hold(n, most):
    promised, right, n_sure = 0.0, 0, 0
    for seed in range(8):
        scores, Y, _ = planted(n, 10 + seed)
        calibration = fit_calibration(scores, Y, Y)
        new, Y_new, _ = planted(1000, 50 + seed)
        chances = calibration.confidences(new)
        sure = chances >= 0.3
        promised, right, n_sure = (
            promised + chances[sure].sum(),
            right + Y_new.toarray()[sure].sum(),
            n_sure + sure.sum(),
        )
    assert n_sure > 1000
    assert abs(promised - right) / n_sure < most


def rare_library(n, rng):
    """Draw scores and tags: 20 frequent ones, and 300 rare ones, of which the scores say much of every fourth only."""
    slopes = np.concatenate([np.full(20, 2.5), np.where(np.arange(300) % 4 == 0, 2.5, 0.3)])
    scores = rng.normal(0, 1.5, (n, 320)).astype(np.float32)
    chances = expit(slopes * scores + np.repeat([-1.5, -5.0], [20, 300]))
    return scores, sp.csr_array((rng.random(scores.shape) < chances).astype(np.float32))


def test_rare_tags_promise_no_more_than_few_images_can_support_and_frequent_ones_stay():
    rng = np.random.default_rng(0)
    (_, learned), (held_scores, held), (scores, Y) = (rare_library(n, rng) for n in (1200, 300, 4000))
    counts = (learned.sum(axis=0) + held.sum(axis=0)).astype(int)
    calibration = fit_calibration(held_scores, held, learned, counts)
    chances, right = calibration.confidences(scores), Y.toarray() > 0
    rare = (counts >= 5) & (counts < 20)
    assert rare.sum() > 200
    sure = (chances >= 0.5) & rare
    assert chances[sure].sum() - right[sure].sum() < 10
    for wanted in (0.5, 0.7):
        given = chances >= cutoff_for_precision(calibration.held_out, wanted)
        assert wanted * (given & rare).sum() - right[given & rare].sum() < 0.005 * given.sum()
        assert wanted - 0.04 < right[given & ~rare].mean() < wanted + 0.09


def test_tags_that_images_are_known_to_have_are_left_out():
    rng = np.random.default_rng(2)
    scores, Y, _ = planted(400, 6, 20)
    known = sp.csr_array((rng.random(Y.shape) < 0.2).astype(np.float32))
    told = scores + 9 * known.toarray()  # as a model does that has learned them
    calibration = fit_calibration(told.astype(np.float32), Y, Y, known=known)
    free = fit_calibration(scores, Y, Y)
    np.testing.assert_allclose(calibration.confidences(scores), free.confidences(scores), atol=0.15)
    assert not known.toarray()[calibration.held_out.images, calibration.held_out.tags].any()


def test_a_calibration_comes_back_with_its_curve_and_its_held_out_chances_if_it_has_any(calibrated):
    calibration = calibrated[0]
    again = Calibration.of_arrays(calibration.arrays(), 60)
    for part in ("curve", "held_out"):
        for kept_value, made in zip(getattr(again, part), getattr(calibration, part), strict=True):
            np.testing.assert_array_equal(kept_value, made)
    plain = Calibration(calibration.slope, calibration.offset, 0.4, 100)
    assert Calibration.of_arrays(plain.arrays(), 60)[4:] == (None, None)
    for name, value in (("curve_values", -calibration.curve.values), ("curve_bound", np.array(-9.0))):
        with pytest.raises(DataError):
            Calibration.of_arrays(calibration.arrays() | {name: value}, 60)


def test_a_curve_finds_how_much_less_is_right_and_leaves_alone_what_holds():
    rng = np.random.default_rng(0)
    odds = rng.normal(0, 2, 40_000)
    true = logit(0.9 * expit(odds))  # of what is sure, a tenth is not right
    curve = fit_curve(odds, rng.random(odds.size) < expit(true))
    np.testing.assert_allclose(expit(curve([-2.0, 0.0, 2.0, 4.0])), 0.9 * expit([-2.0, 0.0, 2.0, 4.0]), atol=0.03)
    as_is = fit_curve(odds, rng.random(odds.size) < expit(odds))
    np.testing.assert_allclose(expit(as_is([-3.0, 0.0, 3.0])), expit([-3.0, 0.0, 3.0]), atol=0.02)
