"""A drawn library on disk: pictures, people's tags, the truth, relations, queries and groups of spellings."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from PIL import Image

from visterm.core.checks import check_count, check_number
from visterm.core.errors import StorageError, UserError
from visterm.core.persist import whole_folder
from visterm.core.progress import SILENT, Progress, reported
from visterm.core.threads import resolve_jobs
from visterm_research.scenes.people import GROUPS, NoiseSettings, person_behind
from visterm_research.scenes.scene import Box, DrawnObject, Part, draw_scene
from visterm_research.scenes.things import IS_A, PART_OF, TRUE_TAGS, Query, implied, queries_of

T = TypeVar("T")

KIND = "drawn library"
_ENCODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "jpeg": (".jpg", {"format": "JPEG", "quality": 90}),
    "png": (".png", {"format": "PNG", "compress_level": 3}),
}

MARK = "drawn.json"
SPLITS = ("train", "valid", "test")
_TENTHS = ("train", "train", "test", "train", "train", "valid", "train", "test", "train", "train")


@dataclass(frozen=True, slots=True)
class DrawnPicture:
    """One picture of a drawn library."""

    file_name: str  # Relative to the library's `images` folder
    split: str  # "train", "valid" or "test"
    person: int  # Who took and tagged it
    given: tuple[str, ...]  # The tags as the person wrote them
    tags: tuple[str, ...]  # The true tags, sorted
    size: tuple[int, int]  # Width and height in pixels
    place: str  # The kind of place
    objects: tuple[DrawnObject, ...]  # What is seen, with boxes and parts

    @property
    def seen(self) -> frozenset[str]:
        """All that is true of the picture, however small: its tags, and every object and part with a box."""
        found = set(self.tags)
        for thing in self.objects:
            found.update((thing.name, *implied(thing.name), *thing.attributes), (part.name for part in thing.parts))
        return frozenset(found)


@dataclass(frozen=True, slots=True)
class DrawnFolder:
    """A folder of drawn images with their tags."""

    folder: Path  # Holds ``images/`` and the files below

    @property
    def images(self) -> Path:
        """The folder of the images."""
        return self.folder / "images"

    @property
    def tags_file(self) -> Path:
        """The tags as they are given: file_name, tags, split."""
        return self.folder / "tags.csv"


@dataclass(frozen=True, slots=True)
class DrawnLibrary(DrawnFolder):
    """A drawn library: where it lies and what is in it."""

    pictures: tuple[DrawnPicture, ...]  # In the order of their names
    queries: tuple[Query, ...]  # Of all splits

    @property
    def true_tags_file(self) -> Path:
        """The true tags: file_name, tags, split."""
        return self.folder / "true_tags.csv"


def draw_library(
    folder: str | os.PathLike[str],
    *,
    n_scenes: int = 2000,
    seed: int = 0,
    n_jobs: int | None = None,
    noise: NoiseSettings | None = None,
    progress: Progress = SILENT,
    format: str = "jpeg",
) -> DrawnLibrary:
    """Draw a library of `n_scenes` pictures (70 % train, 10 % valid, 20 % test), and write it whole or not at all.

    The folder then holds ``images/``, ``tags.csv`` (people's tags, which are in ``images/metadata.csv``, too),
    ``true_tags.csv``, ``truth.jsonl`` (true tags, objects and parts with boxes, person), ``isa.csv``, ``part_of.csv``,
    ``queries.csv``, ``groups.csv`` and ``drawn.json`` (how it was made). In CSV files several tags are separated by
    ``;``. Scene `i` is ``draw_scene((seed, i))``; the same seed gives the same bytes of every file, for any `n_jobs`
    (drawing is mostly Python, so more than two threads gain little).

    An earlier drawn library or an empty folder is replaced. `noise` says how far people's tags are from the truth;
    `format` is "jpeg" or "png". Raises UserError if an argument is out of range; StorageError if something else lies at
    `folder`.
    """
    check_count(n_scenes, "n_scenes")
    check_number(seed, "seed", least=0)
    if format not in _ENCODERS:
        raise UserError(f"format is {format!r}; expected one of: {', '.join(_ENCODERS)}.")
    noise, target = noise or NoiseSettings(), Path(folder)
    with drawn_folder(target, KIND) as temporary:
        images = temporary / "images"
        images.mkdir()
        drawn = in_threads(lambda index: _draw_one(images, index, seed, noise, format), n_scenes, n_jobs, progress)
        pictures = tuple(drawn)
        queries = tuple(
            query
            for split in SPLITS
            for query in queries_of((picture.tags for picture in pictures if picture.split == split), split=split)
        )
        _write_tables(temporary, pictures, queries)
        settings = {"n_scenes": n_scenes, "seed": seed, "format": format, "noise": asdict(noise)}
        write_mark(temporary, KIND, settings)
    return DrawnLibrary(target, pictures, queries)


def in_threads(draw: Callable[[int], T], n_scenes: int, n_jobs: int | None, progress: Progress) -> Iterator[T]:
    """Yield ``draw(0)`` .. ``draw(n_scenes - 1)`` in order, drawn in a few threads."""
    with ThreadPoolExecutor(resolve_jobs(n_jobs)) as pool:
        try:
            with reported(progress, "drawing", n_scenes):
                for drawn in pool.map(draw, range(n_scenes)):
                    yield drawn
                    progress.advance()
        finally:
            pool.shutdown(cancel_futures=True)


def _draw_one(images: Path, index: int, seed: int, noise: NoiseSettings, format: str) -> DrawnPicture:
    scene = draw_scene((seed, index))
    suffix, options = _ENCODERS[format]
    name = f"{index:06d}{suffix}"
    Image.fromarray(scene.image).save(images / name, **options)
    rng = Random(f"{seed}/{index}")
    person = person_behind(rng, seed, noise)
    given = person.write(scene.tags, rng, noise, TRUE_TAGS)
    height, width = scene.image.shape[:2]
    split = split_of(index)
    return DrawnPicture(name, split, person.number, given, scene.tags, (width, height), scene.place, scene.objects)


def _write_tables(folder: Path, pictures: Sequence[DrawnPicture], queries: Iterable[Query]) -> None:
    columns = ("file_name", "tags", "split")
    for tags_file in (folder / "tags.csv", folder / "images" / "metadata.csv"):
        write_csv(tags_file, columns, ((p.file_name, ";".join(p.given), p.split) for p in pictures))
    write_csv(folder / "true_tags.csv", columns, ((p.file_name, ";".join(p.tags), p.split) for p in pictures))
    write_csv(folder / "isa.csv", ("child", "parent"), IS_A)
    write_csv(folder / "part_of.csv", ("part", "whole"), PART_OF)
    write_csv(folder / "groups.csv", ("spelling", "tag"), sorted(GROUPS.items()))
    rows = ((query.text, ";".join(query.words), query.split, query.n_relevant) for query in queries)
    write_csv(folder / "queries.csv", ("query", "words", "split", "n_relevant"), rows)
    with open(folder / "truth.jsonl", "w", encoding="utf-8", newline="\n") as file:
        for picture in pictures:
            file.write(json.dumps(asdict(picture), ensure_ascii=False, sort_keys=True) + "\n")


def split_of(index: int) -> str:
    """Return the split of a scene by its number: of every ten, seven train, one valid, two test."""
    return _TENTHS[(index + index // 10) % 10]


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table with its header; the same bytes on every system."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def write_mark(folder: Path, kind: str, settings: dict[str, object]) -> None:
    """Write what a folder is and how it was made."""
    how = {"kind": kind, **settings}
    (folder / MARK).write_text(json.dumps(how, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def is_drawn(folder: Path, kind: str) -> bool:
    """Return whether a folder is marked as of this kind."""
    try:
        how = json.loads((folder / MARK).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(how, dict) and how.get("kind") == kind


@contextmanager
def drawn_folder(target: Path, kind: str) -> Iterator[Path]:
    """Write a folder of this kind in one step, in place of one of the same kind (`write_mark`).

    Raises StorageError if something else than an empty folder or one of this kind lies at `target`.
    """
    if target.exists() and not is_drawn(target, kind) and not (target.is_dir() and not any(target.iterdir())):
        raise StorageError(f"{target} exists and is not a {kind}, so it is not replaced. Choose another folder.")
    with whole_folder(target) as temporary:
        yield temporary


def read_drawn_library(folder: str | os.PathLike[str]) -> DrawnLibrary:
    """Read back what `draw_library` wrote (the pictures stay on disk).

    Raises StorageError if no drawn library is at `folder`.
    """
    path = Path(folder)
    if not is_drawn(path, KIND):
        raise StorageError(f"There is no drawn library at {path}. Draw one with draw_library(folder).")
    with open(path / "truth.jsonl", encoding="utf-8") as lines:
        pictures = tuple(_picture(json.loads(line)) for line in lines)
    with open(path / "queries.csv", encoding="utf-8", newline="") as file:
        queries = tuple(
            Query(tuple(row["words"].split(";")), row["split"], int(row["n_relevant"])) for row in csv.DictReader(file)
        )
    return DrawnLibrary(path, pictures, queries)


def _picture(record: dict[str, Any]) -> DrawnPicture:
    objects = tuple(
        DrawnObject(
            item["name"],
            _box(item["box"]),
            tuple(Part(part["name"], _box(part["box"])) for part in item["parts"]),
            tuple(item["attributes"]),
        )
        for item in record.pop("objects")
    )
    given, tags, (width, height) = tuple(record.pop("given")), tuple(record.pop("tags")), record.pop("size")
    return DrawnPicture(given=given, tags=tags, size=(width, height), objects=objects, **record)


def _box(numbers: Sequence[int]) -> Box:
    left, top, right, bottom = numbers
    return left, top, right, bottom
