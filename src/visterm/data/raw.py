"""RAW files of cameras: the JPEG preview inside them, taken out by rawpy or else by the program exiftool.

Both are optional. rawpy (MIT) brings LibRaw, which is free under LGPL 2.1 or CDDL 1.0; nothing of GPL comes with it.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from typing import Any

from PIL import ExifTags, Image

from visterm.core.errors import ImageError
from visterm.core.files import GB, read_regular
from visterm.data.file_kinds import RAW, RAW_ADVICE, suffix_of

MOST_BYTES = GB
SECONDS = 120  # How long exiftool may take for one file

WITHOUT_PREVIEW = "RAW without a preview: convert it with your camera's program"

_START = b"\xff\xd8"  # Of a JPEG
_BASE64 = "base64:"
_PREVIEWS = ("JpgFromRaw", "PreviewImage", "OtherImage", "ThumbnailImage")
_ORIENTATIONS = {3: 3, 5: 8, 6: 6}  # LibRaw's `flip`, and what EXIF calls it


def is_raw(name: str | os.PathLike[str]) -> bool:
    """Return whether a file is a RAW file by its name: many are TIFF inside, with a tiny picture in front."""
    return suffix_of(name) in RAW


def raw_preview(path: str | os.PathLike[str], content: bytes | None = None) -> bytes:
    """Return the largest preview of a RAW file as a JPEG that says how to turn it upright.

    The file is read from `path`, of this machine or of an object store, unless its `content` is given. Raises
    ImageError if it has no preview, it is damaged, or neither rawpy nor exiftool is installed; OSError if it cannot be
    read.
    """
    name = os.fspath(path)
    if content is None:
        content = read_regular(path, MOST_BYTES)
    if find_spec("rawpy") is not None:
        picture, orientation = _by_rawpy(name, content)
    elif (program := shutil.which("exiftool")) is not None:
        picture, orientation = _by_exiftool(program, name, content)
    else:
        raise ImageError(name, f"RAW without its reader: {RAW_ADVICE}")
    return _oriented(picture, orientation)


def _by_rawpy(path: str, content: bytes) -> tuple[bytes, int]:
    """Return the preview, and the orientation of the RAW file as EXIF numbers it."""
    rawpy: Any = import_module("rawpy")
    try:
        with rawpy.imread(BytesIO(content)) as raw:
            thumb, flip = raw.extract_thumb(), raw.sizes.flip
    except (rawpy.LibRawNoThumbnailError, rawpy.LibRawUnsupportedThumbnailError) as error:
        raise ImageError(path, WITHOUT_PREVIEW) from error
    except rawpy.LibRawError as error:
        raise ImageError(path, f"damaged: not a RAW file that rawpy knows ({error})") from error
    picture = BytesIO()
    if thumb.format == rawpy.ThumbFormat.JPEG:
        picture.write(thumb.data)
    else:  # a few old cameras keep pixels as they are
        Image.fromarray(thumb.data).save(picture, "JPEG", quality=95)
    return picture.getvalue(), _ORIENTATIONS.get(flip, 1)


def _by_exiftool(program: str, path: str, content: bytes) -> tuple[bytes, int]:
    """Return the same as `_by_rawpy`."""
    command = [program, "-config", "", "-j", "-b", "-n", "-Orientation", *(f"-{name}" for name in _PREVIEWS), "-"]
    try:
        done = subprocess.run(command, input=content, capture_output=True, check=False, timeout=SECONDS)
        found = json.loads(done.stdout)[0]
    except (subprocess.TimeoutExpired, ValueError, LookupError) as error:
        raise ImageError(path, "damaged: not a RAW file that exiftool knows") from error
    texts = [text for name in _PREVIEWS if (text := str(found.get(name, ""))).startswith(_BASE64)]
    if not texts:
        raise ImageError(path, WITHOUT_PREVIEW)
    return base64.b64decode(max(texts, key=len).removeprefix(_BASE64)), found.get("Orientation", 1)


def _oriented(jpeg: bytes, orientation: int) -> bytes:
    """Note the orientation of the RAW file in a JPEG that says nothing of its own."""
    if orientation not in range(2, 9) or not jpeg.startswith(_START):
        return jpeg
    with Image.open(BytesIO(jpeg), formats=["JPEG"]) as image:
        if ExifTags.Base.Orientation in image.getexif():
            return jpeg
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    segment = exif.tobytes()
    return _START + b"\xff\xe1" + (len(segment) + 2).to_bytes(2, "big") + segment + jpeg[len(_START) :]
