"""Write the pages of the site that are made from the code, before Sphinx looks for pages."""

import re
from pathlib import Path
from typing import Any

from command_pages import command_pages
from http_page import http_page
from python_page import python_page

GENERATED = Path(__file__).resolve().parents[1] / "generated"
MANY_COLUMNS = 8
UNBROKEN = re.compile(r"(?<=\d) (?=(?:%|MB|GB|[mµ]?s|h)(?:\W|$))|(?<=[<=≤]) (?=[\d.])|(?<=[\d%]) (?=/ )")
"""Spaces of table cells at which no line should end: before units, after signs, and before the slash of a pair."""


def write_pages(*_: object) -> None:
    """Write each page that is new or has changed, and remove those of commands that are gone."""
    pages = {
        **{f"{name}.md": text for name, text in command_pages().items()},
        "http.md": http_page(),
        "python.md": python_page(),
    }
    for old in GENERATED.glob("commands/*.md"):
        if f"commands/{old.name}" not in pages:
            old.unlink()
    for name, text in pages.items():
        path = GENERATED / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def link_gallery(app: Any, page: str, source: list[str]) -> None:
    """Let the link to the examples lead to the gallery of the site; in the repository it leads to their folder."""
    source[0] = source[0].replace("](examples/README.txt)", "](docs/generated/gallery/index.rst)")


def unbroken(text: str) -> str:
    """Return the text of a table cell, whose lines end between figures and not before units or within "< 0.01"."""
    return re.sub(r"(?<=\de)-(?=\d)", "-\N{WORD JOINER}", UNBROKEN.sub("\N{NO-BREAK SPACE}", text))


def fit_tables(_: Any, page: Any) -> None:
    """Keep each figure of a table on one line, with its unit, and mark tables with many columns for `site.css`."""
    for cell in page.findall(lambda node: node.tagname == "entry"):
        for text in list(cell.findall(lambda node: node.tagname == "#text")):
            text.parent.replace(text, type(text)(unbroken(text)))
    for columns in page.findall(lambda node: node.tagname == "tgroup"):
        if columns["cols"] >= MANY_COLUMNS:
            columns.parent["classes"].append("many-columns")


def setup(app: Any) -> dict[str, bool]:
    """Write the pages when Sphinx has read its settings; then it looks for pages, and autosummary reads them."""
    app.connect("config-inited", write_pages)
    app.connect("source-read", link_gallery)
    app.connect("doctree-read", fit_tables)
    return {"parallel_read_safe": True}
