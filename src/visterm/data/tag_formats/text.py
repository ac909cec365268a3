"""Reading a text file as UTF-8, or saying at which line it is not."""

from __future__ import annotations

import codecs
from pathlib import Path

from visterm.core.errors import TagFileError
from visterm.core.files import GB, read_regular

MOST_TEXT = GB
"""Bytes of a text that is read whole, unless its reader says otherwise."""


def read_text(path: Path, what: str = "tag file", limit: int = MOST_TEXT) -> str:
    """Read a file (`what`, in messages) as UTF-8, with or without a byte-order mark.

    Parameters
    ----------
    path : Path
    what : str
        What it is called in messages.
    limit : int
        Bytes that it has at most.

    Raises
    ------
    TagFileError
        If it cannot be opened, is no regular file or too large, or is in another encoding.
    """
    try:
        content = read_regular(path, limit)
    except OSError as error:
        raise TagFileError(f"The {what} {path} cannot be read: {error.strerror or error}.") from error
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise TagFileError(f"The {what} {path} is in UTF-16; expected UTF-8. Save it as 'UTF-8' or 'CSV UTF-8'.")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise TagFileError(
            f"The {what} {path} is not UTF-8: line {line} has the byte 0x{content[error.start]:02x}. "
            "Save it as 'UTF-8' or 'CSV UTF-8'."
        ) from error
