"""Thumbnails: made when they are first asked for, by processes that may die, and kept in bounded memory."""

from __future__ import annotations

from collections import OrderedDict

from visterm.web.decoding import Decoders

SIDES = (160, 320, 640, 1280, 2560)
"""Longest sides, in pixels: few, so that what is kept serves all pages."""


class Thumbnails:
    """Small JPEGs of pictures, by content and side; those not asked for the longest go first. Lives in one loop.

    Parameters
    ----------
    decoders : Decoders
    most_bytes : int
        Of all that are kept.

    Attributes
    ----------
    n_bytes : int
        Of those that are kept now.
    """

    def __init__(self, decoders: Decoders, most_bytes: int) -> None:
        self._decoders = decoders
        self._most_bytes = most_bytes
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self.n_bytes = 0

    async def get(self, path: str, name: str, side: int) -> bytes:
        """Return the thumbnail of the picture at a path; `name` tells its content and side.

        Raises
        ------
        ImageError
            If the picture cannot be read (any more).
        Refused
            503, if too many are being made.
        """
        if name in self._kept:
            self._kept.move_to_end(name)
            return self._kept[name]
        made = (await self._decoders.jpeg(path, side)).content
        if name not in self._kept and len(made) <= self._most_bytes:  # another request may have made it meanwhile
            self._kept[name] = made
            self.n_bytes += len(made)
        while self.n_bytes > self._most_bytes:
            self.n_bytes -= len(self._kept.popitem(last=False)[1])
        return made


def name_of(sha256: str, side: int) -> str:
    """Name the thumbnail of a content: its ETag."""
    return f'"{sha256[:24]}-{side}"'
