"""Which kinds of picture files can be written: the ending of the name says which."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from visterm.core.errors import UserError

FORMATS: Final = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}
"""Pillow's name of each format, by the endings of its files."""

QUALITY: Final = 95  # Of the formats that lose some of a picture: thin lines and small letters stay clean


def format_of(path: str | os.PathLike[str]) -> str:
    """Return Pillow's name of the format that the ending of a picture file says, in capitals or not.

    Raises UserError if the ending says none that can be written.
    """
    suffix = Path(path).suffix
    if suffix.lower() not in FORMATS:
        said = f"ends in {suffix}" if suffix else "has no ending"
        raise UserError(f"{os.fspath(path)} {said}; expected the name of a picture that ends in {', '.join(FORMATS)}.")
    return FORMATS[suffix.lower()]
