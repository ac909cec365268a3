"""Keywords of photos: in XMP files next to them, which are replaced atomically, and embedded (XMP, IPTC, Windows)."""

from __future__ import annotations

import os
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from PIL import ImageFile
from PIL.TiffImagePlugin import IPTC_NAA_CHUNK

from visterm.core.errors import DataError, StorageError
from visterm.core.files import GB, read_regular
from visterm.core.system import is_alive
from visterm.core.vocabulary import clean_tag, tag_key
from visterm.core.wording import printable
from visterm.core.writing import whole_file
from visterm.data.image_folders import DNG, IMAGE_SUFFIXES, RAW_SUFFIXES
from visterm.data.pillow import opened_image
from visterm.data.program_tags import program_names, program_path
from visterm.data.xmp.keywords import GIVEN, Keywords, first_paths, place_in, read_keywords
from visterm.data.xmp.tree import Document

TIFF_XMP = 700
XP_KEYWORDS = 0x9C9E
IPTC_KEYWORDS = (2, 25)
IPTC_CHARACTERS = (1, 90)
IPTC_PLACE = ((2, 92), (2, 90), (2, 95), (2, 101))  # Sublocation, city, province, country
MAX_PLACE_LETTERS = 100  # Maximum length of each name of a place; longer ones are cut
IPTC_UTF8 = b"\x1b%G"
IPTC_FORMATS = ("JPEG", "MPO", "TIFF")  # Image formats in which IPTC is read and written
IPTC_RESOURCE = 0x0404  # Number of the Photoshop resource in a JPEG
IPTC_MARKER, MAX_SHORT_LENGTH = b"\x1c", 0x7FFF  # First byte of a dataset; maximum size in a short length field
MAX_IPTC_BYTES = 64  # Maximum size of a keyword in bytes (IIM 4.2, dataset 2:25)
MAX_CHARACTER_BYTES = 4  # Maximum size of a character in UTF-8
CP1252_HOLES = b"\x81\x8d\x8f\x90\x9d"
GIF_TRAILER = bytes([0x01, *range(0xFF, 0xFB, -1)])  # Follows the packet, so programs that read blocks find its end
MAX_BOXES = 10_000  # Maximum number of boxes to read in a JPEG 2000 file, which has about a dozen
JP2_XMP = bytes.fromhex("be7acfcb97a942e89c71999491e3afac")

_IPTC_KEYWORD_DATASETS = frozenset({(1, 0), (2, 0), IPTC_CHARACTERS, IPTC_KEYWORDS})  # Versions, encoding, keywords
SUFFIX = ".xmp"
FOUND, STEM_FOUND, FULL, STEM = "found", "stem found", "full", "stem"  # Values of `naming` in `Sidecars.target`
MAX_FILE_BYTES = GB  # Maximum size of a file to rewrite, in bytes
# Names of the temporary files of `replace_file`, with the process id
_TEMPORARY = re.compile(r"\..+\.(?:xmp|txt)\.(\d{1,9})-[0-9a-f]{8}\.tmp", re.IGNORECASE | re.DOTALL)


