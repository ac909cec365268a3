"""When a photo was taken, as its camera's clock said: from EXIF, without decoding the picture."""

from __future__ import annotations

import os
import re

from PIL import ExifTags, Image

from visterm.data.contents import readable
from visterm.data.images import readable_formats
from visterm.data.pillow_warnings import pillow_silenced

_MOMENT = re.compile(r"(\d{4})[:-](\d\d)[:-](\d\d)(?:[ T](\d\d):(\d\d)(?::(\d\d))?)?")


def taken_of(path: str | os.PathLike[str]) -> str | None:
    """Return the date and time when a photo was taken, in ISO 8601 without a zone; None where the file does not say.

    ``DateTimeOriginal`` counts, then ``DateTimeDigitized``, then ``DateTime``. A file that cannot be read says nothing.
    """
    try:
        with pillow_silenced(), readable(path) as file, Image.open(file, formats=readable_formats()) as image:
            exif = image.getexif()
            shot = exif.get_ifd(ExifTags.IFD.Exif)
    except Exception:  # whatever hostile bytes lead Pillow to: that a file cannot be read is told where it is decoded
        return None
    for value in (
        shot.get(ExifTags.Base.DateTimeOriginal),
        shot.get(ExifTags.Base.DateTimeDigitized),
        exif.get(ExifTags.Base.DateTime),
    ):
        moment = _as_iso(value)
        if moment is not None:
            return moment
    return None


def _as_iso(value: object) -> str | None:
    found = _MOMENT.match(value.strip()) if isinstance(value, str) else None
    if found is None:
        return None
    year, month, day, *clock = (int(part or 0) for part in found.groups())
    if not (1 <= month <= 12 and 1 <= day <= 31 and year > 0):  # cameras whose clock was not set write zeros
        return None
    date = f"{year:04}-{month:02}-{day:02}"
    return date if found[4] is None else f"{date}T{clock[0]:02}:{clock[1]:02}:{clock[2]:02}"
