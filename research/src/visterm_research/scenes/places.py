"""Places: where photos are taken, how often, what the ground looks like there and what is usually seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from visterm_research.scenes import land
from visterm_research.scenes.buildings import skyscraper
from visterm_research.scenes.canvas import Canvas
from visterm_research.scenes.materials import Material
from visterm_research.scenes.sky import sky

Band: TypeAlias = "tuple[float, float] | None"


@dataclass(frozen=True, slots=True)
class Stage:
    """Where things can be put in one scene: bands of heights, in pixels from the top."""

    # From the farthest to the nearest height for things that stand, swim, fly or dive there
    land: Band = None
    water: Band = None
    air: Band = None
    deep: Band = None


@dataclass(frozen=True, slots=True)
class Place:
    """A kind of scene."""

    weight: float  # How often people take photos there, relative to other places
    build: Callable[[Canvas], Stage]  # Paints sky and ground and says where things can be put
    main: dict[str, float]  # The main subjects, with weights; steep, so that tags have a long tail
    extras: dict[str, float] = field(default_factory=dict)
    """What else is often there, with the chance that it is in a scene."""
    mild: bool = False  # True where there is no winter and no autumn
    plain: bool = False  # True where neither hour nor weather shows, and where a main subject never lacks
    zoom: float = 1.0  # How much larger than elsewhere main subjects are


def _horizon(canvas: Canvas, low: float = 0.36, high: float = 0.58) -> float:
    horizon = canvas.height * canvas.rng.uniform(low, high)
    sky(canvas, horizon)
    return horizon


def _behind(canvas: Canvas, horizon: float, *, mountains: float, hills: float, forest: float) -> None:
    """Paint what stands on the horizon, each with its chance."""
    rng = canvas.rng
    if rng.random() < mountains:
        land.mountains(canvas, horizon)
    if rng.random() < hills:
        land.hills(canvas, horizon)
    if rng.random() < forest:
        land.forest(canvas, horizon)


def _stand(canvas: Canvas, horizon: float) -> tuple[float, float]:
    return horizon + 0.12 * (canvas.height - horizon), canvas.height * 0.97


def _village(canvas: Canvas) -> Stage:
    horizon = _horizon(canvas)
    _behind(canvas, horizon, mountains=0.15, hills=0.35, forest=0.25)
    land.grass(canvas, horizon)
    if canvas.rng.random() < 0.3:
        land.lane(canvas, horizon)
    return Stage(land=_stand(canvas, horizon), air=(0.1 * horizon, 0.6 * horizon))


def _farm(canvas: Canvas) -> Stage:
    horizon = _horizon(canvas)
    _behind(canvas, horizon, mountains=0.08, hills=0.4, forest=0.3)
    if canvas.rng.random() < 0.5:
        land.field(canvas, horizon)
    else:
        land.grass(canvas, horizon)
    return Stage(land=_stand(canvas, horizon), air=(0.1 * horizon, 0.6 * horizon))


def _city(canvas: Canvas) -> Stage:
    horizon = _horizon(canvas, 0.56, 0.68)
    rng, h = canvas.rng, canvas.height
    n = rng.randint(4, 7)
    for i in range(n):
        x = canvas.width * (i + rng.uniform(0.2, 0.8)) / n
        skyscraper(canvas.thing("skyscraper", x, horizon + 3, canvas.short * rng.uniform(0.3, 0.56)))
    land.ground(canvas, "street", horizon, (150, 148, 146), (126, 124, 124), Material.STONE, 0.0)
    if rng.random() < 0.75:
        land.road(canvas, horizon + 0.3 * (h - horizon), h)
    return Stage(land=(horizon + 0.35 * (h - horizon), h * 0.96), air=(0.1 * horizon, 0.4 * horizon))


def _road(canvas: Canvas) -> Stage:
    horizon = _horizon(canvas)
    _behind(canvas, horizon, mountains=0.3, hills=0.4, forest=0.35)
    land.grass(canvas, horizon)
    top = horizon + 0.42 * (canvas.height - horizon)
    land.road(canvas, top, canvas.height * canvas.rng.uniform(0.94, 1.0))
    return Stage(land=(top, canvas.height * 0.92), air=(0.1 * horizon, 0.6 * horizon))


def _sea(canvas: Canvas) -> Stage:
    horizon = _horizon(canvas)
    if canvas.rng.random() < 0.2:
        land.island(canvas, horizon)
    land.sea(canvas, horizon)
    h = canvas.height
    return Stage(water=(horizon + 0.12 * (h - horizon), h * 0.88), air=(0.15 * horizon, 0.8 * horizon))


def _beach(canvas: Canvas) -> Stage:
    horizon = _horizon(canvas, 0.3, 0.45)
    rng, h = canvas.rng, canvas.height
    if rng.random() < 0.2:
        land.island(canvas, horizon)
    land.sea(canvas, horizon)
    top = horizon + (h - horizon) * rng.uniform(0.36, 0.6)
    land.beach(canvas, top)
    if rng.random() < 0.25:
        land.rocks(canvas, top + 4, h)
    return Stage(
        land=(top + 0.2 * (h - top), h * 0.97), water=(horizon + 4, top - 4), air=(0.15 * horizon, 0.9 * horizon)
    )


def _coast(canvas: Canvas) -> Stage:
    horizon = _horizon(canvas)
    h = canvas.height
    land.sea(canvas, horizon)
    shore = horizon + (h - horizon) * canvas.rng.uniform(0.55, 0.75)
    land.grass(canvas, shore)
    for _ in range(canvas.rng.randint(1, 3)):
        land.rocks(canvas, shore + 2, h)
    return Stage(land=(shore + 3, h * 0.9), water=(horizon + 4, shore - 3), air=(0.15 * horizon, 0.9 * horizon))


def _lake(canvas: Canvas) -> Stage:
    horizon = _horizon(canvas)
    _behind(canvas, horizon, mountains=0.6, hills=0.3, forest=0.5)
    land.grass(canvas, horizon)
    if canvas.rng.random() < 0.6:
        top, low = land.lake(canvas, horizon)
    else:
        top, low = land.river(canvas, horizon)
    return Stage(
        land=(canvas.height * 0.95, canvas.height * 0.99), water=(top + 5, low - 3), air=(0.15 * horizon, 0.8 * horizon)
    )


def _mountains(canvas: Canvas) -> Stage:
    horizon = _horizon(canvas, 0.5, 0.66)
    land.mountains(canvas, horizon)
    if canvas.rng.random() < 0.4:
        land.forest(canvas, horizon)
    land.grass(canvas, horizon)
    if canvas.rng.random() < 0.35:
        land.rocks(canvas, horizon + 6, canvas.height)
    return Stage(land=_stand(canvas, horizon), air=(0.15 * horizon, 0.6 * horizon))


def _forest(canvas: Canvas) -> Stage:
    horizon = _horizon(canvas, 0.4, 0.56)
    land.forest(canvas, horizon)
    land.grass(canvas, horizon)
    return Stage(land=_stand(canvas, horizon), air=(0.2 * horizon, 0.8 * horizon))


def _desert(canvas: Canvas) -> Stage:
    horizon = _horizon(canvas)
    land.desert(canvas, horizon)
    if canvas.rng.random() < 0.2:
        land.rocks(canvas, horizon + 6, canvas.height)
    return Stage(land=_stand(canvas, horizon), air=(0.1 * horizon, 0.7 * horizon))


def _savanna(canvas: Canvas) -> Stage:
    horizon = _horizon(canvas)
    _behind(canvas, horizon, mountains=0.25, hills=0.0, forest=0.0)
    land.savanna(canvas, horizon)
    return Stage(land=_stand(canvas, horizon), air=(0.1 * horizon, 0.7 * horizon))


def _arctic(canvas: Canvas) -> Stage:
    horizon = _horizon(canvas)
    _behind(canvas, horizon, mountains=0.5, hills=0.0, forest=0.1)
    land.snow(canvas, horizon)
    return Stage(land=_stand(canvas, horizon), air=(0.1 * horizon, 0.7 * horizon))


def _heaven(canvas: Canvas) -> Stage:
    h = canvas.height
    horizon = h * canvas.rng.uniform(0.8, 1.0)
    sky(canvas, horizon)
    if horizon < h * 0.94:
        _behind(canvas, horizon, mountains=0.3, hills=0.5, forest=0.2)
        land.grass(canvas, horizon)
    return Stage(air=(0.2 * horizon, 0.75 * horizon))


def _deep(canvas: Canvas) -> Stage:
    land.deep(canvas)
    return Stage(deep=(0.2 * canvas.height, 0.8 * canvas.height))


def _closeup(canvas: Canvas) -> Stage:
    land.blurred_leaves(canvas)
    h = canvas.height
    return Stage(land=(h * 0.92, h * 1.0), air=(0.3 * h, 0.7 * h))


PLACES: dict[str, Place] = {
    "village": Place(
        1.25, _village,
        {"house": 8, "church": 2, "person": 2, "cat": 1.5, "dog": 1.5, "bicycle": 1, "tower": 0.8, "castle": 0.7},
        {
            "oak": 0.4, "house": 0.35, "birch": 0.2, "person": 0.15, "car": 0.12, "pine": 0.12, "tulip": 0.08,
            "church": 0.08,
        },
    ),
    "farm": Place(
        1.15, _farm,
        {"cow": 4, "horse": 3, "sheep": 3, "barn": 2.4, "train": 1.4, "pig": 1.1, "windmill": 0.9, "person": 0.8},
        {"oak": 0.28, "barn": 0.14, "birch": 0.12, "house": 0.12, "person": 0.08, "sheep": 0.06},
    ),
    "city": Place(
        1.0, _city, {"car": 4, "person": 3, "bus": 2.4, "bicycle": 1.4, "lorry": 1, "dog": 0.5},
        {"person": 0.35, "car": 0.25, "birch": 0.12, "aeroplane": 0.03},
    ),
    "road": Place(0.9, _road, {"car": 6, "lorry": 2, "bus": 1.2, "bicycle": 1.2}, {"car": 0.1}),
    "sea": Place(1.0, _sea, {"sailboat": 6, "ship": 3, "gull": 1.5}, {"gull": 0.25, "sailboat": 0.2}, mild=True),
    "beach": Place(
        1.0, _beach, {"person": 4, "palm": 4, "dog": 0.8, "tent": 0.3},
        {"palm": 0.25, "sailboat": 0.25, "gull": 0.2, "person": 0.2, "ship": 0.08}, mild=True,
    ),
    "coast": Place(
        0.4, _coast, {"lighthouse": 4, "gull": 1, "house": 0.5}, {"gull": 0.35, "sailboat": 0.25, "ship": 0.1}
    ),
    "lake": Place(
        0.9, _lake, {"duck": 3, "rowing boat": 2.5, "sailboat": 1.6, "bridge": 1.3},
        {"birch": 0.15, "duck": 0.12, "pine": 0.1},
    ),
    "mountain": Place(
        0.9, _mountains,
        {"house": 1.5, "tent": 1.5, "person": 1.5, "deer": 1, "castle": 0.8, "train": 0.8, "cow": 0.7},
        {"pine": 0.5, "birch": 0.1},
    ),
    "forest": Place(
        0.9, _forest,
        {"deer": 2, "fox": 1.5, "mushroom": 1, "person": 1, "rabbit": 1, "owl": 0.8, "tent": 0.6},
        {"pine": 0.6, "oak": 0.5, "birch": 0.4, "mushroom": 0.12},
    ),
    "desert": Place(
        0.45, _desert, {"camel": 3, "cactus": 3, "tent": 0.6, "car": 0.4}, {"cactus": 0.3, "palm": 0.2}, mild=True
    ),
    "savanna": Place(
        0.45, _savanna, {"elephant": 3, "giraffe": 2.2, "car": 0.4}, {"oak": 0.35, "giraffe": 0.06}, mild=True
    ),
    "arctic": Place(
        0.35, _arctic, {"penguin": 2.2, "person": 0.7, "tent": 0.6, "fox": 0.5, "deer": 0.5}, {"pine": 0.2}
    ),
    "heaven": Place(
        0.6, _heaven, {"balloon": 2.4, "aeroplane": 2.4, "gull": 2}, {"balloon": 0.12, "gull": 0.06}, mild=True
    ),
    "deep": Place(0.5, _deep, {"fish": 1}, {"fish": 0.7}, mild=True, plain=True, zoom=1.15),
    "closeup": Place(
        1.2, _closeup,
        {
            "tulip": 2.2, "cat": 2.2, "dog": 2.2, "daisy": 1.8, "sunflower": 1.4, "butterfly": 1, "rabbit": 0.7,
            "owl": 0.4, "mushroom": 0.4,
        },
        {"daisy": 0.15, "butterfly": 0.12}, plain=True, zoom=1.4,
    ),
}  # fmt: skip
"""Every kind of place by its name."""