class Sidecars:
    """Finds the XMP files of images: ``photo.jpg.xmp`` (darktable, digiKam) and ``photo.xmp`` (Lightroom, Adobe).

    Each folder is listed once, when the first of its images is looked up.
    """

    def __init__(self) -> None:
        self._files_by_folder: dict[Path, tuple[dict[str, str], dict[str, set[str]]]] = {}

    def of(self, image: Path) -> list[Path]:
        """Return the XMP files of an image, ``photo.jpg.xmp`` first."""
        names, _ = self._list(image.parent)
        existing = [names.get(name) for name in (image.name, image.stem)]
        return [image.with_name(name) for name in dict.fromkeys(existing) if name is not None]

    def target(self, image: Path, naming: str = FOUND) -> Path:
        """Return the XMP file to write for an image.

        By default that is the existing file, or else a new ``photo.jpg.xmp``; ``photo.xmp`` is not written if it may
        belong to two images (``photo.jpg`` and ``photo.nef``). If both files exist, it is ``photo.jpg.xmp``, or, if
        `naming` is "stem found", ``photo.xmp``. With "full" it is always ``photo.jpg.xmp``, with "stem" always
        ``photo.xmp``, whether the file exists or not. Raises DataError if several RAW files would share one file.
        """
        names, stems = self._list(image.parent)
        if naming == FULL:
            return image.with_name(names.get(image.name, f"{image.name}{SUFFIX}"))
        if naming == STEM:
            if len({suffix.lower() for suffix in stems.get(image.stem, ())} & (RAW_SUFFIXES - {DNG})) > 1:
                sidecar = f"{image.stem}{SUFFIX}"
                raise DataError(f"{sidecar} would belong to several RAW files, such as {image.name}. Rename one.")
            return image.with_name(names.get(image.stem, f"{image.stem}{SUFFIX}"))
        is_ambiguous = self.shares_stem(image)
        existing = [path for path in self.of(image) if not is_ambiguous or path.stem == image.name]
        existing = existing[::-1] if naming == STEM_FOUND else existing
        return existing[0] if existing else image.with_name(f"{image.name}{SUFFIX}")

    def shares_stem(self, image: Path) -> bool:
        """Return whether another image in the folder has the same name with another suffix."""
        _, stems = self._list(image.parent)
        return len(stems.get(image.stem, set()) | {image.suffix}) > 1

    def keywords(self, image: Path) -> Keywords:
        """Read the keywords of an image from its XMP files and from the image itself.

        A tag that a run predicted in one file and a person wrote into another file is the person's. Raises DataError if
        a file cannot be read or parsed.
        """
        sources = [*(read_sidecar(path) for path in self.of(image)), embedded_keywords(image)]
        people_tags = {tag_key(tag) for source in sources for tag in source.people_tags}
        marks = [mark for source in sources for mark in source.marks]
        return Keywords(
            joined_tags(sources),
            [mark for mark in marks if mark.source == GIVEN or tag_key(mark.tag) not in people_tags],
            paths=first_paths(source.paths for source in sources),
        )

    def _list(self, folder: Path) -> tuple[dict[str, str], dict[str, set[str]]]:
        """Return the XMP files of a folder, and the suffixes of its images, both by name without suffix."""
        if folder not in self._files_by_folder:
            names: dict[str, str] = {}
            stems: defaultdict[str, set[str]] = defaultdict(set)
            try:
                file_names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
            except OSError as error:
                raise DataError(f"The folder {folder} cannot be listed: {error.strerror}.") from error
            for name in file_names:
                stem, suffix = os.path.splitext(name)
                if suffix.lower() == SUFFIX:
                    names[stem] = name
                elif suffix.lower() in IMAGE_SUFFIXES:
                    stems[stem].add(suffix)
            self._files_by_folder[folder] = names, dict(stems)
        return self._files_by_folder[folder]


def read_sidecar(path: Path) -> Keywords:
    """Read the keywords of an XMP file. Raises DataError if it cannot be read or understood."""
    return read_keywords(content_of(path) or b"", str(path))


def content_of(path: Path) -> bytes | None:
    """Return the bytes of a file; None if it does not exist. Raises DataError if it cannot be read."""
    try:
        return read_regular(path, MAX_FILE_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error


def replace_file(path: Path, old: bytes | None, new: bytes | None) -> None:
    """Replace or remove a file atomically, if it has not changed since it was read.

    `old` is the content that was read and `new` the content to write; None means no file. A link is followed to a file
    in its folder. Raises StorageError, and leaves the file unchanged, if another program has changed it, it cannot be
    written, or it is a link out of its folder.
    """
    check_stays_inside(path)
    path = Path(os.path.realpath(path))
    if content_of(path) != old:
        raise StorageError(f"{path} was just changed by another program, so it is not written. Export again.")

    try:
        if new is None:
            path.unlink(missing_ok=True)
            return
        with whole_file(path, shared=True) as temporary:
            with temporary.open("xb") as file:
                file.write(new)
            if old is not None:
                os.chmod(temporary, path.stat().st_mode)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}. It is left as it was.") from error


