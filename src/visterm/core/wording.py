"""Text for messages and files: counts with nouns, names that are safe to print, and JSON with any file name."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

SURROGATE = re.compile("[\ud800-\udfff]")  # An undecodable byte of a file name, as Python represents it
REPLACEMENT = "\ufffd"  # Replaces a character that cannot be shown
BIDI_CONTROLS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Invisible characters that change the direction of writing (Unicode's property Bidi_Control)."""

_BEFORE_JOINERS = (
    "\u0600-\u0dff\u0f00-\u109f\u1780-\u18af\u1900-\u1cff\u20e3\u2190-\u2bff\u3030\u303d\u3297\u3299\ua800-\uabff"
    "\ufb50-\ufdff\ufe0f\ufe70-\ufefc\U00010a00-\U00011fff\U0001f000-\U0001faff\U000e007f"
)
"""Characters after which a zero-width joiner or non-joiner is valid: Arabic, Indic and related scripts, and emoji."""

_FLAG = "\U0001f3f4[\U000e0020-\U000e007e]{1,8}\U000e007f"
"""The flags of England, Scotland and Wales: a black flag, followed by invisible tag characters."""

_REMOVABLE = (
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2065\u206a-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff"
)
"""Invisible characters that `without_invisible` removes if they change nothing; without `BIDI_CONTROLS`."""

_ARABIC = "[\u0620-\u064a\u066e-\u06d3\u06d5\u06ee-\u06ff\u0710-\u08c7\ufb50-\ufdff\ufe70-\ufefc]"
_ARABIC_MARKS = "[\u064b-\u065f\u0670]*"
_NEVER_JOINED = (  # letters that never join the next one: alef, dal, reh, ... (Joining_Type R, U; ArabicShaping.txt)
    "[\u0621-\u0625\u0627\u0629\u062f-\u0632\u0648\u0671-\u0677\u0688-\u0699\u06c0\u06c3-\u06cb\u06cd\u06cf\u06d2\u06d3"
    "\u06d5\u06ee\u06ef]"
)
_VIRAMA = "[\u094d\u09cd\u0a4d\u0acd\u0b4d\u0bcd\u0c4d\u0ccd\u0d4d\u0dca]"
# Tibetan, Burmese, Khmer, Mongolian and others: a joiner or non-joiner is valid between two characters
_JOINER_SCRIPTS = "[\u0f00-\u109f\u1780-\u18af\u1900-\u1cff\ua800-\uabff\U00010a00-\U00011fff]"
_EMOJI = "[\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
_REMOVABLE_CHARACTER = re.compile(f"[{_REMOVABLE}]")
_INVISIBLE_MATCH = re.compile(
    "|".join((
        f"({_FLAG}",
        f"(?!{_NEVER_JOINED}){_ARABIC}{_ARABIC_MARKS}(?:\u200c(?=[\u200c\u200d]*{_ARABIC})|\u200d(?!{_ARABIC}))",
        f"{_NEVER_JOINED}{_ARABIC_MARKS}\u200d(?={_ARABIC})",
        f"{_VIRAMA}(?:\u200d|\u200c(?=[\u200c\u200d]*[\u0900-\u0dff]))|[\u0900-\u0dff]\u200d(?={_VIRAMA})",
        f"{_JOINER_SCRIPTS}[\u200c\u200d](?=[\u200c\u200d]*{_JOINER_SCRIPTS})|[\u1820-\u18aa][\u180b-\u180f]",
        f"{_EMOJI}[\ufe0e\ufe0f]?(?:\u200d(?=[\u200c\u200d]*{_EMOJI}))?",
        "[#*0-9\xa9\xae\u203c\u2049\u2122\u2139][\ufe0e\ufe0f]",
        "[\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff][\ufe00-\ufe02\U000e0100-\U000e01ef])",
        f"[\u115f\u1160]+(?![\u1160-\u11ff])|(?![\u115f\u1160])[{_REMOVABLE}]",
    ))
)  # fmt: skip
"""Matches an invisible character; if it has a visible effect on the character before it, group 1 has both.

Between Arabic letters, the non-joiner separates letters that would join, and the joiner joins letters that would not.
In Indic scripts, both follow a virama (RFC 5892, appendix A; in Bengali, a joiner may also precede it). Emoji are
combined by a joiner.
"""

