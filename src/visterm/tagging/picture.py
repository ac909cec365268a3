"""A photo as a small JPEG for a page: its bytes as text, or nothing where the photo is no longer there."""

from __future__ import annotations

import base64
import io

from PIL import Image

from visterm.core.errors import ImageError
from visterm.data.images import ImageLike, read_image

QUALITY = 82


def data_uri(image: ImageLike, max_side: int) -> str | None:
    """Return an image as a ``data:`` address for a page, or None if it cannot be read (any more).

    Parameters
    ----------
    image : path-like, or ndarray of uint8, shape (height, width, 3)
        A name of an image that is known only by name is a file that is not there.
    max_side : int
        Pixels of the longer side.
    """
    try:
        pixels = Image.fromarray(read_image(image, max_side=max_side))
    except ImageError:
        return None
    buffer = io.BytesIO()
    pixels.save(buffer, "JPEG", quality=QUALITY)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"
