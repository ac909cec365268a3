"""Reading image files as upright RGB, one by one or many in threads; unreadable images are skipped."""

from __future__ import annotations

import base64
import errno
import os
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import suppress
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
from visterm.data import pillow
from visterm.data.contents import READERS
from visterm.data.image_folders import RAW_SUFFIXES, suffix_of
from visterm.data.image_folders import find_images as find_images

MAX_FETCH_BYTES = 2**28  # Maximum size of a single image to fetch for display, in bytes
MAX_FETCHED_AHEAD = 32  # Maximum number of images in memory that are fetched, but not decoded yet
MISSING_FILE_REASON = "no such file"

T = TypeVar("T")
ImageLike: TypeAlias = "str | os.PathLike[str] | NDArray[np.uint8] | Image.Image"

IMAGES_PER_THREAD = 3  # Minimum number of images per thread that are being decoded or wait for the caller
MAX_SCANS = 100  # Maximum number of scans in a progressive JPEG: cameras and programs write about ten
JPEG_END = b"\xff\xd9"
# For a JPEG's scan: first inside an interval, then after each marker between intervals
WRONG_DATA = b"".join([b"\x55" * 64, *(bytes([0xFF, 0xD0 + restart]) + b"\x55" * 64 for restart in range(8))])
_REASONS = (
    (Image.DecompressionBombError, "decompression bomb: far more pixels than allowed"),
    (UnidentifiedImageError, "not an image: in no format that visterm reads"),
    ((FileNotFoundError, NotADirectoryError), MISSING_FILE_REASON),
    (IsADirectoryError, "a folder: not an image"),
    (NotRegularError, "not a regular file"),
    (PermissionError, "no permission"),
)


class Decoded(NamedTuple):
    """One decoded image."""

    index: int  # type: ignore[assignment]  # Position in the input
    pixels: NDArray[np.uint8]  # shape (height, width, 3): upright RGB, C-contiguous


def read_image(image: ImageLike, *, max_side: int | None = None) -> NDArray[np.uint8]:
    """Read one image as upright RGB, uint8 of shape (height, width, 3).

    A path may be an address in an object store. An array of that shape is checked and returned; a Pillow image is not
    modified. The longest side is reduced to `max_side` pixels; images are never enlarged. The format is detected by
    the content, not the suffix, except for RAW files, whose embedded preview is read. EXIF orientation is applied,
    transparency is blended with white, deep images are scaled to 8 bits, and the first frame of an animation is read.

    Raises ImageError if the file is missing, unreadable, truncated, not an image, or larger than
    `PIL.Image.MAX_IMAGE_PIXELS` (a decompression bomb); DataError if an array does not have that dtype and shape;
    UserError if `max_side` is below 1; StorageError if an object store cannot be reached, or does not allow reading.
    """
    check_count(max_side, "max_side", "or None")
    if isinstance(image, np.ndarray):
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or image.size == 0:
            raise DataError(
                f"An image array has dtype {image.dtype} and shape {image.shape}; expected uint8 and (height, width, "
                "3), RGB, at least one pixel. For a matrix of features, fit a run on one: visterm.fit(X, tags)."
            )
        original_size = (image.shape[1], image.shape[0])
        size, array = pillow.reduced_size(original_size, max_side), np.ascontiguousarray(image)
        return array if size == original_size else np.array(pillow.resized(Image.fromarray(array), size))

    if isinstance(image, Image.Image):
        try:
            with pillow.pillow_silenced():
                return pillow.upright_rgb(image.copy(), max_side)
        except Exception as error:  # Pillow reads an opened file lazily; see _pixels
            raise ImageError(str(getattr(image, "filename", "") or "image"), _reason(error)) from error

    if not isinstance(image, str | os.PathLike):
        raise DataError(
            f"An image is a path, a Pillow image or an array of uint8 (height, width, 3), not {type(image).__name__}. "
            "For a matrix of features (an array, not lists), fit a run on one: visterm.fit(X, tags)."
        )
    path = os.fspath(image)
    return _pixels(path, fetch(path) if is_remote(path) else None, max_side)