_UNPRINTABLE = re.compile(
    f"({_FLAG})|[\\x00-\\x1f\\x7f-\\x9f\ud800-\udfff\u2028\u2029"  # control characters, undecodable bytes, line ends
    f"{BIDI_CONTROLS}"
    "\u00ad\u115f\u1160\u180e\u200b\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e007f]"
    f"|(?<![{_BEFORE_JOINERS}])[\u200c\u200d]"
)
_VISIBLE_CHARACTER = re.compile(f"[^{_REMOVABLE}\\s]")


def count_of(n: int, noun: str) -> str:
    """Return a number with its noun: ``1 image``, ``2,000 images``, ``2 queries``."""
    plural = noun.removesuffix("y") + "ies" if noun.endswith("ry") else f"{noun}s"
    return f"{n:,} {noun if n == 1 else plural}"


def one_of(names: Sequence[str]) -> str:
    """Join alternatives for a message: ``csv``, ``csv or jsonl``, ``xmp, csv or jsonl``."""
    return " or ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else "".join(names)


def first_or(names: Sequence[str]) -> str:
    """Return the recommended name with the alternatives: ``pamir``, ``ridge (or knn, wsabie)``."""
    return f"{names[0]} (or {', '.join(names[1:])})" if len(names) > 1 else names[0]


def join_ends(names: Sequence[str], separator: str) -> str:
    """Join names with a separator; from more than seven names only the first and the last three."""
    if len(names) <= 7:
        return separator.join(names)
    return separator.join([*names[:3], "…", *names[-3:]])


def printable(text: str, encoding: str | None = None) -> str:
    """Replace invisible characters, line ends and characters that change the direction of writing by U+FFFD.

    These are control characters, line ends, undecodable bytes of names, bidi controls and zero-width characters.
    Joiners in emoji and in Arabic and Indic words are kept. With an `encoding`, characters that it cannot encode become
    question marks.
    """
    if text.isascii() and text.isprintable():
        return text
    result = _UNPRINTABLE.sub(lambda match: match[1] or REPLACEMENT, text)
    return result if encoding is None else result.encode(encoding, "replace").decode(encoding)


def json_text(value: Any, *, indent: int | None = None, sort_keys: bool = False, ascii_only: bool = False) -> str:
    r"""Return JSON in which only undecodable bytes of file names are escaped, such as ``\udcff``.

    Python represents such a byte as a lone surrogate, which UTF-8 cannot encode. As an escape it is ASCII, and
    `json.loads` returns the same name. With `ascii_only`, all other non-ASCII characters are escaped too.
    """
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent, sort_keys=sort_keys)
    return text if text.isascii() else SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def printable_json(text: str) -> str:
    r"""Escape the characters in JSON that `printable` would replace (``\\u202e``); its values stay the same."""
    return text if text.isascii() else _UNPRINTABLE.sub(lambda match: match[1] or _escaped(match[0]), text)


def without_invisible(text: str) -> str:
    """Return a text without invisible characters that have no visible effect; invisible fillers become spaces.

    A text of only such characters is not changed. Characters that change the direction of writing are kept, so callers
    can refuse them.
    """
    if _REMOVABLE_CHARACTER.search(text) is None or not has_visible_characters(text):
        return text
    result = re.sub("[\u2800\u3164\uffa0]", " ", text)
    while (shorter := _INVISIBLE_MATCH.sub(lambda match: match[1] or "", result)) != result:  # until nothing changes
        result = shorter
    return result


def has_visible_characters(text: str) -> bool:
    """Return whether a text has a visible character."""
    if text.isascii():
        return bool(text.strip())
    return any(unicodedata.category(match[0]) not in ("Cc", "Cf") for match in _VISIBLE_CHARACTER.finditer(text))


def _escaped(character: str) -> str:
    """Return the JSON escape of a character."""
    utf16 = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{utf16[i]:02x}{utf16[i + 1]:02x}" for i in range(0, len(utf16), 2))
