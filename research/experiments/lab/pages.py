"""Tables of figures in Markdown, and pages that keep them between two marks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows]) + "\n"


def volume(n: float) -> str:
    """Return bytes as people say them."""
    size, unit = next(
        (size, unit) for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")) if n >= size or unit == "MB"
    )
    return f"{n / size:,.{1 if unit != 'MB' else 0}f} {unit}"


def told(value: Any) -> str:
    """Return a number to three figures."""
    return (
        value if isinstance(value, str) else "-" if value == 0 else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    )


def written(page: str, tables: dict[str, str]) -> str:
    """Put fresh tables into a page, each between ``<!-- table: NAME -->`` and ``<!-- end -->``."""
    for name, fresh in tables.items():
        head, begin, rest = page.partition(f"<!-- table: {name} -->\n")
        if begin:
            page = f"{head}{begin}{fresh}<!-- end -->{rest.partition('<!-- end -->')[2]}"
    return page
