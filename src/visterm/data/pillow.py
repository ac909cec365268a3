"""Opening image files with Pillow, also HEIC and previews in RAW files, and converting to upright RGB.

HEIC is read by pi-heif (BSD), whose wheels hold libheif and libde265 (LGPL 3). pillow-heif is not used: its wheels
contain x265, which is GPL. The JPEG preview in a RAW file is extracted by rawpy (MIT, extra `raw`), which includes
LibRaw (LGPL 2.1 or CDDL 1.0), or else by the program exiftool.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageFile

from visterm.core.errors import ImageError
from visterm.core.files import GB, open_regular, read_regular
from visterm.core.remote import as_path, is_remote
from visterm.data.image_folders import RAW_ADVICE, RAW_SUFFIXES, suffix_of

# Formats of photos; EPS, whose reader starts another program, and TGA, which accepts any bytes, are left out
FORMATS = ("JPEG", "MPO", "PNG", "GIF", "WEBP", "BMP", "DIB", "TIFF", "PPM", "JPEG2000", "AVIF", "HEIF", "QOI")
# Pillow's modules of these formats: it has five times as many, and `Image.init` would import them all
_READERS = ("Jpeg", "Mpo", "Png", "Gif", "WebP", "Bmp", "Tiff", "Ppm", "Jpeg2K", "Avif", "Qoi")

_PILLOW_MODULES = r"PIL\."
_FILTER = ("ignore", None, Warning, re.compile(_PILLOW_MODULES), 0)  # As Python keeps it in `warnings.filters`
_TRANSPOSE = {
    2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_270, 7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}  # fmt: skip
_PREMULTIPLIED = {"La": "LA", "RGBa": "RGBA"}
_BITS_PER_SAMPLE = 258  # TIFF 6.0, section 8
_lock = threading.Lock()
_n_silenced = 0
MAX_RAW_BYTES = GB
EXIFTOOL_SECONDS = 120  # Timeout of exiftool for one file
WITHOUT_PREVIEW = "RAW without a preview: convert it with your camera's program"
_JPEG_START = b"\xff\xd8"  # First bytes of a JPEG
_BASE64 = "base64:"
_PREVIEWS = ("JpgFromRaw", "PreviewImage", "OtherImage", "ThumbnailImage")
_ORIENTATIONS = {3: 3, 5: 8, 6: 6}  # LibRaw's `flip` -> EXIF orientation


@contextmanager
def opened_image(path: str | os.PathLike[str], content: bytes | None = None) -> Iterator[ImageFile.ImageFile]:
    """Open an image file, or the `content` of an image file, with Pillow, without decoding its pixels.

    Only the parts of a stored object that Pillow reads are fetched. Raises OSError if the file or object does not exist
    or is not a regular file; hostile bytes also raise other errors in Pillow.
    """
    source: Any = BytesIO(content or b"")
    if content is None:
        source = as_path(path).open("rb") if is_remote(path) else open_regular(path)
    with pillow_silenced(), source as file, Image.open(file, formats=readable_formats()) as image:
        yield image


@cache
def readable_formats() -> tuple[str, ...]:
    """Import the readers of the supported formats, and return Pillow's names of the formats that it can read."""
    for module in (f"PIL.{name}ImagePlugin" for name in _READERS):
        if find_spec(module) is not None:  # AVIF is not in Pillow 11.0
            import_module(module)
    import_module("pi_heif").register_heif_opener(thumbnails=False)
    return tuple(name for name in FORMATS if name in Image.OPEN)


@contextmanager
def pillow_silenced() -> Iterator[None]:
    """Ignore the warnings of Pillow's own modules about odd metadata, and no other warnings.

    `warnings.catch_warnings` saves and restores the whole list of filters, so concurrent threads can undo each other's
    changes (and the caller's). This function adds one narrow filter while at least one thread is decoding, and removes
    only that filter.
    """
    global _n_silenced
    with _lock:
        _n_silenced += 1
        if _FILTER not in warnings.filters:
            warnings.filterwarnings("ignore", category=Warning, module=_PILLOW_MODULES)

    try:
        yield
    finally:
        with _lock:
            _n_silenced -= 1
            if not _n_silenced:
                with suppress(ValueError):  # the caller may have replaced the list in the meantime
                    cast("list[object]", warnings.filters).remove(_FILTER)


def upright_rgb(image: Image.Image, max_side: int | None) -> NDArray[np.uint8]:
    """Return the pixels of an opened image, at its first frame, as upright RGB: uint8 of shape (height, width, 3).

    Transparency is blended with white. Grey levels of 16 bits are scaled by 255/65535, deeper integers by their largest
    value. Floating-point values are scaled by 255 if all are at most 1, unchanged if all are at most 255, and otherwise
    scaled by their largest value. The longest side is reduced to `max_side` pixels, never enlarged.
    """
    size = reduced_size(image.size, max_side)
    is_draft = image.draft(None, size)  # only JPEG can decode directly at 1/2, 1/4 or 1/8
    image.load()
    if not is_draft:
        size = reduced_size(image.size, max_side)  # Pillow rotates TIFF images on loading
    orientation = orientation_of(image)

    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        image = Image.fromarray(_eight_bits(image))
    if image.mode in _PREMULTIPLIED:
        image = image.convert(_PREMULTIPLIED[image.mode])
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)

    image = resized(image if image.mode == "RGB" else image.convert("RGB"), size)
    if orientation in _TRANSPOSE:
        image = image.transpose(_TRANSPOSE[orientation])
    return np.array(image, dtype=np.uint8, order="C")


