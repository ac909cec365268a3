"""One self-contained HTML page with figures, pictures, predicted tags and search results to look at."""

from __future__ import annotations

import base64
import io
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path

from PIL import Image

from visterm.core.types import Tag
from visterm.data.images import ImageLike, read_image

THUMBNAIL = 192

STYLE = files("visterm.app").joinpath("report.css").read_text(encoding="utf-8")


@dataclass
class Report:
    """A page that grows section by section; `write` puts it into one file that needs no other.

    Parameters
    ----------
    title : str
        Heading of the page.
    lead : str
        One or two sentences below it.
    """

    title: str
    lead: str
    parts: list[str] = field(default_factory=list)

    def section(self, heading: str, lead: str = "") -> None:
        """Begin a section."""
        self.parts.append(f"<h2>{escape(heading)}</h2><p class=lead>{escape(lead)}</p>")

    def legend(self, right: str, wrong: str) -> None:
        """Say what the two colours of tags mean."""
        self.parts.append(f"<p class=legend>{_chip(right, True)} {_chip(wrong, False)}</p>")

    def table(self, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Add a table of names and numbers; the largest number of each column is marked, ties all of them."""
        best = [max(float(row[column]) for row in rows) for column in range(1, len(header))]
        head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
        body = "".join(
            f"<tr><td>{escape(row[0])}</td>"
            + "".join(
                f"<td{' class=best' if float(cell) == most else ''}>{escape(cell)}</td>"
                for cell, most in zip(row[1:], best, strict=True)
            )
            + "</tr>"
            for row in rows
        )
        self.parts.append(f"<table><tr>{head}</tr>{body}</table>")

    def annotated(self, images: Sequence[tuple[ImageLike, Sequence[Tag], Collection[int], Sequence[str]]]) -> None:
        """Add pictures with (image, predicted tags, positions of the right ones, tags that people gave)."""
        cards = []
        for image, tags, right, given in images:
            chips = "".join(_chip(tag.tag, i in right, tag.score) for i, tag in enumerate(tags))
            people = f"<span class=given>people said: {escape(', '.join(given))}</span>" if given else ""
            cards.append(f"<figure>{_img(image, given)}<figcaption>{chips}{people}</figcaption></figure>")
        self.parts.append(f"<div class=grid>{''.join(cards)}</div>")

    def search(self, query: str, note: str, images: Sequence[tuple[ImageLike, bool]]) -> None:
        """Add one query with its best images, the relevant ones marked."""
        cards = "".join(
            f'<figure class="{"right" if relevant else ""}">{_img(image, ())}</figure>' for image, relevant in images
        )
        self.parts.append(f"<h3>{escape(query)} <small>{escape(note)}</small></h3><div class=row>{cards}</div>")

    def neighbours(self, items: Sequence[tuple[str, Sequence[tuple[str, float, bool]]]]) -> None:
        """Add tags with those beside them: (tag, cosine, whether it means the same)."""
        rows = (
            f"<dt>{escape(term)}</dt><dd>{''.join(_chip(tag, same, cosine) for tag, cosine, same in beside)}</dd>"
            for term, beside in items
        )
        self.parts.append(f"<dl>{''.join(rows)}</dl>")

    def write(self, path: Path) -> None:
        """Write the page."""
        path.write_text(
            f'<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content="width=device-width">'
            f"<title>{escape(self.title)}</title><style>{STYLE}</style>"
            f"<h1>{escape(self.title)}</h1><p class=lead>{escape(self.lead)}</p>{''.join(self.parts)}"
            "<footer>Written by visterm. One file, nothing is fetched from anywhere.</footer></html>\n",
            encoding="utf-8",
        )


def _chip(text: str, right: bool, score: float | None = None) -> str:
    title = "" if score is None else f' title="score {score:.2f}"'
    return f'<span class="tag{" right" * right}"{title}>{escape(text)}</span>'


def _img(image: ImageLike, given: Sequence[str]) -> str:
    pixels = Image.fromarray(read_image(image, max_side=THUMBNAIL))
    buffer = io.BytesIO()
    pixels.save(buffer, "JPEG", quality=82)
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img loading=lazy src="data:image/jpeg;base64,{data}" alt="{escape(", ".join(given) or "photo")}">'