def read_image_bytes(content: bytes, *, name: str = "image", max_side: int | None = None) -> NDArray[np.uint8]:
    """Read the content of an image file as `read_image` reads the file; errors mention `name`.

    Raises ImageError if it is not an image, damaged, or larger than `PIL.Image.MAX_IMAGE_PIXELS`.
    """
    return _pixels(name, content, max_side)


def image_name(image: object, index: int) -> str | None:
    """Return the name of an image at position `index` of a sequence; None for None."""
    if isinstance(image, str | os.PathLike):
        return os.fspath(image)
    if isinstance(image, int | np.integer):
        return str(image)
    return None if image is None else f"image {index}"


def data_uri(image: ImageLike, max_side: int) -> str | None:
    """Return an image as a ``data:`` URI for a page, or None if it cannot be read, or is known only by name.

    `max_side` is in pixels.
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

    `images` and `max_side` are as in `read_image`. Yields one `Decoded` or `Skipped` for each image. The threads read
    ahead until `ahead` images, or 3 per thread if that is more, wait for the caller, so an encoder's next batch is read
    while the current batch is encoded. The results are the same for any number of threads. With `n_jobs=1`, no thread
    is started, and each image is read when it is requested. Closing the iterator early ends the threads.

    Raises DataError if an array is not uint8 (height, width, 3); StorageError if an object store cannot be reached,
    or does not allow reading.
    """
    check_count(max_side, "max_side", "or None")
    decode = partial(_decode, max_side=max_side)
    numbered_images, n_threads = fetch_ahead(enumerate(images)), resolve_jobs(n_jobs)
    if n_threads == 1:
        return map(decode, numbered_images)
    return map_ahead(decode, numbered_images, n_threads, max(ahead, IMAGES_PER_THREAD * n_threads), "visterm-decode")


