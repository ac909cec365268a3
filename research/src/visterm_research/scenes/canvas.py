"""The canvas: shapes are painted at twice the size, and every pixel remembers which thing and which part it shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import cos, pi, sin
from random import Random
from typing import NamedTuple, TypeAlias

import numpy as np
from PIL import Image, ImageDraw

from visterm_research.scenes.materials import Material

Points: TypeAlias = Sequence[tuple[float, float]]

SCALE = 2  # Pictures are painted this many times larger and then reduced, which smooths edges
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
    (92, 140, 96), (150, 150, 156), (216, 180, 140), (70, 74, 84), (224, 132, 62), (122, 90, 130),
)  # fmt: skip
"""Paints that nobody names."""


@dataclass(frozen=True, slots=True)
class Mood:
    """Season, hour and weather: what a painter of things needs to know of the scene."""

    hour: str = "day"  # "day", "sunset" or "night"
    season: str = "summer"  # "summer", "autumn" or "winter"
    weather: str = "clear"  # "clear", "rain", "fog" or "snow" (snow that is falling)


class Layer(NamedTuple):
    """What the pixels of one label show; `thing` and `part` are indices, -1 for none."""

    thing: int
    part: int
    material: Material
    glows: bool


@dataclass(slots=True)
class Subject:
    """One thing on the canvas, with the names of its parts and of what can be said of it (such as a colour)."""

    name: str
    parts: list[str] = field(default_factory=list)
    attributes: tuple[str, ...] = ()


class Canvas:
    """A picture being painted, `width` by `height` pixels when it is done."""

    def __init__(self, size: tuple[int, int], rng: Random, mood: Mood) -> None:
        self.width, self.height = size
        self.short = min(size)
        self.rng = rng
        self.mood = mood
        self.subjects: list[Subject] = []
        self.layers: list[Layer] = [Layer(-1, -1, Material.PLAIN, False)]
        self.picture = Image.new("RGB", (self.width * SCALE, self.height * SCALE))
        self.labels = Image.new("I", size)
        self._opaque = ImageDraw.Draw(self.picture)
        self._blend = ImageDraw.Draw(self.picture, "RGBA")
        self._mark = ImageDraw.Draw(self.labels)
        self._numbers: dict[Layer, int] = {}

    def thing(
        self, name: str, x: float = 0.0, y: float = 0.0, size: float | None = None, *, flip: bool = False
    ) -> Sketch:
        """Begin a thing; with a `size`, in its own units: x to the right and y up from (x, y), `size` pixels a unit."""
        self.subjects.append(Subject(name))
        if size is None:
            return Sketch(self, len(self.subjects) - 1, (x, y), (1.0, 1.0))
        return Sketch(self, len(self.subjects) - 1, (x, y), (-size if flip else size, -size))

    def label(self, layer: Layer) -> int:
        """Return the number that marks the pixels of a layer."""
        number = self._numbers.get(layer)
        if number is None:
            number = self._numbers[layer] = len(self.layers)
            self.layers.append(layer)
        return number

    def polygon(self, points: Points, fill: Fill, label: int) -> None:
        """Fill a polygon; a translucent fill (four numbers) leaves the labels as they are."""
        flat = [(x * SCALE, y * SCALE) for x, y in points]
        if len(fill) == 4:
            self._blend.polygon(flat, fill=fill)
            return
        self._opaque.polygon(flat, fill=fill)
        self._mark.polygon(list(points), fill=label)

    def ellipse(self, corners: tuple[float, float, float, float], fill: Fill, label: int) -> None:
        """Fill an ellipse between its corners (left, top, right, bottom)."""
        large = [corner * SCALE for corner in corners]
        if len(fill) == 4:
            self._blend.ellipse(large, fill=fill)
            return
        self._opaque.ellipse(large, fill=fill)
        self._mark.ellipse(corners, fill=label)

    def line(self, points: Points, width: float, fill: Fill, label: int) -> None:
        """Draw a line of `width` pixels."""
        flat = [(x * SCALE, y * SCALE) for x, y in points]
        large = max(1, round(width * SCALE))
        if len(fill) == 4:
            self._blend.line(flat, fill=fill, width=large)
            return
        joint = "curve" if len(flat) > 2 and large > 3 else None
        self._opaque.line(flat, fill=fill, width=large, joint=joint)
        self._mark.line(list(points), fill=label, width=max(1, round(width)))

    def gradient(self, points: Points, top: RGB, bottom: RGB, label: int) -> None:
        """Fill a polygon with a gradient from its highest to its lowest point."""
        left, right = min(x for x, _ in points), max(x for x, _ in points)
        high, low = min(y for _, y in points), max(y for _, y in points)
        box = (int(left * SCALE), int(high * SCALE), int(right * SCALE) + 1, int(low * SCALE) + 1)
        wide, tall = max(1, box[2] - box[0]), max(1, box[3] - box[1])
        ramp = np.linspace(top, bottom, tall).astype(np.uint8)
        fill = Image.fromarray(ramp[:, None, :]).resize((wide, tall), Image.Resampling.NEAREST)
        mask = Image.new("1", (wide, tall))
        ImageDraw.Draw(mask).polygon([(x * SCALE - box[0], y * SCALE - box[1]) for x, y in points], fill=1)
        self.picture.paste(fill, box[:2], mask)
        self._mark.polygon(list(points), fill=label)


class Sketch:
    """One thing, or one part of it, being painted in the thing's own coordinates."""

    def __init__(
        self, canvas: Canvas, index: int, origin: tuple[float, float], unit: tuple[float, float], part: int = -1
    ) -> None:
        self.canvas = canvas
        self.rng = canvas.rng
        self.mood = canvas.mood
        self._index = index
        self._part = part
        self._origin = origin
        self._unit = unit
        self.pixels = abs(unit[1])

    def part(self, name: str) -> Sketch:
        """Begin one part of the thing: a wheel, a window; what is painted on the sketch returned belongs to it."""
        parts = self.canvas.subjects[self._index].parts
        parts.append(name)
        return Sketch(self.canvas, self._index, self._origin, self._unit, len(parts) - 1)

    def say(self, *attributes: str) -> None:
        """Note what else is true of the thing, such as its colour."""
        self.canvas.subjects[self._index].attributes += attributes

    def poly(self, points: Points, fill: Fill, material: Material = Material.PLAIN, *, glows: bool = False) -> None:
        """Fill a polygon."""
        self.canvas.polygon([self._at(x, y) for x, y in points], fill, self._label(material, glows))

    def gradient(
        self, points: Points, top: RGB, bottom: RGB, material: Material = Material.PLAIN, *, glows: bool = False
    ) -> None:
        """Fill a polygon with a gradient from top to bottom."""
        self.canvas.gradient([self._at(x, y) for x, y in points], top, bottom, self._label(material, glows))

    def box(
        self,
        left: float,
        low: float,
        right: float,
        high: float,
        fill: Fill,
        material: Material = Material.PLAIN,
        *,
        glows: bool = False,
    ) -> None:
        """Fill an upright rectangle."""
        self.poly([(left, low), (right, low), (right, high), (left, high)], fill, material, glows=glows)

    def oval(
        self,
        x: float,
        y: float,
        across: float,
        down: float,
        fill: Fill,
        material: Material = Material.PLAIN,
        *,
        glows: bool = False,
    ) -> None:
        """Fill an ellipse around (x, y) with two half-axes."""
        (x, y), across, down = self._at(x, y), abs(across * self._unit[0]), abs(down * self._unit[1])
        corners = (x - across, y - down, x + across, y + down)
        self.canvas.ellipse(corners, fill, self._label(material, glows))

    def line(self, points: Points, width: float, fill: Fill, material: Material = Material.PLAIN) -> None:
        """Draw a line; its width is in units of the thing."""
        self.canvas.line([self._at(x, y) for x, y in points], width * self.pixels, fill, self._label(material, False))

    def shadow(self, x: float, across: float, down: float = 0.04) -> None:
        """Lay a soft shadow on the ground below."""
        strength = 40 if self.mood.hour == "night" else 60
        self.oval(x, 0, across, down, (10, 14, 30, strength))

    def _at(self, x: float, y: float) -> tuple[float, float]:
        return self._origin[0] + x * self._unit[0], self._origin[1] + y * self._unit[1]

    def _label(self, material: Material, glows: bool) -> int:
        return self.canvas.label(Layer(self._index, self._part, material, glows))


def arc(
    x: float, y: float, across: float, down: float, start: float, stop: float, n: int = 14
) -> list[tuple[float, float]]:
    """Return points on an ellipse from one angle to another, in turns (0 is right, 0.25 is up)."""
    turns = [2 * pi * (start + (stop - start) * i / (n - 1)) for i in range(n)]
    return [(x + across * cos(turn), y + down * sin(turn)) for turn in turns]


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
