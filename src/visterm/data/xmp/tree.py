"""XML elements with their positions in the text, with which an edit changes no other byte."""

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

_SEPARATOR = " "  # Between namespace and local name, neither of which can contain a space
_START_TAG = re.compile(rb"""<[^<>"']*(?:"[^"]*"[^<>"']*|'[^']*'[^<>"']*)*>""")
_XML_DECLARATION = re.compile(rb"""\s*<\?xml[^>]*?\bencoding\s*=\s*["']([A-Za-z0-9._-]+)["']""")
_CONTROL_CHARACTERS = re.compile(
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
    """An XML element and its position in the text."""

    name: str  # Namespace and local name, separated by a space
    attributes: dict[str, str]  # Name -> value, with names like `name`
    prefixes: dict[str, str]  # Prefix -> namespace, valid inside the element
    # Begin and end of the start tag, then begin and end of the end tag; for an empty element (``<a/>``) the last three
    # are the same
    start: int
    content_start: int
    content_end: int
    end: int
    parent: Element | None
    children: list[Element] = field(default_factory=list)
    text: str = ""  # Without the text of children

    def walk(self) -> Iterator[Element]:
        """Yield this element and its descendants, in the order of the text."""
        stack = [self]
        while stack:
            element = stack.pop()
            yield element
            stack.extend(reversed(element.children))


class Edit(NamedTuple):
    """The replacement of a piece of the text."""

    start: int
    end: int
    text: str


class Document:
    """An XML text, called `label` in messages, and its elements.

    The encoding is that of the byte-order mark or the declaration, or else UTF-8; NUL bytes at the end are padding.
    Raises DataError if the text is not well-formed, has an unsupported encoding, declares a document type (which could
    define entities that grow without bounds), or is too deep or too large.

    With `is_read_only`, control characters are allowed, which are invalid XML, but which some programs write: each is
    read as U+007F, which tags cannot contain either.
    """

    def __init__(self, content: bytes, label: str, *, is_read_only: bool = False) -> None:
        if len(content) > MAX_BYTES:
            raise DataError(f"{label} has {len(content):,} bytes; XMP of at most {MAX_BYTES:,} is read.")
        body = content.rstrip(b"\0") if not content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF32_LE)) else content
        self._padding = content[len(body) :]
        self._bom, self._encoding = next(((b, e) for b, e in _BOMS if body.startswith(b)), (b"", ""))
        body = body[len(self._bom) :]
        if not self._encoding:
            declaration = _XML_DECLARATION.match(body)
            self._encoding = declaration[1].decode() if declaration else "utf-8"

        try:
            if codecs.lookup(self._encoding).name not in _ENCODINGS:
                raise LookupError("XMP does not have this encoding")
            self.text = body.decode(self._encoding).encode()
        except (LookupError, UnicodeError) as error:
            raise DataError(
                f"{label} declares the encoding {self._encoding}, but cannot be decoded ({error}). Save it as UTF-8."
            ) from error
        text = _CONTROL_CHARACTERS.sub(lambda match: b"\x7f" * len(match[0]), self.text) if is_read_only else self.text
        self.root = _parse(text, label)

    def edited(self, edits: Sequence[Edit]) -> bytes:
        """Return the content after non-overlapping edits, in its original encoding."""
        text = self.text
        for edit in sorted(edits, reverse=True):
            text = text[: edit.start] + edit.text.encode() + text[edit.end :]
        return self._bom + text.decode().encode(self._encoding, "xmlcharrefreplace") + self._padding

    def space_start(self, start: int) -> int:
        """Return the start of the white space before a position."""
        return len(self.text[:start].rstrip(b" \t\r\n"))


def qname(namespace: str, local: str) -> str:
    """Return the name of an element or attribute in the form of `Element.name`."""
    return f"{namespace}{_SEPARATOR}{local}"


def _parse(text: bytes, label: str) -> Element:
    parser = expat.ParserCreate("utf-8", _SEPARATOR)
    parser.buffer_text = True
    roots: list[Element] = []
    open_elements: list[Element] = []
    new_prefixes: dict[str, str] = {}

    def refuse_doctype(*_: object) -> None:
        raise DataError(
            f"{label} has a document type (<!DOCTYPE ...>), which XMP never has and which can define entities that "
            "fill the memory. It is not read; remove these lines if you trust it."
        )

    def begin(name: str, attributes: dict[str, str]) -> None:
        if len(open_elements) >= MAX_DEPTH:
            raise DataError(f"{label} has more than {MAX_DEPTH} elements inside each other, so it is not XMP.")
        parent = open_elements[-1] if open_elements else None
        prefixes = parent.prefixes if parent else {}
        if new_prefixes:
            prefixes = {**prefixes, **new_prefixes}
            new_prefixes.clear()
        start = parser.CurrentByteIndex
        tag = _START_TAG.match(text, start)
        assert tag is not None
        element = Element(name, attributes, prefixes, start, tag.end(), tag.end(), tag.end(), parent)
        (parent.children if parent else roots).append(element)
        open_elements.append(element)

    def finish(_: str) -> None:
        element = open_elements.pop()
        if not text.endswith(b"/>", element.start, element.content_start):
            element.content_end = parser.CurrentByteIndex
            element.end = text.index(b">", element.content_end) + 1

    def add_text(characters: str) -> None:
        open_elements[-1].text += characters

    parser.StartDoctypeDeclHandler = refuse_doctype
    parser.StartNamespaceDeclHandler = lambda prefix, uri: new_prefixes.update({prefix or "": uri or ""})
    parser.StartElementHandler = begin
    parser.EndElementHandler = finish
    parser.CharacterDataHandler = add_text
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise DataError(
            f"{label} is not well-formed XML ({expat.ErrorString(error.code)}, line {error.lineno}, column "
            f"{error.offset + 1}); it is left as it is. Repair it, or move it away."
        ) from error
    return roots[0]
