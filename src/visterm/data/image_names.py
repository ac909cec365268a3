"""Which image file a name in a tag file means."""

from __future__ import annotations

import os
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from visterm.core.errors import TagFileError


class ImageNames:
    """The images of a folder, by the names that people write for them.

    Parameters
    ----------
    folder : Path
        The image folder.
    paths : sequence of Path
        The images in it.
    """

    def __init__(self, folder: Path, paths: Sequence[Path]) -> None:
        self._folder = folder
        self._by_path = {_key(path.relative_to(folder).as_posix()): path for path in paths}
        self._by_name: defaultdict[str, list[str]] = defaultdict(list)
        for key in self._by_path:
            self._by_name[PurePosixPath(key).name].append(key)

    def find(self, name: str) -> Path | None:
        """Give the file with this path, or the one file whose path ends as it does; None where there is none.

        Raises
        ------
        TagFileError
            If several files end so.
        """
        key = _key(self._inside(name))
        if key in self._by_path:
            return self._by_path[key]
        fits = [other for other in self._by_name[PurePosixPath(key).name] if _one_ends_as_the_other(key, other)]
        if len(fits) > 1:
            raise TagFileError(
                f"The tags name '{name}', which may be {len(fits)} images in {self._folder}: {', '.join(fits[:3])}"
                f"{', …' if len(fits) > 3 else ''}. Write their paths inside that folder."
            )
        return self._by_path[fits[0]] if fits else None

    def _inside(self, name: str) -> str:
        if PurePosixPath(name).is_absolute():
            path = os.path.relpath(name, self._folder.absolute())
            return name if path.startswith("..") else path
        return os.path.normpath(name)


def _key(name: str) -> str:
    return unicodedata.normalize("NFC", name.replace(os.sep, "/"))  # some file systems decompose the names they store


def _one_ends_as_the_other(one: str, other: str) -> bool:
    short, long = sorted((PurePosixPath(one).parts, PurePosixPath(other).parts), key=len)
    return long[len(long) - len(short) :] == short
