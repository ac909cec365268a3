"""The folders that a catalogue was made of: where to look for new photos."""

from __future__ import annotations

import os

from visterm.core.remote import is_remote
from visterm.store.catalogue import StoredCatalogue

LOOKED_AT = 1000
"""Entries of the history that are looked at, newest first."""


def indexed_folders(stored: StoredCatalogue) -> list[str]:
    """Return the folders that `visterm index` was told of; where none is known, the topmost that hold images."""
    told = [event.details.get("folder") for event in stored.history.latest(LOOKED_AT) if event.what == "index"]
    folders = sorted({folder for folder in told if folder})
    if not folders:
        found = stored.database.rows(
            "SELECT DISTINCT folder FROM images WHERE state = 'here' AND path IS NOT NULL ORDER BY folder"
        )
        folders = [folder for (folder,) in found]
    return [folder for folder in folders if not any(_inside(folder, other) for other in folders)]


def stays_inside(stored: StoredCatalogue, path: str) -> bool:
    """Return whether a file of the catalogue is no link, or a link that stays inside the indexed folders.

    Paths are kept with links followed, so that one that is a link now was put there since.
    """
    if is_remote(path):
        return True
    real = os.path.realpath(path)
    return real == path or any(_inside(real, os.path.realpath(folder)) for folder in indexed_folders(stored))


def _inside(folder: str, other: str) -> bool:
    return folder != other and folder.startswith(other.rstrip("/") + "/")