def check_stays_inside(path: Path) -> None:
    """Raise StorageError if a file is a link out of its folder, so writing it would change another folder."""
    target = Path(os.path.realpath(path))
    if path.is_symlink() and not target.is_relative_to(os.path.realpath(path.parent)):
        raise StorageError(f"{path} is a link out of its folder, and is not followed (to {target}). Put a file there.")


def sweep_temporaries(folder: Path) -> None:
    """Remove the temporary files that `replace_file` left in a folder when its process was killed.

    Their names contain the process id, and no other program makes such names; files of running processes are kept.
    """
    try:
        names = os.listdir(folder)
    except OSError:  # reported when the images of the folder are read
        return
    for name in names:
        if (match := _TEMPORARY.fullmatch(name)) and not is_alive(int(match[1])):
            with suppress(OSError):
                (folder / name).unlink()


class Iptc(NamedTuple):
    """The IPTC (IIM) metadata of an image."""

    keywords: list[str]
    is_present: bool = False  # Whether the image has any IPTC
    # Whether keywords can be added: the image's format has IPTC, and the existing texts are UTF-8 or ASCII
    is_writable: bool = False
    is_utf8: bool = False  # Whether the texts are declared as UTF-8
    only_keywords: bool = True  # Whether the image has no other IPTC than keywords


def embedded_keywords(path: str | os.PathLike[str]) -> Keywords:
    """Read the keywords in an image file, without decoding its pixels.

    Returns the union of XMP, IPTC (IIM) and XPKeywords; empty if the file is not an image. Raises DataError if the
    file's XMP is invalid.
    """
    packet, datasets, windows_tags = _readable_parts(path, xmp_packet, _datasets, _windows_keywords)
    iptc_keywords, windows_tags = _iptc_keywords(datasets or {}), windows_tags or []
    xmp = read_keywords(packet, f"the XMP in {os.fspath(path)}") if packet else Keywords([], [])
    xmp_keys = set(map(tag_key, xmp.tags))
    removed_keys = {tag_key(mark.tag) for mark in (*xmp.marks, *xmp.copies) if mark.is_in_iptc} - xmp_keys
    other_tags = [tag for tag in (*iptc_keywords, *windows_tags) if tag_key(tag) not in removed_keys]
    cut_tags = frozenset(tag for tag, is_cut in iptc_keywords.items() if is_cut).difference(xmp.tags, windows_tags)
    parts = (xmp, Keywords(other_tags, [], programs=frozenset(program_names(other_tags)), cut=cut_tags))
    return xmp._replace(tags=joined_tags(parts), programs=xmp.programs | parts[1].programs, cut=cut_tags)


def place_of(path: str, sidecars: Sidecars) -> str:
    """Return the names of the place where a photo was taken, by its XMP files, its XMP and its IPTC, with commas.

    Broken parts have no names.
    """
    packet, datasets = _readable_parts(path, xmp_packet, _datasets)
    names: list[str] = []
    with suppress(DataError):  # reported when tags are read
        for content in (*map(content_of, sidecars.of(Path(path))), packet):
            names += place_in(Document(content, path, is_read_only=True)) if content else []
    names += [_text(name.rstrip(b"\0")) for key in IPTC_PLACE for name in (datasets or {}).get(key, ())]
    return ", ".join(union(printable(name)[:MAX_PLACE_LETTERS] for name in names))


def joined_tags(parts: Sequence[Keywords]) -> list[str]:
    """Return the union of a photo's tags from all its sources.

    Tags that programs write for their own use are left out if any source identifies them. Tags that IPTC cut short are
    left out if another source has the full tag.
    """
    program_keys = frozenset().union(*(part.programs for part in parts)).difference(*(part.placed for part in parts))
    full_tags = [_decomposed(tag) for part in parts for tag in part.tags if len(tag.encode()) > MAX_IPTC_BYTES]

    def is_kept(tag: str, part: Keywords) -> bool:
        is_cut = tag in part.cut and any(other.startswith(_decomposed(tag)) for other in full_tags)
        return not is_cut and tag_key(tag) not in program_keys and not program_path(tag)

    return union(tag for part in parts for tag in part.tags if is_kept(tag, part))


