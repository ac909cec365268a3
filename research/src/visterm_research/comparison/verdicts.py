"""Does an order hold here? Three ways to judge: by an interval, by the ratio of two costs, and by signed ranks."""

from __future__ import annotations

import math

from visterm.core.errors import DataError
from visterm.metrics import SignedRanks

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
