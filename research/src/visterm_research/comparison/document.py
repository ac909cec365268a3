"""A report in Markdown that grows section by section, and the same tables as data for results.json."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

_FIGURE = re.compile(r"[+-]?[\d,]*\.?\d+(e[+-]?\d+)?( ?%| s| h)?( \(.*\))?")
"""A number with its unit and a note: such columns are set to the right."""


@dataclass
class Document:
    """Headings, paragraphs, tables and pictures.

    Attributes
    ----------
    title : str
    parts : list of str
        Blocks of Markdown.
    tables : list of dict
        Each table with its ``caption``, ``header`` and ``rows``.
    """

    title: str = ""
    parts: list[str] = field(default_factory=list)
    tables: list[dict[str, Any]] = field(default_factory=list)

    def section(self, heading: str, *texts: str) -> None:
        """Begin a section with paragraphs."""
        self.parts.append(f"## {heading}")
        self.parts.extend(text for text in texts if text)

    @contextmanager
    def section_if_filled(self, heading: str, *texts: str) -> Iterator[None]:
        """Begin a section with paragraphs, and leave it out again where nothing follows them."""
        before = len(self.parts)
        self.section(heading, *texts)
        begun = len(self.parts)
        yield
        if len(self.parts) == begun:
            del self.parts[before:]

    def text(self, text: str) -> None:
        """Add a paragraph."""
        self.parts.append(text)

    def items(self, texts: Sequence[str]) -> None:
        """Add a list."""
        if texts:
            self.parts.append("\n".join(f"* {text}" for text in texts))

    def table(self, caption: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Add a table under its caption; all columns but the first two are of figures if their cells are."""
        if not rows:
            return
        numeric = [all(_is_figure(row[i]) for row in rows) for i in range(len(header))]
        rule = " | ".join("---:" if right else "---" for right in numeric)
        lines = [" | ".join(map(_cell, header)), rule, *(" | ".join(map(_cell, row)) for row in rows)]
        self.parts.append(f"**{caption}**")
        self.parts.append("\n".join(f"| {line} |" for line in lines))
        self.tables.append({"caption": caption, "header": list(header), "rows": [list(row) for row in rows]})

    def picture(self, path: str, caption: str) -> None:
        """Add a picture by its path beside the report."""
        self.parts.append(f"![{caption}]({path})\n\n*{caption}*")

    def extend(self, other: Document) -> None:
        """Add the parts and tables of another document, without its title."""
        self.parts.extend(other.parts)
        self.tables.extend(other.tables)

    def render(self) -> str:
        """Return the whole text."""
        return "\n\n".join([f"# {self.title}", *self.parts]) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ") or " "


def _is_figure(cell: str) -> bool:
    return cell in ("", "–") or _FIGURE.fullmatch(cell) is not None
