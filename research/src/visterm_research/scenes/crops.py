"""Drawn objects and their parts, cut out as separate images with one tag each: data for labelling objects and parts."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

from visterm.core.checks import check_count, check_number
from visterm.core.errors import StorageError, UserError
from visterm.core.progress import SILENT, Progress
from visterm_research.scenes.library import (
    DrawnFolder,
    drawn_folder,
    in_threads,
    is_drawn,
    split_of,
    write_csv,
    write_mark,
)
from visterm_research.scenes.scene import Box, Scene, draw_scene
from visterm_research.scenes.things import IS_A, PART_OF, THINGS

KIND = "drawn set of crops"
SIZE = (384, 288)
"""Scenes are drawn as large as they can be: parts of a picture of usual size have a few pixels."""
MARGIN = 0.1
"""Context on each side of a box, as a share of its longer side."""
SLIMMEST = 0.5
"""A crop's shorter side is at least this share of its longer one: a mast is shown with some sky."""
_JPEG: dict[str, Any] = {"format": "JPEG", "quality": 90}


class Crop(NamedTuple):
    """One image of an object or of a part, with its only tag; the file name is relative to the `images` folder."""

    file_name: str
    tag: str
    split: str


class CropPair(NamedTuple):
    """A crop of an object and a crop of a part of that very object, with their tags."""

    object_image: str
    object: str
    part_image: str
    part: str
    split: str


@dataclass(frozen=True, slots=True)
class DrawnCrops(DrawnFolder):
    """Crops of drawn scenes, with one tag each: where they lie and what they show."""

    crops: tuple[Crop, ...]  # In the order of their names
    pairs: tuple[CropPair, ...]  # Of every part that was cut out, with its object

    @property
    def part_of_file(self) -> Path:
        """The relations as they are drawn: part, whole."""
        return self.folder / "part_of.csv"


def draw_crops(
    folder: str | os.PathLike[str],
    *,
    n_scenes: int = 4000,
    seed: int = 0,
    side: int = 96,
    smallest: int = 16,
    n_jobs: int | None = None,
    progress: Progress = SILENT,
) -> DrawnCrops:
    """Draw scenes, cut out objects and parts, and write them to a folder, whole or not at all.

    From each scene the largest object of each name is cut out, and of each such object the largest part of each name,
    from the box and some context. So an object's crop shows its parts too, and parts that look alike (the roofs of
    house and church) bear the same tag. Stretches of land, water and sky are not cut out.

    The folder then holds ``images/``, ``tags.csv``, ``pairs.csv`` (the true pairs: object and part from one picture, in
    place of the LHI set of Mesnil et al. 2013, section 6.4), ``part_of.csv``, ``isa.csv`` and ``drawn.json`` (how it
    was made). Raises UserError if an argument is out of range; StorageError if something else lies at `folder`.

    Parameters
    ----------
    folder : path-like
        Where to write; earlier crops or an empty folder there are replaced, anything else is refused.
    n_scenes : int
        How many pictures: about 70 % train, 10 % valid, 20 % test. All crops of a picture are in one split.
    seed : int
        Scene `i` is ``draw_scene((seed, i), (384, 288))``; the same seed gives the same bytes, for any `n_jobs`.
    side : int
        Longer side of the crops in pixels, 16 to 384. All are scaled to it, as if each had been photographed by itself.
    smallest : int
        Objects and parts whose box is less than this many pixels long are left out.
    n_jobs : int or None
        Threads; None is all cores. Drawing is mostly Python, so more than two gain little.
    progress : Progress
    """
    check_count(n_scenes, "n_scenes")
    check_count(smallest, "smallest")
    check_number(seed, "seed", least=0)
    if isinstance(side, bool) or not 16 <= side <= max(SIZE):
        raise UserError(f"side is {side!r}; expected a whole number of pixels, 16 to {max(SIZE)}.")
    target = Path(folder)
    with drawn_folder(target, KIND) as temporary:
        images = temporary / "images"
        images.mkdir()
        crops: list[Crop] = []
        pairs: list[CropPair] = []
        for found in in_threads(lambda i: _draw_one(images, i, seed, side, smallest), n_scenes, n_jobs, progress):
            crops += found[0]
            pairs += found[1]
        write_csv(temporary / "tags.csv", ("file_name", "tags", "split"), crops)
        write_csv(temporary / "pairs.csv", CropPair._fields, pairs)
        write_csv(temporary / "part_of.csv", ("part", "whole"), PART_OF)
        write_csv(temporary / "isa.csv", ("child", "parent"), IS_A)
        settings: dict[str, object] = {"n_scenes": n_scenes, "seed": seed, "side": side, "smallest": smallest}
        write_mark(temporary, KIND, settings)
    return DrawnCrops(target, tuple(crops), tuple(pairs))


