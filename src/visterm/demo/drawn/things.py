"""The table of things that a scene can hold: who paints each, how large it is, and where it can be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from visterm.demo.drawn import buildings, creatures, plants, vehicles
from visterm.demo.drawn.animals import QUADRUPEDS
from visterm.demo.drawn.canvas import Sketch


@dataclass(frozen=True, slots=True)
class Thing:
    """A thing that can be put into a scene.

    Attributes
    ----------
    paint : callable
        Paints it into a sketch whose unit is about the thing's height.
    size : float
        Its unit, as a share of the picture's short side, where it is a main subject in the foreground.
    where : str
        "land", "water", "air" or "deep" (under water).
    aside : float
        How much smaller it is where it is not a main subject: people and flowers beside a house.
    """

    paint: Callable[[Sketch], None]
    size: float
    where: str = "land"
    aside: float = 1.0


_ANIMAL_SIZES = {
    "horse": 0.46, "cow": 0.46, "elephant": 0.56, "camel": 0.46, "giraffe": 0.34, "deer": 0.44, "dog": 0.48, "cat": 0.5,
    "fox": 0.46, "sheep": 0.4, "pig": 0.42, "rabbit": 0.52,
}  # fmt: skip

THINGS: dict[str, Thing] = {
    "house": Thing(buildings.house, 0.55),
    "church": Thing(buildings.church, 0.62),
    "tower": Thing(buildings.tower, 0.66),
    "castle": Thing(buildings.castle, 0.62),
    "barn": Thing(buildings.barn, 0.56),
    "skyscraper": Thing(buildings.skyscraper, 0.75),
    "lighthouse": Thing(buildings.lighthouse, 0.66),
    "windmill": Thing(buildings.windmill, 0.62),
    "tent": Thing(buildings.tent, 0.4),
    "bridge": Thing(buildings.bridge, 0.44, "water"),
    "car": Thing(vehicles.car, 0.34, aside=0.65),
    "bus": Thing(vehicles.bus, 0.34),
    "lorry": Thing(vehicles.lorry, 0.32),
    "bicycle": Thing(vehicles.bicycle, 0.44),
    "train": Thing(vehicles.train, 0.34),
    "aeroplane": Thing(vehicles.aeroplane, 0.32, "air", 0.5),
    "balloon": Thing(vehicles.balloon, 0.46, "air"),
    "sailboat": Thing(vehicles.sailboat, 0.52, "water"),
    "ship": Thing(vehicles.ship, 0.32, "water"),
    "rowing boat": Thing(vehicles.rowing_boat, 0.34, "water"),
    "oak": Thing(plants.oak, 0.7),
    "birch": Thing(plants.birch, 0.7),
    "pine": Thing(plants.pine, 0.7),
    "palm": Thing(plants.palm, 0.72),
    "cactus": Thing(plants.cactus, 0.56),
    "tulip": Thing(plants.tulip, 0.56, aside=0.5),
    "sunflower": Thing(plants.sunflower, 0.66),
    "daisy": Thing(plants.daisy, 0.56),
    "mushroom": Thing(plants.mushroom, 0.48, aside=0.4),
    "gull": Thing(creatures.gull, 0.26, "air", 0.6),
    "duck": Thing(creatures.duck, 0.34, "water", 0.6),
    "owl": Thing(creatures.owl, 0.58),
    "penguin": Thing(creatures.penguin, 0.5),
    "fish": Thing(creatures.fish, 0.34, "deep"),
    "butterfly": Thing(creatures.butterfly, 0.34, "air"),
    "person": Thing(creatures.person, 0.6, aside=0.6),
    **{name: Thing(QUADRUPEDS[name], size) for name, size in _ANIMAL_SIZES.items()},
}
"""Every thing by its name, which is also its tag."""
