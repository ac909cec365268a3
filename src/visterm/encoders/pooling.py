"""From whatever a network gives for pictures to one row each: maps are averaged over places, tokens over tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import DataError, UserError

SAME = 1e-3
"""Averages are the same up to this share of the mean size of what is averaged: networks compute in 16 bits, too."""


POOLINGS = ("mean", "class", "both", "before_classes")
"""How an output becomes a row: the mean of its tokens, the first of them (the class token), that beside the mean of the
others; or what goes into the layer of classes, of which the output is the last."""


def pooled(
    out: NDArray[Any], n_pictures: int, what: str, *, channels_last: bool = False, pooling: str | None = None
) -> NDArray[np.float32]:
    """Return the rows of an output, float32 (n_pictures, n_features).

    The output is rows, tokens (n_pictures, n_tokens, n_features), or maps, with `channels_last` of shape (n_pictures,
    height, width, n_features) and else (n_pictures, n_features, height, width). `pooling` is one of `POOLINGS`, and
    None is "mean". Raises UserError if the output has no tokens to take the class token of; DataError, with `what` as
    the output's name, if it is not finite, or has another shape.
    """
    if out.ndim not in (2, 3, 4) or out.shape[0] != n_pictures or not out.size:
        raise DataError(
            f"{what} has the shape {out.shape} for {n_pictures} images; expected (images, features), "
            "(images, tokens, features), or maps. Choose another output."
        )
    rows: NDArray[np.float32] = out.astype(np.float32)
    if pooling in ("class", "both"):
        if rows.ndim != 3:
            raise UserError(f"pooling is '{pooling}', but {what} has no tokens: it is {out.shape}. Leave it out.")
        rest = [rows[:, 1:].mean(axis=1)] if pooling == "both" else []
        rows = np.concatenate([rows[:, 0], *rest], axis=1)
    if rows.ndim == 4:
        rows = rows.mean(axis=(1, 2) if channels_last else (2, 3))
    elif rows.ndim == 3:
        rows = rows.mean(axis=1)
    if not np.isfinite(rows).all():
        raise DataError(
            f"{what} holds NaN or infinity. Check that mean, std and scale are those that the network was trained "
            "with, or choose another output."
        )
    return rows


def map_averaging_to(tensor: NDArray[Any], row: NDArray[np.float32]) -> NDArray[np.float32] | None:
    """Return a tensor of one picture as the map (height, width, n_features) that averages to a row; None if it doesn't.

    Maps are (height, width, n_features) or (n_features, height, width): the layout is the one that fits the row.
    """
    if tensor.ndim != 3:
        return None
    found = tensor.astype(np.float32)
    for laid in (np.moveaxis(found, 0, 2), found):
        if laid.shape[2] == len(row):
            within = SAME * float(np.abs(laid).mean()) + np.finfo(np.float32).tiny
            if np.abs(laid.mean(axis=(0, 1), dtype=np.float64) - row).max() <= within:
                return np.ascontiguousarray(laid)
    return None


def channels_last(
    axes: tuple[int, ...], size: tuple[int, int], *, declared: Sequence[object], pictures_last: bool, what: str
) -> bool:
    """Return whether a map is (height, width, channels), and not (channels, height, width), by its axes' lengths.

    Height and width are those of the picture (`size`) divided by the same number. Where both pairs of axes are, or
    neither is, the channels are the axis that the graph alone declares (of `declared`, the three axes behind the
    images, those that are no whole number may have any length); and else first if those of the pictures are, as ONNX's
    own nodes have them. Raises UserError, with `what` as the output's name, if nothing says it.
    """
    first, last = _is_picture(axes[1:], size), _is_picture(axes[:2], size)
    if first != last:
        return last
    fixed = [isinstance(axis, int) for axis in declared]
    if fixed in ([True, False, False], [False, False, True]):
        return fixed[2]
    if pictures_last:
        raise UserError(
            f"{what} is maps of the axes {axes}, and nothing says which of these are the channels. Say where they are "
            'in the pictures and in the maps: --encoder-set \'layout=("channels_last", "channels_first")\', or '
            '"channels_last" twice.'
        )
    return False


def _is_picture(axes: tuple[int, ...], size: tuple[int, int]) -> bool:
    """Return whether two axes are the picture's sides divided by one number of at least 1, both rounded alike."""
    if size[0] == size[1]:
        return axes[0] == axes[1] <= size[0]
    sides = list(zip(size, axes, strict=True))
    exact = [side / axis for side, axis in sides]
    down = max(side / (axis + 1) for side, axis in sides) < min(exact)
    up = max(exact) < min(side / (axis - 1) if axis > 1 else math.inf for side, axis in sides)
    return (down or up) and max(exact) >= 1
