"""One self-contained HTML page with figures, pictures, predicted tags and search results to look at.

Without a template: jinja2 belongs to the extra ``web``, and reports need no extra.
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

THUMBNAIL, SMALL_THUMBNAIL = 192, 160
"""Pixels of the longer side; a small one is a JPEG of some 6 kB, so that a page of many stays small."""

STYLE = files("visterm.evaluation").joinpath("report.css").read_text(encoding="utf-8")


class Cell(NamedTuple):
    """One cell of a table."""

    text: str
    note: str = ""  # Small, below it: an interval
    mark: str = ""  # "best", "good" or "poor", or nothing


class Shown(NamedTuple):
    """A picture, whether it is right, and its name."""

    image: ImageLike
    right: bool = False
    name: str = ""


@dataclass
class Report:
    """A page that grows section by section; `write` puts it into one file that needs no other.

    It has a heading and a lead of one or two sentences; `thumbnail` is the longer side of its pictures in pixels.
    """

    title: str
    lead: str
    thumbnail: int = THUMBNAIL
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
        """Explain why pictures are missing, where images are known by name only."""
        pairs = zip(corpus.images, corpus.names, strict=True)
        if all(isinstance(image, str) and image == name for image, name in pairs):
            self.note("These images are known by name or number only, so there are no pictures of them to show.")

    def legend(self, right: str, wrong: str) -> None:
        """Describe what the two colours of tags mean."""
        self.parts.append(f"<p class=legend>{_chip(right, True)} {_chip(wrong, False)}</p>")

    def cells(self, header: Sequence[str], rows: Sequence[Sequence[Cell]], caption: str = "") -> None:
        """Add a table; the first cell of a row names it. On a narrow screen it is moved sideways in its frame."""
        self.parts.append(_table(header, rows, caption))

    def columns(self, charts: Sequence[tuple[str, Sequence[str], Sequence[Sequence[Cell]]]]) -> None:
        """Add drawings side by side: (SVG, header and rows of its numbers), the numbers folded away below."""
        drawn = []
        for svg, header, rows in charts:
            numbers = f"<details><summary>The numbers</summary>{_table(header, rows, '')}</details>" if rows else ""
            drawn.append(f"<div class=chart>{svg}{numbers}</div>")
        self.parts.append(f"<div class=charts>{''.join(drawn)}</div>")

    def tagged(self, images: Sequence[tuple[Shown, str, Sequence[Tag], Collection[int], Sequence[str]]]) -> None:
        """Add pictures with (picture, note, predicted tags, positions of the right ones, tags that people gave)."""
        cards = []
        for picture, note, tags, right, given in images:
            above = f"<span class=note>{escape(note)}</span>" if note else ""
            chips = "".join(_chip(tag.tag, i in right, tag.score) for i, tag in enumerate(tags))
            people = f"<span class=given>people said: {escape(', '.join(given))}</span>" if given else ""
            image = self._picture(picture, ", ".join(given) or "photo")
            cards.append(f"<figure>{image}<figcaption>{above}{chips}{people}</figcaption></figure>")
        self.parts.append(f"<div class=grid>{''.join(cards)}</div>")

    def query(self, query: str, note: str, level: int = 3) -> None:
        """Name a query in a heading of some level, with a note; what was found for it follows."""
        self.parts.append(f"<h{level}>{escape(query)} <small>{escape(note)}</small></h{level}>")

    def found(self, label: str, images: Sequence[Shown]) -> None:
        """Add a row of images that a search found, best first, under a label of its own."""
        cards = "".join(
            f'<figure class="{"right" * item.right}">'
            f"{self._picture(item, 'relevant' if item.right else 'not relevant')}</figure>"
            for item in images
        )
        named = f"<p class=label>{escape(label)}</p>" if label else ""
        self.parts.append(f"{named}<div class=row>{cards}</div>")

    def html(self) -> str:
        """Return the page."""
        return (
            '<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content="width=device-width">'
            f"<title>{escape(self.title)}</title><style>{STYLE}</style>"
            f"<main><h1>{escape(self.title)}</h1><p class=lead>{escape(self.lead)}</p>{''.join(self.parts)}</main>"
            "<footer>Written by visterm. One file, nothing is fetched from anywhere.</footer></html>\n"
        )

    def write(self, path: Path) -> None:
        """Write the page."""
        write_whole(path, self.html().encode("utf-8"))

    def _picture(self, picture: Shown, what: str) -> str:
        """Return a picture, or where the photo is not to be had, a blank with its name."""
        name = f"{picture.name}: {what}" if picture.name else what
        address = data_uri(picture.image, self.thumbnail)
        if address is None:
            return f'<div class=blank role=img aria-label="{escape(name)}">{escape(picture.name or "no picture")}</div>'
        title = f' title="{escape(picture.name)}"' if picture.name else ""
        return f'<img loading=lazy src="{address}" alt="{escape(name)}"{title}>'


def escape(text: str) -> str:
    """Escape text for a page, whatever bytes the names in it hold."""
    return html_escape(printable(text))


def _chip(text: str, right: bool, score: float | None = None) -> str:
    title = "" if score is None else f' title="score {score:.2f}"'
    return f'<span class="tag{" right" * right}"{title}>{escape(text)}</span>'


def _table(header: Sequence[str], rows: Sequence[Sequence[Cell]], caption: str) -> str:
    head = "".join(f"<th scope=col>{escape(cell)}</th>" for cell in header)
    body = "".join(
        f"<tr><th scope=row>{_inside(row[0])}</th>"
        + "".join(f"<td{f' class={cell.mark}' if cell.mark else ''}>{_inside(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    named = f"<caption>{escape(caption)}</caption>" if caption else ""
    label = escape(caption or " by ".join((", ".join(header[1:]), header[0])))
    table = f"<table>{named}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div class=scroll role=region tabindex=0 aria-label="{label}">{table}</div>'


def _inside(cell: Cell) -> str:
    return escape(cell.text) + (f"<small>{escape(cell.note)}</small>" if cell.note else "")
