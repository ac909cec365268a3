"""XMP files beside images: which belong to which, read together with what is in the image, and written in one step."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

from visterm.core.errors import DataError, StorageError
from visterm.core.files import GB, read_regular
from visterm.core.system import is_alive
from visterm.core.vocabulary import tag_key
from visterm.core.writing import whole_file
from visterm.data.embedded import embedded_keywords, joined_tags
from visterm.data.file_kinds import DNG, IMAGES, RAW
from visterm.data.xmp.keywords import GIVEN, Keywords, first_places, read_keywords

SUFFIX = ".xmp"
FOUND, STEM_FOUND, FULL, STEM = "found", "stem found", "full", "stem"  # How `Sidecars.target` names the file
MOST_BYTES = GB  # Bytes of a file that is read whole, to be written again with changes

# Names of what `replace_file` writes first, with the number of its process
_TEMPORARY = re.compile(r"\..+\.(?:xmp|txt)\.(\d{1,9})-[0-9a-f]{8}\.tmp", re.IGNORECASE | re.DOTALL)


class Sidecars:
    """Finds the XMP files of images: ``photo.jpg.xmp`` (darktable, digiKam) and ``photo.xmp`` (Lightroom, Adobe).

    Each folder is listed once, at the first of its images.
    """

    def __init__(self) -> None:
        self._listed: dict[Path, tuple[dict[str, str], dict[str, set[str]]]] = {}

    def of(self, image: Path) -> list[Path]:
        """Return the XMP files that tell of an image, ``photo.jpg.xmp`` first."""
        names, _ = self._list(image.parent)
        found = [names.get(name) for name in (image.name, image.stem)]
        return [image.with_name(name) for name in dict.fromkeys(found) if name is not None]

    def target(self, image: Path, naming: str = FOUND) -> Path:
        """Return the XMP file to write for an image.

        By default that is the one that is there, else a new ``photo.jpg.xmp``; ``photo.xmp`` is not written where two
        images may mean it (``photo.jpg`` and ``photo.nef``). If both are there it is ``photo.jpg.xmp``, with `naming`
        "stem found" the other. With "full" it is always ``photo.jpg.xmp``, with "stem" always ``photo.xmp``, there or
        not. Raises DataError if several RAW files would have the same.
        """
        names, stems = self._list(image.parent)
        if naming == FULL:
            return image.with_name(names.get(image.name, f"{image.name}{SUFFIX}"))
        if naming == STEM:
            if len({suffix.lower() for suffix in stems.get(image.stem, ())} & (RAW - {DNG})) > 1:
                raise DataError(
                    f"{image.stem}{SUFFIX} would be of several RAW files, such as {image.name}. Rename one."
                )
            return image.with_name(names.get(image.stem, f"{image.stem}{SUFFIX}"))
        shared = self.shares_stem(image)
        there = [path for path in self.of(image) if not shared or path.stem == image.name]
        there = there[::-1] if naming == STEM_FOUND else there
        return there[0] if there else image.with_name(f"{image.name}{SUFFIX}")

    def shares_stem(self, image: Path) -> bool:
        """Return whether another image beside it has the same name with another ending."""
        _, stems = self._list(image.parent)
        return len(stems.get(image.stem, set()) | {image.suffix}) > 1

    def keywords(self, image: Path) -> Keywords:
        """Read the keywords of an image: of its XMP files and of what is in it, together.

        What a run predicted in one of them, and a person wrote into another, is the person's. Raises DataError if a
        file cannot be read or understood.
        """
        read = [*(read_sidecar(path) for path in self.of(image)), embedded_keywords(image)]
        of_people = {tag_key(tag) for part in read for tag in part.of_people}
        marks = [mark for part in read for mark in part.marks]
        return Keywords(
            joined_tags(read),
            [mark for mark in marks if mark.source == GIVEN or tag_key(mark.tag) not in of_people],
            paths=first_places(part.paths for part in read),
        )

    def _list(self, folder: Path) -> tuple[dict[str, str], dict[str, set[str]]]:
        """Return the XMP files of a folder, and the endings of its images, by the names without ending."""
        if folder not in self._listed:
            names: dict[str, str] = {}
            stems: defaultdict[str, set[str]] = defaultdict(set)
            try:
                listed = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
            except OSError as error:
                raise DataError(f"The folder {folder} cannot be listed: {error.strerror}.") from error
            for name in listed:
                stem, suffix = os.path.splitext(name)
                if suffix.lower() == SUFFIX:
                    names[stem] = name
                elif suffix.lower() in IMAGES:
                    stems[stem].add(suffix)
            self._listed[folder] = names, dict(stems)
        return self._listed[folder]


def read_sidecar(path: Path) -> Keywords:
    """Read the keywords of an XMP file. Raises DataError if it cannot be read or understood."""
    return read_keywords(content_of(path) or b"", str(path))


def content_of(path: Path) -> bytes | None:
    """Return the bytes of a file; None where there is none. Raises DataError if it cannot be read."""
    try:
        return read_regular(path, MOST_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error


def replace_file(path: Path, old: bytes | None, new: bytes | None, *, follow_links: bool = False) -> None:
    """Write a file in one step, or remove it, if it still is what it was when it was read.

    `old` is what is in it now, and `new` what is to be; None: no file. A link is followed inside its folder, and with
    `follow_links` out of it, too. Raises StorageError if another program has changed it since, it cannot be written, or
    it is a link that leads out of its folder. It is then as it was.
    """
    if not follow_links:
        check_stays_inside(path)
    path = Path(os.path.realpath(path))
    if content_of(path) != old:
        raise StorageError(f"{path} was changed by another program just now; it is left as it is. Export again.")
    try:
        if new is None:
            path.unlink(missing_ok=True)
            return
        with whole_file(path, shared=True) as temporary:
            with temporary.open("xb") as file:
                file.write(new)
            if old is not None:
                os.chmod(temporary, path.stat().st_mode)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}. It is left as it was.") from error


def check_stays_inside(path: Path) -> None:
    """Refuse a file that is a link out of its folder: what is written there would be made or changed elsewhere.

    Raises StorageError if so.
    """
    if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(path.parent)):
        raise StorageError(
            f"{path} is a link out of its folder, and is not followed (to {os.path.realpath(path)}). Put a file in its "
            "place, or use --follow-links."
        )


def sweep_temporaries(folder: Path) -> None:
    """Remove the files that `replace_file` was writing in a folder when its process was killed.

    Their names say the process, and no other program makes such names; those of a process that runs stay.
    """
    try:
        names = os.listdir(folder)
    except OSError:  # its images say that it cannot be read
        return
    for name in names:
        found = _TEMPORARY.fullmatch(name)
        if found is not None and not is_alive(int(found[1])):
            with suppress(OSError):  # as above
                (folder / name).unlink()
