"""Cursors: where the next page begins, as a text that says nothing to clients and is refused when it is made up."""

from __future__ import annotations

import base64
import binascii
import re

from visterm.web.errors import Refused

_MEANT = re.compile(r"([a-z]+):(\d{1,18})")


def cursor_at(kind: str, place: int) -> str:
    """Make the cursor of a place in a list of some kind."""
    return base64.urlsafe_b64encode(f"{kind}:{place}".encode()).decode().rstrip("=")


def place_of(kind: str, cursor: str | None, start: int = 0) -> int:
    """Return the place that a cursor means; None is the start.

    Raises
    ------
    Refused
        422, if it is no cursor of such a list.
    """
    if cursor is None:
        return start
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
    except (binascii.Error, ValueError):
        text = ""
    found = _MEANT.fullmatch(text)
    if found is None or found[1] != kind:
        raise Refused(422, f"{cursor!r} is no cursor of this list. Use 'next' of the page before.", field="cursor")
    return int(found[2])
