"""What is known of an image file without decoding it: size, date, hash, and when the photo was taken."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from visterm.core.errors import ImageError
from visterm.core.persist import file_hash
from visterm.core.remote import as_path, as_remote, is_remote
from visterm.core.threads import resolve_jobs
from visterm.data.fetching import READERS

T = TypeVar("T")

FIRST_RAW = "1990"  # The year, before which no camera wrote RAW files

_MOMENT = re.compile(r"(\d{4})[:-](\d\d)[:-](\d\d)(?:[ T](\d\d):(\d\d)(?::(\d\d))?)?")


def content_hash(path: str | os.PathLike[str]) -> str | None:
    """Return the SHA-256 of an image file, of an object that of its stamp (`stamp_hash`); None if it cannot be read.

    The encoder then says why.
    """
    remote = as_remote(path)
    if remote is not None:
        return stamp_hash(remote.stamp())
    try:
        return file_hash(path)
    except OSError:
        return None


def stamp_hash(stamp: object) -> str | None:
    """Return the SHA-256 of the stamp of an object, in place of that of its content; None for a file's stamp.

    The store has hashed what it holds (ETag), and to fetch a library only to see that nothing in it has changed would
    take as long as to encode it.
    """
    return hashlib.sha256(stamp.encode()).hexdigest() if isinstance(stamp, str) else None


def stamps(paths: Sequence[Path]) -> list[object]:
    """Return of each file or object what changes when it is written again; None if it is not there."""
    return _of_all(_stamp, paths)


def file_states(paths: Sequence[str | None]) -> list[tuple[int, int] | None]:
    """Return the `file_state` of each path, of many objects at the same time; None stays None."""
    return _of_all(lambda path: None if path is None else file_state(path), paths)


def file_state(path: str) -> tuple[int, int] | None:
    """Return the size of a file in bytes, and when it was last changed in nanoseconds; None if it is not there."""
    remote = as_remote(path)
    if remote is not None:
        return remote.state()
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def reading_threads(paths: Sequence[Any], n_jobs: int | None) -> int:
    """Return how many threads look at files: those requested, but enough to ask a store many questions at once."""
    requested = resolve_jobs(n_jobs)
    return max(requested, READERS) if any(map(is_remote, paths)) else requested


def is_there(path: str | os.PathLike[str]) -> bool:
    """Return whether there is a file, or an object."""
    return as_path(path).exists()


def taken_of(path: str | os.PathLike[str]) -> str | None:
    """Return when a photo was taken by its camera's clock, from EXIF, in ISO 8601 without a zone; None if not known.

    ``DateTimeOriginal`` counts, then ``DateTimeDigitized``, then ``DateTime``. Of a RAW file that Pillow cannot open,
    those of its preview count.
    """
    from visterm.data.raw import is_raw, raw_preview

    found = _exif_time(path)
    if found is not None or not is_raw(path):
        return found
    try:
        found = _exif_time(path, raw_preview(path))
    except (ImageError, OSError):  # that a file cannot be read is told where it is decoded
        return None
    return None if found is not None and found < FIRST_RAW else found  # LibRaw writes 1970 where it knows no date


def _exif_time(path: str | os.PathLike[str], content: bytes | None = None) -> str | None:
    """Return when an image file, or the content of one, says that it was taken."""
    from PIL import ExifTags

    from visterm.data.pillow import opened_image

    try:
        with opened_image(path, content) as image:
            exif = image.getexif()
            shot = exif.get_ifd(ExifTags.IFD.Exif)
    except Exception:  # whatever hostile bytes lead Pillow to: that a file cannot be read is told where it is decoded
        return None
    times = (
        shot.get(ExifTags.Base.DateTimeOriginal),
        shot.get(ExifTags.Base.DateTimeDigitized),
        exif.get(ExifTags.Base.DateTime),
    )
    return next((moment for moment in map(_as_iso, times) if moment is not None), None)


def _as_iso(value: object) -> str | None:
    found = _MOMENT.match(value.strip()) if isinstance(value, str) else None
    if found is None:
        return None
    year, month, day, *clock = (int(part or 0) for part in found.groups())
    if not (1 <= month <= 12 and 1 <= day <= 31 and year > 0):  # cameras whose clock was not set write zeros
        return None
    date = f"{year:04}-{month:02}-{day:02}"
    return date if found[4] is None else f"{date}T{clock[0]:02}:{clock[1]:02}:{clock[2]:02}"


def _of_all(look: Callable[[Any], T], paths: Sequence[Any]) -> list[T]:
    """Look at all paths, at many of a store at the same time."""
    if any(map(is_remote, paths)):
        with ThreadPoolExecutor(READERS, thread_name_prefix="visterm-fetch") as pool:
            return list(pool.map(look, paths))
    return [look(path) for path in paths]


def _stamp(path: Path) -> object:
    remote = as_remote(path)
    if remote is not None:
        return remote.stamp()
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
