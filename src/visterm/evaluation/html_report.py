"""A self-contained HTML page with tables, charts, pictures, predicted tags and search results.

It does not use a template, because jinja2 needs the extra ``web``, and reports work without extras.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from html import escape as html_escape
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

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
    """

    title: str
    lead: str
    thumbnail: int = THUMBNAIL_SIDE
    parts: list[str] = field(default_factory=list)

    def section(self, heading: str, lead: str = "") -> None:
        """Begin a section."""
        self.parts.append(f"<h2>{escape(heading)}</h2><p class=lead>{escape(lead)}</p>")

    def subsection(self, heading: str) -> None:
        """Begin a part of a section."""
        self.parts.append(f"<h3>{escape(heading)}</h3>")

    def note(self, text: str) -> None:
        """Add a paragraph."""
        self.parts.append(f"<p class=lead>{escape(text)}</p>")

    def note_on_pictures(self, corpus: Corpus) -> None:
        """Add a note on why pictures are missing, if the images are known by name only."""
        pairs = zip(corpus.images, corpus.names, strict=True)
        if all(isinstance(image, str) and image == name for image, name in pairs):
            self.note("These images are known by name or number only, so there are no pictures to show.")

    def legend(self, right: str, wrong: str) -> None:
        """Add a legend of the two colours of tags."""
        self.parts.append(f"<p class=legend>{_chip(right, True)} {_chip(wrong, False)}</p>")

    def cells(self, header: Sequence[str], rows: Sequence[Sequence[Cell]], caption: str = "") -> None:
        """Add a table; the first cell of a row is its heading. On a narrow screen, the table scrolls horizontally."""
        self.parts.append(_table(header, rows, caption))

    def columns(self, charts: Sequence[tuple[str, Sequence[str], Sequence[Sequence[Cell]]]]) -> None:
        """Add charts in columns, each (SVG, header and rows of its numbers); the numbers are collapsed at first."""
        columns = []
        for svg, header, rows in charts:
            numbers = f"<details><summary>The numbers</summary>{_table(header, rows, '')}</details>" if rows else ""
            columns.append(f"<div class=chart>{svg}{numbers}</div>")
        self.parts.append(f"<div class=charts>{''.join(columns)}</div>")

    def tagged(self, images: Sequence[tuple[Shown, str, Sequence[Tag], Collection[int], Sequence[str]]]) -> None:
        """Add tagged pictures: (picture, note, predicted tags, positions of the right tags, tags from people)."""
        cards = []
        for picture, note, tags, right, given in images:
            note_html = f"<span class=note>{escape(note)}</span>" if note else ""
            chips = "".join(_chip(tag.tag, i in right, tag.score) for i, tag in enumerate(tags))
            given_html = f"<span class=given>people said: {escape(', '.join(given))}</span>" if given else ""
            image = self._picture(picture, ", ".join(given) or "photo")
            cards.append(f"<figure>{image}<figcaption>{note_html}{chips}{given_html}</figcaption></figure>")
        self.parts.append(f"<div class=grid>{''.join(cards)}</div>")

    def query(self, query: str, note: str, level: int = 3) -> None:
        """Add a query as a heading with a note; add its results with `found`."""
        self.parts.append(f"<h{level}>{escape(query)} <small>{escape(note)}</small></h{level}>")

    def found(self, label: str, images: Sequence[Shown]) -> None:
        """Add a row of the images that a search found, best first, under a label."""
        cards = "".join(
            f'<figure class="{"right" * item.right}">'
            f"{self._picture(item, 'relevant' if item.right else 'not relevant')}</figure>"
            for item in images
        )
        label_html = f"<p class=label>{escape(label)}</p>" if label else ""
        self.parts.append(f"{label_html}<div class=row>{cards}</div>")

    def html(self) -> str:
        """Return the page as HTML."""
        return (
            '<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content="width=device-width">'
            f"<title>{escape(self.title)}</title><style>{STYLE}</style>"
            f"<main><h1>{escape(self.title)}</h1><p class=lead>{escape(self.lead)}</p>{''.join(self.parts)}</main>"
            "<footer>Written by visterm. This page loads nothing from the internet.</footer></html>\n"
        )

    def write(self, path: Path) -> None:
        """Write the page to a file."""
        write_whole(path, self.html().encode("utf-8"))

    def _picture(self, picture: Shown, description: str) -> str:
        """Return the HTML of a picture, or of a placeholder with its name if the photo cannot be read."""
        name = f"{picture.name}: {description}" if picture.name else description
        address = data_uri(picture.image, self.thumbnail)
        if address is None:
            return f'<div class=blank role=img aria-label="{escape(name)}">{escape(picture.name or "no picture")}</div>'
        title = f' title="{escape(picture.name)}"' if picture.name else ""
        return f'<img loading=lazy src="{address}" alt="{escape(name)}"{title}>'


def escape(text: str) -> str:
    """Escape text for HTML, and replace unprintable characters."""
    return html_escape(printable(text))


def _chip(text: str, right: bool, score: float | None = None) -> str:
    title = "" if score is None else f' title="score {score:.2f}"'
    return f'<span class="tag{" right" * right}"{title}>{escape(text)}</span>'


def _table(header: Sequence[str], rows: Sequence[Sequence[Cell]], caption: str) -> str:
    head = "".join(f"<th scope=col>{escape(cell)}</th>" for cell in header)
    body = "".join(
        f"<tr><th scope=row>{_cell_html(row[0])}</th>"
        + "".join(f"<td{f' class={cell.mark}' if cell.mark else ''}>{_cell_html(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    caption_html = f"<caption>{escape(caption)}</caption>" if caption else ""
    label = escape(caption or " by ".join((", ".join(header[1:]), header[0])))
    table = f"<table>{caption_html}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class=scroll role=region tabindex=0 aria-label="{label}">{table}</div>'


def _cell_html(cell: Cell) -> str:
    return escape(cell.text) + (f"<small>{escape(cell.note)}</small>" if cell.note else "")
