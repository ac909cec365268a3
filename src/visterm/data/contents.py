"""What is known of an image file without decoding it: size, date and hash, and when and where it was taken."""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from visterm.core.errors import ImageError
from visterm.core.persist import file_hash
from visterm.core.remote import as_path, as_remote, is_remote
from visterm.core.threads import resolve_jobs
from visterm.data.fetching import READERS

T = TypeVar("T")

LONGEST_NAME = 100  # Letters of a camera's name
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


class Exif(NamedTuple):
    """When, where and by which camera a photo was taken, as its file says; None: it does not."""

    taken: str | None = None  # By the camera's clock, in ISO 8601 without a zone
    camera: str | None = None
    # Degrees, north and east
    latitude: float | None = None
    longitude: float | None = None


def exif_of(path: str | os.PathLike[str]) -> Exif:
    """Return what the EXIF data of a photo say; all None if it has none, or cannot be read.

    ``DateTimeOriginal`` counts, then ``DateTimeDigitized``, then ``DateTime``. Of a RAW file whose date Pillow cannot
    read, the data of its preview count.
    """
    from visterm.data.raw import is_raw, raw_preview

    found = _read_exif(path)
    if found.taken is not None or not is_raw(path):
        return found
    try:
        found = _read_exif(path, raw_preview(path))
    except (ImageError, OSError):  # that a file cannot be read is told where it is decoded
        return found
    undated = found.taken is None or found.taken < FIRST_RAW  # LibRaw writes 1970 where it knows no date
    return found._replace(taken=None) if undated else found


def _read_exif(path: str | os.PathLike[str], content: bytes | None = None) -> Exif:
    """Read the EXIF data of an image file, or of the content of one."""
    from PIL import ExifTags

    from visterm.data.pillow import opened_image

    try:
        with opened_image(path, content) as image:
            exif = image.getexif()
            shot, gps = exif.get_ifd(ExifTags.IFD.Exif), exif.get_ifd(ExifTags.IFD.GPSInfo)
            tags = ExifTags.GPS
            latitude = _degrees(gps.get(tags.GPSLatitude), gps.get(tags.GPSLatitudeRef), "S", 90.0)
            longitude = _degrees(gps.get(tags.GPSLongitude), gps.get(tags.GPSLongitudeRef), "W", 180.0)
    except Exception:  # whatever hostile bytes lead Pillow to: that a file cannot be read is told where it is decoded
        return Exif()
    times = (
        shot.get(ExifTags.Base.DateTimeOriginal),
        shot.get(ExifTags.Base.DateTimeDigitized),
        exif.get(ExifTags.Base.DateTime),
    )
    taken = next((moment for moment in map(_as_iso, times) if moment is not None), None)
    camera = camera_name(exif.get(ExifTags.Base.Make), exif.get(ExifTags.Base.Model))
    if latitude is None or longitude is None or latitude == longitude == 0:  # cameras without a fix write zeros
        return Exif(taken, camera)
    return Exif(taken, camera, latitude, longitude)


def camera_name(make: object, model: object) -> str | None:
    """Return a camera's name: its model, after its maker where the model does not name it; None if not known."""
    maker, name = (
        " ".join(text.replace("\0", " ").split())[:LONGEST_NAME] if isinstance(text, str) else ""
        for text in (make, model)
    )
    if maker and not name.casefold().startswith(maker.split()[0].casefold()):
        name = f"{maker} {name}"
    return name.strip() or None


def _degrees(parts: Any, side: object, negative: str, most: float) -> float | None:
    """Return degrees, minutes and seconds of EXIF as degrees, to a tenth of a metre; None if they are no place."""
    if not isinstance(parts, tuple) or len(parts) != 3:
        return None
    degrees = float(parts[0]) + float(parts[1]) / 60 + float(parts[2]) / 3600
    if not (math.isfinite(degrees) and 0 <= degrees <= most):
        return None
    return round(-degrees if side == negative else degrees, 6)


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
