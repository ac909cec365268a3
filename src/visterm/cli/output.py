"""What the commands print: messages on standard error, results on standard output."""

from __future__ import annotations

import codecs
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from visterm.core.wording import count_of, printable, printable_json

if TYPE_CHECKING:
    from visterm.core.types import Skipped


_WIDEST = 60
"""Characters that columns are aligned for."""


def say(message: str) -> None:
    """Tell the person something that is not a result."""
    print(printable(message), file=sys.stderr, flush=True)


def emit(value: dict[str, Any]) -> None:
    """Print one JSON object as one line, in ASCII where standard output is not UTF-8."""
    from visterm.core.jsonlines import json_text

    print(printable_json(json_text(value, ascii_only=_encoding() != "utf-8")), flush=True)


def show(line: str) -> None:
    """Print one line of a result for people, whatever the names in it hold."""
    print(printable(line).encode(_encoding(), "replace").decode(_encoding()), flush=True)


def table(rows: Sequence[Sequence[str]], header: Sequence[str]) -> None:
    """Print aligned columns; numbers to the right. A cell that is very long widens its own line alone."""
    everything = [list(header), *[list(row) for row in rows]]
    widths = [max([len(row[i]) for row in everything if len(row[i]) <= _WIDEST] or [0]) for i in range(len(header))]
    for row in everything:
        cells = [cell.rjust(w) if _numeric(cell) else cell.ljust(w) for cell, w in zip(row, widths, strict=True)]
        show("  ".join(cells).rstrip())


def exit_code(skipped: Sequence[Skipped], listed_in: Path) -> int:
    """Say what was skipped and why; 3 if anything was, else 0."""
    if not skipped:
        return 0
    reasons = Counter(item.reason.partition(":")[0] for item in skipped)
    counts = ", ".join(f"{n:,} {reason}" for reason, n in sorted(reasons.items(), key=lambda item: (-item[1], item[0])))
    say(f"Skipped {count_of(len(skipped), 'image')} ({counts}); listed in {listed_in}")
    return 3


def _encoding() -> str:
    return codecs.lookup(sys.stdout.encoding or "utf-8").name


def _numeric(cell: str) -> bool:
    try:
        float(cell.replace(",", "").rstrip("%"))
    except ValueError:
        return False
    return True