def image_size(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Return the upright width and height of an image file, without decoding it.

    Raises ImageError if the file is missing or not an image.
    """
    try:
        with pillow.opened_image(path, pillow.raw_preview(path) if pillow.is_raw(path) else None) as image:
            width, height = image.size
            if isinstance(image, TiffImagePlugin.TiffImageFile):  # some versions of Pillow return the rotated size
                width, height = image.tag_v2[TiffImagePlugin.IMAGEWIDTH], image.tag_v2[TiffImagePlugin.IMAGELENGTH]
            return (height, width) if pillow.orientation_of(image) >= 5 else (width, height)
    except (StorageError, ImageError):
        raise
    except Exception as error:  # hostile bytes raise any error in Pillow, as in read_image
        raise ImageError(os.fspath(path), _reason(error)) from error


def _decode(entry: tuple[int, ImageLike | FetchedImage], max_side: int | None) -> Decoded | Skipped:
    """Decode one numbered image; return a `Skipped` with the reason if it cannot be read."""
    index, image = entry
    try:
        if isinstance(image, FetchedImage):
            if image.content is None:
                return Skipped(image.name, MISSING_FILE_REASON)
            return Decoded(index, _pixels(image.name, image.content, max_side))
        return Decoded(index, read_image(image, max_side=max_side))
    except ImageError as error:
        return Skipped(error.path, error.reason)


def _pixels(path: str, content: bytes | None, max_side: int | None) -> NDArray[np.uint8]:
    """Decode an image from its `content`, or from the local file at `path` if `content` is None."""
    try:
        content = pillow.raw_preview(path, content) if suffix_of(path) in RAW_SUFFIXES else content
        with pillow.pillow_silenced(), open_regular(path) if content is None else BytesIO(content) as file:
            if not file.read(1):
                raise ImageError(path, "empty: 0 bytes")
            file.seek(0)
            with Image.open(file, formats=pillow.readable_formats()) as image:
                width, height = image.size
                if width * height > (limit := max_image_pixels()):
                    reason = f"decompression bomb: {width} × {height} pixels, more than the {limit:,} allowed"
                    raise ImageError(path, reason)
                if image.info.get("progressive"):
                    _refuse_many_scans(path, file)
                try:
                    return pillow.upright_rgb(image, max_side)
                except OSError:
                    file.seek(0)
                    if (pixels := _jpeg_without_end(path, image, file.read(), max_side)) is None:
                        raise
                    return pixels
    except ImageError:
        raise
    except MemoryError as error:
        raise ImageError(path, "too little memory") from error
    except Exception as error:
        # Hostile bytes make Pillow's plugins raise any error (OSError, SyntaxError, struct.error, IndexError,
        # OverflowError, ...): one broken file must not stop a run, so every error becomes a skipped image.
        raise ImageError(path, _reason(error)) from error


def max_image_pixels() -> int:
    """Return the maximum number of pixels of an image, for indexing and for display."""
    return Image.MAX_IMAGE_PIXELS or sys.maxsize


def _jpeg_without_end(path: str, image: Image.Image, content: bytes, max_side: int | None) -> NDArray[np.uint8] | None:
    """Return the pixels of a JPEG that lacks only its end marker; None if data are missing, or it is another file.

    libjpeg fills missing data with grey, without an error. If none are missing, wrong data after them change none.
    """
    scan = content.rfind(b"\xff\xda")
    has_one_scan = not image.info.get("progressive") and content[scan + 4 : scan + 5] == bytes([len(image.getbands())])
    if image.format == "JPEG" and has_one_scan and not content.endswith(JPEG_END):
        content = content.rstrip(b"\xff")
        with suppress(ImageError):
            pixels, others = (_pixels(path, content + end, max_side) for end in (JPEG_END, WRONG_DATA + JPEG_END))
            return pixels if np.array_equal(pixels, others) else None
    return None


def _refuse_many_scans(path: str, file: BinaryIO) -> None:
    """Refuse a JPEG with too many scans of the whole image: 300 kB of scans can take 10 s to decode."""
    position = file.tell()
    file.seek(0)
    n_scans = file.read().count(b"\xff\xda")  # starts; inside the data of a scan, 0xFF is always followed by 0
    file.seek(position)
    if n_scans > MAX_SCANS:
        raise ImageError(path, f"too slow to decode: {n_scans} scans, more than the {MAX_SCANS} allowed")


def _reason(error: Exception) -> str:
    """Return the category of an error, for counting, and after a colon the details of this file."""
    for kinds, reason in _REASONS:
        if isinstance(error, kinds):
            return reason
    if isinstance(error, OSError) and error.errno is not None and error.errno != errno.EINVAL:
        return f"cannot be opened: {error.strerror}" if error.filename else f"cannot be read: {error.strerror}"
    text = " ".join(str(getattr(error, "strerror", None) or error).split()) or type(error).__name__
    is_unsupported = isinstance(error, NotImplementedError) or "support" in text.lower()
    category = "truncated" if "truncated" in text.lower() else "not supported" if is_unsupported else "damaged"
    return f"{category}: {text}"[:160]


class FetchedImage(NamedTuple):
    """The content of an image file in an object store."""

    name: str  # Address of the object
    content: bytes | None  # None: the object does not exist


def fetch_ahead(images: Iterator[tuple[int, T]]) -> Generator[tuple[int, T | FetchedImage]]:
    """Yield numbered images in order: images in object stores as `FetchedImage`, all others unchanged.

    Raises StorageError if a store cannot be reached, or does not allow reading; such images are not skipped.
    """
    for is_in_store, group in groupby(images, lambda entry: is_remote(entry[1])):
        if is_in_store:
            yield from map_ahead(_fetch_entry, group, READERS, MAX_FETCHED_AHEAD, "visterm-fetch")
        else:
            yield from group


def fetch(address: str) -> bytes:
    """Fetch the content of one image.

    Raises ImageError if it does not exist or is larger than `MAX_FETCH_BYTES`; StorageError as in `fetch_ahead`.
    """
    state = RemotePath(address).state()
    if state is not None and state[0] > MAX_FETCH_BYTES:
        raise ImageError(address, f"too large: {state[0]:,} bytes, and at most {MAX_FETCH_BYTES:,} are fetched")
    if (content := _fetch_entry((0, address))[1].content) is None:
        raise ImageError(address, MISSING_FILE_REASON)
    return content


def _fetch_entry(entry: tuple[int, Any]) -> tuple[int, FetchedImage]:
    index, image = entry
    try:
        return index, FetchedImage(os.fspath(image), as_path(image).read_bytes())
    except FileNotFoundError:
        return index, FetchedImage(os.fspath(image), None)
