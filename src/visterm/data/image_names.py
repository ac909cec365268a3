"""Which image file a name in a tag file means."""

from __future__ import annotations

import os
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from visterm.core.errors import TagFileError
from visterm.data.file_kinds import IMAGES, RAW, suffix_of

CAPITALS: Final = "capitals"
ENDING: Final = "the file's ending"


class Match(NamedTuple):
    """The image file of a name, and in what the two differ: `CAPITALS`, `ENDING` or nothing."""

    path: Path
    name: str  # As it is written, or as `plain_name` has it where only that is the name of a file
    differ: str | None = None


class ImageNames:
    """The images of a folder, by the names that people write for them."""

    def __init__(self, folder: Path, paths: Sequence[Path]) -> None:
        self._folder = folder
        self._by_path = {path.relative_to(folder).as_posix(): path for path in paths}
        self._by_end = PathsByEnd(self._by_path, name_key)

    def match(self, names: Sequence[str]) -> list[Match | None]:
        """Return the file of each name, or None where there is none.

        A name is the path of a file, or the end of one file's path, or goes on before it. It counts as it is written,
        letter by letter; if no file has that name, as `plain_name` and `name_key` have it. A name for which there is no
        such file may also differ in capitals, or lack the ending (``.jpg``), of one file that no other name means; of a
        RAW file and its JPEG, the JPEG is meant.
        Raises TagFileError if a name fits several files.
        """
        found = [self._match(name) for name in names]
        if None in found:
            self._match_loosely(names, found)
        return found

    def _match(self, name: str) -> Match | None:
        for spelled in dict.fromkeys((name, plain_name(name))):
            path = self._inside(spelled)
            fits = [path] if path in self._by_path else self._by_end.ending_as(name_key(path))
            if len(fits) > 1:  # such as two files of one name, one with its letters composed
                fits = [fit for fit in fits if _one_ends_as_the_other(path, fit)] or fits
            if (fit := self._only(spelled, fits)) is not None:
                return Match(self._by_path[fit], spelled)
        return None

    def _match_loosely(self, names: Sequence[str], found: list[Match | None]) -> None:
        """Find files that differ in capitals, or whose ending the name lacks, among those that no name has."""
        used = {match.path for match in found if match is not None}
        free = [name for name, path in self._by_path.items() if path not in used]
        folded = PathsByEnd(free, _folded)
        bare = PathsByEnd(free, lambda name: _without_ending(_folded(name)))
        for i, name in enumerate(names):
            if found[i] is not None:
                continue
            for spelled in dict.fromkeys((name, plain_name(name))):
                key = _folded(self._inside(spelled))
                fit, differ = self._only(spelled, folded.ending_as(key)), CAPITALS
                if fit is None and _without_ending(key) == key:
                    fits = bare.ending_as(key)
                    fit = self._only(spelled, [one for one in fits if suffix_of(one) not in RAW] or fits)
                    differ = ENDING
                if fit is not None:
                    found[i] = Match(self._by_path[fit], spelled, differ)
                    break

    def _only(self, name: str, fits: Sequence[str]) -> str | None:
        if len(fits) > 1:
            raise TagFileError(
                f"The tags name '{name}', which may be {len(fits)} images in {self._folder}: {', '.join(fits[:3])}"
                f"{', …' if len(fits) > 3 else ''}. Write their paths inside that folder."
            )
        return fits[0] if fits else None

    def _inside(self, name: str) -> str:
        if name.startswith("/") or os.path.isabs(name):
            path, folder = Path(os.path.abspath(name)), os.path.abspath(self._folder)
            return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else name
        return os.path.normpath(name).replace(os.sep, "/")


class PathsByEnd:
    """Paths to be found by their ends, each as `fold` spells it."""

    def __init__(self, paths: Iterable[str], fold: Callable[[str], str] = str) -> None:
        self._by_name: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        for path in paths:
            folded = fold(path)
            self._by_name[PurePosixPath(folded).name].append((folded, path))

    def ending_as(self, key: str) -> list[str]:
        """List the paths that end as `key` does, or that it ends as; the very same where there is one."""
        named = self._by_name.get(PurePosixPath(key).name, [])
        same = [path for folded, path in named if folded == key]
        return same or [path for folded, path in named if _one_ends_as_the_other(key, folded)]


def plain_name(name: str) -> str:
    """Return a name as people mean it: without white space around it, with ``/`` where Windows has a backslash."""
    return name.strip().replace("\\", "/").removeprefix("./")


def name_key(name: str) -> str:
    """Return a name as names are compared: with ``/`` between folders, letters composed."""
    return unicodedata.normalize("NFC", name.replace(os.sep, "/"))  # some file systems decompose the names they store


def _folded(name: str) -> str:
    return name_key(name).casefold()


def _without_ending(key: str) -> str:
    stem, ending = os.path.splitext(key)
    return stem if ending in IMAGES else key


def _one_ends_as_the_other(one: str, other: str) -> bool:
    """Return whether the shorter of two paths is the end of the longer one."""
    short, long = sorted((PurePosixPath(one).parts, PurePosixPath(other).parts), key=len)
    return long[len(long) - len(short) :] == short
