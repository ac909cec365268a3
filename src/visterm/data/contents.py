"""Facts about an image file without decoding it: size, date and hash, and when and where it was taken."""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from PIL import ExifTags

from visterm.core.errors import ImageError
from visterm.core.persist import file_hash
from visterm.core.remote import as_remote, is_remote
from visterm.core.threads import Team, resolve_jobs
from visterm.data.pillow import is_raw, opened_image, raw_preview

S = TypeVar("S")
T = TypeVar("T")

READERS = 16  # Number of objects to request from a store at the same time
MAX_NAME_LENGTH = 100  # Maximum length of the maker and of the model of a camera

_DATE_TIME = re.compile(  # 2024:05:31 10:20:30, 2024/5/1 9:5, 2024-05-31T10:20:30.5+02:00, 20240531 102030
    r"(?:(?P<year>\d{4})(?P<between>[:/.-])\s?(?P<month>\d\d?)(?P=between)\s?(?P<day>\d\d?)(?!\d)"
    r"|(?P<date>\d{8})(?=\d{6}(?!\d)|\D|$))"
    r"(?:(?:[T_-]|\s+|(?<=\d{8}))(?:(?P<hour>\d\d?)(?P<part>[:.])\s?(?P<minute>\d\d?)(?:(?P=part)\s?(?P<second>\d\d?))?"
    r"|(?P<clock>\d{4}(?:\d\d)?))(?!\d)\s*(?P<half>[AP]M)?)?",
    re.IGNORECASE,
)
_UNSET = re.compile(r"[0:/.\s-]*")  # Written by cameras whose clock is not set, or that have no clock


def content_hash(path: str | os.PathLike[str]) -> str | None:
    """Return the SHA-256 of an image file, or the `stamp_hash` of an object; None if it cannot be read."""
    if (remote := as_remote(path)) is not None:
        return stamp_hash(remote.stamp())
    try:
        return file_hash(path)
    except OSError:
        return None


def stamp_hash(stamp: object) -> str | None:
    """Return the SHA-256 of an object's stamp (see `stamps`), instead of its content; None for a file's stamp.

    The store has already hashed the content (ETag), and fetching all photos only to see that nothing has changed would
    take as long as encoding them.
    """
    return hashlib.sha256(stamp.encode()).hexdigest() if isinstance(stamp, str) else None


def stamps(paths: Sequence[Path]) -> list[object]:
    """Return, for each file or object, a value that changes when it is rewritten; None if it does not exist."""
    return _map_paths(_stamp, paths)


def file_states(paths: Sequence[str | None]) -> list[tuple[int, int] | None]:
    """Return the `file_state` of each path, with parallel requests to object stores; None for None."""
    return _map_paths(lambda path: None if path is None else file_state(path), paths)


def file_state(path: str) -> tuple[int, int] | None:
    """Return the size of a file in bytes, and its modification time in nanoseconds; None if it does not exist."""
    if (remote := as_remote(path)) is not None:
        return remote.state()
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # a NUL in the name
        return None
    return status.st_size, status.st_mtime_ns


def reading_threads(paths: Sequence[object], n_jobs: int | None) -> int:
    """Return the number of threads for reading files; at least `READERS` if files are in an object store."""
    n_threads = resolve_jobs(n_jobs)
    return max(n_threads, READERS) if any(map(is_remote, paths)) else n_threads


class Exif(NamedTuple):
    """When, where and with which camera a photo was taken, from its metadata; None if unknown."""

    taken: str | None = None  # Local time of the camera in ISO 8601, without a time zone
    camera: str | None = None
    # Degrees, north and east
    latitude: float | None = None
    longitude: float | None = None


def exif_of(path: str | os.PathLike[str], *, unread: list[str] | None = None) -> Exif:
    """Return the EXIF data of a photo; all None if it has none, or they cannot be read.

    The date is ``DateTimeOriginal``, or else ``DateTimeDigitized``, or else ``DateTime``. If the first date that is set
    is invalid, the date is None, and the value is appended to `unread`. For a RAW file in which Pillow finds no date,
    the EXIF data of its preview are used.
    """
    exif = _read_exif(path, unread=unread)
    if exif.taken is not None or not is_raw(path):
        return exif
    try:
        exif = _read_exif(path, raw_preview(path), unread=unread)
    except (ImageError, OSError):  # decoding reports that the file cannot be read
        return exif
    has_no_date = exif.taken is None or exif.taken < "1990"  # LibRaw writes 1970 for a missing date
    return exif._replace(taken=None) if has_no_date else exif


