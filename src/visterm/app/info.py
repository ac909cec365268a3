"""What a run or a catalogue holds, in a few lines."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from visterm.core.errors import StorageError
from visterm.core.persist import folder_kind, open_folder, read_json


def describe(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Give the facts of a run or a catalogue: kind, counts, encoder, model, their settings.

    Raises
    ------
    StorageError
        If neither is at `path`.
    """
    kind = folder_kind(path)
    if kind not in ("run", "catalogue"):
        raise StorageError(f"{path} is neither a run nor a catalogue of visterm. Make one with visterm fit or index.")
    folder = open_folder(path, kind)
    facts: dict[str, Any] = {"kind": kind}
    if kind == "catalogue":
        facts |= read_json(folder / "catalogue.json")
        folder = folder / "run"
    return facts | _run_facts(folder)


def _run_facts(folder: Path) -> dict[str, Any]:
    encoder, model = read_json(folder / "encoder.json"), read_json(folder / "model.json")
    facts: dict[str, Any] = read_json(folder / "facts.json")
    return facts | {
        "encoder": encoder["name"],
        "encoder settings": encoder["params"],
        "model": model["name"],
        "model settings": model["params"],
    }