def read_iptc(path: str | os.PathLike[str]) -> Iptc:
    """Read the IPTC of an image file; empty if the file is not an image, or its IPTC is broken."""
    image_format, datasets = _readable_parts(path, lambda image: image.format, _datasets)
    if datasets is None:
        return Iptc([])
    is_utf8 = IPTC_UTF8 in datasets.get(IPTC_CHARACTERS, ())
    is_utf8 = is_utf8 and all(w.decode("utf-8", "ignore").encode() == w for w in datasets.get(IPTC_KEYWORDS, ()))
    is_ascii = IPTC_CHARACTERS not in datasets and all(part.isascii() for parts in datasets.values() for part in parts)
    return Iptc(
        [*_iptc_keywords(datasets)],
        is_present=bool(datasets),
        is_writable=image_format in IPTC_FORMATS and (is_utf8 or is_ascii),
        is_utf8=is_utf8,
        only_keywords=set(datasets) <= _IPTC_KEYWORD_DATASETS,
    )


def windows_keywords(path: str | os.PathLike[str]) -> list[str]:
    """Read the XPKeywords of an image file, which visterm never changes; empty if the file is not an image."""
    return _readable_parts(path, _windows_keywords)[0] or []


def xmp_packet(image: ImageFile.ImageFile) -> bytes | None:
    """Return the XMP packet of an image that Pillow has opened, or None."""
    packet: Any = image.info.get("xmp") or image.info.get("XML:com.adobe.xmp")
    if not packet:
        packet = getattr(image, "tag_v2", {}).get(TIFF_XMP)
    if not packet and image.format in _PACKETS and image.fp is not None:
        image.fp.seek(0)
        packet = _PACKETS[image.format](image.fp)
    if isinstance(packet, tuple):
        packet = bytes(packet)
    return packet.encode() if isinstance(packet, str) else packet or None


def union(tags: Iterable[str]) -> list[str]:
    """Return tags without repetitions; each tag has its first spelling."""
    spellings: dict[str, str] = {}
    for tag in map(clean_tag, tags):
        if tag:
            spellings.setdefault(tag_key(tag), tag)
    return list(spellings.values())


def _readable_parts(path: str | os.PathLike[str], *readers: Callable[[ImageFile.ImageFile], Any]) -> list[Any]:
    """Return parts of an image file's metadata; None for a broken part, and for all if the file is not an image."""
    parts: list[Any] = [None] * len(readers)
    with suppress(Exception), opened_image(path) as image:  # hostile bytes raise any error in Pillow
        for number, read in enumerate(readers):
            with suppress(Exception):
                parts[number] = read(image)
    return parts


def _datasets(image: ImageFile.ImageFile) -> dict[tuple[int, int], list[bytes]]:
    """Return the readable IPTC of an image by record and dataset (IIM 4.2, chapter 3).

    Pillow's own parser returns None for an empty text, and stops at a text of more than 32,767 bytes.
    """
    content: Any = image.info.get("photoshop", {}).get(IPTC_RESOURCE)
    if content is None:
        content = getattr(getattr(image, "tag_v2", None), "_tagdata", {}).get(IPTC_NAA_CHUNK, b"")
    datasets: dict[tuple[int, int], list[bytes]] = {}
    start = 0
    while content[start : start + 1] == IPTC_MARKER and len(content) >= start + 5:
        key, size = (content[start + 1], content[start + 2]), int.from_bytes(content[start + 3 : start + 5], "big")
        start += 5
        if size > MAX_SHORT_LENGTH:  # then it is the size of the length field that follows
            length_size, start = size & MAX_SHORT_LENGTH, start + (size & MAX_SHORT_LENGTH)
            size = int.from_bytes(content[start - length_size : start], "big")
        datasets.setdefault(key, []).append(content[start : start + size])
        start += size
    return datasets


