"""The contents of a features folder according to its JSON files, and how images are divided into shards."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from visterm.core.learned import HASH, Kind, Listed, Record, Sizes, Text, Whole
from visterm.core.persist import folder_kind, read_json, refusing
from visterm.core.remote import as_path, is_remote

FEATURES = "features folder"  # Value of `kind` in the manifest
UNFINISHED = ".unfinished"  # Folder for the shards of an unfinished job
ENTRY = Record({"file": Text(pattern=r"[^/\x00.][^/\x00]*"), "rows": Whole(), "sha256": Text(pattern=HASH)})
NOTE = Record(  # The note on a finished shard or part
    {
        "entry": Record(ENTRY.fields, or_none=True),
        "width": Whole(required=False),
        "layout": Text(pattern="dense|sparse|", required=False),
        "skipped": Listed(Record({"image": Text(), "reason": Text()})),
    }
)
ASKED_KIND = Record({"fingerprint": Text(), "shard_size": Whole(least=1)})
"""Schemas of the JSON files, which are untrusted: the file of a shard must be inside the folder."""


class FirstJob(NamedTuple):
    """The request of the first job in a folder: the fingerprint of the unfitted encoder, and the images per shard."""

    fingerprint: str
    shard_size: int


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """One shard: its file in ``data``, the number of rows, and the SHA-256 of its bytes."""

    file: str
    rows: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a features folder, from its manifest."""

    images: str  # Absolute path of the image folder
    # Numbers of image files, and of unreadable image files; all other files have a row
    n_images: int
    n_skipped: int
    encoder: str  # Registered name of the encoder
    settings: dict[str, object]  # Parameters of the encoder
    asked: str  # Fingerprint of the requested encoder before it was fitted, to detect requests for another encoder
    fingerprint: str  # Fingerprint of the fitted encoder that made the rows
    width: int  # Numbers in a row; 0 if there are no rows
    layout: str  # {"dense", "sparse"}
    shard_size: int  # Approximate number of images per shard
    shards: list[ShardEntry]  # In the order of the images' names

    @property
    def n_rows(self) -> int:
        """Number of images with a row."""
        return sum(shard.rows for shard in self.shards)


def is_features(images: object) -> bool:
    """Return whether `images` is the path of a features folder, finished or not, instead of images."""
    if not isinstance(images, str | os.PathLike):
        return False
    if folder_kind(images) == FEATURES:
        return True
    begun = as_path(images) / UNFINISHED
    return begun.is_dir() if is_remote(begun) else os.path.isdir(begun)


def read_checked(file: Path, kind: Kind) -> dict[str, Any]:
    """Read a JSON file that must match `kind`. Raises CorruptFileError if it is damaged."""
    with refusing(file):
        value: dict[str, Any] = read_json(file)
        kind.check(value, Sizes())
    return value


def cut(names: Sequence[str], size: int) -> list[range]:
    """Divide a sorted list of names into shards of about `size` names; return the positions of each shard.

    After at least ``size // 2`` names, a shard ends at a name whose hash is in the first of several classes, whose
    number makes the average size `size`. Shards have at most ``2 · size`` names, and the last may be shorter. With
    shards of equal size instead, a new first photo would shift the content of all shards.
    """
    min_size = max(1, size // 2)
    n_classes = size - min_size + 1
    shards, start = [], 0
    for position, name in enumerate(names, start=1):
        n_names = position - start
        digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest()
        if (n_names >= min_size and int.from_bytes(digest[:8], "big") % n_classes == 0) or n_names >= 2 * size:
            shards.append(range(start, position))
            start = position
    if start < len(names):
        shards.append(range(start, len(names)))
    return shards


def name_hashes(names: Iterable[str]) -> NDArray[np.uint64]:
    """Return a hash of 8 bytes for each name."""
    digests = [hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest() for name in names]
    return np.frombuffer(b"".join(digests), np.uint64)
