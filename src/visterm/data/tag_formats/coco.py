"""Tags from COCO's JSON of instances: an image has the tags of the categories that are marked in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from visterm.core.errors import TagFileError
from visterm.data.tag_formats.record import TagRecord, record

_PARTS = ("images", "annotations")


def coco_records(path: Path, text: str) -> list[TagRecord] | None:
    """Return the tags of each image of a COCO file in the order of the file; None if it is something else.

    An image without annotations has no tags. Raises TagFileError if an entry lacks a field, or names an image or a
    category that the file does not have.
    """
    if path.suffix != ".json" or not text.lstrip().startswith("{"):
        return None
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):  # JSON lines, which are read as a table
        return None
    if not all(isinstance(content.get(part), list) for part in _PARTS):
        return None
    names = {_field(path, one, "id"): str(_field(path, one, "name")) for one in content["categories"]}
    files = {_field(path, one, "id"): str(_field(path, one, "file_name")) for one in content["images"]}
    tags: dict[Any, dict[str, None]] = {image: {} for image in files}

    for annotation in content["annotations"]:
        image, category = _field(path, annotation, "image_id"), _field(path, annotation, "category_id")
        if image not in files or category not in names:
            problem = f"{path}: the annotation {annotation.get('id')} is of image {image} and category {category}"
            raise TagFileError(f"{problem}, and the file does not have both.")
        tags[image][names[category]] = None
    return [record(name, tags[image], None, source=f"{path}, image {image}") for image, name in files.items()]


def _field(path: Path, entry: Mapping[str, Any], name: str) -> Any:
    if not isinstance(entry, dict) or not isinstance(entry.get(name), str | int):
        raise TagFileError(
            f"{path}: {entry!r:.80} has no '{name}'; expected COCO's JSON of instances (annotations with image_id and "
            "category_id)."
        )
    return entry[name]
