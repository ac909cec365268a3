"""Does an order hold here? By an interval, by the ratio of two costs, or by signed ranks; and after correction."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any

from visterm.core.errors import DataError
from visterm.metrics import SignedRanks, holm

YES, NO, UNSURE = "yes", "no", "too close to call"

LEVEL = 0.95
"""Confidence from which on signed ranks are sure; intervals have it, too."""

TENTH = 0.1
"""Single measurements of time, bytes and counts that are no further apart than this are equal."""


def by_interval(low: float, high: float) -> str:
    """Judge whether the first is better by the interval of the first less the second; one that has 0 leaves it open."""
    if not low <= high:
        raise DataError(f"The interval of a difference is {low} to {high}; expected two numbers, the lower one first.")
    return YES if low > 0 else NO if high < 0 else UNSURE


def by_ratio(first: float, second: float, within: float = TENTH) -> str:
    """Judge whether the first is less than the second; too close where the smaller has `1 - within` of the larger."""
    for value in (first, second):
        if math.isnan(value) or value < 0:
            raise DataError(f"A cost is {value}; expected a number of 0 or more.")
    share = 1 - within
    return YES if first < share * second else NO if second < share * first else UNSURE


def by_ranks(test: SignedRanks) -> str:
    """Judge whether the first is better by Wilcoxon's signed ranks."""
    return {1: YES, -1: NO, 0: UNSURE}[test.better(LEVEL)]


def p_of_interval(low: float, high: float) -> float:
    """Return the two-sided p-value of a normal difference with this 95 % interval.

    Resampling itself has no p-value below one in the number of resamples, which is too coarse to correct for the
    number of tests.
    """
    normal = NormalDist()
    middle, half = abs(high + low) / 2, (high - low) / 2
    if half == 0:
        return 1.0 if middle == 0 else 0.0
    return 2 * normal.cdf(-normal.inv_cdf((1 + LEVEL) / 2) * middle / half)


def corrected(claims: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the verdicts of a report after Holm's correction for the number of its tests.

    Holm's method bounds the chance of a single wrong verdict, however much the tests depend on each other: these share
    images and methods. Single measurements of costs have no p-value, and keep their verdict.
    """
    tested = [i for i, claim in enumerate(claims) if claim["p_value"] is not None]
    verdicts = [str(claim["verdict"]) for claim in claims]
    for i, p_value in zip(tested, holm([claims[i]["p_value"] for i in tested]), strict=True):
        if p_value > 1 - LEVEL:
            verdicts[i] = UNSURE
    return verdicts
