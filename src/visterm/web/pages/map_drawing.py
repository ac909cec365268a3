"""The map of the tags as it is drawn: where names stand, and from which zoom on there is room for each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from visterm.app.tag_map import PlacedTag

SIDE = 1000.0
MARGIN = 60.0
ZOOMS = (1, 2, 4, 8, 16)
LETTER = 15.0
"""Size of names at a zoom of 1, in units of the drawing."""

WIDTH_OF_LETTER = 0.58
"""Of a letter on average, as a part of its size; a little more than most fonts take."""


class DrawnTag(NamedTuple):
    """A tag on the map.

    Attributes
    ----------
    tag : str
    x, y : float
        From 0 to `SIDE`.
    images : int
    size : int
        1 to 4, by the logarithm of the number of images.
    zoom : int
        From which on there is room for its name: one of `ZOOMS`; 32 if there never is.
    """

    tag: str
    x: float
    y: float
    images: int
    size: int
    zoom: int


def draw_map(placed: Sequence[PlacedTag]) -> list[DrawnTag]:
    """Give names room, those of most images first: none covers another at the zoom from which on it is shown."""
    order = sorted(range(len(placed)), key=lambda i: (-placed[i].images, i))
    x = np.array([MARGIN + (SIDE - 2 * MARGIN) * placed[i].x for i in order])
    y = np.array([MARGIN + (SIDE - 2 * MARGIN) * placed[i].y for i in order])
    widths = np.array([len(placed[i].tag) * LETTER * WIDTH_OF_LETTER for i in order])
    zooms = np.full(len(order), 2 * ZOOMS[-1])
    for zoom in ZOOMS:
        for i in np.flatnonzero(zooms > zoom):
            others = np.flatnonzero(zooms <= zoom)
            across = np.abs(x[others] - x[i]) * zoom < (widths[others] + widths[i]) / 2 + LETTER / 2
            down = np.abs(y[others] - y[i]) * zoom < 1.25 * LETTER
            if not (across & down).any():
                zooms[i] = zoom
    most = math.log1p(max((tag.images for tag in placed), default=1))
    return [
        DrawnTag(
            placed[i].tag, round(float(x[n]), 1), round(float(y[n]), 1), placed[i].images,
            1 + min(3, int(4 * math.log1p(placed[i].images) / (most or 1.0))), int(zooms[n]),
        )
        for n, i in enumerate(order)
    ]  # fmt: skip
