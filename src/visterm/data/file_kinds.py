"""The kinds of files in a folder of photos: which of them can be read here, and how many others lie among them."""

from __future__ import annotations

import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import NamedTuple

from visterm.core.wording import count_of

PHOTO = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".png", ".apng", ".gif", ".webp", ".bmp", ".dib", ".tif", ".tiff"}
    | {".ppm", ".pgm", ".pbm", ".pnm", ".jp2", ".j2k", ".jpf", ".jpx", ".avif", ".qoi"}
)
HEIC = frozenset({".heic", ".heif", ".hif"})
RAW = frozenset(
    {".3fr", ".arw", ".cr2", ".cr3", ".crw", ".dcr", ".dng", ".erf", ".fff", ".gpr", ".iiq", ".kdc", ".mef", ".mos"}
    | {".mrw", ".nef", ".nrw", ".orf", ".pef", ".raf", ".raw", ".rw2", ".rwl", ".sr2", ".srf", ".srw", ".x3f"}
)
DNG = ".dng"  # Of the RAW formats the one that metadata are written into
VIDEO = frozenset(
    {".3gp", ".avi", ".flv", ".insv", ".m2ts", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".mts", ".ogv"}
    | {".vob", ".webm", ".wmv"}
)

# Suffixes, in small letters, of files that are images, whether or not their readers are installed
IMAGES = PHOTO | HEIC | RAW

# Those that can hold keywords which are not read, unlike those of RAW files that are TIFF inside
UNREAD_INSIDE = VIDEO | {".cr3", ".crw", ".mrw", ".orf", ".raf", ".raw", ".rw2", ".rwl", ".x3f"}

OTHER, VIDEOS = "other", "video"

HEIF_PACKAGES = ("pi_heif", "pillow_heif")  # In the order in which they are looked for
HEIC_ADVICE = "pip install 'visterm[heif]'"
RAW_ADVICE = "pip install 'visterm[raw]', or the program exiftool"


class FileKind(NamedTuple):
    """One kind of files."""

    name: str  # In JSON
    noun: str  # In sentences, in the singular
    suffixes: frozenset[str]
    is_readable: Callable[[], bool]  # Whether what reads them is installed
    advice: str = ""  # What to install


def reads_heic() -> bool:
    """Return whether a reader of HEIC is installed."""
    return any(find_spec(package) is not None for package in HEIF_PACKAGES)


def reads_raw() -> bool:
    """Return whether something is installed that takes the preview out of a RAW file."""
    return find_spec("rawpy") is not None or shutil.which("exiftool") is not None


def reads_videos() -> bool:
    """Return whether the programs are installed that take frames out of videos."""
    return shutil.which("ffmpeg") is not None and shutil.which("ffprobe") is not None


KINDS = (
    FileKind("photo", "photo", PHOTO, lambda: True),
    FileKind("heic", "HEIC file", HEIC, reads_heic, HEIC_ADVICE),
    FileKind("raw", "RAW file", RAW, reads_raw, RAW_ADVICE),
    FileKind(VIDEOS, "video", VIDEO, reads_videos, "the program ffmpeg"),
)


def suffix_of(name: str | os.PathLike[str]) -> str:
    """Return the suffix of a file in small letters."""
    return os.path.splitext(os.fspath(name))[1].lower()


def readable_suffixes(*, videos: bool = False) -> frozenset[str]:
    """Return the suffixes of the files that are read here as images, in small letters; with `videos` of these, too."""
    kinds = [kind for kind in KINDS if videos or kind.name != VIDEOS]
    return frozenset().union(*(kind.suffixes for kind in kinds if kind.is_readable()))


class NotRead(NamedTuple):
    """How many files among the photos are not read."""

    counts: dict[str, int]  # By kind, as they stand in JSON
    text: str  # The same as a list: ``12 RAW files (.cr2), 4 others (.txt)``; empty where there are none


def unread_inside(names: Iterable[str | os.PathLike[str]]) -> list[str]:
    """Return a line that counts the files whose own keywords are not read; nothing if there are none."""
    suffixes = sorted(suffix for suffix in map(suffix_of, names) if suffix in UNREAD_INSIDE)
    files = f"{count_of(len(suffixes), 'file')} ({', '.join(dict.fromkeys(suffixes))})"
    return [f"Keywords inside of {files} are not read; XMP files beside them are."] if suffixes else []


def is_video(path: object) -> bool:
    """Return whether a file is a video by its suffix."""
    return isinstance(path, str | os.PathLike) and suffix_of(path) in VIDEO


def count_by_kind(names: Iterable[str], *, videos: bool = False) -> NotRead:
    """Count those of some files that are not read here; without `videos`, no video is."""
    unread = [kind for kind in KINDS if not kind.is_readable() or (kind.name == VIDEOS and not videos)]
    kinds = {suffix: kind.name for kind in unread for suffix in kind.suffixes}
    read = frozenset().union(*(kind.suffixes for kind in KINDS)) - set(kinds) | {".xmp"}  # read with their photos
    files: defaultdict[str, Counter[str]] = defaultdict(Counter)  # Of each kind, by suffix
    for suffix in map(suffix_of, names):
        if suffix not in read:
            files[kinds.get(suffix, OTHER)][suffix] += 1

    counts, texts = {}, []
    for name, noun, _, _, advice in (*KINDS[1:], FileKind(OTHER, OTHER, frozenset(), lambda: False)):
        counts[name] = files[name].total()
        if counts[name]:
            first = [suffix for suffix, _ in sorted(files[name].items(), key=lambda item: (-item[1], item[0]))]
            suffixes = ", ".join([suffix or "without ending" for suffix in first[:3]])
            by_others = name == VIDEOS and not videos  # for commands that learn from photos
            advice_text = "index and annotate read them" if by_others else advice and f"read with: {advice}"
            more = f"{', ...' if len(first) > 3 else ''}{f'; {advice_text}' if advice_text else ''}"
            texts.append(f"{count_of(counts[name], noun)} ({suffixes}{more})")
    return NotRead(counts, ", ".join(texts))