def reduced_size(size: tuple[int, int], max_side: int | None) -> tuple[int, int]:
    """Return (width, height), scaled down until the longest side is at most `max_side`."""
    longest_side = max(size)
    if max_side is None or longest_side <= max_side:
        return size
    width, height = (max(1, round(side * max_side / longest_side)) for side in size)
    return width, height


def resized(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """Shrink an RGB image; each new pixel is the average of the area that it covers."""
    return image if image.size == size else image.resize(size, Image.Resampling.BILINEAR, reducing_gap=2.0)


def orientation_of(image: Image.Image) -> int:
    """Read the EXIF orientation; 1 (upright) if it is missing or invalid."""
    try:
        orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
    except Exception:  # broken metadata raises any error, and the pixels are usable without it
        return 1
    return orientation if isinstance(orientation, int) else 1


def _eight_bits(image: Image.Image) -> NDArray[np.uint8]:
    """Scale a deep channel to 0-255; Pillow's own conversion clips values above 255 to white."""
    values: NDArray[Any] = np.nan_to_num(np.asarray(image).astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    max_value = float(values.max())
    if image.mode == "F":
        white_level = 1.0 if max_value <= 1 else max(255.0, max_value)
    else:
        bits = 12 if getattr(image, "tag_v2", {}).get(_BITS_PER_SAMPLE) == (12,) else 16
        white_level = max(2.0**bits - 1, max_value)
    scaled: NDArray[np.uint8] = np.rint(np.clip(values, 0, None) / white_level * 255).astype(np.uint8)
    return scaled


def is_raw(name: str | os.PathLike[str]) -> bool:
    """Return whether a file is a RAW file by its suffix: many have the content of a TIFF with a tiny first picture."""
    return suffix_of(name) in RAW_SUFFIXES


def raw_preview(path: str | os.PathLike[str], content: bytes | None = None) -> bytes:
    """Return the largest preview of a RAW file as a JPEG with its EXIF orientation.

    The file is read from `path`, on this machine or in an object store, unless its `content` is given. Raises
    ImageError if it has no preview, is damaged, or neither rawpy nor exiftool is installed; OSError if it cannot be
    read.
    """
    name = os.fspath(path)
    if content is None:
        content = read_regular(path, MAX_RAW_BYTES)
    if find_spec("rawpy") is not None:
        preview, orientation = _preview_by_rawpy(name, content)
    elif (program := shutil.which("exiftool")) is not None:
        preview, orientation = _preview_by_exiftool(program, name, content)
    else:
        raise ImageError(name, f"RAW without its reader: {RAW_ADVICE}")
    return _with_orientation(preview, orientation)


def _preview_by_rawpy(path: str, content: bytes) -> tuple[bytes, int]:
    """Return the preview of a RAW file and its EXIF orientation, by the package rawpy."""
    rawpy: Any = import_module("rawpy")
    try:
        with rawpy.imread(BytesIO(content)) as raw:
            thumb, flip = raw.extract_thumb(), raw.sizes.flip
    except (rawpy.LibRawNoThumbnailError, rawpy.LibRawUnsupportedThumbnailError) as error:
        raise ImageError(path, WITHOUT_PREVIEW) from error
    except rawpy.LibRawError as error:
        raise ImageError(path, "damaged: not a RAW file that rawpy knows") from error

    preview = BytesIO()
    if thumb.format == rawpy.ThumbFormat.JPEG:
        preview.write(thumb.data)
    else:  # a few old cameras store uncompressed pixels
        Image.fromarray(thumb.data).save(preview, "JPEG", quality=95)
    return preview.getvalue(), _ORIENTATIONS.get(flip, 1)


def _preview_by_exiftool(program: str, path: str, content: bytes) -> tuple[bytes, int]:
    command = [program, "-config", "", "-j", "-b", "-n", "-Orientation", *(f"-{name}" for name in _PREVIEWS), "-"]
    try:
        result = subprocess.run(command, input=content, capture_output=True, check=False, timeout=EXIFTOOL_SECONDS)
        fields = json.loads(result.stdout)[0]
    except (subprocess.TimeoutExpired, ValueError, LookupError) as error:
        raise ImageError(path, "damaged: not a RAW file that exiftool knows") from error
    texts = [text for name in _PREVIEWS if (text := str(fields.get(name, ""))).startswith(_BASE64)]
    if not texts:
        raise ImageError(path, WITHOUT_PREVIEW)
    return base64.b64decode(max(texts, key=len).removeprefix(_BASE64)), fields.get("Orientation", 1)


def _with_orientation(jpeg: bytes, orientation: int) -> bytes:
    """Return a JPEG with an EXIF orientation added, unless it has one already."""
    if orientation not in range(2, 9) or not jpeg.startswith(_JPEG_START):
        return jpeg
    with Image.open(BytesIO(jpeg), formats=["JPEG"]) as image:
        if ExifTags.Base.Orientation in image.getexif():
            return jpeg
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    segment = exif.tobytes()
    return _JPEG_START + b"\xff\xe1" + (len(segment) + 2).to_bytes(2, "big") + segment + jpeg[len(_JPEG_START) :]
