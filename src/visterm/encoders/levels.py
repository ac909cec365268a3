"""Levels of spatial pyramids: how many there may be, and what each weighs (Lazebnik, Schmid, Ponce, CVPR 2006)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import UserError

MOST_LEVELS = 6


def weights_of_levels(levels: int, given: Sequence[float] | None) -> NDArray[np.float64]:
    """Return what the levels weigh, the whole picture first; the weights sum to 1.

    Parameters
    ----------
    levels : int
    given : sequence of float or None
        In proportion. None: 1/2 for the finest, half as much for each coarser one, the coarsest as the one after it.
    """
    if given is not None:
        weights: NDArray[np.float64] = np.asarray(given, np.float64)
        shares: NDArray[np.float64] = weights / weights.sum()
        return shares
    return np.array([2.0 ** (max(level, 1) - levels) for level in range(levels)])


def check_levels(levels: Any, given: Any) -> None:
    """Refuse levels that no pyramid has, and weights that are not one number above 0 for each.

    Raises
    ------
    UserError
        If one of them is such.
    """
    whole = isinstance(levels, int | np.integer) and not isinstance(levels, bool)
    if not whole or not 1 <= levels <= MOST_LEVELS:
        raise UserError(f"levels is {levels!r}; expected a whole number from 1 to {MOST_LEVELS}.")
    if given is None:
        return
    what = f"{levels} numbers above 0, one a level"
    check_numbers(given, "level_weights", f"None, or {what}")
    if len(given) != levels:
        raise UserError(f"level_weights is {given!r}; expected {what}.")


def check_numbers(values: Any, name: str, expected: str, *, most: float = np.inf) -> None:
    """Refuse what is not a sequence of one finite number or more, each above 0 and at most `most`."""
    listed = list(values) if isinstance(values, Sequence | np.ndarray) and not isinstance(values, str) else []
    right = [isinstance(v, int | float | np.number) and not isinstance(v, bool) and 0 < v <= most for v in listed]
    if not right or not all(right) or not np.isfinite(listed).all():
        raise UserError(f"{name} is {values!r}; expected {expected}.")
