"""The folder of a reproduction: begun, or taken up where it was left, and never written over another paper's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from visterm.core.errors import StorageError
from visterm.core.packing import jsonable
from visterm.core.writing import write_whole
from visterm_research.comparison.looks import LOG

DESCRIPTION = "reproduction.json"
"""Written first: whose comparison the folder holds."""

OWN = {"data", "figures", "results", "report.md", "results.json", LOG}
"""All that a reproduction from before there was a description can hold."""


def begin_folder(out: Path, paper: str) -> None:
    """Make the folder of a reproduction, or take up an earlier one, and write down whose comparison it is.

    Raises
    ------
    StorageError
        If other things lie there, or the comparison of another paper, or the place cannot be written.
    """
    try:
        names = [path.name for path in out.iterdir() if not path.name.startswith(".")] if out.exists() else []
    except OSError as error:
        raise StorageError(f"{out} cannot be read as a folder: {error.strerror}. Choose another name.") from error
    if DESCRIPTION not in names and not OWN.issuperset(names):
        raise StorageError(
            f"{out} exists and is not a reproduction of visterm (it holds {min(set(names) - OWN)}), so nothing is "
            "written into it. Choose another name, or an empty folder."
        )
    found = _paper_of(out / DESCRIPTION) or _paper_of(out / "results.json")
    if (found or paper) != paper:
        raise StorageError(f"{out} holds the comparison of another paper ({found}). Choose another name.")
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / DESCRIPTION, {"paper": paper})
    except OSError as error:
        raise StorageError(f"{out} cannot be written: {error.strerror}. Choose another.") from error


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file, whole or not at all."""
    write_whole(path, (json.dumps(jsonable(content), indent=1, ensure_ascii=False) + "\n").encode("utf-8"))


def _paper_of(path: Path) -> str | None:
    """Read from a description, or from results, whose comparison it is; None where there is no file."""
    if not path.is_file():
        return None
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["paper"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(
            f"{path} was not written by this command, so nothing is written beside it. Choose another name."
        ) from error
