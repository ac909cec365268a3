"""Image files in, upright RGB out: one at a time or many in threads, and what cannot be read is named, never fatal."""

from __future__ import annotations

import base64
import errno
import os
import re
import sys
from collections.abc import Generator, Iterable, Iterator
from functools import partial
from io import BytesIO
from itertools import groupby
from typing import Any, BinaryIO, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, TiffImagePlugin, UnidentifiedImageError

from visterm.core.checks import check_count
from visterm.core.errors import DataError, ImageError, StorageError
from visterm.core.files import NotRegularError, open_regular
from visterm.core.remote import RemotePath, as_path, is_remote
from visterm.core.threads import map_ahead, resolve_jobs
from visterm.core.types import Skipped
from visterm.data.contents import READERS
from visterm.data.image_folders import HEIC_ADVICE, RAW, suffix_of
from visterm.data.image_folders import find_images as find_images
from visterm.data.pillow import (
    is_heic,
    is_raw,
    opened_image,
    orientation_of,
    pillow_silenced,
    raw_preview,
    readable_formats,
    reduced_size,
    resized,
    upright_rgb,
)

MOST_BYTES = 2**28  # Bytes of a single image that is fetched because somebody looks at it
AHEAD = 32  # Images fetched or on their way before they are decoded: what is held in memory
GONE = "no such file"

T = TypeVar("T")
ImageLike: TypeAlias = "str | os.PathLike[str] | NDArray[np.uint8] | Image.Image"

IN_FLIGHT = 3  # Images being decoded or waiting to be taken, for each thread, unless more are requested
START_OF_SCAN = b"\xff\xda"
MOST_SCANS = 100  # Scans of a progressive JPEG: cameras and programs write about ten
_REASONS = (
    (Image.DecompressionBombError, "decompression bomb: far more pixels than allowed"),
    (UnidentifiedImageError, "not an image: in no format that visterm reads"),
    ((FileNotFoundError, NotADirectoryError), GONE),
    (IsADirectoryError, "a folder: not an image"),
    (NotRegularError, "not a regular file"),
    (PermissionError, "no permission"),
)
_TRUNCATED = re.compile(r"image file is truncated \((.*)\)")  # Pillow's words


class Decoded(NamedTuple):
    """One image that could be read."""

    # Its position among the images given
    index: int  # type: ignore[assignment]
    pixels: NDArray[np.uint8]  # shape (height, width, 3): upright RGB, C-contiguous


def read_image(image: ImageLike, *, max_side: int | None = None) -> NDArray[np.uint8]:
    """Read one image as upright RGB, uint8 of shape (height, width, 3).

    A path may be an address in an object store; such an array is checked and returned, and a Pillow image is left as
    it is. The longest side is reduced to `max_side` pixels; images are never enlarged. The content decides the format,
    whatever the file's suffix; but of a RAW file, known by its suffix, the preview inside is read. EXIF orientation is
    applied, transparent parts come out on white, deep images are scaled to 8 bits, and of an animation the first frame
    is read.

    Raises ImageError if the file is missing, unreadable, truncated, not an image, or larger than
    `PIL.Image.MAX_IMAGE_PIXELS` (a decompression bomb); DataError if an array is not of uint8 or not of that shape;
    UserError if `max_side` is below 1; StorageError if an object store cannot be reached, or does not allow reading.
    """
    check_count(max_side, "max_side", "or None")
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or image.size == 0:
            raise DataError(
                f"An image array has dtype {image.dtype} and shape {image.shape}; expected uint8 and (height, width, "
                "3), RGB, at least one pixel."
            )
        full = (image.shape[1], image.shape[0])
        size, array = reduced_size(full, max_side), np.ascontiguousarray(image)
        return array if size == full else np.array(resized(Image.fromarray(array), size))

    if isinstance(image, Image.Image):
        try:
            with pillow_silenced():
                return upright_rgb(image.copy(), max_side)
        except Exception as error:  # a file that Pillow opened, and reads only now: as in _pixels
            raise ImageError(str(getattr(image, "filename", "") or "image"), _reason(error)) from error

    if not isinstance(image, str | os.PathLike):
        raise DataError(
            f"An image is a path, a Pillow image or an array of uint8 (height, width, 3), not {type(image).__name__}."
        )
    path = os.fspath(image)
    return _pixels(path, fetch(path) if is_remote(path) else None, max_side)


