"""A scene: a place, a mood and a few things that belong there, drawn from a seed, with all that is true of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import find_objects

from visterm.core.errors import UserError
from visterm_research.scenes.canvas import Canvas, Mood
from visterm_research.scenes.light import develop
from visterm_research.scenes.materials import TILE
from visterm_research.scenes.places import PLACES, Band, Place, Stage
from visterm_research.scenes.things import THINGS, implied

Box: TypeAlias = tuple[int, int, int, int]

SIZES: tuple[tuple[int, int], ...] = ((160, 120), (192, 128), (176, 132), (120, 160), (128, 192))
SMALLEST_SIDE = 48
PART_PIXELS = 8  # A part is in the truth from this many visible pixels on
OBJECT_SHARE = 0.004  # An object is in the truth from this visible share of the picture on
OBJECT_TAG_SHARE = 0.009
"""An object is also a tag of the scene from this visible share of the picture on, `TAG_SHARE` aside."""
PART_TAG_SHARE = 0.012  # A part is also a tag of the scene from this visible share of the picture on
TAG_SHARE: dict[str, float] = {
    "sky": 0.25,
    "grass": 0.1,
    "snow": 0.08,
    "street": 0.08,
    "gull": 0.005,
    "star": 0.0005,
    "moon": 0.0015,
    "sun": 0.0015,
}
"""From which visible share on a background, or a small light, is a tag: nobody tags a sliver of sky."""
SEASONAL: dict[str, set[str]] = {
    "summer": set(),
    "autumn": {"grass", "oak", "birch"},
    "winter": {"snow", "forest", "house", "oak", "pine"},
}
"""What shows that it is autumn or winter."""
ATTRIBUTE_SHARE = 0.02  # A colour is a tag from this visible share of the picture on


@dataclass(frozen=True, slots=True)
class Part:
    """A visible part of an object; the box is (left, top, right, bottom) in pixels, right and bottom not included."""

    name: str
    box: Box


@dataclass(frozen=True, slots=True)
class DrawnObject:
    """A visible object of a scene, the box of what is seen of it, its visible parts, and attributes such as "red"."""

    name: str
    box: Box
    parts: tuple[Part, ...] = ()
    attributes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Scene:
    """A drawn photo and the truth about it."""

    image: NDArray[np.uint8]  # shape (height, width, 3)
    tags: tuple[str, ...]
    """The true tags, sorted: objects, large parts, what they are kinds of or consist of, colours, season, hour and
    weather."""
    objects: tuple[DrawnObject, ...]  # From back to front
    place: str  # The kind of place, a name of `PLACES`


def draw_scene(seed: int | Sequence[int] | np.random.Generator, size: tuple[int, int] | None = None) -> Scene:
    """Draw one scene: scene `i` of a library with seed `s` is ``draw_scene((s, i))``.

    `size` is width and height in pixels, 48 to 384 (else UserError), or drawn from `SIZES`.
    """
    generator = seed if isinstance(seed, np.random.Generator) else np.random.default_rng(seed)
    rng = Random(int(generator.integers(2**62)))
    if size is None:
        size = rng.choices(SIZES, (4, 3, 2, 1.5, 1))[0]
    elif not all(SMALLEST_SIDE <= side <= TILE for side in size):
        raise UserError(f"size is {size!r}; expected (width, height), each {SMALLEST_SIDE} to {TILE} pixels.")
    name = rng.choices(list(PLACES), [place.weight for place in PLACES.values()])[0]
    place = PLACES[name]
    canvas = Canvas(size, rng, _mood(rng, name, place))
    stage = place.build(canvas)
    _populate(canvas, place, stage)
    labels = np.array(canvas.labels, dtype=np.int32)
    objects, tags = _truth(canvas, labels)
    return Scene(develop(canvas, labels), tags, objects, name)


def _mood(rng: Random, name: str, place: Place) -> Mood:
    hour = rng.choices(("day", "sunset", "night"), (0.74, 0.15, 0.11))[0]
    season = rng.choices(("summer", "autumn", "winter"), (0.68, 0.16, 0.16))[0]
    if place.mild:
        season = "summer"
    if name == "arctic":
        season = "winter"
    if place.plain:
        return Mood("day", "summer" if season == "winter" else season)
    falling = "snow" if season == "winter" else "rain"
    odds = (0.84, 0.01 if name in ("desert", "savanna") else 0.1, 0.05)
    weather = rng.choices(("clear", falling, "fog"), odds)[0] if hour == "day" else "clear"
    return Mood(hour, season, weather)


def _populate(canvas: Canvas, place: Place, stage: Stage) -> None:
    """Choose things and paint them from back to front."""
    rng = canvas.rng
    cast: list[tuple[float, str, float]] = []
    for name, chance in place.extras.items():
        while rng.random() < chance:
            _cast(canvas, cast, stage, name, rng.uniform(0.0, 0.6), THINGS[name].aside)
            chance *= 0.5
    if place.plain or rng.random() < 0.93:
        name = rng.choices(list(place.main), list(place.main.values()))[0]
        n = rng.choices((1, 2, 3), (0.7, 0.18, 0.12))[0]
        for i in range(n):
            _cast(canvas, cast, stage, name, rng.uniform(0.35, 1.0) if i == 0 else rng.uniform(0.2, 0.8), place.zoom)
    for y, name, size in sorted(cast):
        margin = 0.14 if size > 0.3 * canvas.short else 0.04
        x = rng.uniform(margin, 1 - margin) * canvas.width
        THINGS[name].paint(canvas.thing(name, x, y, size, flip=rng.random() < 0.5))


def _cast(
    canvas: Canvas, cast: list[tuple[float, str, float]], stage: Stage, name: str, near: float, scale: float = 1.0
) -> None:
    """Set a thing's height in the picture and its size: the nearer, the lower and the larger."""
    thing = THINGS[name]
    band: Band = getattr(stage, thing.where)
    if band is None:
        return
    y = band[0] + (band[1] - band[0]) * near
    size = scale * thing.size * canvas.short * (0.42 + 0.68 * near) * canvas.rng.uniform(0.8, 1.15)
    cast.append((y, name, size))


