"""Sides that take turns: what slows the machine for a while slows all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

REST = 0.2
"""Seconds before a turn: threads of OpenBLAS spin for a tenth after their work, and would hold up the next side."""

UNTIMED = 2
"""Calls at the beginning of a turn, which bring a side's data back into the caches."""


def in_turns(calls: Mapping[str, Callable[[], Any]], runs: int, calls_a_turn: int) -> dict[str, list[float]]:
    """Time all sides in turn.

    Parameters
    ----------
    calls : mapping of str to callable
    runs : int
        Turns of each side.
    calls_a_turn : int
        Timed calls in a turn.

    Returns
    -------
    dict of str to list of float
        For each side the median seconds of a call, turn by turn.
    """
    medians: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(runs):
        for name, call in calls.items():
            time.sleep(REST)
            for _ in range(UNTIMED):
                call()
            seconds = []
            for _ in range(calls_a_turn):
                start = time.perf_counter()
                call()
                seconds.append(time.perf_counter() - start)
            medians[name].append(statistics.median(seconds))
    return medians
