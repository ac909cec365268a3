"""Opening image files with Pillow: which formats, HEIC where its reader is installed, and no warnings of Pillow's.

The extra `heif` brings pi-heif (BSD), whose wheels hold libheif and libde265 (LGPL 3). pillow-heif is taken where it is
installed, but is no extra: its wheels hold x265, which is GPL.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from typing import Any, BinaryIO, cast

from PIL import Image, ImageFile

from visterm.core.files import open_regular
from visterm.core.remote import as_path, is_remote
from visterm.data.file_kinds import HEIF_PACKAGES

# Formats that carry photos: none that starts another program (EPS) or takes any bytes for an image (TGA).
FORMATS = ("JPEG", "MPO", "PNG", "GIF", "WEBP", "BMP", "DIB", "TIFF", "PPM", "JPEG2000", "AVIF", "HEIF", "QOI")

_BRANDS = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs"})
_HEAD = 64
_PILLOW = r"PIL\."
_lock = threading.Lock()
_heif_registered = False
_n_silenced = 0


@contextmanager
def opened_image(path: str | os.PathLike[str], content: bytes | None = None) -> Iterator[ImageFile.ImageFile]:
    """Yield an image file, or the `content` of one, as Pillow opens it, without decoding its pixels.

    Of an object in a store, no more is fetched than is read. Raises OSError if there is no such file or object, or it
    is no regular file; hostile bytes lead Pillow to other errors, too.
    """
    with (
        pillow_silenced(),
        _file(path) if content is None else BytesIO(content) as file,
        Image.open(file, formats=readable_formats()) as image,
    ):
        yield image


def _file(path: str | os.PathLike[str]) -> BinaryIO:
    return cast("BinaryIO", as_path(path).open("rb") if is_remote(path) else open_regular(path))


def readable_formats() -> tuple[str, ...]:
    """Return Pillow's names of the formats that are read here."""
    Image.init()
    register_heif()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def register_heif() -> None:
    """Let Pillow open HEIC files, at the first call, if a reader is installed; it is looked for only once."""
    global _heif_registered
    if _heif_registered:
        return
    with _lock:
        package = next((name for name in HEIF_PACKAGES if find_spec(name) is not None), None)
        if not _heif_registered and package is not None:
            import_module(package).register_heif_opener(thumbnails=False)
        _heif_registered = True


def is_heic(head: bytes) -> bool:
    """Return whether a file that begins so holds pictures coded with HEVC.

    Its ``ftyp`` box names a main brand and the brands that it is compatible with (ISO 14496-12, section 4.3; the brands
    are those of ISO 23008-12, annex B).
    """
    if head[4:8] != b"ftyp":
        return False
    box = head[: min(int.from_bytes(head[:4], "big"), _HEAD)]
    return any(box[at : at + 4] in _BRANDS for at in (8, *range(16, len(box) - 3, 4)))


@contextmanager
def pillow_silenced() -> Iterator[None]:
    """Ignore the warnings that Pillow's own modules give about odd metadata, and no others.

    `warnings.catch_warnings` saves and restores the whole list of filters, so that two threads that enter and leave it
    in turns can undo each other's changes (and the caller's). This puts one narrow filter in while at least one thread
    decodes, and takes that one out again.
    """
    global _n_silenced
    with _lock:
        _n_silenced += 1
        if _filter_entry() is None:
            warnings.filterwarnings("ignore", category=Warning, module=_PILLOW)
    try:
        yield
    finally:
        with _lock:
            _n_silenced -= 1
            entry = _filter_entry()
            if not _n_silenced and entry is not None:
                with suppress(ValueError):  # the caller's own thread may have replaced the list just now
                    cast("list[Any]", warnings.filters).remove(entry)


def _filter_entry() -> Any:
    """Return our filter among those in force: ``(action, message, category, module, line)``."""
    for entry in warnings.filters:
        if entry[0] == "ignore" and entry[1] is None and getattr(entry[3], "pattern", None) == _PILLOW:
            return entry
    return None
