"""From any picture that Pillow has opened to upright RGB: transparency, deep and odd modes, EXIF orientation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image

_TRANSPOSE = {
    2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_270, 7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}  # fmt: skip
_PREMULTIPLIED = {"La": "LA", "RGBa": "RGBA"}
_BITS_PER_SAMPLE = 258  # TIFF 6.0, section 8


def upright_rgb(image: Image.Image, max_side: int | None) -> NDArray[np.uint8]:
    """Return the pixels of an opened image, at its first frame, as people see it: uint8 of shape (height, width, 3).

    Transparent parts come out on white. Grey levels of 16 bits are scaled by 255/65535; deeper whole numbers by their
    largest value; numbers with a point by 255 where none is above 1, as they are up to 255, and by their largest value
    beyond. The longest side is reduced to `max_side` pixels, never enlarged.
    """
    size = reduced_size(image.size, max_side)
    drafted = image.draft(None, size)  # JPEG alone can decode straight to 1/2, 1/4 or 1/8
    image.load()
    if not drafted:
        size = reduced_size(image.size, max_side)  # TIFF turns itself upright as it loads
    orientation = orientation_of(image)
    image = resized(_rgb(image), size)
    if orientation in _TRANSPOSE:
        image = image.transpose(_TRANSPOSE[orientation])
    return np.array(image, dtype=np.uint8, order="C")


def reduced_size(size: tuple[int, int], max_side: int | None) -> tuple[int, int]:
    """Return the (width, height) whose longest side is at most `max_side`."""
    longest = max(size)
    if max_side is None or longest <= max_side:
        return size
    width, height = (max(1, round(side * max_side / longest)) for side in size)
    return width, height


def resized(image: Image.Image, size: tuple[int, int]) -> Image.Image:
    """Shrink an RGB image, averaging over all that each new pixel covers."""
    return image if image.size == size else image.resize(size, Image.Resampling.BILINEAR, reducing_gap=2.0)


def orientation_of(image: Image.Image) -> int:
    """Read the EXIF orientation; 1 (upright) where there is none, or nothing that can be understood."""
    try:
        orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
    except Exception:  # broken metadata raises all sorts of errors, and the pixels are good without it
        return 1
    return orientation if isinstance(orientation, int) else 1


def _rgb(image: Image.Image) -> Image.Image:
    """Return an image as RGB, transparent parts on white."""
    if image.mode == "RGB" and not image.has_transparency_data:
        return image
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return Image.fromarray(_eight_bits(image)).convert("RGB")
    if image.mode in _PREMULTIPLIED:
        image = image.convert(_PREMULTIPLIED[image.mode])
    if image.has_transparency_data:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image.convert("RGB")


def _eight_bits(image: Image.Image) -> NDArray[np.uint8]:
    """Scale one deep channel to 0-255; Pillow's own conversion clips all above 255 to white."""
    values: NDArray[Any] = np.nan_to_num(np.asarray(image).astype(np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    largest = float(values.max())
    if image.mode == "F":
        white = 1.0 if largest <= 1 else max(255.0, largest)
    else:
        white = max(2.0 ** _bits(image) - 1, largest)
    scaled: NDArray[np.uint8] = np.rint(np.clip(values, 0, None) / white * 255).astype(np.uint8)
    return scaled


def _bits(image: Image.Image) -> int:
    """Return how many bits a sample of a deep image has: 16, unless a TIFF says 12."""
    bits = getattr(image, "tag_v2", {}).get(_BITS_PER_SAMPLE, (16,))
    return 12 if bits == (12,) else 16
