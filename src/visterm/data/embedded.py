"""Keywords inside of image files: XMP packets, IPTC keywords and Windows' own, as Pillow reads them."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple, TypeVar

from PIL import ImageFile
from PIL.TiffImagePlugin import IPTC_NAA_CHUNK

from visterm.core.vocabulary import clean_tag, tag_key
from visterm.data.pillow import opened_image
from visterm.data.program_tags import program_names, program_path
from visterm.data.xmp.keywords import Keywords, read_keywords

TIFF_XMP = 700
XP_KEYWORDS = 0x9C9E
IPTC_KEYWORDS = (2, 25)
IPTC_CHARACTERS = (1, 90)
IPTC_UTF8 = b"\x1b%G"
IPTC_FORMATS = ("JPEG", "MPO", "TIFF")  # Those in which IPTC is read and written here
IPTC_RESOURCE = 0x0404  # Of Photoshop's, in JPEG
IPTC_MARKER, IPTC_SHORT = b"\x1c", 0x7FFF  # What a dataset begins with, and its most bytes without a longer length
MOST_IPTC = 64  # Bytes of a keyword (IIM 4.2, dataset 2:25)
LONGEST_LETTER = 4  # Bytes, in UTF-8
CP1252_HOLES = b"\x81\x8d\x8f\x90\x9d"
GIF_TRAILER = bytes([0x01, *range(0xFF, 0xFB, -1)])  # What follows the packet, so that readers of blocks find its end
MOST_BOXES = 10_000  # Of a JPEG 2000 file, which has a dozen
JP2_XMP = bytes.fromhex("be7acfcb97a942e89c71999491e3afac")

T = TypeVar("T")

_IPTC_FRAME = frozenset({(1, 0), (2, 0), IPTC_CHARACTERS, IPTC_KEYWORDS})  # Versions, the encoding, and keywords


class Iptc(NamedTuple):
    """What there is of IPTC (IIM) in an image."""

    keywords: list[str]
    is_there: bool = False  # Whether it has any
    # Whether keywords can be added: the image's format has IPTC, and it is in UTF-8, or in ASCII so far
    is_writable: bool = False
    is_utf8: bool = False  # Whether it says so
    only_keywords: bool = True  # Whether it holds nothing else


def embedded_keywords(path: str | os.PathLike[str]) -> Keywords:
    """Read the keywords in an image file, without decoding its pixels.

    Returns the union of those in XMP, IPTC (IIM) and XPKeywords; none of a file that is no image. Raises DataError if
    the file's XMP cannot be understood.
    """
    try:
        with opened_image(path) as image:
            packet = _if_readable(xmp_packet, image)
            words = _iptc_keywords(_if_readable(_datasets, image) or {})
            windows = list(map(clean_tag, _if_readable(_windows, image) or []))
    except Exception:  # whatever hostile bytes lead Pillow to, as in read_image: what is no image has no keywords
        return Keywords([], [])
    inside = read_keywords(packet, f"the XMP in {os.fspath(path)}") if packet else Keywords([], [])
    there = set(map(tag_key, inside.tags))
    ours = {tag_key(mark.tag) for mark in (*inside.marks, *inside.copies) if mark.is_in_iptc} - there
    flat = [tag for tag in (*words, *windows) if tag_key(tag) not in ours]  # a person took those out of XMP
    cut = frozenset(tag for tag, is_cut in words.items() if is_cut).difference(inside.tags, windows)
    parts = (inside, Keywords(flat, [], programs=frozenset(program_names(flat)), cut=cut))
    return inside._replace(tags=joined_tags(parts), programs=inside.programs | parts[1].programs, cut=cut)


def joined_tags(parts: Sequence[Keywords]) -> list[str]:
    """Return the tags of a photo from all that has some of them, each once.

    Programs' own are left out, by whichever part explains them, and so is what IPTC has of a tag that is longer than
    IPTC can hold, where another part has it whole.
    """
    programs = frozenset().union(*(part.programs for part in parts)).difference(*(part.placed for part in parts))
    whole = [_decomposed(tag) for part in parts for tag in part.tags if len(tag.encode()) > MOST_IPTC]

    def counts(tag: str, part: Keywords) -> bool:
        is_cut = tag in part.cut and any(other.startswith(_decomposed(tag)) for other in whole)
        return not is_cut and tag_key(tag) not in programs and not program_path(tag)

    return union(tag for part in parts for tag in part.tags if counts(tag, part))


def read_iptc(path: str | os.PathLike[str]) -> Iptc:
    """Read the IPTC of an image file; nothing of a file that is no image, or whose IPTC is broken."""
    try:
        with opened_image(path) as image:
            can_hold, found = image.format in IPTC_FORMATS, _datasets(image)
    except Exception:  # whatever hostile bytes lead Pillow to, as above
        return Iptc([])
    words = found.get(IPTC_KEYWORDS, ())
    utf8 = IPTC_UTF8 in found.get(IPTC_CHARACTERS, ()) and all(w.decode("utf-8", "ignore").encode() == w for w in words)
    plain = IPTC_CHARACTERS not in found and all(part.isascii() for parts in found.values() for part in parts)
    return Iptc([*_iptc_keywords(found)], bool(found), can_hold and (utf8 or plain), utf8, set(found) <= _IPTC_FRAME)


def xmp_packet(image: ImageFile.ImageFile) -> bytes | None:
    """Return the XMP packet of an image that Pillow has opened, or None."""
    found: Any = image.info.get("xmp") or image.info.get("XML:com.adobe.xmp")
    if not found:
        found = getattr(image, "tag_v2", {}).get(TIFF_XMP)
    if not found and image.format in _PACKETS and image.fp is not None:
        image.fp.seek(0)
        found = _PACKETS[image.format](image.fp)
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


def _if_readable(read: Callable[[ImageFile.ImageFile], T], image: ImageFile.ImageFile) -> T | None:
    """Read one of the fields; a broken one, which no program could show either, takes no other with it."""
    try:
        return read(image)
    except Exception:  # as above
        return None


def _datasets(image: ImageFile.ImageFile) -> dict[tuple[int, int], list[bytes]]:
    """Return the IPTC of an image by record and dataset, as far as it can be read (IIM 4.2, chapter 3).

    Pillow has None in place of an empty text, and stops at one of more than 32,767 bytes.
    """
    content: Any = image.info.get("photoshop", {}).get(IPTC_RESOURCE)
    if content is None:
        content = getattr(getattr(image, "tag_v2", None), "_tagdata", {}).get(IPTC_NAA_CHUNK, b"")
    found: dict[tuple[int, int], list[bytes]] = {}
    at = 0
    while content[at : at + 1] == IPTC_MARKER and len(content) >= at + 5:
        key, size, at = (content[at + 1], content[at + 2]), int.from_bytes(content[at + 3 : at + 5], "big"), at + 5
        if size > IPTC_SHORT:  # the length of the length
            n, at = size & IPTC_SHORT, at + (size & IPTC_SHORT)
            size = int.from_bytes(content[at - n : at], "big")
        found.setdefault(key, []).append(content[at : at + size])
        at += size
    return found


def _iptc_keywords(iptc: Mapping[tuple[int, int], Sequence[bytes]]) -> dict[str, bool]:
    """Return the keywords of IPTC, without empty ones, and of each whether it may have been cut there."""
    words = [word.rstrip(b"\0") for word in iptc.get(IPTC_KEYWORDS, ())]  # some programs pad with it
    return {
        tag: MOST_IPTC - LONGEST_LETTER < len(word) <= MOST_IPTC for word in words if (tag := clean_tag(_text(word)))
    }


def _text(word: bytes) -> str:
    """Read a text that rarely says its encoding, or a wrong one: UTF-8 if it can be that, else as exiftool reads it.

    That is Windows' cp1252, where its five holes are those letters of Latin 1. Half of a letter at the end, where a
    program cut UTF-8 at `MOST_IPTC` bytes, is left out.
    """
    try:
        return word.decode("utf-8")
    except UnicodeDecodeError as error:
        before = word[: error.start]
        if error.reason == "unexpected end of data" and (len(word) == MOST_IPTC or not before.isascii()):
            return before.decode("utf-8")
    return "".join(bytes([letter]).decode("latin-1" if letter in CP1252_HOLES else "cp1252") for letter in word)


def _decomposed(tag: str) -> str:
    """Return that by which the beginning of a tag is compared: its last letter may have lost an accent."""
    return unicodedata.normalize("NFD", tag_key(tag))


def _windows(image: ImageFile.ImageFile) -> list[str]:
    found: Any = image.getexif().get(XP_KEYWORDS)
    text = found if isinstance(found, str) else bytes(found or b"").decode("utf-16-le", "ignore")
    return text.rstrip("\0").split(";")


def _gif_packet(file: IO[bytes]) -> bytes | None:
    """Return the XMP of a GIF: an application extension, whose packet is not parted into blocks (XMP, part 3)."""
    _skip_colours(file, file.read(13)[10])
    while kind := file.read(1):
        if kind == b"!":
            label, name = file.read(1), file.read(file.read(1)[0])
            if (label, name) == (b"\xff", b"XMP DataXMP"):
                return b"".join(_blocks(file)).partition(GIF_TRAILER)[0]
        elif kind == b",":
            _skip_colours(file, file.read(9)[8])
            file.read(1)  # The size of codes
        else:
            return None
        for _ in _blocks(file):
            pass
    return None


def _skip_colours(file: IO[bytes], flags: int) -> None:
    """Go on behind a table of colours, if the flags say that one is there."""
    if flags & 0x80:
        file.seek(3 * (2 << (flags & 7)), os.SEEK_CUR)


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the blocks of a GIF's extension or picture, each with the byte that says its length."""
    while (size := file.read(1)) not in (b"", b"\0"):
        yield size + file.read(size[0])


def _jp2_packet(file: IO[bytes]) -> bytes | None:
    """Return the XMP of a JPEG 2000 file: a box with an id of its own (ISO 15444-1, annex I)."""
    at = 0
    for _ in range(MOST_BOXES):
        head = file.read(8)
        size, begin = int.from_bytes(head[:4], "big"), at + 8
        if size == 1:
            size, begin = int.from_bytes(file.read(8), "big"), at + 16
        if head[4:] == b"uuid" and file.read(16) == JP2_XMP:
            return file.read(max(at + size - begin - 16, 0) if size else -1)
        if at + size < begin:  # it reaches to the end of the file, which may be here, or is damaged
            break
        at += size
        file.seek(at)
    return None


# By Pillow's names: formats whose XMP it does not read itself
_PACKETS: dict[str | None, Callable[[IO[bytes]], bytes | None]] = {"GIF": _gif_packet, "JPEG2000": _jp2_packet}
