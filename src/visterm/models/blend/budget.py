"""Seconds that a fit may take: what is left of them, and what a fit of all rows will take, told from one of a few."""

from __future__ import annotations

import math
import time


def now() -> float:
    """Return the seconds of a clock that only goes forward."""
    return time.perf_counter()


class Budget:
    """Seconds from now on; None is as many as it takes.

    Parameters
    ----------
    seconds : float or None
    """

    def __init__(self, seconds: float | None) -> None:
        self._end = math.inf if seconds is None else now() + seconds

    @property
    def limited(self) -> bool:
        """Whether there is an end."""
        return self._end < math.inf

    def extend(self, seconds: float) -> None:
        """Put the end off."""
        self._end += seconds

    def left(self) -> float:
        """Return the seconds that are left; below 0 once they are over."""
        return self._end - now()


def seconds_for(seconds: float, n_some: int, n_all: int, growth: float) -> float:
    """Estimate the seconds of a fit of `n_all` rows from those of a fit of `n_some`: they grow with rows^growth."""
    return float(seconds * (n_all / n_some) ** growth)
