"""Find the images in folders, count unreadable files, and match the names in a tag file with image files."""

from __future__ import annotations

import os
import shutil
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from visterm.core.errors import DataError, TagFileError
from visterm.core.remote import as_path, as_remote, is_remote, start_of_paths
from visterm.core.types import CLOSED, Place, Skipped
from visterm.core.wording import count_of, join_ends

PHOTO_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".apng", ".gif", ".webp", ".bmp", ".dib", ".tif", ".tiff"}
    | {".ppm", ".pgm", ".pbm", ".pnm", ".jp2", ".j2k", ".jpf", ".jpx", ".avif", ".qoi", ".heic", ".heif", ".hif"}
)
RAW_SUFFIXES = frozenset(
    {".3fr", ".arw", ".cr2", ".cr3", ".crw", ".dcr", ".dng", ".erf", ".fff", ".gpr", ".iiq", ".kdc", ".mef", ".mos"}
    | {".mrw", ".nef", ".nrw", ".orf", ".pef", ".raf", ".raw", ".rw2", ".rwl", ".sr2", ".srf", ".srw", ".x3f"}
)
DNG = ".dng"  # The only RAW format into which metadata are written
VIDEO_SUFFIXES = frozenset(
    {".3gp", ".avi", ".flv", ".insv", ".m2ts", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".mts", ".ogv"}
    | {".vob", ".webm", ".wmv"}
)

# Suffixes of images in lower case, whether or not their readers are installed
IMAGE_SUFFIXES = PHOTO_SUFFIXES | RAW_SUFFIXES

# Suffixes of files whose embedded keywords are not read (most RAW formats are TIFF inside, and are read)
UNREAD_KEYWORD_SUFFIXES = VIDEO_SUFFIXES | {".cr3", ".crw", ".mrw", ".orf", ".raf", ".raw", ".rw2", ".rwl", ".x3f"}

OTHER, VIDEO_KIND = "other", "video"  # Names of two kinds of files in JSON

RAW_ADVICE = "pip install 'visterm[raw]', or the program exiftool"


# Folders for thumbnails, deleted files and old versions on storage devices, in lower case
EXCLUDED = frozenset({"@eadir", "@__thumb", "@recycle", "#recycle", "#snapshot", "$recycle.bin", "__macosx"})

COMMON_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".tif", ".heic")  # Suffixes mentioned in messages


class FileKind(NamedTuple):
    """A kind of files, such as RAW files."""

    name: str  # Name in JSON
    noun: str  # Singular noun for sentences
    suffixes: frozenset[str]
    # Any one of the packages or all of the programs can read the files; both are empty if nothing more is needed
    packages: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()
    advice: str = ""  # What to install

    def is_readable(self) -> bool:
        """Return whether a reader is installed."""
        needs_nothing = not (self.packages or self.programs)
        has_programs = bool(self.programs) and all(map(shutil.which, self.programs))
        return needs_nothing or has_programs or any(map(find_spec, self.packages))


VIDEO_FILES = FileKind(VIDEO_KIND, "video", VIDEO_SUFFIXES, programs=("ffmpeg", "ffprobe"), advice="the program ffmpeg")
KINDS = (
    FileKind("photo", "photo", PHOTO_SUFFIXES),
    FileKind("raw", "RAW file", RAW_SUFFIXES, packages=("rawpy",), programs=("exiftool",), advice=RAW_ADVICE),
    VIDEO_FILES,
)


def suffix_of(name: Place) -> str:
    """Return the suffix of a file in lower case."""
    return os.path.splitext(os.fspath(name))[1].lower()


def readable_suffixes(*, videos: bool = False) -> frozenset[str]:
    """Return the suffixes, in lower case, of the images that can be read here; with `videos`, also of videos."""
    kinds = [kind for kind in KINDS if videos or kind.name != VIDEO_KIND]
    return frozenset().union(*(kind.suffixes for kind in kinds if kind.is_readable()))


def unread_keywords_remark(names: Iterable[Place]) -> list[str]:
    """Return a remark with the number of files whose embedded keywords are not read; empty if all are read."""
    suffixes = sorted(suffix for suffix in map(suffix_of, names) if suffix in UNREAD_KEYWORD_SUFFIXES)
    files = f"{count_of(len(suffixes), 'file')} ({', '.join(dict.fromkeys(suffixes))})"
    return [f"Keywords inside of {files} are not read; XMP files beside them are."] if suffixes else []


def is_video(path: object) -> bool:
    """Return whether a file is a video by its suffix."""
    return isinstance(path, str | os.PathLike) and suffix_of(path) in VIDEO_SUFFIXES


