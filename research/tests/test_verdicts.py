"""Verdicts on planted results: clearly better, clearly worse, too close, equal, undefined, and at the border."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from visterm.core.errors import DataError
from visterm.metrics.significance import paired_bootstrap, signed_ranks
from visterm_research.comparison.claims import least_claim, order_claim, ranks_claim
from visterm_research.comparison.verdicts import (
    NO,
    UNSURE,
    YES,
    by_interval,
    by_ranks,
    by_ratio,
    corrected,
    p_of_interval,
)

NOTHING: dict[str, Any] = {"where": "Table 9", "problem": "x"}
SECOND = np.linspace(0.2, 0.6, 40)
"""Values of forty images, far enough from each other that no interval shrinks to a point."""

SWINGS = np.tile([0.1, -0.1], 20)
"""Differences that are large on every image and nothing on average."""


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        ((0.01, 0.2), YES),
        ((-0.2, -0.01), NO),
        ((-0.01, 0.2), UNSURE),
        ((-0.2, 0.01), UNSURE),
        ((0.0, 0.2), UNSURE),
        ((-0.2, 0.0), UNSURE),
        ((0.0, 0.0), UNSURE),
        ((0.01, 0.01), YES),
    ],
)
def test_an_interval_decides_only_where_it_is_all_on_one_side_of_0(interval: tuple[float, float], verdict: str) -> None:
    assert by_interval(*interval) == verdict


@pytest.mark.parametrize("interval", [(0.2, 0.1), (np.nan, 0.1), (0.1, np.nan), (np.nan, np.nan)])
def test_what_is_no_interval_is_refused(interval: tuple[float, float]) -> None:
    with pytest.raises(DataError, match="expected two numbers, the lower one first"):
        by_interval(*interval)


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        (1, 2, YES),
        (2, 1, NO),
        (1, 1, UNSURE),
        (89, 100, YES),
        (90, 100, UNSURE),
        (91, 100, UNSURE),
        (100, 91, UNSURE),
        (100, 90, UNSURE),
        (100, 89, NO),
        (0, 0, UNSURE),
        (0, 1, YES),
        (1, 0, NO),
    ],
)
def test_a_cost_is_less_from_a_tenth_on(first: float, second: float, verdict: str) -> None:
    assert by_ratio(first, second) == verdict


@pytest.mark.parametrize(
    ("first", "second", "verdict"), [(98, 100, YES), (99, 100, UNSURE), (100, 99, UNSURE), (100, 98, NO)]
)
def test_how_near_costs_have_to_be_can_be_set(first: float, second: float, verdict: str) -> None:
    assert by_ratio(first, second, 0.01) == verdict


@pytest.mark.parametrize("costs", [(np.nan, 1), (1, np.nan), (-1, 1), (1, -1)])
def test_what_is_no_cost_is_refused(costs: tuple[float, float]) -> None:
    with pytest.raises(DataError, match="expected a number of 0 or more"):
        by_ratio(*costs)


@pytest.mark.parametrize(
    ("difference", "verdict"),
    [
        (np.full(40, 0.1), YES),
        (np.full(40, -0.1), NO),
        (SWINGS, UNSURE),
        (np.zeros(40), UNSURE),
        # six queries of the same sign have p = 2/64, five have 2/32: more than 5 %
        (np.where(np.arange(40) < 6, 0.1, 0), YES),
        (np.where(np.arange(40) < 6, -0.1, 0), NO),
        (np.where(np.arange(40) < 5, 0.1, 0), UNSURE),
    ],
)
def test_signed_ranks_decide_by_the_sizes_of_all_differences(difference: Any, verdict: str) -> None:
    assert by_ranks(signed_ranks(SECOND + difference, SECOND)) == verdict


def test_signed_ranks_leave_out_undefined_queries() -> None:
    first = np.append(SECOND + 0.1, [np.nan] * 3)
    test = signed_ranks(first, np.append(SECOND, [np.nan] * 3))
    assert (by_ranks(test), test.n) == (YES, 40)
    assert by_ranks(signed_ranks([np.nan, np.nan], [np.nan, np.nan])) == UNSURE


def test_ranks_are_sure_at_5_percent() -> None:
    test = signed_ranks(SECOND + 0.1, SECOND)
    assert by_ranks(test._replace(p_value=0.0499)) == YES
    assert by_ranks(test._replace(p_value=0.0501)) == UNSURE


@pytest.mark.parametrize(
    ("difference", "verdict"), [(0.1, YES), (-0.1, NO), (SWINGS, UNSURE), (0.0, UNSURE), (0.02 + SWINGS, UNSURE)]
)
def test_an_order_is_judged_by_resampling_the_examples(difference: Any, verdict: str) -> None:
    claim = order_claim("A", "B", "p@1", (SECOND + difference, SECOND), **NOTHING)
    assert claim.verdict == verdict


def test_examples_without_a_value_do_not_count() -> None:
    gaps = np.full(5, np.nan)
    claim = order_claim(
        "A", "B", "p@1", (np.append(SECOND + 0.1, gaps), np.append(SECOND, gaps)), units="images", **NOTHING
    )
    assert (claim.verdict, claim.here) == (YES, ("50.00 %", "40.00 %"))
    assert claim.detail.endswith("of 40 images")
    with pytest.raises(DataError, match="5 images have a value of one model only"):
        order_claim("A", "B", "p@1", (np.append(SECOND, gaps), np.append(SECOND, np.ones(5))), **NOTHING)


@pytest.mark.parametrize(("difference", "verdict"), [(0.1, YES), (-0.1, NO), (SWINGS, UNSURE), (0.0, UNSURE)])
def test_an_order_of_queries_is_judged_by_signed_ranks(difference: Any, verdict: str) -> None:
    claim = ranks_claim("A", "B", "AvgP", (SECOND + difference, SECOND), paper=(0.3, 0.2), **NOTHING)
    assert (claim.verdict, claim.paper) == (verdict, ("30.00 %", "20.00 %"))
    assert claim.here == (f"{100 * (0.4 + np.mean(difference)):.2f} %", "40.00 %")


@pytest.mark.parametrize(("times", "verdict"), [(1.4, YES), (1.5, UNSURE), (1.6, NO)])
def test_a_factor_is_held_against_that_many_times_the_second(times: float, verdict: str) -> None:
    claim = order_claim("A", "B", "p@1", (1.5 * SECOND, SECOND), times=times, **NOTHING)
    assert (claim.verdict, claim.relation) == (verdict, f"at least {times:g} times as good as")
    assert claim.detail.startswith("1.50 times; ")


@pytest.mark.parametrize(
    ("here", "verdict"),
    [((1, 2), YES), ((2, 1), NO), ((1, 1.05), UNSURE), ((9, 10), UNSURE), ((10, 9), UNSURE), ((8.9, 10), YES)],
)
def test_costs_within_a_tenth_are_too_close_to_call(here: tuple[float, float], verdict: str) -> None:
    claim = least_claim("A", "B", "time", paper=("1 h", "2 h"), here=here, unit="s", **NOTHING)
    assert (claim.verdict, claim.here) == (verdict, (f"{here[0]:.3g} s", f"{here[1]:.3g} s"))


@pytest.mark.parametrize(
    ("interval", "p_value"),
    [((0.0, 0.2), 0.05), ((-0.2, 0.0), 0.05), ((-0.1, 0.1), 1.0), ((0.1, 0.1), 0.0), ((0.0, 0.0), 1.0)],
)
def test_an_interval_that_ends_at_0_has_a_p_value_of_5_percent(interval: tuple[float, float], p_value: float) -> None:
    assert p_of_interval(*interval) == pytest.approx(p_value, abs=1e-12)


def test_the_p_value_of_an_interval_is_near_that_of_a_t_test() -> None:
    difference = np.random.default_rng(0).normal(0.03, 0.1, 400)
    found = paired_bootstrap(difference, np.zeros(400), n_resamples=20_000)
    assert p_of_interval(found.low, found.high) == pytest.approx(ttest_1samp(difference, 0).pvalue, rel=0.5)


def test_holms_correction_leaves_what_is_sure_enough_and_single_measurements() -> None:
    def claim(verdict: str, p_value: float | None) -> dict[str, Any]:
        return {"verdict": verdict, "p_value": p_value}

    # Of three tests 3 x 0.01 and 2 x 0.03 are compared with 0.05; of two 2 x 0.01 and 0.03
    claims = [claim(YES, 0.03), claim(NO, 0.01), claim(NO, None), claim(UNSURE, 0.6)]
    assert corrected(claims) == [UNSURE, NO, NO, UNSURE]
    assert corrected(claims[:2]) == [YES, NO]
    assert corrected([]) == []
