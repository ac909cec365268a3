"""The map of the tags as it is drawn: where names stand, and how much room each needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from visterm.tagging.tag_map import PlacedTag

SIDE = 1000.0
MARGIN = 60.0
ROOMS = (1, 2, 4, 8, 16, 32, 64)
LETTER = 60.0
"""Size of names where there is a room of 1, in units of the drawing; with twice the room it is half as much."""

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
    room : int
        That its name needs: it is shown when the map is so near that letters are `LETTER` / `room` units high, or less.
        One of `ROOMS`; 128 if no room is enough.
    """

    tag: str
    x: float
    y: float
    images: int
    size: int
    room: int


def draw_map(placed: Sequence[PlacedTag]) -> list[DrawnTag]:
    """Return names room, those of most images first: none covers another."""
    order = sorted(range(len(placed)), key=lambda i: (-placed[i].images, i))
    x = np.array([MARGIN + (SIDE - 2 * MARGIN) * placed[i].x for i in order])
    y = np.array([MARGIN + (SIDE - 2 * MARGIN) * placed[i].y for i in order])
    widths = np.array([len(placed[i].tag) * LETTER * WIDTH_OF_LETTER for i in order])
    rooms = np.full(len(order), 2 * ROOMS[-1])
    for room in ROOMS:
        for i in np.flatnonzero(rooms > room):
            others = np.flatnonzero(rooms <= room)
            across = np.abs(x[others] - x[i]) * room < (widths[others] + widths[i]) / 2 + LETTER / 2
            down = np.abs(y[others] - y[i]) * room < 1.25 * LETTER
            if not (across & down).any():
                rooms[i] = room
    most = math.log1p(max((tag.images for tag in placed), default=1))
    return [
        DrawnTag(
            placed[i].tag, round(float(x[n]), 1), round(float(y[n]), 1), placed[i].images,
            1 + min(3, int(4 * math.log1p(placed[i].images) / (most or 1.0))), int(rooms[n]),
        )
        for n, i in enumerate(order)
    ]  # fmt: skip