def read_image_bytes(content: bytes, *, name: str = "image", max_side: int | None = None) -> NDArray[np.uint8]:
    """Read the content of an image file as `read_image` reads the file; `name` is what errors call it.

    Raises ImageError if it is not an image, damaged, or larger than `PIL.Image.MAX_IMAGE_PIXELS`.
    """
    return _pixels(name, content, max_side)


def image_name(image: object, index: int) -> str | None:
    """Return the name of an image at a position of a sequence; None for None."""
    if isinstance(image, str | os.PathLike):
        return os.fspath(image)
    if isinstance(image, int | np.integer):
        return str(image)
    return None if image is None else f"image {index}"


def data_uri(image: ImageLike, max_side: int) -> str | None:
    """Return an image as a ``data:`` address for a page, or None if it cannot be read (any more).

    An image that is known only by name counts as a file that does not exist. `max_side` is in pixels.
    """
    try:
        pixels = Image.fromarray(read_image(image, max_side=max_side))
    except ImageError:
        return None
    buffer = BytesIO()
    pixels.save(buffer, "JPEG", quality=82)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def decode_images(
    images: Iterable[ImageLike], *, max_side: int | None = None, n_jobs: int | None = None, ahead: int = 0
) -> Iterator[Decoded | Skipped]:
    """Read many images in a few threads, in order, in memory that does not grow with their number.

    Images are as `read_image` takes them; `max_side` is that of `read_image`. Yields one `Decoded` or
    `Skipped` for each. While the caller is busy with what it took, the threads go on until `ahead` images, or 3 a
    thread if that is more, wait for it: encoders ask for a batch, which is read while the one before is encoded. The
    results are the same for any number of threads. With 1 there is no other thread: each image is read when the caller
    takes it. Closing the iterator early ends the threads.

    Raises DataError if an array is not of uint8 (height, width, 3); StorageError if an object store cannot be reached,
    or does not allow reading.
    """
    check_count(max_side, "max_side", "or None")
    decode = partial(_decode, max_side=max_side)
    numbered, n_threads = fetch_ahead(enumerate(images)), resolve_jobs(n_jobs)
    if n_threads == 1:
        return map(decode, numbered)
    return map_ahead(decode, numbered, n_threads, max(ahead, IN_FLIGHT * n_threads), "visterm-decode")


