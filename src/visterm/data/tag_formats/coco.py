"""Tags from COCO's JSON of instances: an image has the tags of the categories that are marked in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from visterm.core.errors import TagFileError
from visterm.data.tag_formats.record import TagRecord, record


def coco_records(path: Path, text: str) -> list[TagRecord] | None:
    """Return the tags of each image of a COCO file in its order; None if it is something else.

    An image without annotations has no tags. Raises TagFileError if an entry lacks a field, or names an image or a
    category that the file does not have.
    """
    try:
        content = json.loads(text) if path.suffix == ".json" and text.lstrip().startswith("{") else {}
    except (ValueError, RecursionError):  # JSON lines, which are read as a table
        return None
    if not {"images", "annotations", "categories"}.issubset(content):
        return None
    try:
        names = {one["id"]: one["name"] for one in content["categories"]}
        tags: dict[Any, dict[str, None]] = {one["id"]: {} for one in content["images"]}
        for one in content["annotations"]:
            tags[one["image_id"]][names[one["category_id"]]] = None
        return [record(one["file_name"], tags[one["id"]], None, source=str(path)) for one in content["images"]]
    except (KeyError, TypeError, AttributeError) as error:
        expected = "COCO's JSON of instances: annotations with the image_id and category_id of entries of the file"
        raise TagFileError(f"{path} does not have {error}.", expected=expected) from error
