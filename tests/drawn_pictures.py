"""A photo library of a few shapes, drawn from a seed: which tags are true is known, and people's differ from them."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

SIZE = (160, 120)
SKIES = {"": (120, 180, 235), "sunset": (235, 150, 90), "night": (25, 30, 60)}
GROUNDS = {
    "grass": (80, 150, 60), "sea": (30, 90, 150), "lake": (70, 130, 160), "snow": (235, 238, 245),
    "street": (110, 110, 115), "sand": (220, 195, 140),
}  # fmt: skip
BESIDE = {
    "grass": ("oak", "pine", "house"), "sea": ("boat",), "lake": ("boat", "pine"), "snow": ("pine", "house"),
    "street": ("car", "house"), "sand": ("palm",),
}  # fmt: skip
IS_A = (
    ("sea", "water"), ("lake", "water"), ("oak", "tree"), ("pine", "tree"), ("palm", "tree"), ("boat", "vehicle"),
    ("car", "vehicle"),
)  # fmt: skip
PART_OF = (("roof", "house"), ("door", "house"))
SPELLINGS = {
    "sky": "Himmel skies skye", "sea": "Meer seas seea", "lake": "See lakes lac", "water": "Wasser waters watter",
    "grass": "Gras grasses gras", "snow": "Schnee snows snoww", "street": "Straße streets stret",
    "sand": "Sand sands sandd", "tree": "Baum trees tre", "oak": "Eiche oaks oack", "pine": "Kiefer pines pinne",
    "palm": "Palme palms pallm", "house": "Haus houses hous", "roof": "Dach roofs rooof", "door": "Tür doors dor",
    "boat": "Boot boats boaat", "car": "Auto cars carr", "sun": "Sonne suns sunn", "moon": "Mond moons mooon",
    "cloud": "Wolke clouds clowd", "night": "Nacht nights nigth", "sunset": "Sonnenuntergang sunsets sunnset",
    "vehicle": "Fahrzeug vehicles vehicel",
}  # fmt: skip
"""German, plural and misspelt."""
GROUPS = {word.casefold(): tag for tag, words in SPELLINGS.items() for word in (tag, *words.split())}
FORGOTTEN, SPELT, WRONG = 0.2, 0.35, 0.02
TENTHS = ("train", "train", "test", "train", "train", "valid", "train", "test", "train", "train")


class Scene(NamedTuple):
    """A picture and what is seen on it, sorted."""

    image: NDArray[np.uint8]
    tags: tuple[str, ...]


class DrawnPicture(NamedTuple):
    """A picture of a library, its tags as a person wrote them, and those that are true."""

    file_name: str
    split: str
    given: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True)
class DrawnLibrary:
    """A folder with `images/`, `tags.csv`, `isa.csv` and `part_of.csv`."""

    folder: Path
    pictures: tuple[DrawnPicture, ...]

    @property
    def images(self) -> Path:
        return self.folder / "images"

    @property
    def tags_file(self) -> Path:
        return self.folder / "tags.csv"


def draw_scene(seed: int | Sequence[int], size: tuple[int, int] = SIZE) -> Scene:
    """Draw a sky, a ground, and a few things that belong there."""
    rng = Random(repr(seed))
    hour, ground = rng.choices(list(SKIES), (7, 2, 2))[0], rng.choices(list(GROUNDS), (4, 2, 1, 1, 2, 1))[0]
    tags = {"sky", ground, hour} - {""}
    picture = Image.new("RGB", size, SKIES[hour])
    pen = ImageDraw.Draw(picture)
    horizon = int(size[1] * rng.uniform(0.35, 0.65))
    light, colour = ("moon", (245, 245, 220)) if hour == "night" else ("sun", (255, 225, 60))
    if rng.random() < 0.5:
        tags.add(light)
        _disc(pen, rng.randrange(size[0]), horizon * 0.4, size[1] * 0.09, colour)
    if rng.random() < 0.5:
        tags.add("cloud")
        x, y = rng.randrange(size[0]), horizon * rng.uniform(0.2, 0.6)
        for step in (-0.1, 0, 0.1):
            _disc(pen, x + step * size[0], y, size[1] * 0.08, (215, 215, 220))
    pen.rectangle((0, horizon, *size), fill=GROUNDS[ground])
    if ground in ("sea", "lake"):
        for y in range(horizon + 3, size[1], 6 if ground == "sea" else 11):
            pen.line((0, y, size[0], y), fill=(90, 140, 190))
    for thing in rng.sample(BESIDE[ground], rng.randint(0, len(BESIDE[ground]))):
        tags.add(thing)
        _paint(pen, thing, size[0] * rng.uniform(0.15, 0.85), horizon + size[1] * 0.12, size[1] * rng.uniform(0.3, 0.5))
    tags |= {whole for part, whole in IS_A if part in tags}
    tags |= {part for part, whole in PART_OF if whole in tags}
    generator = np.random.default_rng(rng.randrange(2**32))
    light = Image.fromarray(generator.integers(0, 60, (7, 9), np.uint8)).resize(size, Image.Resampling.BICUBIC)
    pixels = np.asarray(picture) + np.asarray(light, int)[..., None] - 30  # else plain scenes would be duplicates
    pixels += generator.integers(-9, 10, pixels.shape)
    return Scene(np.clip(pixels, 0, 255).astype(np.uint8), tuple(sorted(tags)))


def _paint(pen: ImageDraw.ImageDraw, thing: str, x: float, y: float, high: float) -> None:
    """Paint a thing that stands at (x, y)."""
    top = y - high
    if thing == "house":
        pen.rectangle((x - high / 2, y - 0.6 * high, x + high / 2, y), fill=(200, 170, 140))
        pen.polygon((x - 0.6 * high, y - 0.6 * high, x, top, x + 0.6 * high, y - 0.6 * high), fill=(170, 60, 50))
        pen.rectangle((x - 0.1 * high, y - 0.35 * high, x + 0.1 * high, y), fill=(90, 60, 40))
    elif thing == "boat":
        pen.polygon(
            (x - high / 2, y, x + high / 2, y, x + high / 3, y + high / 5, x - high / 3, y + high / 5), (120, 50, 40)
        )
        pen.polygon((x, top, x, y - 2, x + high / 2, y - 2), fill=(250, 250, 250))
    elif thing == "car":
        pen.rectangle((x - high / 2, y - high / 3, x + high / 2, y), fill=(200, 30, 30))
        pen.rectangle((x - high / 4, y - high / 2, x + high / 4, y - high / 3), fill=(170, 210, 230))
        for side in (-1, 1):
            _disc(pen, x + side * high / 3, y, high / 9, (20, 20, 20))
    else:
        pen.rectangle((x - 0.06 * high, y - high / 2, x + 0.06 * high, y), fill=(110, 75, 45))
        if thing == "pine":
            pen.polygon((x, top, x - high / 4, y - high / 5, x + high / 4, y - high / 5), fill=(20, 80, 45))
        elif thing == "oak":
            _disc(pen, x, y - 0.65 * high, high / 3, (50, 110, 40))
        else:
            for side in (-1, 1):
                pen.line((x, y - high / 2, x + side * high / 3, y - 0.75 * high), fill=(60, 150, 60), width=4)
                pen.line((x, y - high / 2, x + side * high / 3, y - 0.4 * high), fill=(60, 150, 60), width=4)


def _disc(pen: ImageDraw.ImageDraw, x: float, y: float, radius: float, colour: tuple[int, int, int]) -> None:
    pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=colour)


def draw_library(folder: Path, n_scenes: int, seed: int = 0) -> DrawnLibrary:
    """Draw a library; a person writes most of a picture's tags, some in other words, few of them wrong."""
    (folder / "images").mkdir(parents=True)
    pictures = []
    for index in range(n_scenes):
        scene, rng = draw_scene((seed, index)), Random(f"{seed}/{index}")
        name = f"{index:06d}.jpg"
        Image.fromarray(scene.image).save(folder / "images" / name, quality=90)
        given = [tag for tag in scene.tags if rng.random() >= FORGOTTEN] or ["sky"]
        given += [rng.choice(list(SPELLINGS))] * (rng.random() < WRONG * len(given))
        written = [rng.choice(SPELLINGS[tag].split()) if rng.random() < SPELT else tag for tag in given]
        split = TENTHS[(index + index // 10) % 10]
        pictures.append(DrawnPicture(name, split, tuple(dict.fromkeys(written)), scene.tags))
    rows = ((picture.file_name, ";".join(picture.given), picture.split) for picture in pictures)
    _write(folder / "tags.csv", ("file_name", "tags", "split"), rows)
    _write(folder / "isa.csv", ("child", "parent"), IS_A)
    _write(folder / "part_of.csv", ("part", "whole"), PART_OF)
    return DrawnLibrary(folder, tuple(pictures))


def _write(path: Path, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows((columns, *rows))