def image_size(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Return width and height of an image file as people see it, upright, without decoding it.

    Raises ImageError if the file is missing or not an image.
    """
    try:
        with opened_image(path, raw_preview(path) if is_raw(path) else None) as image:
            width, height = image.size
            if isinstance(image, TiffImagePlugin.TiffImageFile):  # some versions of Pillow have turned its size already
                width, height = image.tag_v2[TiffImagePlugin.IMAGEWIDTH], image.tag_v2[TiffImagePlugin.IMAGELENGTH]
            return (height, width) if orientation_of(image) >= 5 else (width, height)
    except (StorageError, ImageError):
        raise
    except Exception as error:  # whatever hostile bytes lead Pillow to, as in read_image
        raise ImageError(os.fspath(path), _reason(error)) from error


def _decode(entry: tuple[int, ImageLike | FetchedImage], max_side: int | None) -> Decoded | Skipped:
    """Decode one numbered image; return why it is skipped if it cannot be read."""
    index, image = entry
    try:
        if isinstance(image, FetchedImage):
            if image.content is None:
                return Skipped(image.name, GONE)
            return Decoded(index, _pixels(image.name, image.content, max_side))
        if isinstance(image, str | os.PathLike):
            return Decoded(index, _pixels(os.fspath(image), None, max_side))
        return Decoded(index, read_image(image, max_side=max_side))
    except ImageError as error:
        return Skipped(error.path, error.reason)


def _pixels(path: str, content: bytes | None, max_side: int | None) -> NDArray[np.uint8]:
    """Decode an image: its `content`, or the local file at `path` if that is None."""
    try:
        content = raw_preview(path, content) if suffix_of(path) in RAW else content
        with pillow_silenced(), open_regular(path) if content is None else BytesIO(content) as file:
            head = file.read(64)
            file.seek(0)
            if not head:
                raise ImageError(path, "empty: 0 bytes")
            try:
                image = Image.open(file, formats=readable_formats())
            except UnidentifiedImageError:
                if "HEIF" not in Image.OPEN and is_heic(head):
                    raise ImageError(path, f"HEIC without its reader: {HEIC_ADVICE}") from None
                raise

            with image:
                width, height = image.size
                if width * height > (limit := Image.MAX_IMAGE_PIXELS or sys.maxsize):
                    reason = f"decompression bomb: {width} × {height} pixels, more than the {limit:,} allowed"
                    raise ImageError(path, reason)
                if image.info.get("progressive"):
                    _refuse_scans(path, file)
                return upright_rgb(image, max_side)
    except ImageError:
        raise
    except MemoryError as error:
        raise ImageError(path, "too little memory") from error
    except Exception as error:
        # Pillow's plugins raise whatever hostile bytes lead them to (OSError, SyntaxError, struct.error, IndexError,
        # OverflowError, ...): one broken file must not stop a run, so each becomes an entry of the skipped images.
        raise ImageError(path, _reason(error)) from error


def largest_image() -> int:
    """Return how many pixels an image may have at most: what is indexed is also shown."""
    return Image.MAX_IMAGE_PIXELS or sys.maxsize


def _refuse_scans(path: str, file: BinaryIO) -> None:
    """Refuse a JPEG whose scans go over the whole image again and again: 300 kB of them can take 10 s to decode."""
    at = file.tell()
    file.seek(0)
    n_scans = file.read().count(START_OF_SCAN)  # within the data of a scan, 0xFF is followed by 0
    file.seek(at)
    if n_scans > MOST_SCANS:
        raise ImageError(path, f"too slow to decode: {n_scans} scans, more than the {MOST_SCANS} allowed")


def _reason(error: Exception) -> str:
    """Return a category that messages can count, and after a colon what is particular to this file."""
    for kinds, reason in _REASONS:
        if isinstance(error, kinds):
            return reason
    if isinstance(error, OSError) and error.errno is not None and error.errno != errno.EINVAL:
        return f"cannot be opened: {error.strerror}" if error.filename else f"cannot be read: {error.strerror}"
    text = " ".join(str(getattr(error, "strerror", None) or error).split()) or type(error).__name__
    if truncated := _TRUNCATED.fullmatch(text):
        return f"truncated: {truncated[1]}"
    unsupported = isinstance(error, NotImplementedError) or "support" in text.lower()
    category = "truncated" if "truncated" in text.lower() else "not supported" if unsupported else "damaged"
    return f"{category}: {text}"[:160]


class FetchedImage(NamedTuple):
    """An image file's content."""

    name: str  # Its address
    content: bytes | None  # None: the object does not exist


def fetch_ahead(images: Iterator[tuple[int, T]]) -> Generator[tuple[int, T | FetchedImage]]:
    """Pass numbered images on, in order: those in object stores as `FetchedImage`, all others as they are.

    Raises StorageError if a store cannot be reached, or does not allow reading: no image is skipped for that.
    """
    for in_store, group in groupby(images, lambda entry: is_remote(entry[1])):
        if in_store:
            yield from map_ahead(_fetched, group, READERS, AHEAD, "visterm-fetch")
        else:
            yield from group


def fetch(address: str) -> bytes:
    """Fetch the content of one image.

    Raises ImageError if there is none, or it is larger than `MOST_BYTES`; StorageError as `fetch_ahead` does.
    """
    state = RemotePath(address).state()
    if state is not None and state[0] > MOST_BYTES:
        raise ImageError(address, f"too large: {state[0]:,} bytes, and at most {MOST_BYTES:,} are fetched")
    if (content := _fetched((0, address))[1].content) is None:
        raise ImageError(address, GONE)
    return content


def _fetched(entry: tuple[int, Any]) -> tuple[int, FetchedImage]:
    index, image = entry
    try:
        return index, FetchedImage(os.fspath(image), as_path(image).read_bytes())
    except FileNotFoundError:
        return index, FetchedImage(os.fspath(image), None)