def read_drawn_crops(folder: str | os.PathLike[str]) -> DrawnCrops:
    """Read back what `draw_crops` wrote (the images stay on disk).

    Raises StorageError if there are no drawn crops at `folder`.
    """
    path = Path(folder)
    if not is_drawn(path, KIND):
        raise StorageError(f"There is no {KIND} at {path}. Draw one with draw_crops(folder).")
    crops = tuple(Crop(*row) for row in _rows(path / "tags.csv"))
    return DrawnCrops(path, crops, tuple(CropPair(*row) for row in _rows(path / "pairs.csv")))


def _rows(path: Path) -> Iterator[list[str]]:
    """Go through the lines of a table below its header."""
    with open(path, encoding="utf-8", newline="") as file:
        reader = csv.reader(file)
        next(reader)
        yield from reader


def _draw_one(images: Path, index: int, seed: int, side: int, smallest: int) -> tuple[list[Crop], list[CropPair]]:
    """Draw a scene, and save what is cut out of it."""
    scene = draw_scene((seed, index), SIZE)
    picture, split = Image.fromarray(scene.image), split_of(index)
    crops: list[Crop] = []
    pairs: list[CropPair] = []
    for number, (tag, box, of) in enumerate(_cut_out(scene, smallest)):
        crop = Crop(f"{index:06d}_{number:02d}.jpg", tag, split)
        left, top, right, bottom = window = _window(box, picture.size)
        scale = side / max(right - left, bottom - top)
        size = max(1, round((right - left) * scale)), max(1, round((bottom - top) * scale))
        picture.resize(size, Image.Resampling.BICUBIC, box=window).save(images / crop.file_name, **_JPEG)
        crops.append(crop)
        if of is not None:
            pairs.append(CropPair(crops[of].file_name, crops[of].tag, crop.file_name, tag, split))
    return crops, pairs


def _cut_out(scene: Scene, smallest: int) -> list[tuple[str, Box, int | None]]:
    """List what to cut out: tag, box, and for a part the place of its object in the list, which is before it."""
    found: list[tuple[str, Box, int | None]] = []
    things = [thing for thing in scene.objects if thing.name in THINGS]
    largest = {thing.name: thing for thing in sorted(things, key=lambda thing: _area(thing.box))}
    for name, thing in sorted(largest.items()):
        if _longer(thing.box) < smallest:
            continue
        place = len(found)
        found.append((name, thing.box, None))
        parts = {part.name: part.box for part in sorted(thing.parts, key=lambda part: _area(part.box))}
        found += [(part, box, place) for part, box in sorted(parts.items()) if _longer(box) >= smallest]
    return found


def _window(box: Box, size: Sequence[int]) -> Box:
    """Add context around a box, make it less slim, and move it into the picture."""
    longer = (1 + 2 * MARGIN) * _longer(box)
    ends = []
    for low, high, whole in ((box[0], box[2], size[0]), (box[1], box[3], size[1])):
        length = min(max(high - low + 2 * MARGIN * _longer(box), SLIMMEST * longer), whole)
        start = min(max((low + high - length) / 2, 0), whole - length)
        ends.append((round(start), round(start + length)))
    (left, right), (top, bottom) = ends
    return left, top, right, bottom


def _longer(box: Box) -> int:
    return max(box[2] - box[0], box[3] - box[1])


def _area(box: Box) -> int:
    return (box[2] - box[0]) * (box[3] - box[1])