def is_there(path: Place) -> bool:
    """Return whether a file or an object exists; a file in an inaccessible folder counts as existing.

    The folder may be inaccessible only for a while, which does not mean that the file was deleted.
    """
    if is_remote(path):
        return as_path(path).exists()
    try:
        os.stat(path)
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return True


@dataclass(slots=True)
class Unsearched:
    """The folders that a search for images skipped, and what it saw in the others."""

    hidden: list[str] = field(default_factory=list)  # Hidden and thumbnail folders, as paths inside the searched folder
    closed: list[Skipped] = field(default_factory=list)  # Sub-folders that cannot be listed, with the reasons
    suffixes: Counter[str] = field(default_factory=Counter)  # Number of files by suffix, images and others

    def remarks(self) -> list[str]:
        """Return a line with the number of hidden folders; no line if no folder is hidden."""
        n_hidden = count_of(len(self.hidden), "hidden or thumbnail folder")
        return [f"Not searched: {n_hidden} (such as '{self.hidden[0]}')."] if self.hidden else []

    def not_read(self, *, videos: bool = False) -> NotRead:
        """Return the counts of the files that are not read; with `videos`, videos are read if ffmpeg is installed."""
        kind_of = {suffix: kind.name for kind in KINDS for suffix in kind.suffixes} | {".xmp": "photo"}  # with photos
        read_kinds = {kind.name for kind in KINDS if kind.is_readable() and (videos or kind.name != VIDEO_KIND)}
        files: defaultdict[str, Counter[str]] = defaultdict(Counter)  # kind -> suffix -> count
        for suffix, count in self.suffixes.items():
            if (kind_name := kind_of.get(suffix, OTHER)) not in read_kinds:
                files[kind_name][suffix] = count

        counts, texts = {}, []
        for name, noun, advice in (*((kind.name, kind.noun, kind.advice) for kind in KINDS[1:]), (OTHER, OTHER, "")):
            counts[name] = files[name].total()
            if counts[name]:
                endings = [suffix for suffix, _ in sorted(files[name].items(), key=lambda item: (-item[1], item[0]))]
                suffixes = ", ".join([suffix or "without ending" for suffix in endings[:3]])
                is_video = name == VIDEO_KIND and not videos  # for commands that learn from photos
                advice_text = "index and annotate read them" if is_video else advice and f"read with: {advice}"
                details = f"{', ...' if len(endings) > 3 else ''}{f'; {advice_text}' if advice_text else ''}"
                texts.append(f"{count_of(counts[name], noun)} ({suffixes}{details})")
        return NotRead(counts, ", ".join(texts))


class NotRead(NamedTuple):
    """Counts of the files among the photos that are not read."""

    counts: dict[str, int]  # By kind, for JSON
    text: str  # The counts as text: ``12 RAW files (.cr2), 4 others (.txt)``; empty if all files are read


def count_not_read(paths: Iterable[Place], *, videos: bool = False) -> NotRead:
    """Count the files in folders that are not read, without hidden files; of `paths`, only folders are searched.

    `videos` is as in `Unsearched.not_read`.
    """
    unsearched = Unsearched()
    for folder in map(as_path, paths):
        _names_in(folder, unsearched) if folder.is_dir() else []
    return unsearched.not_read(videos=videos)


def find_images(
    paths: Place | Iterable[Place], *, unsearched: Unsearched | None = None, videos: bool = False
) -> list[Path]:
    """List image files without repetitions, in the given order; files of a folder are sorted by their path in it.

    A file is listed regardless of its suffix. A folder is searched recursively for the suffixes of images. Hidden files
    and folders (whose names begin with a dot) and folders of thumbnails or deleted files (`EXCLUDED`) are left out;
    links to folders are not followed. With `videos`, videos in folders are listed too if ffmpeg is installed. With
    `unsearched`, sub-folders that cannot be listed are also left out; it collects all folders that are left out.

    Raises DataError if a path does not exist, or a folder cannot be listed (a sub-folder: only without `unsearched`).
    """
    requested = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    images: dict[Path, None] = {}
    for path in map(as_path, requested):
        if path.is_dir() if is_remote(path) else os.path.isdir(path):
            images.update(dict.fromkeys(path / name for name in _names_in(path, unsearched, videos=videos)))
        elif is_there(path):
            images[path] = None
        else:
            raise DataError(f"There is no file or folder {path}. Name a photo, or a folder of photos.")
    return list(images)


def image_texts(folder: Place, *, unsearched: Unsearched | None = None, videos: bool = False) -> list[str]:
    """List the images of one folder as `find_images` does, as texts: a quarter of the memory and time of paths."""
    path = as_path(folder)
    start = "" if path == Path() else start_of_paths(os.fspath(path))
    return [start + name for name in _names_in(path, unsearched, videos=videos)]


