"""One search for all methods: random points of a box of settings, then steps around the best; edges are widened."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

Settings = dict[str, Any]

TRIALS, DRAWN = 16, 10
"""Settings that every method tries, and how many of them are drawn from the box; the others are steps from the best."""

MOST_BEYOND = 12
"""Values that are tried beyond an end of an axis."""

CLOSEST = 1.1
"""A step to less than this many times a value is not worth a fit."""


@dataclass(frozen=True)
class Axis:
    """The values of one setting.

    Attributes
    ----------
    values : sequence
        Ordered ones rise.
    ordered : bool
        Whether values can lie between others and beyond the ends.
    low, high : float, optional
        Ends beyond which there are no values, such as 0 and 1 of a share.
    """

    values: Sequence[Any]
    ordered: bool = True
    low: float = 0.0
    high: float = math.inf

    def beyond(self, known: Sequence[Any], value: Any) -> Any | None:
        """Return the next value beyond the end of the known ones where a value is at an end; None elsewhere."""
        if not self.ordered or len(known) < 2 or value not in (known[0], known[-1]):
            return None
        at, beside = (known[0], known[1]) if value == known[0] else (known[-1], known[-2])
        if not self.low < at < self.high:
            return None
        there = self._written(at * at / beside) if beside > 0 else None
        if there is None or there in known:
            return None
        added = sum(one < self.values[0] if at == known[0] else one > self.values[-1] for one in known)
        return there if added < MOST_BEYOND else None

    def beside(self, known: Sequence[Any], value: Any) -> list[Any]:
        """Return the known values next to one."""
        place = known.index(value)
        return [*known[max(0, place - 1) : place], *known[place + 1 : place + 2]]

    def between(self, known: Sequence[Any], value: Any) -> list[Any]:
        """Return the values halfway to those next to one, by ratio."""
        halfway = [self._written(math.sqrt(value * one)) for one in self.beside(known, value) if value * one > 0]
        return [one for one in halfway if one not in known and max(one / value, value / one) >= CLOSEST]

    def _written(self, value: float) -> Any:
        """Return a value in two digits, within the ends, of the kind that the others are."""
        value = min(max(float(f"{value:.2g}"), self.low), self.high)
        whole = all(isinstance(one, int) for one in self.values)
        return max(1, round(value)) if whole else value


Box = Mapping[str, Axis]


def unordered(*values: Any) -> Axis:
    """Return an axis of values that have no order."""
    return Axis(values, ordered=False)


def draw_points(box: Box, n: int, *, start: Mapping[str, Any] | None = None, seed: int = 0) -> list[Settings]:
    """Draw points of a box without repeating one; all of them, in their order, where there are no more.

    Parameters
    ----------
    box : mapping of str to Axis
    n : int
        How many at the most.
    start : mapping, optional
        The first point; settings that it leaves out are in the middle.
    seed : int
    """
    every = [dict(zip(box, values, strict=True)) for values in product(*(axis.values for axis in box.values()))]
    middle = {name: axis.values[len(axis.values) // 2] for name, axis in box.items()}
    first = [] if start is None else [{**middle, **start}]
    rest = [one for one in every if one not in first]
    if len(first) + len(rest) > n:
        drawn = np.random.default_rng(seed).choice(len(rest), n - len(first), replace=False)
        rest = [rest[place] for place in drawn]
    return [*first, *rest]


def search(
    box: Box, points: Sequence[Settings], fit: Callable[[Settings], Sequence[float]], *, trials: int = TRIALS
) -> list[str]:
    """Fit points of a box, then steps from the best, until `trials` are tried; return where the box was widened.

    A step changes one setting to a value next to the best one's, then to values in between; if none is left, it
    goes from the second best, and so on. Where the best value is at an end of its axis, the next value beyond it is
    tried besides, until the best one is inside.

    Parameters
    ----------
    box : mapping of str to Axis
    points : sequence of dict
        Tried first.
    fit : callable
        Takes settings, and returns how good they are by each criterion; higher is better, -inf is not fitted.
    trials : int

    Returns
    -------
    list of str
        "NAME to VALUE" for each value beyond the box, in order.
    """
    found: list[tuple[Settings, Sequence[float]]] = [(one, fit(one)) for one in points]
    widened: list[str] = []
    left, turn = trials - len(found), 0
    while found:
        n_criteria = len(found[0][1])
        tried = [one for one, _ in found]
        known = {name: _known(axis, [one[name] for one in tried]) for name, axis in box.items()}
        bests = [max(found, key=lambda one: one[1][place])[0] for place in range(n_criteria)]
        step = next((one for best in bests for one in _beyond(box, known, best) if one not in tried), None)
        if step is not None:
            widened += [f"{name} to {step[name]}" for name in box if step[name] not in known[name]]
        elif left > 0:
            by = turn % n_criteria
            ranked = sorted(found, key=lambda one: -one[1][by])  # used at once
            step = next((one for best, _ in ranked for one in _steps(box, known, best) if one not in tried), None)
            left, turn = left - 1, turn + 1
        if step is None:
            return widened
        found.append((step, fit(step)))
    return widened


def at_an_edge(box: Box, tried: Sequence[Settings], settings: Settings) -> list[str]:
    """Return the names of settings that are at an end of all that was tried, where there are values beyond."""
    known = {name: _known(axis, [one[name] for one in tried]) for name, axis in box.items()}
    return [
        name
        for name, axis in box.items()
        if axis.ordered
        and len(known[name]) > 1
        and settings[name] in (known[name][0], known[name][-1])
        and axis.low < settings[name] < axis.high
    ]


def _known(axis: Axis, tried: Sequence[Any]) -> list[Any]:
    values = [*axis.values, *(one for one in tried if one not in axis.values)]
    return sorted(set(values)) if axis.ordered else values


def _beyond(box: Box, known: Mapping[str, list[Any]], best: Settings) -> Iterator[Settings]:
    for name, axis in box.items():
        value = axis.beyond(known[name], best[name])
        if value is not None:
            yield {**best, name: value}


def _steps(box: Box, known: Mapping[str, list[Any]], best: Settings) -> Iterator[Settings]:
    for name, axis in box.items():
        values = axis.beside(known[name], best[name]) if axis.ordered else known[name]
        yield from ({**best, name: value} for value in values)
    for name, axis in box.items():
        if axis.ordered:
            yield from ({**best, name: value} for value in axis.between(known[name], best[name]))
