"""Tags as folders: ``beach/1.jpg``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from visterm.data.splits import STANDARD, split_name
from visterm.data.tag_formats.record import TagRecord, record


def read_folder_tags(folder: Path, images: Sequence[Path]) -> list[TagRecord]:
    """Take the names of the folders around an image as its tags.

    Parameters
    ----------
    folder : Path
        The image folder. If all its images lie in folders named train, valid(ation), val or test, those are
        splits and not tags.
    images : sequence of Path
        The images in it.

    Returns
    -------
    list of TagRecord
        One for each image in a tag's folder; nested folders give several tags. Images outside have no record.
    """
    inside = [(image.relative_to(folder).as_posix(), image.relative_to(folder).parts[:-1]) for image in images]
    has_splits = bool(inside) and all(parts and split_name(parts[0]) in STANDARD for _, parts in inside)
    records = []
    for name, parts in inside:
        split, tags = (split_name(parts[0]), parts[1:]) if has_splits else (None, parts)
        if tags:
            records.append(record(name, tags, split, place=f"the folder of {name}"))
    return records