def images_in(folder: Place, *, unsearched: Unsearched | None = None) -> list[Path]:
    """List the images of a folder as `find_images` does. Raises DataError if it is not a folder, or has no images."""
    path = as_path(folder)
    return [path / name for name in image_names(path, unsearched=unsearched)]


def image_names(folder: Place, *, unsearched: Unsearched | None = None) -> list[str]:
    """List the images of a folder as paths inside it, which take an eighth of the memory of those of `images_in`."""
    path = as_path(folder)
    check_image_folder(path)
    names = _names_in(path, unsearched)
    if not names:
        raise DataError(no_images_message(path))
    return names


class ListedImages(Sequence[Path]):
    """A sequence of image paths that are built on access, to save memory; `names` are paths inside the folder."""

    def __init__(self, folder: Path, names: Sequence[str]) -> None:
        self._folder, self._names = folder, names

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._folder / name for name in self._names[index]]
        return self._folder / self._names[index]


def check_image_folder(path: Path) -> None:
    """Raise DataError if the folder of images is a file, or does not exist."""
    if path.is_file():
        raise DataError(f"{path} is a file; expected the folder of images.")
    if not path.is_dir():
        raise DataError(f"There is no folder '{path.name}' in {path.absolute().parent}.")


def no_images_message(folder: Place) -> str:
    """Return the message for a folder without images: the expected suffixes, and what the folder has instead."""
    unsearched = Unsearched()
    files = list(files_below(as_path(folder), unsearched))
    reason = "".join(f" {item.image} is a {item.reason}." for item in unsearched.closed[:1])
    if not files:
        which = " that can be listed" if reason else " besides those in hidden folders" if unsearched.hidden else ""
        return f"The folder {os.fspath(folder)} has no files{which}.{reason}"
    other_files = f"Its {count_of(len(files), 'file')} (such as '{min(files)}') end otherwise"
    return (
        f"There are no images in the folder {os.fspath(folder)}, nor in its sub-folders. Looked for files that end in "
        f"{', '.join(COMMON_SUFFIXES)} or as another kind of picture. {other_files}.{reason}"
    )


def _names_in(folder: Path, unsearched: Unsearched | None, *, videos: bool = False) -> list[str]:
    """List the images of a folder by their paths inside it, sorted, without those of hidden folders."""
    suffixes, names = readable_suffixes(videos=videos and as_remote(folder) is None), []
    for name in files_below(folder, unsearched):
        suffix = suffix_of(name)
        if unsearched is not None:
            unsearched.suffixes[suffix] += 1
        if suffix in suffixes:
            names.append(name)
    names.sort()
    return names


def files_below(folder: Path, unsearched: Unsearched | None) -> Iterator[str]:
    """Yield the files below a folder, without hidden ones, as paths inside it; `unsearched` is as in `find_images`."""

    def cannot_list(error: OSError) -> None:
        if unsearched is None or error.filename == os.fspath(folder):
            raise DataError(f"The folder {error.filename} cannot be listed: {error.strerror}.") from error
        unsearched.closed.append(Skipped(os.fspath(error.filename), f"{CLOSED}: {error.strerror}"))

    excluded_folders: dict[str, None] = {}
    remote = as_remote(folder)
    for name in [] if remote is None else remote.files():
        *folders, file = name.split("/")
        hidden_index = next((i for i, part in enumerate(folders) if is_excluded_folder(part)), None)
        if hidden_index is not None:
            excluded_folders["/".join(folders[: hidden_index + 1])] = None
        elif not file.startswith("."):
            yield name

    for parent, folders, files in os.walk(folder, onerror=cannot_list) if remote is None else ():
        parent_path = Path(parent).relative_to(folder).as_posix()
        prefix = "" if parent_path == "." else f"{parent_path}/"
        excluded_folders.update((f"{prefix}{name}", None) for name in folders if is_excluded_folder(name))
        folders[:] = [name for name in folders if not is_excluded_folder(name)]
        yield from (f"{prefix}{name}" for name in files if not name.startswith("."))
    if unsearched is not None:
        unsearched.hidden += sorted(excluded_folders)


def is_excluded_folder(folder: str) -> bool:
    """Return whether a folder is hidden, or is for thumbnails or deleted files, by its name."""
    return folder.startswith(".") or folder.lower() in EXCLUDED


class Match(NamedTuple):
    """The image file of a name."""

    path: Path
    name: str  # As written, or as `plain_name` spells it if only that matches a file
    is_loose: bool = False  # Whether the two differ in capitals or in the suffix


