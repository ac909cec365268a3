"""What the commands print: messages on standard error, results on standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from visterm.core.types import Skipped


def say(message: str) -> None:
    """Tell the person something that is not a result."""
    print(message, file=sys.stderr, flush=True)


def emit(value: dict[str, Any]) -> None:
    """Print one JSON object as one line."""
    print(json.dumps(value, ensure_ascii=False), flush=True)


def table(rows: Sequence[Sequence[str]], header: Sequence[str]) -> None:
    """Print aligned columns; numbers to the right."""
    everything = [list(header), *[list(row) for row in rows]]
    widths = [max(len(row[i]) for row in everything) for i in range(len(header))]
    for row in everything:
        cells = [cell.rjust(w) if _numeric(cell) else cell.ljust(w) for cell, w in zip(row, widths, strict=True)]
        print("  ".join(cells).rstrip())


def exit_code(skipped: Sequence[Skipped], listed_in: Path) -> int:
    """Say what was skipped and why; 3 if anything was, else 0."""
    if not skipped:
        return 0
    reasons = ", ".join(sorted({s.reason for s in skipped})[:3])
    noun = "image" if len(skipped) == 1 else "images"
    say(f"Skipped {len(skipped)} {noun} that could not be read ({reasons}); listed in {listed_in}")
    return 3


def write_list(path: Path, skipped: Iterable[Skipped]) -> None:
    """List skipped images in a file, one JSON object a line."""
    path.write_text("".join(json.dumps(s.as_dict(), ensure_ascii=False) + "\n" for s in skipped), encoding="utf-8")


def _numeric(cell: str) -> bool:
    try:
        float(cell.replace(",", "").rstrip("%"))
    except ValueError:
        return False
    return True
