"""Which folders are features folders, whole or begun."""

from __future__ import annotations

import os

from visterm.core.persist import folder_kind
from visterm.core.remote import as_path

FEATURES = "features folder"
"""The kind in the manifest."""

UNFINISHED = ".unfinished"
"""What a job keeps its shards in until all are done."""


def is_features(images: object) -> bool:
    """Return whether images are meant by the features folder that has their rows, or shall have them."""
    if not isinstance(images, str | os.PathLike):
        return False
    return folder_kind(images) == FEATURES or (as_path(images) / UNFINISHED).is_dir()
