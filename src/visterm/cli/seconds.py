"""Spans of time as people type them: 90, 90s, 2m, 1.5h."""

from __future__ import annotations

import re

from visterm.core.errors import UserError

UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([smh]?)", re.IGNORECASE)


def seconds_of(text: str, option: str) -> float:
    """Return the seconds of a span.

    Raises
    ------
    UserError
        If it cannot be read, or is no time at all.
    """
    read = _SPAN.fullmatch(text.strip())
    seconds = float(read[1]) * UNITS[read[2].lower()] if read else 0.0
    if not seconds:
        raise UserError(f"{option} {text} is not understood; expected seconds, minutes or hours above 0: 90s, 2m, 1h.")
    return seconds
