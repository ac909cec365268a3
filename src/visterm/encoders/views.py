"""The square pictures that a network sees of one photo: the whole of it, its middle, or the whole and both ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from visterm.core.errors import UserError

VIEWS = {"whole": (None,), "centre": (0.5,), "three": (None, 0.0, 1.0)}
"""What each name shows: None is the whole photo squeezed into the square; a number is a square cut out, its place
between the start (0) and the end (1) of the long side."""


def check_views(views: Any) -> None:
    """Refuse a name that is not in `VIEWS`."""
    if not isinstance(views, str) or views not in VIEWS:
        raise UserError(f"views is {views!r}; expected one of {', '.join(map(repr, VIEWS))}.")


def square_views(pixels: NDArray[np.uint8], size: int, views: str) -> Iterator[NDArray[np.uint8]]:
    """Yield the views of one photo, each resized in one step by a triangle filter that covers what it shrinks.

    Parameters
    ----------
    pixels : ndarray of uint8, shape (height, width, 3)
    size : int
        Side of the squares, in pixels.
    views : str
        A name from `VIEWS`. Of a square photo there is only one view.

    Yields
    ------
    ndarray of uint8, shape (size, size, 3)
    """
    image = Image.fromarray(pixels)
    side = min(image.size)
    places = VIEWS[views] if max(image.size) > side else (None,)
    for place in places:
        box = None
        if place is not None:
            left, top = ((length - side) * place for length in image.size)
            box = (left, top, left + side, top + side)
        yield np.asarray(image.resize((size, size), Image.Resampling.BILINEAR, box=box))
