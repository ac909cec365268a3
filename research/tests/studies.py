"""Run a paper's comparison as the command does."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from visterm_research.comparison.run import Options, Outcome, reproduce


def run_study(name: str, out: Path, **options: Any) -> Outcome:
    """Run the comparison of the folder `name`; options are those of the command."""
    return reproduce(import_module(f"visterm_research.{name}.study").STUDY, out, Options(**options))


def tables_of(outcome: Outcome) -> dict[str, list[list[str]]]:
    """Return the rows of each table of results.json, by caption."""
    parts = json.loads((outcome.report.parent / "results.json").read_text())["parts"]
    return {part["caption"]: part["rows"] for part in parts if isinstance(part, dict)}
