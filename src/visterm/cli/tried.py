"""The models that `auto` tried, as a short table: what each reached, what it weighs, and why."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from visterm.cli.output import table

HEADER = ("model", "seconds", "MAP", "word MAP", "weight", "why")


def show_tried(report: Sequence[dict[str, Any]]) -> None:
    """Print the table; what was not measured is a dash. Blocks are shown where there are any."""
    rows, header = [_row(entry) for entry in report], list(HEADER)
    if any(entry.get("block") for entry in report):
        header.insert(1, "features")
        rows = [[row[0], _features(entry), *row[1:]] for row, entry in zip(rows, report, strict=True)]
    table(rows, header)


def _row(entry: dict[str, Any]) -> list[str]:
    settings = ", ".join(f"{name}={value}" for name, value in entry["settings"].items())
    return [
        f"{entry['model']}({settings})" if settings else entry["model"],
        _number(entry["seconds"], ".1f"),
        _number(entry["map"], ".3f"),
        _number(entry["word_map"], ".3f"),
        _number(entry["weight"], ".2f"),
        entry["reason"],
    ]


def _features(entry: dict[str, Any]) -> str:
    block = entry.get("block")
    return "all" if block is None else f"{entry['encoder']} ({block})" if "encoder" in entry else f"block {block}"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)
