"""Folders of what was drawn: written whole or not at all, with a mark that says what they are, and tables in CSV."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from visterm.core.errors import StorageError
from visterm.core.persist import whole_folder

MARK = "drawn.json"
SPLITS = ("train", "valid", "test")
_TENTHS = ("train", "train", "test", "train", "train", "valid", "train", "test", "train", "train")


def split_of(index: int) -> str:
    """Return the split of a scene by its number: of every ten, seven train, one valid, two test."""
    return _TENTHS[(index + index // 10) % 10]


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Write a table with its header; the same bytes on every system."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(rows)


def write_mark(folder: Path, kind: str, settings: dict[str, object]) -> None:
    """Write what a folder is and how it was made."""
    how = {"kind": kind, **settings}
    (folder / MARK).write_text(json.dumps(how, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def is_drawn(folder: Path, kind: str) -> bool:
    """Return whether a folder is marked as of this kind."""
    try:
        how = json.loads((folder / MARK).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(how, dict) and how.get("kind") == kind


@contextmanager
def drawn_folder(target: Path, kind: str) -> Iterator[Path]:
    """Write a folder of this kind in one step, in place of one of the same kind (`write_mark`).

    Raises
    ------
    StorageError
        If something else than an empty folder or one of this kind lies at `target`.
    """
    if target.exists() and not is_drawn(target, kind) and not (target.is_dir() and not any(target.iterdir())):
        raise StorageError(f"{target} exists and is not a {kind}, so it is not replaced. Choose another folder.")
    with whole_folder(target) as temporary:
        yield temporary
