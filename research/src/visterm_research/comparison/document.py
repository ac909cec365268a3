"""A document that grows section by section: blocks that results.json keeps, and the Markdown that they make."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

_FIGURE = re.compile(r"[+-]?[\d,]*\.?\d+(e[+-]?\d+)?( ?%| s| h)?( \(.*\))?")
"""A number with its unit and a note: such columns are set to the right."""


Block = str | Mapping[str, Any]


@dataclass
class Document:
    """Headings, paragraphs, tables and pictures.

    Attributes
    ----------
    title : str
    parts : list of str or dict
        Blocks of Markdown, and tables: each with its ``caption``, ``header`` and ``rows``.
    """

    title: str = ""
    parts: list[Block] = field(default_factory=list)

    @property
    def tables(self) -> list[Mapping[str, Any]]:
        """Those of the parts that are tables."""
        return [part for part in self.parts if not isinstance(part, str)]

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
        """Add a table under its caption, unless it has no rows."""
        if rows:
            self.parts.append({"caption": caption, "header": list(header), "rows": [list(row) for row in rows]})

    def picture(self, path: str, caption: str) -> None:
        """Add a picture by its path beside the report."""
        self.parts.append(f"![{caption}]({path})\n\n*{caption}*")

    def render(self) -> str:
        """Return the whole text."""
        blocks = (block if isinstance(block, str) else _table(block) for block in self.parts)
        return "\n\n".join([f"# {self.title}", *blocks]) + "\n"


def _table(table: Mapping[str, Any]) -> str:
    """Write a table under its caption; columns of figures are set to the right."""
    header, rows = table["header"], table["rows"]
    numeric = [all(_is_figure(row[i]) for row in rows) for i in range(len(header))]
    rule = " | ".join("---:" if right else "---" for right in numeric)
    lines = [" | ".join(map(_cell, header)), rule, *(" | ".join(map(_cell, row)) for row in rows)]
    return "\n\n".join((f"**{table['caption']}**", "\n".join(f"| {line} |" for line in lines)))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ") or " "


def _is_figure(cell: str) -> bool:
    return cell in ("", "–") or _FIGURE.fullmatch(cell) is not None
