"""Which files are images: a file, or a folder searched through."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import overload

from visterm.core.errors import DataError
from visterm.core.remote import as_path, as_remote, is_remote
from visterm.core.wording import count_of

SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".apng", ".gif", ".webp", ".bmp", ".dib", ".tif", ".tiff"}
    | {".ppm", ".pgm", ".pbm", ".pnm", ".jp2", ".j2k", ".jpf", ".jpx", ".avif", ".heic", ".heif", ".qoi"}
)
"""In folders, files with these suffixes (in either case) count as images, also those that prove to be unreadable."""

SET_ASIDE = frozenset({"@eadir", "@__thumb", "@recycle", "#recycle", "#snapshot", "$recycle.bin", "__macosx"})
"""Folders where storage devices and systems keep thumbnails, deleted files and old versions, in small letters."""

COMMON = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".tif", ".heic")
"""Those that messages name."""


def find_images(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], *, hidden: list[str] | None = None
) -> list[Path]:
    """List image files.

    Parameters
    ----------
    paths : path-like or iterable of path-like
        A file is kept whatever its suffix. A folder is searched through, its sub-folders too, for the suffixes of
        images. Hidden files and folders (whose names begin with a dot) and folders of thumbnails or deleted files
        (`SET_ASIDE`) are left out; links to folders are not followed.
    hidden : list of str, optional
        The folders that were left out are appended to it.

    Returns
    -------
    list of Path
        In the order given, each folder's files sorted by their path inside it, each file once.

    Raises
    ------
    DataError
        If a path does not exist, or a folder cannot be listed.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    found: dict[Path, None] = {}
    for path in map(as_path, given):
        if path.is_dir():
            found.update(dict.fromkeys(path / name for name in _names_in(path, hidden)))
        elif path.exists():
            found[path] = None
        else:
            raise DataError(f"There is no file or folder {path}. Give an image, or a folder of images.")
    return list(found)


def images_in(folder: str | os.PathLike[str], *, hidden: list[str] | None = None) -> list[Path]:
    """List the images of a folder that must be there and have some, as `find_images` does.

    Raises
    ------
    DataError
        If it is not there, is a file, cannot be listed, or has no images: the message says what was looked for.
    """
    path = as_path(folder)
    return [path / name for name in image_names(path, hidden=hidden)]


def image_names(folder: str | os.PathLike[str], *, hidden: list[str] | None = None) -> list[str]:
    """List the images of a folder as `images_in` does, by their paths inside it: an eighth of the memory."""
    path = as_path(folder)
    check_image_folder(path)
    found = _names_in(path, hidden)
    if not found:
        raise DataError(no_images(path))
    return found


class ListedImages(Sequence[Path]):
    """Paths of images, for those who look at few of many.

    Parameters
    ----------
    folder : Path
    names : sequence of str
        Paths inside the folder.
    """

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._folder, self._names = folder, names

    def __len__(self) -> int:
        return len(self._names)

    @overload
    def __getitem__(self, which: int) -> Path: ...

    @overload
    def __getitem__(self, which: slice) -> list[Path]: ...

    def __getitem__(self, which: int | slice) -> Path | list[Path]:
        if isinstance(which, slice):
            return [self._folder / name for name in self._names[which]]
        return self._folder / self._names[which]


def check_image_folder(path: Path) -> None:
    """Refuse a folder of images that is a file, or not there.

    Raises
    ------
    DataError
    """
    if path.is_file():
        raise DataError(f"{path} is a file; expected the folder of images.")
    if not path.is_dir():
        raise DataError(f"There is no folder '{path.name}' in {path.absolute().parent}.")


def no_images(folder: str | os.PathLike[str]) -> str:
    """Return the message that a folder has no images: what was looked for, and what is there instead."""
    files = sorted(_files_below(as_path(folder)), key=lambda name: (name.startswith("."), name))
    if not files:
        return f"The folder {os.fspath(folder)} has no files."
    there = f"Its {count_of(len(files), 'file')} (such as '{files[0]}') end otherwise"
    return (
        f"There are no images in the folder {os.fspath(folder)}, nor in its sub-folders. Looked for files that end in "
        f"{', '.join(COMMON)} or as another kind of picture. {there}."
    )


def _files_below(folder: Path) -> list[str]:
    """List all files of a folder and of those inside it, by their paths in it."""
    remote = as_remote(folder)
    if remote is not None:
        return remote.files()
    return [Path(parent, name).relative_to(folder).as_posix() for parent, _, names in os.walk(folder) for name in names]


def hidden_remarks(hidden: Sequence[str]) -> list[str]:
    """Return a line that counts the folders that were left out as hidden; nothing where there are none."""
    if not hidden:
        return []
    return [f"Not searched: {count_of(len(hidden), 'hidden or thumbnail folder')} (such as '{hidden[0]}')."]


def _names_in(folder: Path, hidden: list[str] | None = None) -> list[str]:
    """List the images of a folder by their paths inside it, sorted, without those of hidden folders."""

    def cannot_list(error: OSError) -> None:
        raise DataError(f"The folder {error.filename} cannot be listed: {error.strerror}.") from error

    def is_image(name: str) -> bool:
        return os.path.splitext(name)[1].lower() in SUFFIXES and not name.startswith(".")

    set_aside: dict[str, None] = {}
    found: list[str] = []
    if is_remote(folder):
        for name in _files_below(folder):
            parts = name.split("/")
            first = next((i for i, part in enumerate(parts[:-1]) if _is_set_aside(part)), None)
            if first is not None:
                set_aside["/".join(parts[: first + 1])] = None
            elif is_image(parts[-1]):
                found.append(name)
    else:
        for parent, folders, files in os.walk(folder, onerror=cannot_list):
            inside = Path(parent).relative_to(folder).as_posix()
            start = "" if inside == "." else f"{inside}/"
            set_aside.update((f"{start}{name}", None) for name in folders if _is_set_aside(name))
            folders[:] = [name for name in folders if not _is_set_aside(name)]
            found += [f"{start}{name}" for name in files if is_image(name)]
    if hidden is not None:
        hidden += sorted(set_aside)
    return sorted(found)


def _is_set_aside(folder: str) -> bool:
    """Return whether a folder's name says that its photos are not the person's own."""
    return folder.startswith(".") or folder.lower() in SET_ASIDE
