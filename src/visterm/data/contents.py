"""What is known of an image file without decoding it: size, date and hash, and when and where it was taken."""

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

READERS = 16  # Objects of a store that are requested at the same time
LONGEST_NAME = 100  # Letters of a camera's name

_MOMENT = re.compile(  # 2024:05:31 10:20:30, 2024/5/1 9:5, 2024-05-31T10:20:30.5+02:00, 20240531 102030
    r"(?:(?P<year>\d{4})(?P<between>[:/.-])\s?(?P<month>\d\d?)(?P=between)\s?(?P<day>\d\d?)(?!\d)"
    r"|(?P<date>\d{8})(?=\d{6}(?!\d)|\D|$))"
    r"(?:(?:[T_-]|\s+|(?<=\d{8}))(?:(?P<hour>\d\d?)(?P<part>[:.])\s?(?P<minute>\d\d?)(?:(?P=part)\s?(?P<second>\d\d?))?"
    r"|(?P<clock>\d{4}(?:\d\d)?))(?!\d)\s*(?P<half>[AP]M)?)?",
    re.IGNORECASE,
)
_UNSET = re.compile(r"[0:/.\s-]*")  # What cameras write whose clock is not set, and those that know no date


def content_hash(path: str | os.PathLike[str]) -> str | None:
    """Return the SHA-256 of an image file, of an object that of its stamp (`stamp_hash`); None if it cannot be read."""
    if (remote := as_remote(path)) is not None:
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
    if (remote := as_remote(path)) is not None:
        return remote.state()
    try:
        status = os.stat(path)
    except (OSError, ValueError):  # no file has a NUL in its name
        return None
    return status.st_size, status.st_mtime_ns


def reading_threads(paths: Sequence[object], n_jobs: int | None) -> int:
    """Return how many threads look at files: those requested, but enough to ask a store many questions at once."""
    requested = resolve_jobs(n_jobs)
    return max(requested, READERS) if any(map(is_remote, paths)) else requested


class Exif(NamedTuple):
    """When, where and by which camera a photo was taken, as its file says; None: it does not."""

    taken: str | None = None  # By the camera's clock, in ISO 8601 without a zone
    camera: str | None = None
    # Degrees, north and east
    latitude: float | None = None
    longitude: float | None = None


def exif_of(path: str | os.PathLike[str], *, unread: list[str] | None = None) -> Exif:
    """Return what the EXIF data of a photo say; all None if it has none, or cannot be read.

    ``DateTimeOriginal`` counts, or ``DateTimeDigitized`` if that is not set, or else ``DateTime``. One that is set and
    cannot be read is no date, and is appended to `unread`. Of a RAW file without a date for Pillow, the data of its
    preview count.
    """
    exif = _read_exif(path, unread=unread)
    if exif.taken is not None or not is_raw(path):
        return exif
    try:
        exif = _read_exif(path, raw_preview(path), unread=unread)
    except (ImageError, OSError):  # that a file cannot be read is told where it is decoded
        return exif
    undated = exif.taken is None or exif.taken < "1990"  # LibRaw writes 1970, when no camera wrote RAW files
    return exif._replace(taken=None) if undated else exif


def _read_exif(path: str | os.PathLike[str], content: bytes | None = None, *, unread: list[str] | None = None) -> Exif:
    try:
        with opened_image(path, content) as image:
            exif = image.getexif()
            shot, gps = exif.get_ifd(ExifTags.IFD.Exif), exif.get_ifd(ExifTags.IFD.GPSInfo)
            tags = ExifTags.GPS
            latitude = _degrees(gps.get(tags.GPSLatitude), gps.get(tags.GPSLatitudeRef), "S", 90.0)
            longitude = _degrees(gps.get(tags.GPSLongitude), gps.get(tags.GPSLongitudeRef), "W", 180.0)
    except Exception:  # whatever hostile bytes lead Pillow to: that a file cannot be read is told where it is decoded
        return Exif()

    base = ExifTags.Base
    times = shot.get(base.DateTimeOriginal), shot.get(base.DateTimeDigitized), exif.get(base.DateTime)
    taken = _moment_of(times, os.fspath(path), unread)
    camera = camera_name(exif.get(base.Make), exif.get(base.Model))
    if latitude is None or longitude is None or latitude == longitude == 0:  # cameras without a fix write zeros
        return Exif(taken, camera)
    return Exif(taken, camera, latitude, longitude)


def camera_name(make: object, model: object) -> str | None:
    """Return a camera's name: its model, after its maker where the model does not name it; None if not known."""
    texts = (text.replace("\0", " ") if isinstance(text, str) else "" for text in (make, model))
    maker, name = (" ".join(text.split())[:LONGEST_NAME] for text in texts)
    if maker and not name.casefold().startswith(maker.split()[0].casefold()):
        name = f"{maker} {name}"
    return name.strip() or None


def _degrees(parts: Any, side: object, negative: str, most: float) -> float | None:
    """Return degrees, minutes and seconds of EXIF as degrees, to a tenth of a metre; None if they are impossible."""
    if not isinstance(parts, tuple) or len(parts) != 3:
        return None
    degrees = float(parts[0]) + float(parts[1]) / 60 + float(parts[2]) / 3600
    if not (math.isfinite(degrees) and 0 <= degrees <= most):
        return None
    return round(-degrees if side == negative else degrees, 6)


def _moment_of(dates: Iterable[object], path: str, unread: list[str] | None) -> str | None:
    """Return the first of some EXIF dates that is set, in ISO 8601; None if no date is set, or this one is unreadable.

    It may have any spelling that has one meaning, and is without the clock if that cannot be right. Another date in
    place of one that cannot be read would be that of something else, such as the last edit.
    """
    texts = (value.decode("latin-1") if isinstance(value, bytes) else str(value or "") for value in dates)
    text = next((text for each in texts if not _UNSET.fullmatch(text := each.replace("\0", " ").strip())), None)
    if text is None:
        return None
    match, day = _MOMENT.match(text), ""
    if match is not None:
        digits, clock = match["date"], match["clock"] or ""
        parts = (digits[:4], digits[4:6], digits[6:]) if digits else match.group("year", "month", "day")
        times = (clock[:2], clock[2:4], clock[4:]) if clock else match.group("hour", "minute", "second")
        with suppress(ValueError):  # no such day
            day = date(*map(int, parts)).isoformat()
    if match is None or not day:
        if unread is not None:
            unread.append(f"{path} ({text[:30]!r})")
        return None

    hour, minute, second = (int(part or 0) for part in times)
    if match["half"] and hour <= 12:
        hour = hour % 12 + (12 if match["half"].upper() == "PM" else 0)
    is_clock = times[0] is not None and hour < 24 and minute < 60 and second < 60
    return f"{day}T{hour:02}:{minute:02}:{second:02}" if is_clock else day


def _of_all(look: Callable[[S], T], paths: Sequence[S]) -> list[T]:
    """Call `look` for each path, for many objects of a store at the same time."""
    with Team(reading_threads(paths, 1)) as team:
        return team.run(lambda n: look(paths[n]), len(paths))


def _stamp(path: Path) -> object:
    if (remote := as_remote(path)) is not None:
        return remote.stamp()
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
