"""Read back a drawn library: the pictures with what is truly on them, and the queries."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from visterm.core.errors import StorageError
from visterm.demo.drawn import DrawnLibrary, DrawnObject, DrawnPicture, Part, Query
from visterm.demo.drawn.library import KIND, is_drawn
from visterm.demo.drawn.scene import Box


def read_drawn_library(folder: str | os.PathLike[str]) -> DrawnLibrary:
    """Read back what `draw_library` wrote (the pictures stay on disk).

    Raises StorageError if no drawn library lies at `folder`.
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