def match_names(folder: Path, paths: Sequence[Path], names: Sequence[str]) -> list[Match | None]:
    """Match names with the images of a folder at `paths`; None for a name without a match.

    A name is the path of a file inside the folder, the end of that path, or a longer path that ends with it. Names are
    compared exactly, then as `plain_name` and `name_key` spell them. Without a match, a name may differ in capitals
    from a file that no other name matches, or lack its suffix (``.jpg``); a JPEG is preferred to its RAW file.
    Raises TagFileError if a name matches several files.
    """
    by_path = {path.relative_to(folder).as_posix(): path for path in paths}
    by_end: PathsByEnd | None = None
    matches: list[Match | None] = []
    for name in names:
        match = Match(by_path[name], name) if name in by_path else None
        for spelling, path in _spellings(name, folder).items() if match is None else ():
            by_end = by_end or PathsByEnd(by_path, name_key)  # only built if some name is not an exact path
            files = [path] if path in by_path else by_end.paths_matching(name_key(path))
            if len(files) > 1:  # such as two files whose names differ only in Unicode composition
                files = [file for file in files if _one_ends_as_the_other(path, file)] or files
            if files:
                match = Match(by_path[_only_file(spelling, files, folder)], spelling)
                break
        matches.append(match)

    if None in matches:
        _match_loose(folder, by_path, names, matches)
    return matches


def _match_loose(folder: Path, by_path: Mapping[str, Path], names: Sequence[str], matches: list[Match | None]) -> None:
    """Match names that differ in capitals, or lack the suffix, with files that no other name matches."""
    matched_paths = {match.path for match in matches if match is not None}
    unmatched_names = [name for name, path in by_path.items() if path not in matched_paths]
    folded = PathsByEnd(unmatched_names, _folded)
    without_ending = PathsByEnd(unmatched_names, lambda name: _without_ending(_folded(name)))
    for i in [i for i, match in enumerate(matches) if match is None]:
        for spelling, path in _spellings(names[i], folder).items():
            key = _folded(path)
            files = folded.paths_matching(key)
            if not files and _without_ending(key) == key:
                files = without_ending.paths_matching(key)
                files = [file for file in files if suffix_of(file) not in RAW_SUFFIXES] or files
            if files:
                matches[i] = Match(by_path[_only_file(spelling, files, folder)], spelling, is_loose=True)
                break


def _only_file(name: str, files: Sequence[str], folder: Path) -> str:
    if len(files) > 1:
        raise TagFileError(
            f"The tags name '{name}', which may be {len(files)} images in {folder}: {join_ends(files, ', ')}. Write "
            "their paths inside that folder."
        )
    return files[0]


def _spellings(name: str, folder: Path) -> dict[str, str]:
    """Return the spellings of a name, as written and by `plain_name`, with their paths inside the folder."""
    paths = {}
    for spelling in (name, plain_name(name)):
        paths[spelling] = os.path.normpath(spelling).replace(os.sep, "/")
        if spelling.startswith("/") or os.path.isabs(spelling):
            path, parent = Path(os.path.abspath(spelling)), os.path.abspath(folder)
            paths[spelling] = path.relative_to(parent).as_posix() if path.is_relative_to(parent) else spelling
    return paths


class PathsByEnd:
    """Finds paths by their ends; `fold` normalises paths for the comparison."""

    def __init__(self, paths: Iterable[str], fold: Callable[[str], str] = str) -> None:
        self._by_name: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        for path in paths:
            folded = fold(path)
            self._by_name[PurePosixPath(folded).name].append((folded, path))

    def paths_matching(self, key: str) -> list[str]:
        """List the paths equal to `key`, or else the paths that end with `key` or are the end of `key`."""
        candidates = self._by_name.get(PurePosixPath(key).name, [])
        equal = [path for folded, path in candidates if folded == key]
        return equal or [path for folded, path in candidates if _one_ends_as_the_other(key, folded)]


def plain_name(name: str) -> str:
    """Return a name without white space around it and a leading ``./``, and with ``/`` instead of backslashes."""
    return name.strip().replace("\\", "/").removeprefix("./")


def name_key(name: str) -> str:
    """Return the key by which names are compared: with ``/`` between folders, in Unicode NFC."""
    return unicodedata.normalize("NFC", name.replace(os.sep, "/"))  # some file systems decompose the names they store


def _folded(name: str) -> str:
    return name_key(name).casefold()


def _without_ending(key: str) -> str:
    stem, ending = os.path.splitext(key)
    return stem if ending in IMAGE_SUFFIXES else key


def _one_ends_as_the_other(path: str, other_path: str) -> bool:
    """Return whether the shorter of two paths is the end of the longer path."""
    short, long = sorted((PurePosixPath(path).parts, PurePosixPath(other_path).parts), key=len)
    return long[len(long) - len(short) :] == short
