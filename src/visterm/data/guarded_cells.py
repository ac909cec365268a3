"""Cells of CSV that a spreadsheet would compute: an apostrophe before them makes them texts, and is taken off again."""

from __future__ import annotations

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a cell begins with that spreadsheets take for a formula, or look behind for one."""

GUARD = "'"


def guarded(cell: str) -> str:
    """Return a cell with an apostrophe before it if it would be computed, or if `unguarded` would take one off."""
    return GUARD + cell if cell.lstrip(GUARD).startswith(FORMULA) else cell


def unguarded(cell: str) -> str:
    """Return a cell as it was before `guarded`."""
    return cell[1:] if cell.startswith(GUARD) and cell.lstrip(GUARD).startswith(FORMULA) else cell