def _iptc_keywords(iptc: Mapping[tuple[int, int], Sequence[bytes]]) -> dict[str, bool]:
    """Return the non-empty keywords of IPTC, and for each keyword whether it may have been cut short."""
    words = [word.rstrip(b"\0") for word in iptc.get(IPTC_KEYWORDS, ())]  # some programs pad with NUL bytes
    cut_sizes = range(MAX_IPTC_BYTES - MAX_CHARACTER_BYTES + 1, MAX_IPTC_BYTES + 1)
    return {tag: len(word) in cut_sizes for word in words if (tag := clean_tag(_text(word)))}


def _text(encoded: bytes) -> str:
    """Decode a text whose declared encoding is missing or unreliable: as UTF-8 if it is valid, else as exiftool does.

    exiftool uses Windows' cp1252, and Latin 1 for its five undefined bytes. An incomplete character at the end, where a
    program cut UTF-8 at `MAX_IPTC_BYTES` bytes, is dropped.
    """
    try:
        return encoded.decode("utf-8")
    except UnicodeDecodeError as error:
        valid_prefix = encoded[: error.start]
        if error.reason == "unexpected end of data" and (len(encoded) == MAX_IPTC_BYTES or not valid_prefix.isascii()):
            return valid_prefix.decode("utf-8")
    return "".join(bytes([letter]).decode("latin-1" if letter in CP1252_HOLES else "cp1252") for letter in encoded)


def _decomposed(tag: str) -> str:
    """Return a key whose prefixes can be compared: letters and accents are separate characters."""
    return unicodedata.normalize("NFD", tag_key(tag))


def _windows_keywords(image: ImageFile.ImageFile) -> list[str]:
    value: Any = image.getexif().get(XP_KEYWORDS)
    text = value if isinstance(value, str) else bytes(value or b"").decode("utf-16-le", "ignore")
    return list(map(clean_tag, text.rstrip("\0").split(";")))


def _gif_packet(file: IO[bytes]) -> bytes | None:
    """Return the XMP of a GIF: an application extension, whose packet is not split into blocks (XMP, part 3)."""
    _skip_colours(file, file.read(13)[10])
    while kind := file.read(1):
        if kind == b"!":
            label, name = file.read(1), file.read(file.read(1)[0])
            if (label, name) == (b"\xff", b"XMP DataXMP"):
                return b"".join(_blocks(file)).partition(GIF_TRAILER)[0]
        elif kind == b",":
            _skip_colours(file, file.read(9)[8])
            file.read(1)  # the code size
        else:
            return None
        for _ in _blocks(file):
            pass
    return None


def _skip_colours(file: IO[bytes], flags: int) -> None:
    """Skip the colour table if the flags say that one follows."""
    if flags & 0x80:
        file.seek(3 * (2 << (flags & 7)), os.SEEK_CUR)


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the blocks of a GIF's extension or picture, each with its length byte."""
    while (size := file.read(1)) not in (b"", b"\0"):
        yield size + file.read(size[0])


def _jp2_packet(file: IO[bytes]) -> bytes | None:
    """Return the XMP of a JPEG 2000 file, which is in a box with XMP's id (ISO 15444-1, annex I)."""
    box_start = 0
    for _ in range(MAX_BOXES):
        head = file.read(8)
        size, content_start = int.from_bytes(head[:4], "big"), box_start + 8
        if size == 1:
            size, content_start = int.from_bytes(file.read(8), "big"), box_start + 16
        if head[4:] == b"uuid" and file.read(16) == JP2_XMP:
            return file.read(max(box_start + size - content_start - 16, 0) if size else -1)
        if box_start + size < content_start:  # the box extends to the end of the file, or is damaged
            break
        box_start += size
        file.seek(box_start)
    return None


# Formats (by Pillow's names) whose XMP Pillow does not read itself
_PACKETS: dict[str | None, Callable[[IO[bytes]], bytes | None]] = {"GIF": _gif_packet, "JPEG2000": _jp2_packet}
