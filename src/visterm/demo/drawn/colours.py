"""Colours: mixing, shading, varying, and the few paints whose names people use as tags."""

from __future__ import annotations

from random import Random
from typing import TypeAlias

RGB: TypeAlias = tuple[int, int, int]
RGBA: TypeAlias = tuple[int, int, int, int]
Fill: TypeAlias = RGB | RGBA

NAMED: dict[str, RGB] = {
    "red": (200, 38, 40),
    "blue": (46, 92, 180),
    "yellow": (238, 196, 48),
    "white": (240, 238, 232),
}
"""Paints whose name becomes a tag of what is painted with them."""

UNNAMED: tuple[RGB, ...] = (
    (92, 140, 96),
    (150, 150, 156),
    (216, 180, 140),
    (70, 74, 84),
    (224, 132, 62),
    (122, 90, 130),
)
"""Paints that nobody names."""


def mix(a: RGB, b: RGB, share: float) -> RGB:
    """Return the colour that is `share` of the way from `a` to `b`."""
    return (
        round(a[0] + (b[0] - a[0]) * share),
        round(a[1] + (b[1] - a[1]) * share),
        round(a[2] + (b[2] - a[2]) * share),
    )


def shade(colour: RGB, light: float) -> RGB:
    """Make a colour darker (`light` below 1) or lighter (towards white, above 1)."""
    if light > 1:
        return mix(colour, (255, 255, 255), min(1.0, light - 1))
    return mix((0, 0, 0), colour, light)


def vary(rng: Random, colour: RGB, amount: int = 14) -> RGB:
    """Return a colour near `colour`, each channel up to `amount` away."""
    r, g, b = (min(255, max(0, channel + rng.randint(-amount, amount))) for channel in colour)
    return (r, g, b)


def paint(rng: Random, named: float = 0.6) -> tuple[RGB, tuple[str, ...]]:
    """Draw a paint, and its name where it has one (a share `named` of the time)."""
    if rng.random() < named:
        name = rng.choice(tuple(NAMED))
        return vary(rng, NAMED[name], 10), (name,)
    return vary(rng, rng.choice(UNNAMED), 10), ()
