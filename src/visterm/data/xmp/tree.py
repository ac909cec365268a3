"""XML with the places of its elements in the text, so that a change can leave every other byte as it is."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from xml.parsers import expat

from visterm.core.errors import DataError

MAX_BYTES = 2**26
MAX_DEPTH = 200

_SEPARATOR = " "  # in names, between the namespace and the rest: neither can hold one
_START_TAG = re.compile(rb"""<[^<>"']*(?:"[^"]*"[^<>"']*|'[^']*'[^<>"']*)*>""")
_DECLARED = re.compile(rb"""\s*<\?xml[^>]*?\bencoding\s*=\s*["']([A-Za-z0-9._-]+)["']""")
_CONTROLS = re.compile(
    rb"[\x00-\x08\x0b\x0c\x0e-\x1f]|&#(?:0*(?:[0-8]|1[124-9]|2\d|3[01])|[xX]0*(?:[0-8bcefBCEF]|1[\da-fA-F]));"
)
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_ENCODINGS = ("utf-8", "ascii", "iso8859-1", "cp1252", *(name for _, name in _BOMS))


@dataclass(eq=False)
class Element:
    """One element and where it stands."""

    name: str  # Namespace and local name, with a space between
    attributes: dict[str, str]  # Values by names, which are like `name`
    prefixes: dict[str, str]  # Namespaces by prefix, as they hold inside
    # Where the start tag begins and ends, and where the end tag does; the last three are the same of an empty element
    # (``<a/>``)
    start: int
    inside: int
    inside_end: int
    end: int
    parent: Element | None
    children: list[Element] = field(default_factory=list)
    text: str = ""  # Without that of children

    def every(self) -> Iterator[Element]:
        """Yield this element and all inside it, in the order of the text."""
        waiting = [self]
        while waiting:
            element = waiting.pop()
            yield element
            waiting.extend(reversed(element.children))


class Edit(NamedTuple):
    """A piece of the text, and its replacement."""

    start: int
    end: int
    text: str


class Document:
    """An XML text, called `where` in messages, and its elements.

    It is in the encoding of its byte-order mark or its declaration, else UTF-8; NUL bytes at the end are padding.
    Raises DataError if it is not well-formed, in an encoding that is not known, declares a document type (which is
    where entities that grow without bounds would be defined), or is too deep or too large.

    To read it only, control characters, which XML cannot have but programs write, may stand in it (`is_read_only`):
    each is then U+007F, which no tag can have either.
    """

    def __init__(self, content: bytes, where: str, *, is_read_only: bool = False) -> None:
        if len(content) > MAX_BYTES:
            raise DataError(f"{where} has {len(content):,} bytes; XMP of at most {MAX_BYTES:,} is read.")
        body = content.rstrip(b"\0") if not content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF32_LE)) else content
        self._padding = content[len(body) :]
        self._bom, self._encoding = next(((b, e) for b, e in _BOMS if body.startswith(b)), (b"", ""))
        body = body[len(self._bom) :]
        if not self._encoding:
            declared = _DECLARED.match(body)
            self._encoding = declared[1].decode() if declared else "utf-8"

        try:
            if codecs.lookup(self._encoding).name not in _ENCODINGS:
                raise LookupError("no encoding of XMP")
            self.text = body.decode(self._encoding).encode()
        except (LookupError, UnicodeError) as error:
            raise DataError(
                f"{where} is said to be in {self._encoding}, and cannot be read so ({error}). Save it as UTF-8."
            ) from error
        text = _CONTROLS.sub(lambda found: b"\x7f" * len(found[0]), self.text) if is_read_only else self.text
        self.root = _parse(text, where)

    def edited(self, edits: Sequence[Edit]) -> bytes:
        """Return the content with some pieces replaced, which do not overlap, in the encoding that it came in."""
        text = self.text
        for edit in sorted(edits, reverse=True):
            text = text[: edit.start] + edit.text.encode() + text[edit.end :]
        return self._bom + text.decode().encode(self._encoding, "xmlcharrefreplace") + self._padding

    def with_space_before(self, start: int) -> int:
        """Return where the white space before a place begins."""
        return len(self.text[:start].rstrip(b" \t\r\n"))


def qname(namespace: str, local: str) -> str:
    """Return the name of elements and attributes as `Element` has it."""
    return f"{namespace}{_SEPARATOR}{local}"


def _parse(text: bytes, where: str) -> Element:
    parser = expat.ParserCreate("utf-8", _SEPARATOR)
    parser.buffer_text = True
    outermost: list[Element] = []
    opened: list[Element] = []
    declared: dict[str, str] = {}

    def refuse_doctype(*_: object) -> None:
        raise DataError(
            f"{where} has a document type (<!DOCTYPE ...>), which XMP never has and which can define entities that "
            "fill the memory. It is not read; take those lines out if you trust it."
        )

    def begin(name: str, attributes: dict[str, str]) -> None:
        if len(opened) >= MAX_DEPTH:
            raise DataError(f"{where} has more than {MAX_DEPTH} elements inside each other, so it is no XMP.")
        parent = opened[-1] if opened else None
        prefixes = parent.prefixes if parent else {}
        if declared:
            prefixes = {**prefixes, **declared}
            declared.clear()
        start = parser.CurrentByteIndex
        tag = _START_TAG.match(text, start)
        assert tag is not None
        element = Element(name, attributes, prefixes, start, tag.end(), tag.end(), tag.end(), parent)
        (parent.children if parent else outermost).append(element)
        opened.append(element)

    def finish(_: str) -> None:
        element = opened.pop()
        if not text.endswith(b"/>", element.start, element.inside):
            element.inside_end = parser.CurrentByteIndex
            element.end = text.index(b">", element.inside_end) + 1

    def add_text(characters: str) -> None:
        opened[-1].text += characters

    parser.StartDoctypeDeclHandler = refuse_doctype
    parser.StartNamespaceDeclHandler = lambda prefix, uri: declared.update({prefix or "": uri or ""})
    parser.StartElementHandler = begin
    parser.EndElementHandler = finish
    parser.CharacterDataHandler = add_text
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise DataError(
            f"{where} is not well-formed XML ({expat.ErrorString(error.code)}, line {error.lineno}, column "
            f"{error.offset + 1}); it is left as it is. Repair it, or move it away."
        ) from error
    return outermost[0]
