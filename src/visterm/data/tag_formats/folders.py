"""Tags as folders (``beach/1.jpg``), or in a ``.txt`` beside each image."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from visterm.data.splits import STANDARD, split_name
from visterm.data.tag_formats.record import TagRecord, choose_separator, record, split_text
from visterm.data.tag_formats.text import read_text


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
            records.append(record(name, tags, split))
    return records


def read_sidecars(folder: Path, images: Sequence[Path], separator: str | None = None) -> list[TagRecord]:
    """Read the tags of each image from the text beside it: ``1.txt`` or ``1.jpg.txt`` for ``1.jpg``.

    Parameters
    ----------
    folder : Path
        The image folder.
    images : sequence of Path
        The images in it.
    separator : str, optional
        What stands between tags on one line: by default ``;`` if the text has one, else ``,``.

    Returns
    -------
    list of TagRecord
        One for each image that has a text.
    """
    records = []
    for image in images:
        text_file = sidecar(image)
        if text_file is not None:
            text = read_text(text_file)
            tags = split_text(text, choose_separator([text], separator))
            records.append(record(image.relative_to(folder).as_posix(), tags, None))
    return records


def sidecar(image: Path) -> Path | None:
    """Find the text beside an image."""
    beside = (image.with_name(f"{image.name}.txt"), image.with_suffix(".txt"))
    return next((path for path in beside if path.is_file()), None)
