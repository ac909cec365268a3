"""Where a network's feature maps have their channels: as it is told, or as the lengths of their axes say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from visterm.core.errors import UserError


class MapLayout(NamedTuple):
    """What is known of the maps of one output.

    Attributes
    ----------
    told : str or None
        "channels_first" or "channels_last", where a user said so.
    declared : sequence
        The three axes behind the images, as the graph declares them; an axis that is no whole number may be any.
    pictures_last : bool
        Whether the pictures that go in have their channels last.
    size : tuple of int
        Height and width of the pictures.
    what : str
        Names the output in messages.
    """

    told: str | None
    declared: Sequence[object]
    pictures_last: bool
    size: tuple[int, int]
    what: str

    def channels_last(self, axes: tuple[int, ...]) -> bool:
        """Return whether a map of these axes is (height, width, channels), and not (channels, height, width).

        Height and width are those of the picture divided by the same number. Where both pairs of axes are, or neither
        is, the channels are the axis that the graph alone declares; and else first if those of the pictures are, as
        ONNX's own nodes have them.

        Raises
        ------
        UserError
            If nothing says it.
        """
        if self.told is not None:
            return self.told == "channels_last"
        first, last = self._is_picture(axes[1:]), self._is_picture(axes[:2])
        if first != last:
            return last
        fixed = [isinstance(axis, int) for axis in self.declared]
        if fixed in ([True, False, False], [False, False, True]):
            return fixed[2]
        if self.pictures_last:
            raise UserError(
                f"{self.what} is maps of the axes {axes}, and nothing says which of these are the channels. Say where "
                'they are in the pictures and in the maps: --encoder-set \'layout=("channels_last", '
                '"channels_first")\', or "channels_last" twice.'
            )
        return False

    def _is_picture(self, axes: tuple[int, ...]) -> bool:
        """Return whether two axes are the picture's sides divided by one number of at least 1, both rounded alike."""
        if self.size[0] == self.size[1]:
            return axes[0] == axes[1] <= self.size[0]
        sides = list(zip(self.size, axes, strict=True))
        exact = [side / axis for side, axis in sides]
        down = max(side / (axis + 1) for side, axis in sides) < min(exact)
        up = max(exact) < min(side / (axis - 1) if axis > 1 else math.inf for side, axis in sides)
        return (down or up) and max(exact) >= 1
