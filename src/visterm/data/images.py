"""Image files in, upright RGB out: one at a time or many in threads, and what cannot be read is named, never fatal."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from io import BytesIO
from itertools import islice
from typing import Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image, TiffImagePlugin, UnidentifiedImageError

from visterm.core.errors import DataError, ImageError, StorageError
from visterm.core.files import NotRegularError, open_regular
from visterm.core.remote import is_remote
from visterm.core.threads import resolve_jobs
from visterm.core.types import Skipped
from visterm.data.contents import readable
from visterm.data.fetching import GONE, Fetched, fetch, fetch_ahead
from visterm.data.heif import ADVICE, is_heic, register_heif
from visterm.data.image_folders import find_images as find_images
from visterm.data.pillow_warnings import pillow_silenced
from visterm.data.pixels import orientation_of, reduced_size, resized, upright_rgb

ImageLike: TypeAlias = "str | os.PathLike[str] | NDArray[np.uint8]"

# Formats that carry photos: none that starts another program (EPS) or takes any bytes for an image (TGA).
FORMATS = ("JPEG", "MPO", "PNG", "GIF", "WEBP", "BMP", "DIB", "TIFF", "PPM", "JPEG2000", "AVIF", "HEIF", "QOI")
IN_FLIGHT = 3
"""Images being decoded or waiting to be taken, for each thread, unless more are asked for."""

START_OF_SCAN = b"\xff\xda"
MOST_SCANS = 100
"""Of a progressive JPEG: cameras and programs write about ten."""

_REASON_LENGTH = 160
_TRUNCATED = re.compile(r"image file is truncated \((.*)\)")  # Pillow's words


class Decoded(NamedTuple):
    """One image that could be read.

    Attributes
    ----------
    index : int
        Its position among the images given.
    pixels : ndarray of uint8, shape (height, width, 3)
        Upright RGB, C-contiguous.
    """

    index: int  # type: ignore[assignment]
    pixels: NDArray[np.uint8]


def read_image(image: ImageLike, *, max_side: int | None = None) -> NDArray[np.uint8]:
    """Read one image as upright RGB.

    The content decides the format, whatever the file's suffix. EXIF orientation is applied, transparent parts come out
    on white, deep images are scaled to 8 bits, and of an animation the first frame is read.

    Parameters
    ----------
    image : path-like, or ndarray of uint8, shape (height, width, 3)
        A path may be an address in an object store. An array is checked and given back, reduced if asked.
    max_side : int or None
        Reduce the longest side to this many pixels; images are never enlarged.

    Returns
    -------
    ndarray of uint8, shape (height, width, 3)

    Raises
    ------
    ImageError
        If the file is missing, unreadable, truncated, not an image, or larger than `PIL.Image.MAX_IMAGE_PIXELS`
        (a decompression bomb).
    DataError
        If an array is not of uint8 or not of that shape, or `max_side` is below 1.
    StorageError
        If an object store cannot be reached, or does not allow reading.
    """
    if max_side is not None and max_side < 1:
        raise DataError(f"max_side is {max_side!r}; expected None or a whole number of pixels, 1 or more.")
    if isinstance(image, np.ndarray):
        return _checked_array(image, max_side)
    if not isinstance(image, str | os.PathLike):
        raise DataError(
            f"An image is a path or an array of uint8 (height, width, 3), not {type(image).__name__}. "
            "Turn a Pillow image into an array with numpy.asarray(image.convert('RGB'))."
        )
    path = os.fspath(image)
    if is_remote(path):
        return read_image_bytes(fetch(path), name=path, max_side=max_side)
    return _or_image_error(path, lambda: _decode(path, max_side))


def read_image_bytes(content: bytes, *, name: str = "image", max_side: int | None = None) -> NDArray[np.uint8]:
    """Read the content of an image file as `read_image` reads the file; `name` is what errors call it.

    Raises
    ------
    ImageError
        If it is not an image, damaged, or larger than `PIL.Image.MAX_IMAGE_PIXELS`.
    """
    if not content:
        raise ImageError(name, "empty: 0 bytes")
    return _or_image_error(name, lambda: _pixels(name, BytesIO(content), max_side))


def decode_images(
    images: Iterable[ImageLike], *, max_side: int | None = None, n_jobs: int | None = None, ahead: int = 0
) -> Iterator[Decoded | Skipped]:
    """Read many images in a few threads, in order, in memory that does not grow with their number.

    While the caller is busy with what it took, the threads go on until `ahead` images wait for it.

    Parameters
    ----------
    images : iterable of path-like or of uint8 arrays (height, width, 3)
    max_side : int or None
        As in `read_image`.
    n_jobs : int or None
        Threads; None or -1 is all cores. The results are the same for any number. With 1 there is no other thread:
        each image is read when it is asked for.
    ahead : int
        At most so many images are read before they are asked for, or 3 a thread where that is more. Who encodes in
        batches wants a batch: it is read while the one before is encoded.

    Yields
    ------
    Decoded or Skipped
        One for each image given. Closing the iterator early ends the threads.

    Raises
    ------
    DataError
        If an array is not of uint8 (height, width, 3).
    StorageError
        If an object store cannot be reached, or does not allow reading.
    """
    return _decode_all(images, max_side, resolve_jobs(n_jobs), ahead)


def image_size(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Return width and height of an image file as people see it, upright, without decoding it.

    Raises
    ------
    ImageError
        If the file is missing or not an image.
    """
    try:
        with pillow_silenced(), readable(path) as file, Image.open(file, formats=readable_formats()) as image:
            width, height = image.size
            if isinstance(image, TiffImagePlugin.TiffImageFile):  # some versions of Pillow have turned its size already
                width, height = image.tag_v2[TiffImagePlugin.IMAGEWIDTH], image.tag_v2[TiffImagePlugin.IMAGELENGTH]
            return (height, width) if orientation_of(image) >= 5 else (width, height)
    except StorageError:
        raise
    except Exception as error:  # whatever hostile bytes lead Pillow to, as in read_image
        raise ImageError(os.fspath(path), _reason(error)) from error


