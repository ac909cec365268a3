"""Words of messages: counts with their nouns, and names that are safe to print."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

REPLACEMENT = "\ufffd"  # What stands for a character that cannot be shown
BIDI_CONTROLS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Letters that turn the direction of writing, and that nobody sees (Unicode's property Bidi_Control)."""

_UNSEEN = "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0000-\U000e0fff"
"""What nobody sees although its category is that of letters, marks or signs; without Cc, Cf and white space."""

_JOINING = (
    "\u0600-\u0dff\u0f00-\u109f\u1780-\u18af\u1900-\u1cff\u20e3\u2190-\u2bff\u3030\u303d\u3297\u3299\ua800-\uabff"
    "\ufb50-\ufdff\ufe0f\ufe70-\ufefc\U00010a00-\U00011fff\U0001f000-\U0001faff\U000e007f"
)
"""What the zero-width joiner and non-joiner may follow: letters of Arabic, Indic and related scripts, and emoji."""

_FLAG = "\U0001f3f4[\U000e0020-\U000e007e]{1,8}\U000e007f"
"""The flags of England, Scotland and Wales: a black flag, followed by letters that nobody sees."""

_HIDDEN = re.compile(
    f"({_FLAG})|[\\x00-\\x1f\\x7f-\\x9f\ud800-\udfff\u2028\u2029"  # control characters, odd bytes, line ends
    f"{BIDI_CONTROLS}"
    "\u00ad\u115f\u1160\u180e\u200b\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e007f]"
    f"|(?<![{_JOINING}])[\u200c\u200d]"
)
_SEEN = re.compile(f"[^{_UNSEEN}\\s]")


def count_of(n: int, noun: str) -> str:
    """Return a number with its noun: ``1 image``, ``2,000 images``, ``2 queries``."""
    plural = noun.removesuffix("y") + "ies" if noun.endswith("ry") else f"{noun}s"
    return f"{n:,} {noun if n == 1 else plural}"


def one_of(names: Sequence[str]) -> str:
    """Return the names to choose from: ``csv``, ``csv or jsonl``, ``xmp, csv or jsonl``."""
    return " or ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else "".join(names)


def first_or(names: Sequence[str]) -> str:
    """Return the name to take, and others that would do: ``pamir``, ``ridge (or knn, wsabie)``."""
    return f"{names[0]} (or {', '.join(names[1:])})" if len(names) > 1 else names[0]


def ends_of(names: Sequence[str], between: str) -> str:
    """Return names one after another; of a long row the first and the last three."""
    if len(names) <= 7:
        return between.join(names)
    return between.join([*names[:3], "…", *names[-3:]])


def printable(text: str, encoding: str | None = None) -> str:
    """Make visible what would break a line, change the direction of writing, or not be seen, by U+FFFD in its place.

    That is control characters, line ends, odd bytes of names, bidi controls and zero-width letters. The joiners of
    emoji and of Arabic and Indic words stay. With an `encoding`, what it cannot write becomes a question mark.
    """
    if text.isascii() and text.isprintable():
        return text
    shown = _HIDDEN.sub(lambda found: found[1] or REPLACEMENT, text)
    return shown if encoding is None else shown.encode(encoding, "replace").decode(encoding)


def printable_json(text: str) -> str:
    r"""Return JSON in which what `printable` replaces is escaped (``\\u202e``): the same values for programs."""
    return text if text.isascii() else _HIDDEN.sub(lambda found: found[1] or _escaped(found[0]), text)


def has_seen_letters(text: str) -> bool:
    """Return whether anything in a text can be seen."""
    if text.isascii():
        return bool(text.strip())
    return any(unicodedata.category(found[0]) not in ("Cc", "Cf") for found in _SEEN.finditer(text))


def _escaped(letter: str) -> str:
    """Return a letter as JSON escapes it."""
    units = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
