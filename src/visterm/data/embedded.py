"""Keywords inside of image files: XMP packets, IPTC keywords and Windows' own, as Pillow reads them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from PIL import ImageFile, IptcImagePlugin

from visterm.core.vocabulary import clean_tag, tag_key
from visterm.data.pillow import opened_image
from visterm.data.xmp.keywords import Keywords, read_keywords

TIFF_XMP = 700
XP_KEYWORDS = 0x9C9E
IPTC_KEYWORDS = (2, 25)
IPTC_CHARACTERS = (1, 90)
IPTC_UTF8 = b"\x1b%G"
IPTC_FORMATS = ("JPEG", "MPO", "TIFF")  # Those in which IPTC is read and written here
MOST_IPTC = 64  # Bytes of a keyword (IIM 4.2, dataset 2:25)

_IPTC_FRAME = frozenset({(1, 0), (2, 0), IPTC_CHARACTERS, IPTC_KEYWORDS})  # Versions, the encoding, and keywords


class Iptc(NamedTuple):
    """What there is of IPTC (IIM) in an image."""

    keywords: list[str]
    is_there: bool = False  # Whether it has any
    is_writable: bool = False
    """Whether keywords can be added: the image's format has IPTC, and it is in UTF-8, or in ASCII so far."""
    is_utf8: bool = False  # Whether it says so
    only_keywords: bool = True  # Whether it holds nothing else


def embedded_keywords(path: str | os.PathLike[str]) -> Keywords:
    """Read the keywords in an image file, without decoding its pixels.

    Returns the union of those in XMP, IPTC (IIM) and XPKeywords; none of a file that is no image. Raises DataError if
    the file's XMP cannot be understood.
    """
    try:
        with opened_image(path) as image:
            packet = xmp_packet(image)
            others = [*_if_readable(_iptc, image), *_if_readable(_windows, image)]
    except Exception:  # whatever hostile bytes lead Pillow to, as in read_image: what is no image has no keywords
        return Keywords([], [])
    inside = read_keywords(packet, f"the XMP in {os.fspath(path)}") if packet else Keywords([], [])
    there = set(map(tag_key, inside.tags))
    ours = {tag_key(mark.tag) for mark in (*inside.marks, *inside.copies) if mark.is_in_iptc}
    others = [tag for tag in others if tag_key(tag) not in ours - there]  # taken out of XMP by a person
    return inside._replace(tags=union([*inside.tags, *others]))


def read_iptc(path: str | os.PathLike[str]) -> Iptc:
    """Read the IPTC of an image file; nothing of a file that is no image, or whose IPTC is broken."""
    try:
        with opened_image(path) as image:
            can_hold, found = image.format in IPTC_FORMATS, IptcImagePlugin.getiptcinfo(image) or {}
            keywords = _iptc(image)
    except Exception:  # whatever hostile bytes lead Pillow to, as above
        return Iptc([])
    utf8 = found.get(IPTC_CHARACTERS) == IPTC_UTF8
    parts = [part for value in found.values() for part in (value if isinstance(value, list) else [value])]
    plain = IPTC_CHARACTERS not in found and all(part.isascii() for part in parts)
    return Iptc(keywords, bool(found), can_hold and (utf8 or plain), utf8, set(found) <= _IPTC_FRAME)


def xmp_packet(image: ImageFile.ImageFile) -> bytes | None:
    """Return the XMP packet of an image that Pillow has opened, or None."""
    found: Any = image.info.get("xmp") or image.info.get("XML:com.adobe.xmp")
    if not found:
        found = getattr(image, "tag_v2", {}).get(TIFF_XMP)
    if isinstance(found, tuple):
        found = bytes(found)
    return found.encode() if isinstance(found, str) else found or None


def union(tags: Iterable[str]) -> list[str]:
    """Return tags each once, as they are first spelled."""
    found: dict[str, str] = {}
    for tag in map(clean_tag, tags):
        if tag:
            found.setdefault(tag_key(tag), tag)
    return list(found.values())


def _if_readable(read: Callable[[ImageFile.ImageFile], list[str]], image: ImageFile.ImageFile) -> list[str]:
    """Read one of the older fields; a broken one, which no program could show either, has no keywords."""
    try:
        return read(image)
    except Exception:  # as above
        return []


def _iptc(image: ImageFile.ImageFile) -> list[str]:
    found: dict[Any, Any] = IptcImagePlugin.getiptcinfo(image) or {}
    keywords = found.get(IPTC_KEYWORDS, [])
    utf8 = found.get(IPTC_CHARACTERS) == IPTC_UTF8
    return [_text(word, utf8=utf8) for word in ([keywords] if isinstance(keywords, bytes) else keywords)]


def _text(word: bytes, *, utf8: bool) -> str:
    """Read a text that rarely says its encoding: UTF-8 if it can be that, as most programs write, else Latin 1."""
    word = word.rstrip(b"\0")  # some programs pad with it
    try:
        return word.decode("utf-8")
    except UnicodeDecodeError:
        return word.decode("utf-8", "replace") if utf8 else word.decode("latin-1")


def _windows(image: ImageFile.ImageFile) -> list[str]:
    found: Any = image.getexif().get(XP_KEYWORDS)
    if not found:
        return []
    return bytes(found).decode("utf-16-le", "ignore").rstrip("\0").split(";")
