"""A race: each side looks for its best MAP over its own grid, then both run for the best that the other reached."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from harness.runs import ratios, say, spread

from lab.sides import Settings, Side

TOLERANCE = 0.002
"""A best MAP counts as reached within so much of it: other seeds vary by about that."""


class Limits(NamedTuple):
    """When a training is given up.

    Attributes
    ----------
    patience : int
        Epochs without a better MAP.
    epochs : int
    seconds : float
        Of training.
    """

    patience: int
    epochs: int
    seconds: float


class Curve(NamedTuple):
    """MAP as training goes on.

    Attributes
    ----------
    settings : dict
    seconds, found : list of float
        Training time and MAP after each epoch.
    """

    settings: Settings
    seconds: list[float]
    found: list[float]

    def best(self) -> float:
        """Return the best MAP."""
        return max(self.found)

    def time_to(self, target: float) -> float | None:
        """Return the seconds after which the target was first reached, or None."""
        return next((s for s, found in zip(self.seconds, self.found, strict=True) if found >= target), None)


def run(side: Side, settings: Settings, seed: int, limits: Limits, target: float = float("inf")) -> Curve:
    """Train until the target is reached, or a limit."""
    curve = Curve(settings, [], [])

    def judged(seconds: float, found: float) -> bool:
        curve.seconds.append(seconds)
        curve.found.append(found)
        since_best = len(curve.found) - 1 - curve.found.index(curve.best())
        return (
            found >= target
            or since_best >= limits.patience
            or len(curve.found) >= limits.epochs
            or seconds >= limits.seconds
        )

    side.train(settings, seed, judged)
    return curve


def explore(side: Side, grid: Sequence[Settings], limits: Limits) -> list[Curve]:
    """Train with every setting of the grid."""
    curves = []
    for settings in grid:
        began = time.perf_counter()
        curve = run(side, settings, 0, limits)
        curves.append(curve)
        at = curve.time_to(curve.best())
        judging = time.perf_counter() - began
        say(
            f"  {side.name:22s} {_short(settings):60s} MAP {curve.best():.4f} after {at:7.2f} s"
            f"  ({len(curve.found)} epochs, {curve.seconds[-1]:.2f} s; with judging {judging:.0f} s)"
        )
    return curves


def race(ours: Side, theirs: Side, grids: tuple[list[Curve], list[Curve]], runs: int, limits: Limits) -> dict[str, Any]:
    """Run both sides, in turn, for the best that each reached on its grid."""
    results: dict[str, Any] = {}
    for whose, curves in ((theirs, grids[1]), (ours, grids[0])):
        best = max(curve.best() for curve in curves)
        target = best * (1 - TOLERANCE)
        say(f"\nto the best MAP of {whose.name}, {best:.4f} (reached within {TOLERANCE:.1%})")
        results[f"to the best of {whose.name}"] = _to(target, best, ours, theirs, grids, runs, limits)
    return results


def _to(
    target: float,
    best: float,
    ours: Side,
    theirs: Side,
    grids: tuple[list[Curve], list[Curve]],
    runs: int,
    limits: Limits,
) -> dict[str, Any]:
    sides = (ours, theirs)
    chosen = [_quickest(curves, target) for curves in grids]
    result: dict[str, Any] = {"best": best, "target": target}
    for side, curve in zip(sides, chosen, strict=True):
        result[side.name] = {"reached on its grid": curve is not None, "settings": curve and curve.settings}
        if curve is None:
            say(f"  {side.name} does not reach it with any setting of its grid: no ratio")
    if any(curve is None for curve in chosen):
        return result
    seconds: dict[str, list[float | None]] = {side.name: [] for side in sides}
    for number in range(1, runs + 1):
        for side, curve in zip(sides, chosen, strict=True):
            seconds[side.name].append(run(side, curve.settings, number, limits, target).time_to(target))
    both = [(a, b) for a, b in zip(*seconds.values(), strict=True) if a is not None and b is not None]
    for side in sides:
        reached = [each for each in seconds[side.name] if each is not None]
        result[side.name] |= {"seconds": spread(reached), "runs that reached it": len(reached)}
        median = f"{spread(reached)['median']:.2f} s" if reached else "never"
        say(f"  {side.name:22s} {median:>10s}  ({len(reached)} of {runs} runs reach it)")
    result["their seconds over ours"] = ratios([b for _, b in both], [a for a, _ in both])
    if both:
        found = result["their seconds over ours"]
        say(f"  their seconds over ours: {found['median']:.2f} ({found['least']:.2f} to {found['most']:.2f})")
    return result


def _quickest(curves: list[Curve], target: float) -> Curve | None:
    reached = [(seconds, n) for n, curve in enumerate(curves) if (seconds := curve.time_to(target)) is not None]
    return curves[min(reached)[1]] if reached else None


def as_json(curves: list[Curve]) -> list[dict[str, Any]]:
    """Return the curves as JSON holds them."""
    return [curve._asdict() for curve in curves]


def _short(settings: Settings) -> str:
    return ", ".join(
        f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}" for name, value in settings.items()
    )
