"""From whatever a network gives for pictures to one row each: maps are averaged over places, tokens over tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import DataError

SAME = 1e-3
"""Averages are the same up to this share of the mean size of what is averaged: networks compute in 16 bits, too."""


def pooled(out: NDArray[Any], n_pictures: int, what: str, *, channels_last: bool = False) -> NDArray[np.float32]:
    """Return the rows of an output.

    Parameters
    ----------
    out : ndarray, shape (n_pictures, n_features), (n_pictures, n_tokens, n_features), or maps
        Maps have the layout of `channels_last`.
    n_pictures : int
        Pictures that went in.
    what : str
        Names the output in messages.
    channels_last : bool
        Maps are (n_pictures, height, width, n_features), not (n_pictures, n_features, height, width).

    Returns
    -------
    ndarray of float32, shape (n_pictures, n_features)

    Raises
    ------
    DataError
        If the output is not finite, or has another shape.
    """
    if out.ndim not in (2, 3, 4) or out.shape[0] != n_pictures:
        raise DataError(
            f"{what} has the shape {out.shape} for {n_pictures} images; expected (images, features), "
            "(images, tokens, features), or maps. Choose another output."
        )
    rows: NDArray[np.float32] = out.astype(np.float32)
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
    """Return a tensor of one picture as a map whose average over places is a row; None where it is none.

    Parameters
    ----------
    tensor : ndarray
        Maps are (height, width, n_features) or (n_features, height, width): the layout is the one that fits.
    row : ndarray of float32, shape (n_features,)

    Returns
    -------
    ndarray of float32, shape (height, width, n_features), or None
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
