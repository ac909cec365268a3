"""A self-contained HTML page with tables, charts, pictures, predicted tags and search results."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from visterm.core.types import Tag
from visterm.core.wording import printable
from visterm.core.writing import write_whole
from visterm.data.corpus import Corpus
from visterm.data.images import ImageLike, data_uri

THUMBNAIL_SIDE, SMALL_THUMBNAIL_SIDE = 192, 160
"""Longer side in pixels; small thumbnails, of about 6 kB as JPEG, are for pages with many pictures."""

STYLE = files("visterm.evaluation").joinpath("report.css").read_text(encoding="utf-8")


class Cell(NamedTuple):
    """A cell of a table."""

    text: str
    note: str = ""  # Small text below, such as an interval
    mark: str = ""  # CSS class: "best", "good" or "poor", or ""


class Shown(NamedTuple):
    """A picture, with its name and whether it is a right result."""

    image: ImageLike
    right: bool = False
    name: str = ""


@dataclass
class Report:
    """A page to which sections are added; `write` saves it as one self-contained file.

    `title` is its heading, `lead` one or two sentences below it, and `thumbnail` the longer side of pictures in pixels.
    `parts` are HTML, from the macros of ``templates/report.html``.
    """

    title: str
    lead: str
    thumbnail: int = THUMBNAIL_SIDE
    parts: list[str] = field(default_factory=list)

    def section(self, heading: str, lead: str = "") -> None:
        """Begin a section."""
        self.parts.append(MACROS.section(heading, lead))

    def subsection(self, heading: str) -> None:
        """Begin a part of a section."""
        self.parts.append(MACROS.subsection(heading))

    def note(self, text: str) -> None:
        """Add a paragraph."""
        self.parts.append(MACROS.note(text))

    def note_on_pictures(self, corpus: Corpus) -> None:
        """Add a note on why pictures are missing, if the images are known by name only."""
        pairs = zip(corpus.images, corpus.names, strict=True)
        if all(isinstance(image, str) and image == name for image, name in pairs):
            self.note("These images are known by name or number only, so there are no pictures to show.")

    def legend(self, right: str, wrong: str) -> None:
        """Add a legend of the two colours of tags."""
        self.parts.append(MACROS.legend(right, wrong))

    def cells(self, header: Sequence[str], rows: Sequence[Sequence[Cell]], caption: str = "") -> None:
        """Add a table; the first cell of a row is its heading. On a narrow screen, the table scrolls horizontally."""
        self.parts.append(MACROS.table(header, rows, caption))

    def columns(self, charts: Sequence[tuple[str, Sequence[str], Sequence[Sequence[Cell]]]]) -> None:
        """Add charts in columns, each (SVG, header and rows of its numbers); the numbers are collapsed at first."""
        self.parts.append(MACROS.columns(charts))

    def tagged(self, images: Sequence[tuple[Shown, str, Sequence[Tag], Collection[int], Sequence[str]]]) -> None:
        """Add tagged pictures: (picture, note, predicted tags, positions of the right tags, tags from people)."""
        self.parts.append(MACROS.tagged(images, self._address))

    def query(self, query: str, note: str, level: int = 3) -> None:
        """Add a query as a heading with a note; add its results with `found`."""
        self.parts.append(MACROS.query(query, note, level))

    def found(self, label: str, images: Sequence[Shown]) -> None:
        """Add a row of the images that a search found, best first, under a label."""
        self.parts.append(MACROS.hits(label, images, self._address))

    def html(self) -> str:
        """Return the page as HTML."""
        return str(MACROS.page(self.title, self.lead, STYLE, self.parts))

    def write(self, path: Path) -> None:
        """Write the page to a file."""
        write_whole(path, self.html().encode("utf-8"))

    def _address(self, picture: Shown) -> str | None:
        """Return a picture as the address of an image in the page; None if the photo cannot be read."""
        return data_uri(picture.image, self.thumbnail)


def _finalize(value: object) -> object:
    """Replace unprintable characters of texts that are not HTML yet."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _short(text: str, max_length: int) -> str:
    """Shorten a text in the middle, so that names with different ends remain distinguishable."""
    if len(text) <= max_length:
        return text
    n_letters = max(1, (max_length - 1) // 2)
    return f"{text[:n_letters]}…{text[-n_letters:]}"


_ENVIRONMENT = Environment(
    loader=PackageLoader("visterm.evaluation"), autoescape=True, finalize=_finalize, undefined=StrictUndefined,
    trim_blocks=True, lstrip_blocks=True,
)  # fmt: skip
_ENVIRONMENT.filters["short"] = _short
MACROS: Any = _ENVIRONMENT.get_template("report.html").module  # Functions that return the parts of a page as HTML
