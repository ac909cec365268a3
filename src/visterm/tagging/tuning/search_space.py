"""What `tune` tries: lists of values, all combinations of them or some drawn at random, and ranges to draw from."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from visterm.core.errors import UserError

MAX_REDRAWS = 100
"""Draws in a row that bring no new setting, after which all are taken to have been drawn."""


class Range(NamedTuple):
    """Numbers from `low` to `high`, both included; whole ones where both ends are whole; by their logarithm or not."""

    low: float
    high: float
    log: bool = False

    def draw(self, rng: np.random.Generator) -> float:
        """Draw one number, a float of few digits where it is not whole."""
        whole = isinstance(self.low, int) and isinstance(self.high, int)
        low, high = (self.low - 0.5, self.high + 0.5) if whole else (self.low, self.high)
        value = math.exp(rng.uniform(math.log(low), math.log(high))) if self.log else rng.uniform(low, high)
        if whole:
            return min(max(round(value), int(self.low)), int(self.high))
        return min(max(float(f"{value:.4g}"), self.low), self.high)


Choices: TypeAlias = "Sequence[Any] | Range"


def settings_to_try(space: Mapping[str, Choices], n_random: int | None, seed: int) -> list[dict[str, Any]]:
    """Return all combinations, or `n_random` different ones drawn at random.

    Raises
    ------
    UserError
        If there is nothing to choose from, or a range without a number of draws.
    """
    for name, choices in space.items():
        if isinstance(choices, str) or not isinstance(choices, Sequence) or len(choices) == 0:
            raise UserError(f"The choices of {name} are {choices!r}; expected a list of values or a Range.")
        if isinstance(choices, Range) and n_random is None:
            raise UserError(
                f"{name} is the range {choices.low:g}:{choices.high:g}, which has no end of values. "
                "Say how many settings to draw (--random N), or give a list of values."
            )
    if not space:
        raise UserError("There is nothing to choose from. Give values to try: --grid NAME=VALUE,VALUE.")
    if n_random is None:
        return [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]
    if n_random < 1:
        raise UserError(f"random is {n_random}; expected a whole number of 1 or more.")
    return _draw(space, n_random, np.random.default_rng(seed))


def _draw(space: Mapping[str, Choices], n_random: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Draw settings that differ; fewer where there are no more."""
    drawn: list[dict[str, Any]] = []
    repeated = 0
    while len(drawn) < n_random and repeated < MAX_REDRAWS:
        setting = {
            name: choices.draw(rng) if isinstance(choices, Range) else choices[int(rng.integers(len(choices)))]
            for name, choices in space.items()
        }
        repeated = repeated + 1 if setting in drawn else 0
        if not repeated:
            drawn.append(setting)
    return drawn
