"""The kinds of files in a folder of photos: which of them can be read here, and how many others lie among them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, NamedTuple

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

BESIDE_PHOTOS = frozenset({".xmp"})  # Read with their photos, and never counted
OTHER, VIDEOS = "other", "video"

HEIF_PACKAGES = ("pi_heif", "pillow_heif")  # In the order in which they are looked for
HEIC_ADVICE = "pip install 'visterm[heif]'"
VIDEO_ADVICE = "the program ffmpeg"
READ_VIDEOS = "index and annotate read them"  # For commands that learn from photos
RAW_ADVICE = "pip install 'visterm[raw]', or the program exiftool"

_SHOWN = 3  # Suffixes that are named of a kind


class Kind(NamedTuple):
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
    Kind("photo", "photo", PHOTO, lambda: True),
    Kind("heic", "HEIC file", HEIC, reads_heic, HEIC_ADVICE),
    Kind("raw", "RAW file", RAW, reads_raw, RAW_ADVICE),
    Kind(VIDEOS, "video", VIDEO, reads_videos, VIDEO_ADVICE),
)


def suffix_of(name: str | os.PathLike[str]) -> str:
    """Return the suffix of a file in small letters."""
    return os.path.splitext(os.fspath(name))[1].lower()


def readable_suffixes(*, videos: bool = False) -> frozenset[str]:
    """Return the suffixes of the files that are read here as images, in small letters; with `videos` of these, too."""
    kinds = [kind for kind in KINDS if videos or kind.name != VIDEOS]
    return frozenset().union(*(kind.suffixes for kind in kinds if kind.is_readable()))


@dataclass(frozen=True, slots=True)
class NotRead:
    """How many files among the photos are not read, by kind and suffix."""

    suffixes: dict[str, dict[str, int]] = field(default_factory=dict)  # Of each kind: files by suffix
    videos: bool = False  # Whether videos would be read if what reads them were installed

    def count(self, kind: str) -> int:
        """Return the number of files of a kind."""
        return sum(self.suffixes.get(kind, {}).values())

    def as_dict(self) -> dict[str, Any]:
        """Return the counts as they stand in JSON."""
        return {name: self.count(name) for name in [*(kind.name for kind in KINDS[1:]), OTHER]}

    def line(self) -> str:
        """Return the counts as a sentence; empty where there are none."""
        return f"Not read as photos: {text}." if (text := self.text()) else ""

    def text(self) -> str:
        """Return the counts as a list: ``12 RAW files (.cr2), 4 others (.txt)``."""
        found = [
            (kind.name, kind.noun, f"read with: {kind.advice}" if kind.name != VIDEOS or self.videos else READ_VIDEOS)
            for kind in KINDS
            if self.count(kind.name)
        ]
        found += [(OTHER, OTHER, "")] if self.count(OTHER) else []
        counts = [f"{count_of(self.count(name), noun)} ({self._named(name, advice)})" for name, noun, advice in found]
        return ", ".join(counts)

    def _named(self, kind: str, advice: str) -> str:
        by_suffix = self.suffixes[kind]
        first = sorted(by_suffix, key=lambda suffix: (-by_suffix[suffix], suffix))
        named = ", ".join([suffix or "without ending" for suffix in first[:_SHOWN]])
        return f"{named}{', ...' if len(first) > _SHOWN else ''}{f'; {advice}' if advice else ''}"


def unread_inside(names: Iterable[str | os.PathLike[str]]) -> list[str]:
    """Return a line that counts the files whose own keywords are not read; nothing if there are none."""
    suffixes = sorted(suffix for suffix in map(suffix_of, names) if suffix in UNREAD_INSIDE)
    if not suffixes:
        return []
    shown = ", ".join(dict.fromkeys(suffixes))
    return [f"Keywords inside of {count_of(len(suffixes), 'file')} ({shown}) are not read; XMP files beside them are."]


def is_video(path: object) -> bool:
    """Return whether a file is a video by its suffix."""
    return isinstance(path, str | os.PathLike) and suffix_of(path) in VIDEO


def count_by_kind(names: Iterable[str], *, videos: bool = False) -> NotRead:
    """Count those of some files that are not read here; without `videos`, no video is."""
    unread = [kind for kind in KINDS if not kind.is_readable() or (kind.name == VIDEOS and not videos)]
    kinds = {suffix: kind.name for kind in unread for suffix in kind.suffixes}
    read = frozenset().union(*(kind.suffixes for kind in KINDS)) - set(kinds) | BESIDE_PHOTOS
    found: dict[str, dict[str, int]] = {}
    for suffix in map(suffix_of, names):
        if suffix not in read:
            by_suffix = found.setdefault(kinds.get(suffix, OTHER), {})
            by_suffix[suffix] = by_suffix.get(suffix, 0) + 1
    return NotRead(found, videos)
