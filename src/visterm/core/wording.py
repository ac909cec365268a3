"""Words of messages and files: counts with their nouns, names that are safe to print, and JSON of any file name."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

SURROGATE = re.compile("[\ud800-\udfff]")  # An odd byte of a file name, as Python reads it
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

UNSEEN = (
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2065\u206a-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff"
)
"""What `without_unseen` leaves out, unless it changes what is seen; not what turns the direction of writing."""

_ARABIC = "[\u0620-\u064a\u066e-\u06d3\u06d5\u06ee-\u06ff\u0710-\u08c7\ufb50-\ufdff\ufe70-\ufefc]"
_ARABIC_MARKS = "[\u064b-\u065f\u0670]*"
_NEVER_JOINED = (  # with the next letter: alef, dal, reh, waw and the like (Joining_Type R and U of ArabicShaping.txt)
    "[\u0621-\u0625\u0627\u0629\u062f-\u0632\u0648\u0671-\u0677\u0688-\u0699\u06c0\u06c3-\u06cb\u06cd\u06cf\u06d2\u06d3"
    "\u06d5\u06ee\u06ef]"
)
_VIRAMA = "[\u094d\u09cd\u0a4d\u0acd\u0b4d\u0bcd\u0c4d\u0ccd\u0d4d\u0dca]"
_JOINED = "[\u0f00-\u109f\u1780-\u18af\u1900-\u1cff\ua800-\uabff\U00010a00-\U00011fff]"
_EMOJI = "[\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"
_MAY_BE_UNSEEN = re.compile(f"[{UNSEEN}]")
_UNSEEN_OR_KEPT = re.compile(
    "|".join((
        f"({_FLAG}",
        f"(?!{_NEVER_JOINED}){_ARABIC}{_ARABIC_MARKS}(?:\u200c(?=[\u200c\u200d]*{_ARABIC})|\u200d(?!{_ARABIC}))",
        f"{_NEVER_JOINED}{_ARABIC_MARKS}\u200d(?={_ARABIC})",
        f"{_VIRAMA}(?:\u200d|\u200c(?=[\u200c\u200d]*[\u0900-\u0dff]))|[\u0900-\u0dff]\u200d(?={_VIRAMA})",
        f"{_JOINED}[\u200c\u200d](?=[\u200c\u200d]*{_JOINED})|[\u1820-\u18aa][\u180b-\u180f]",
        f"{_EMOJI}[\ufe0e\ufe0f]?(?:\u200d(?=[\u200c\u200d]*{_EMOJI}))?",
        "[#*0-9\xa9\xae\u203c\u2049\u2122\u2139][\ufe0e\ufe0f]",
        "[\u2e80-\u9fff\uf900-\ufaff\U00020000-\U0003ffff][\ufe00-\ufe02\U000e0100-\U000e01ef])",
        f"[\u115f\u1160]+(?![\u1160-\u11ff])|(?![\u115f\u1160])[{UNSEEN}]",
    ))
)  # fmt: skip
"""What is seen by its effect on the letter before it, with that (group 1), or a letter that nobody sees.

Between Arabic letters the non-joiner parts those that would join, and the joiner joins those that would not; in Indic
scripts both follow a virama (RFC 5892, appendix A, with Bengali's joiner before one); emoji are one by a joiner.
"""

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
    visible = _HIDDEN.sub(lambda match: match[1] or REPLACEMENT, text)
    return visible if encoding is None else visible.encode(encoding, "replace").decode(encoding)


def json_text(value: Any, *, indent: int | None = None, sort_keys: bool = False, ascii_only: bool = False) -> str:
    r"""Return JSON with letters as they are and, of file names that are not UTF-8, the odd bytes as ``\udcff``.

    Python reads such a byte as a lone surrogate, which UTF-8 has no bytes for; as an escape it is plain ASCII, and
    `json.loads` gives the same name again. With `ascii_only` all other letters are escapes too.
    """
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent, sort_keys=sort_keys)
    return text if text.isascii() else SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def printable_json(text: str) -> str:
    r"""Return JSON in which what `printable` replaces is escaped (``\\u202e``): the same values for programs."""
    return text if text.isascii() else _HIDDEN.sub(lambda match: match[1] or _escaped(match[0]), text)


def without_unseen(text: str) -> str:
    """Return a text without letters that nobody sees and that change nothing beside them; fillers become spaces.

    A text of such letters only stays as it is, and so do those that turn the direction of writing: both can be refused.
    """
    if _MAY_BE_UNSEEN.search(text) is None or not has_seen_letters(text):
        return text
    seen = re.sub("[\u2800\u3164\uffa0]", " ", text)
    while (shorter := _UNSEEN_OR_KEPT.sub(lambda match: match[1] or "", seen)) != seen:  # others are side by side now
        seen = shorter
    return seen


def has_seen_letters(text: str) -> bool:
    """Return whether anything in a text can be seen."""
    if text.isascii():
        return bool(text.strip())
    return any(unicodedata.category(match[0]) not in ("Cc", "Cf") for match in _SEEN.finditer(text))


def _escaped(letter: str) -> str:
    """Return a letter as JSON escapes it."""
    units = letter.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
