"""Tags in a ``.txt`` for each image: beside it, or in a folder of texts that mirrors the image folder."""

from __future__ import annotations

import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from visterm.core.errors import DataError, TagFileError
from visterm.core.files import MB
from visterm.core.types import NO_TAGS, Skipped
from visterm.core.vocabulary import clean_tag, tag_fault, tag_key
from visterm.core.wording import count_of
from visterm.data.image_folders import closed_folder
from visterm.data.tag_formats.record import TagRecord, TagsFound, record, without_minus
from visterm.data.tag_formats.separators import LINE_END, Splitter
from visterm.data.text_files import read_text
from visterm.data.text_notes import TextNotes

SUFFIX = ".txt"
MOST_TEXT = 16 * MB  # Bytes of the text of one image


def read_sidecars(folder: Path, images: Sequence[Path], separator: str | None = None) -> TagsFound:
    """Read the tags of each image from the text beside it, if there is one: ``1.txt`` or ``1.jpg.txt`` for ``1.jpg``.

    `separator` separates tags on one line, see `Splitter`.
    """
    pairs = [(image, text) for image in images if (text := sidecar(image)) is not None]
    records, skipped = _read(folder, pairs, separator)
    return TagsFound(records, ["Tags: a .txt beside each image."], "without a .txt", skipped=skipped)


def sidecar(image: Path) -> Path | None:
    """Find the text beside an image, whose suffix may be in capitals."""
    suffixes = (SUFFIX, SUFFIX.upper(), SUFFIX.title())
    beside = (image.with_name(f"{name}{suffix}") for name in (image.name, image.stem) for suffix in suffixes)
    return next((path for path in beside if os.path.isfile(path)), None)


def read_text_folder(texts: Path, folder: Path, images: Sequence[Path], separator: str | None = None) -> TagsFound:
    """Read the tags of each image from its text in another folder.

    ``sea/1.jpg`` has ``sea/1.txt`` or ``sea/1.jpg.txt``; if there is none, the one text anywhere in the folder that has
    its name and belongs to no other image. Texts of no image are a remark. `separator` is that of `read_sidecars`.
    Raises TagFileError if there is no text, none belongs to an image, or a text or an image has several to choose from.
    """
    by_key: dict[str, Path] = {}
    closed: list[OSError] = []
    for parent, folders, files in os.walk(texts, onerror=closed.append):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if name.lower().endswith(SUFFIX) and not name.startswith("."):
                path = Path(parent, name)
                by_key[_key(path.relative_to(texts))[: -len(SUFFIX)]] = path
    if not by_key:
        why = "".join(f" {skipped.image} is a {skipped.reason}." for skipped in map(closed_folder, closed[:1]))
        raise TagFileError(
            f"The tag folder {texts} has no {SUFFIX} file.{why} Expected one for each image (1{SUFFIX} for 1.jpg). "
            "If the tags are in a table, name the file itself."
        )
    found: dict[Path, Path] = {}
    for image in images:
        key = next((key for key in _keys(image.relative_to(folder)) if key in by_key), None)
        if key is not None:
            found[image] = by_key[key]
    used = set(found.values())
    free = {key: path for key, path in by_key.items() if path not in used}
    found |= _by_name(texts, folder, [image for image in images if image not in found], free)
    if not found:
        raise TagFileError(
            f"Of {count_of(len(by_key), 'text')} in {texts}, none is named as an image in {folder} is: the texts are "
            f"such as '{min(by_key)}{SUFFIX}', the images such as '{images[0].relative_to(folder).as_posix()}'."
        )
    used = set(found.values())
    unused = sorted(key for key, path in by_key.items() if path not in used)
    remarks = []
    if unused:
        remarks = [f"Left out: {count_of(len(unused), 'text')} of no image, such as '{unused[0]}{SUFFIX}'."]
    pairs = [(image, found[image]) for image in images if image in found]
    records, skipped = _read(folder, pairs, separator)
    skipped += map(closed_folder, closed)
    return TagsFound(records, remarks, f"without a {SUFFIX} in {texts}", skipped=skipped)


def text_tags(text: str, separator: str | None = None) -> list[str]:
    """Return the tags of the text of one image; each line is a cell, see `Splitter`."""
    return Splitter(lambda: [text], separator).split(text)


def _read(
    folder: Path, pairs: Iterable[tuple[Path, Path]], separator: str | None
) -> tuple[list[TagRecord], list[Skipped]]:
    """Read the texts of images, without what visterm wrote there: no run learns what another one guessed.

    Texts that may not be read are listed with reasons.
    """
    records, skipped = [], []
    notes: dict[Path, TextNotes] = {}
    for image, path in pairs:
        try:
            text = read_text(path, limit=MOST_TEXT)
        except TagFileError as error:
            skipped.append(may_not_be_read(error))
            continue
        if path.parent not in notes:
            notes[path.parent] = TextNotes(path.parent)
        predicted = notes[path.parent].predicted(path)
        tags = text_tags(text, separator)
        tags_of_people = [tag for tag in tags if tag_key(tag) not in predicted] if predicted else tags
        place = str(path)
        named = ((tag, without_minus(clean_tag(tag))) for tag in tags_of_people)
        wrong = next((tag for tag, name in named if name and tag_fault(name) is not None), None)
        if wrong is not None:
            place += f", line {next(n for n, line in enumerate(re.split(LINE_END, text), 1) if wrong in line)}"
        records.append(record(image.relative_to(folder).as_posix(), tags_of_people, None, place=place))
    return records, skipped


def may_not_be_read(error: DataError) -> Skipped:
    """Return the file of tags that this user may not read, as what is skipped; raise any other error again."""
    if not isinstance(error.__cause__, PermissionError):
        raise error
    return Skipped(os.fspath(error.__cause__.filename), f"{NO_TAGS}: {error.__cause__.strerror}")


def _by_name(texts: Path, folder: Path, images: Sequence[Path], free: Mapping[str, Path]) -> dict[Path, Path]:
    """Return the one text of its name for each image that has none at its path."""
    by_name: defaultdict[str, list[str]] = defaultdict(list)
    for key in free:
        by_name[PurePosixPath(key).name].append(key)
    images_of: defaultdict[str, list[Path]] = defaultdict(list)
    for image in images:
        name = next((name for name in _keys(Path(image.name)) if name in by_name), None)
        if name is not None:
            images_of[name].append(image)
    for name, several in images_of.items():
        if len(several) > 1 or len(by_name[name]) > 1:
            raise TagFileError(
                f"In {texts} the texts {_some(f'{key}{SUFFIX}' for key in by_name[name])} may belong to the images "
                f"{_some(image.relative_to(folder).as_posix() for image in several)}. Put each text into the "
                "sub-folder that its image has in the image folder."
            )
    return {images[0]: free[by_name[name][0]] for name, images in images_of.items()}


def _keys(image: Path) -> tuple[str, str]:
    """Return what the text of an image may be called, without the suffix."""
    return _key(image), _key(image.with_suffix(""))


def _key(path: Path) -> str:
    """Return a path as texts are found by it."""
    return unicodedata.normalize("NFC", path.as_posix())  # some file systems decompose the names they store


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:3]) + (", …" if len(listed) > 3 else "")
