"""Bootstrap intervals cover what they should, and repeat with their seed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import bootstrap, wilcoxon

from refusals import refused
from visterm.core.errors import DataError, ShapeError
from visterm.metrics import bootstrap_mean, paired_bootstrap, significance


def test_the_interval_of_a_mean_is_that_of_scipy():
    values = np.random.default_rng(0).random(200)
    theirs = bootstrap((values,), np.mean, method="percentile", n_resamples=10_000, rng=1).confidence_interval
    ours = bootstrap_mean(values)
    assert ours.mean == pytest.approx(values.mean())
    np.testing.assert_allclose([ours.low, ours.high], theirs, atol=0.002)


def test_a_clear_difference_is_sure_and_its_sign_turns_with_the_order():
    rng = np.random.default_rng(0)
    second = rng.random(300)
    first = second + 0.05 + 0.1 * rng.standard_normal(300)
    one, other = paired_bootstrap(first, second), paired_bootstrap(second, first)
    assert one.low > 0
    assert one.p_value < 0.001
    assert other.high < 0
    assert one.mean == pytest.approx(np.mean(first - second)) == pytest.approx(-other.mean)


def test_equal_models_differ_by_nothing():
    assert paired_bootstrap([0.1, 0.5, 0.9], [0.1, 0.5, 0.9]) == (0.0, 0.0, 0.0, 1.0, 3)


def test_the_interval_misses_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    missed = sum(
        not (r := paired_bootstrap(rng.normal(size=60), rng.normal(size=60), n_resamples=300)).low <= 0 <= r.high
        for _ in range(400)
    )
    assert 8 <= missed <= 36  # 20 expected at 95 %


def test_images_without_a_value_are_left_out():
    assert paired_bootstrap([1, np.nan, 3, 2], [0, np.nan, 1, 2]) == paired_bootstrap([1, 3, 2], [0, 1, 2])
    assert bootstrap_mean([1, np.nan, 3]) == bootstrap_mean([1, 3])


def test_the_same_values_give_the_same_interval():
    values = np.random.default_rng(0).random(30)
    assert bootstrap_mean(values) == bootstrap_mean(values)


def test_resampling_in_small_parts_gives_as_many_resamples(monkeypatch):
    monkeypatch.setattr(significance, "MAX_DRAWS_IN_MEMORY", 100)
    values = np.arange(30.0)
    assert bootstrap_mean(values, n_resamples=1001).low == pytest.approx(values.mean() - 1.96 * 1.58, abs=0.4)


@pytest.mark.parametrize(
    ("first", "second", "error", "message"),
    [
        ([1, 2], [1, 2, 3], ShapeError, "first has 2 values, second 3"),
        ([[1, 2]], [1, 2], ShapeError, "2 dimensions"),
        ([1, np.nan, 2], [1, 2, 3], DataError, "1 images have a value of one model only, such as image 1"),
        ([1, np.inf], [1, 2], DataError, "infinite"),
        ([np.nan], [np.nan], DataError, "No image has a value; at least 1"),
    ],
)
def test_values_that_cannot_be_compared_are_refused(first, second, error, message):
    with pytest.raises(error, match=message):
        paired_bootstrap(first, second)


@pytest.mark.parametrize("value", [0, 2.5])
def test_a_number_of_resamples_without_sense_is_refused(value):
    with refused("n_resamples", value=value):
        bootstrap_mean([1, 2, 3], n_resamples=value)


def test_few_differences_with_ties_are_judged_as_scipy_does() -> None:
    rng = np.random.default_rng(3)
    for n in (2, 6, 9):
        first = rng.integers(1, 4, n) / 4
        second = np.zeros(n)
        second[: n // 3] = 1.5
        differences = first - second
        expected = wilcoxon(differences).pvalue
        assert significance.signed_ranks(first, second).p_value == pytest.approx(expected)


def test_fractions_that_rounding_sets_apart_are_ties_as_whole_numbers_are() -> None:
    pairs = [(3, 2), (4, 3), (1, 0), (6, 5), (2, 1)]  # sixths: 1/2 - 1/3, 2/3 - 1/2, ... are all 1/6
    sixths = np.array([pairs[i % 5] if i % 10 < 7 else pairs[i % 5][::-1] for i in range(40)])
    sixths[-4:] = [(5, 1), (6, 3), (0, 4), (2, 2)]
    first, second = sixths.T
    assert np.unique(np.abs(first / 6 - second / 6)).size > 4  # float noise: 0, 1, 3 and 4 sixths are four sizes
    found = significance.signed_ranks(first / 6, second / 6)
    assert found.n == 39
    assert found.p_value == pytest.approx(wilcoxon(first - second).pvalue, rel=1e-12)
    assert found[:2] == significance.signed_ranks(first, second)[:2]


def test_differences_of_nothing_but_rounding_are_no_differences() -> None:
    assert significance.signed_ranks([0.1 + 0.2] * 20, [0.3] * 20) == (0.0, 0.0, 1.0, 0)


def test_small_differences_of_small_values_are_differences() -> None:
    rng = np.random.default_rng(1)
    first, second = 1e-12 * rng.random(30), 1e-12 * rng.random(30)
    assert significance.signed_ranks(first, second).p_value == pytest.approx(wilcoxon(first - second).pvalue)
    assert significance.signed_ranks(first, second).n == 30