def _read_exif(path: str | os.PathLike[str], content: bytes | None = None, *, unread: list[str] | None = None) -> Exif:
    try:
        with opened_image(path, content) as image:
            exif = image.getexif()
            exif_ifd, gps = exif.get_ifd(ExifTags.IFD.Exif), exif.get_ifd(ExifTags.IFD.GPSInfo)
            tags = ExifTags.GPS
            latitude = _degrees(gps.get(tags.GPSLatitude), gps.get(tags.GPSLatitudeRef), "S", 90.0)
            longitude = _degrees(gps.get(tags.GPSLongitude), gps.get(tags.GPSLongitudeRef), "W", 180.0)
    except Exception:  # hostile bytes raise any error in Pillow; decoding reports that the file cannot be read
        return Exif()

    base = ExifTags.Base
    times = exif_ifd.get(base.DateTimeOriginal), exif_ifd.get(base.DateTimeDigitized), exif.get(base.DateTime)
    taken = _first_date(times, os.fspath(path), unread)
    camera = camera_name(exif.get(base.Make), exif.get(base.Model))
    if latitude is None or longitude is None or latitude == longitude == 0:  # cameras without a fix write zeros
        return Exif(taken, camera)
    return Exif(taken, camera, latitude, longitude)


def camera_name(make: object, model: object) -> str | None:
    """Return a camera's name: its model, preceded by its maker unless the model includes it; None if unknown."""
    texts = (text.replace("\0", " ") if isinstance(text, str) else "" for text in (make, model))
    maker, name = (" ".join(text.split())[:MAX_NAME_LENGTH] for text in texts)
    if maker and not name.casefold().startswith(maker.split()[0].casefold()):
        name = f"{maker} {name}"
    return name.strip() or None


def _degrees(dms: Any, reference: object, negative_reference: str, limit: float) -> float | None:
    """Convert EXIF degrees, minutes and seconds to degrees, to a tenth of a metre; None if they are invalid."""
    if not isinstance(dms, tuple) or len(dms) != 3:
        return None
    degrees = float(dms[0]) + float(dms[1]) / 60 + float(dms[2]) / 3600
    if not (math.isfinite(degrees) and 0 <= degrees <= limit):
        return None
    return round(-degrees if reference == negative_reference else degrees, 6)


def _first_date(dates: Iterable[object], path: str, unread: list[str] | None) -> str | None:
    """Return the first EXIF date that is set, in ISO 8601; None if no date is set, or the first is invalid.

    Any unambiguous notation is accepted; an invalid time of day is left out. Later dates do not replace an invalid one,
    because they have another meaning, such as the last edit.
    """
    texts = (value.decode("latin-1") if isinstance(value, bytes) else str(value or "") for value in dates)
    text = next((text for raw in texts if not _UNSET.fullmatch(text := raw.replace("\0", " ").strip())), None)
    if text is None:
        return None
    match, iso_date = _DATE_TIME.match(text), ""
    if match is not None:
        digits, clock = match["date"], match["clock"] or ""
        parts = (digits[:4], digits[4:6], digits[6:]) if digits else match.group("year", "month", "day")
        times = (clock[:2], clock[2:4], clock[4:]) if clock else match.group("hour", "minute", "second")
        with suppress(ValueError):  # an invalid day
            iso_date = date(*map(int, parts)).isoformat()

    if match is None or not iso_date:
        if unread is not None:
            unread.append(f"{path} ({text[:30]!r})")
        return None

    hour, minute, second = (int(part or 0) for part in times)
    if match["half"] and hour <= 12:
        hour = hour % 12 + (12 if match["half"].upper() == "PM" else 0)
    is_clock = times[0] is not None and hour < 24 and minute < 60 and second < 60
    return f"{iso_date}T{hour:02}:{minute:02}:{second:02}" if is_clock else iso_date


def _map_paths(read: Callable[[S], T], paths: Sequence[S]) -> list[T]:
    """Call `read` for each path, in parallel for objects in a store."""
    with Team(reading_threads(paths, 1)) as team:
        return team.run(lambda n: read(paths[n]), len(paths))


def _stamp(path: Path) -> object:
    if (remote := as_remote(path)) is not None:
        return remote.stamp()
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
