"""The mean of values that come in parts, and how sure one may be of it, without keeping the values."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from visterm.metrics.significance import Interval

NORMAL_95 = 1.959963984540054
"""Standard deviations on both sides of the mean that hold 95 % of a normal distribution."""


class Moments:
    """Counts, sums and sums of squares of the values that are defined (not NaN)."""

    def __init__(self) -> None:
        self.n = 0
        self._sum = self._squares = 0.0

    def add(self, values: NDArray[np.float64]) -> None:
        """Take more values, shape (n,)."""
        defined = values[~np.isnan(values)]
        self.n += defined.size
        self._sum += float(defined.sum())
        self._squares += float(np.square(defined).sum())

    @property
    def mean(self) -> float:
        """Their mean; NaN where there is none."""
        return self._sum / self.n if self.n else math.nan

    def interval(self) -> Interval:
        """Return the mean and its 95 % interval by the normal distribution, which is near the bootstrap for many values.

        A single value has no width.
        """
        variance = max(0.0, self._squares / self.n - self.mean**2) if self.n else math.nan
        half = NORMAL_95 * math.sqrt(variance / max(1, self.n))
        return Interval(self.mean, self.mean - half, self.mean + half)
