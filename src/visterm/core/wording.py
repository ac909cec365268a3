"""Words of messages: counts with their nouns, and names that are safe to print."""

from __future__ import annotations

import unicodedata

REPLACEMENT = "\ufffd"
"""What stands for a character that cannot be shown."""


def count_of(n: int, noun: str) -> str:
    """Give a number with its noun: ``1 image``, ``2,000 images``."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def is_utf8(text: str) -> bool:
    """Say whether a file name is text, and not bytes of another encoding (lone surrogates, in Python)."""
    return not any("\ud800" <= c <= "\udfff" for c in text)


def printable(text: str) -> str:
    """Replace what would break a line or could not be printed: control characters, line ends, odd bytes of names."""
    if text.isprintable():
        return text
    return "".join(REPLACEMENT if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") else c for c in text)
