"""What an image is called, for encoders that look at names and not at pixels."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from visterm.core.errors import DataError


def name_of(image: Any) -> str:
    """Return the name of an image: a text or a path as it is, a whole number as its digits.

    Raises
    ------
    DataError
        If it is none of these: pixels, for example.
    """
    if isinstance(image, str | os.PathLike):
        return os.fspath(image)
    if isinstance(image, int | np.integer) and not isinstance(image, bool):
        return str(image)
    raise DataError(
        f"An image is named by a text, a path or a whole number here, not {type(image).__name__}: this encoder does "
        "not look at pixels. Choose another one for that."
    )