def _truth(canvas: Canvas, labels: NDArray[np.int32]) -> tuple[tuple[DrawnObject, ...], tuple[str, ...]]:
    """Read off the labels what is seen of each thing and part, and what is therefore true of the scene."""
    areas = np.bincount(labels.ravel(), minlength=len(canvas.layers))
    boxes: dict[tuple[int, int], Box] = {}
    seen: dict[tuple[int, int], int] = {}
    for number, found in enumerate(find_objects(labels, max_label=len(canvas.layers) - 1), start=1):
        if found is None:
            continue
        layer = canvas.layers[number]
        box = (found[1].start, found[0].start, found[1].stop, found[0].stop)
        for key in {(layer.thing, -1), (layer.thing, layer.part)}:
            a = boxes.get(key, box)
            boxes[key] = min(a[0], box[0]), min(a[1], box[1]), max(a[2], box[2]), max(a[3], box[3])
            seen[key] = seen.get(key, 0) + int(areas[number])
    whole = labels.size
    objects: list[DrawnObject] = []
    tags: set[str] = set()
    for index, subject in enumerate(canvas.subjects):
        share = seen.get((index, -1), 0) / whole
        tag_share = TAG_SHARE.get(subject.name, OBJECT_TAG_SHARE)
        if share < min(OBJECT_SHARE, tag_share):
            continue
        parts = []
        for i, part in enumerate(subject.parts):
            area = seen.get((index, i), 0)
            if area >= PART_PIXELS:
                parts.append(Part(part, boxes[index, i]))
                if area >= PART_TAG_SHARE * whole:
                    tags.add(part)
        attributes = subject.attributes if share >= ATTRIBUTE_SHARE else ()
        objects.append(DrawnObject(subject.name, boxes[index, -1], tuple(parts), attributes))
        if share >= tag_share:
            tags.update((subject.name, *implied(subject.name), *attributes))
    mood = canvas.mood
    tags.update({mood.hour, mood.weather} - {"day", "clear"})
    if SEASONAL[mood.season] & {thing.name for thing in objects}:  # something that bears the marks of the season
        tags.add(mood.season)
    return tuple(objects), tuple(sorted(tags))