def _decode_all(
    images: Iterable[ImageLike], max_side: int | None, n_jobs: int, ahead: int
) -> Iterator[Decoded | Skipped]:
    with closing(fetch_ahead(enumerate(images))) as ready:
        if n_jobs == 1:
            for index, image in ready:
                yield _decoded_or_skipped(index, image, max_side)
        else:
            yield from _decode_in_threads(ready, max_side, n_jobs, ahead)


def _decode_in_threads(
    images: Iterator[tuple[int, ImageLike | Fetched]], max_side: int | None, n_jobs: int, ahead: int
) -> Iterator[Decoded | Skipped]:
    pool = ThreadPoolExecutor(n_jobs, thread_name_prefix="visterm-decode")
    waiting: deque[Future[Decoded | Skipped]] = deque()
    try:
        for index, image in islice(images, max(ahead, IN_FLIGHT * n_jobs)):
            waiting.append(pool.submit(_decoded_or_skipped, index, image, max_side))
        while waiting:
            result = waiting.popleft().result()
            for index, image in islice(images, 1):
                waiting.append(pool.submit(_decoded_or_skipped, index, image, max_side))
            yield result
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _decoded_or_skipped(index: int, image: ImageLike | Fetched, max_side: int | None) -> Decoded | Skipped:
    try:
        if isinstance(image, Fetched):
            if image.content is None:
                return Skipped(image.name, GONE)
            return Decoded(index, read_image_bytes(image.content, name=image.name, max_side=max_side))
        return Decoded(index, read_image(image, max_side=max_side))
    except ImageError as error:
        return Skipped(error.path, error.reason)


def _or_image_error(path: str, read: Callable[[], NDArray[np.uint8]]) -> NDArray[np.uint8]:
    try:
        with pillow_silenced():
            return read()
    except ImageError:
        raise
    except MemoryError as error:
        raise ImageError(path, "too little memory") from error
    except Exception as error:
        # Pillow's plugins raise whatever hostile bytes lead them to (OSError, SyntaxError, struct.error, IndexError,
        # OverflowError, ...): one broken file must not stop a run, so each becomes an entry of the skipped images.
        raise ImageError(path, _reason(error)) from error


def _decode(path: str, max_side: int | None) -> NDArray[np.uint8]:
    with open_regular(path) as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise ImageError(path, "empty: 0 bytes")
        return _pixels(path, file, max_side)


def _pixels(path: str, file: BinaryIO, max_side: int | None) -> NDArray[np.uint8]:
    with _opened(path, file) as image:
        _refuse_bomb(path, image.size)
        if image.info.get("progressive"):
            _refuse_scans(path, file)
        return upright_rgb(image, max_side)


def _opened(path: str, file: BinaryIO) -> Image.Image:
    try:
        return Image.open(file, formats=readable_formats())
    except UnidentifiedImageError:
        file.seek(0)
        if "HEIF" not in Image.OPEN and is_heic(file.read(64)):
            raise ImageError(path, ADVICE) from None
        raise


def readable_formats() -> tuple[str, ...]:
    """Return Pillow's names of the formats that are read here."""
    Image.init()
    register_heif()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def largest_image() -> int:
    """Return how many pixels an image may have at most: what is indexed is also shown."""
    return Image.MAX_IMAGE_PIXELS or sys.maxsize


def _refuse_bomb(path: str, size: tuple[int, int]) -> None:
    limit = largest_image()
    if size[0] * size[1] > limit:
        raise ImageError(path, f"decompression bomb: {size[0]} × {size[1]} pixels, more than the {limit:,} allowed")


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
    if isinstance(error, Image.DecompressionBombError):
        return "decompression bomb: far more pixels than allowed"
    if isinstance(error, UnidentifiedImageError):
        return "not an image: in no format that can be read"
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return "no such file"
    if isinstance(error, IsADirectoryError):
        return "a folder: not an image"
    if isinstance(error, NotRegularError):
        return "not a regular file"
    if isinstance(error, PermissionError):
        return "no permission"
    if isinstance(error, OSError) and error.errno is not None and error.errno != errno.EINVAL:
        return f"cannot be opened: {error.strerror}" if error.filename else f"cannot be read: {error.strerror}"
    text = " ".join(str(getattr(error, "strerror", None) or error).split()) or type(error).__name__
    parted = _TRUNCATED.fullmatch(text)
    if parted:
        return f"truncated: {parted[1]}"
    return f"{_category(error, text)}: {text}"[:_REASON_LENGTH]


def _category(error: Exception, text: str) -> str:
    text = text.lower()
    if "truncated" in text:
        return "truncated"
    return "not supported" if isinstance(error, NotImplementedError) or "support" in text else "damaged"


def _checked_array(array: NDArray[Any], max_side: int | None) -> NDArray[np.uint8]:
    if array.dtype != np.uint8 or array.ndim != 3 or array.shape[2] != 3 or array.size == 0:
        raise DataError(
            f"An image array has dtype {array.dtype} and shape {array.shape}; expected uint8 and (height, width, 3), "
            "RGB, at least one pixel."
        )
    height, width, _ = array.shape
    array = np.ascontiguousarray(array)
    size = reduced_size((width, height), max_side)
    return array if size == (width, height) else np.array(resized(Image.fromarray(array), size))
