"""The pictures that a network sees of one photo: the whole of it, its middle, or the whole and both ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from visterm.core.errors import UserError
from visterm.encoders.preparation import FILTERS, Preparation

VIEWS = {"whole": (None,), "centre": (0.5,), "three": (None, 0.0, 1.0), "trained": (0.5,)}
"""What each name shows: None is the whole photo squeezed into the network's picture; a number is the largest picture of
the network's shape cut out, its place between the start (0) and the end (1) of the side that is too long. "trained"
cuts only the part of the middle that the network was evaluated on (`Preparation.crop`)."""

Box = tuple[float, float, float, float]


def check_views(views: Any) -> None:
    """Refuse a name that is not in `VIEWS`."""
    if not isinstance(views, str) or views not in VIEWS:
        raise UserError(f"views is {views!r}; expected one of {', '.join(map(repr, VIEWS))}.")


def views_of(photo: NDArray[np.uint8], wanted: Preparation, views: str) -> Iterator[NDArray[np.uint8]]:
    """Yield the views of one photo, each resized in one step by a filter that covers what it shrinks.

    Parameters
    ----------
    photo : ndarray of uint8, shape (height, width, 3)
    wanted : Preparation
        Says size and filter, and the crop of the view "trained".
    views : str
        A name from `VIEWS`. Of a photo of the network's own shape there is only one view.

    Yields
    ------
    ndarray of uint8, shape (*wanted.size, 3)
    """
    image = Image.fromarray(photo)
    height, width = wanted.size
    for box in boxes_of(image.size, wanted, views):
        yield np.asarray(image.resize((width, height), FILTERS[wanted.interpolation], box=box))


def boxes_of(size: tuple[int, int], wanted: Preparation, views: str) -> Iterator[Box | None]:
    """Yield left, top, right and bottom of what each view shows of a photo of some width and height; None is all."""
    part = 1.0
    if views == "trained":
        if wanted.crop is None:
            yield None
            return
        part = wanted.crop
    height, width = wanted.size
    cut: tuple[float, float] = (size[0], size[0] * height / width)
    if cut[1] > size[1]:
        cut = (size[1] * width / height, size[1])
    if part == 1 and cut[0] == size[0] and cut[1] == size[1]:
        yield None
        return
    for place in VIEWS[views]:
        if place is None:
            yield None
        else:
            spans = [(side, length * part) for side, length in zip(size, cut, strict=True)]
            left, top = ((side - length) * place for side, length in spans)
            right, bottom = (
                min(start + length, side) for start, (side, length) in zip((left, top), spans, strict=True)
            )
            yield left, top, right, bottom
