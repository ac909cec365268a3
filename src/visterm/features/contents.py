"""What a features folder holds, as its JSON files say it: counts and shards, and where shards end."""

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

FEATURES = "features folder"  # The kind in the manifest
UNFINISHED = ".unfinished"  # What a job keeps its shards in until all are done
ENTRY = Record({"file": Text(pattern=r"[^/\x00.][^/\x00]*"), "rows": Whole(), "sha256": Text(pattern=HASH)})
NOTE = Record(  # Of a shard or a part that is done
    {
        "entry": Record(ENTRY.fields, or_none=True),
        "width": Whole(required=False),
        "layout": Text(pattern="dense|sparse|", required=False),
        "skipped": Listed(Record({"image": Text(), "reason": Text()})),
    }
)
ASKED_KIND = Record({"fingerprint": Text(), "shard_size": Whole(least=1)})
"""What the JSON files of a folder can hold, whoever wrote them: a shard's file lies in the folder."""


class FirstJob(NamedTuple):
    """What the first job in a folder requested: the encoder's fingerprint before it learned, images in a shard."""

    fingerprint: str
    shard_size: int


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """One shard: the file inside ``data``, its rows and the SHA-256 of its bytes."""

    file: str
    rows: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Contents:
    """What a features folder holds."""

    images: str  # The image folder, in full
    # Image files in it, and those that could not be read; all others have a row
    n_images: int
    n_skipped: int
    encoder: str  # Registered name
    settings: dict[str, object]  # Parameters of the encoder
    asked: str  # Fingerprint of the encoder that was requested, before it learned: tells another one apart
    fingerprint: str  # Of the fitted encoder: of the rows
    width: int  # Numbers in a row; 0 where there is no row
    layout: str  # {"dense", "sparse"}
    shard_size: int  # Images in a shard, about
    shards: list[ShardEntry]  # In the order of the names

    @property
    def n_rows(self) -> int:
        """Images that have a row."""
        return sum(shard.rows for shard in self.shards)


def is_features(images: object) -> bool:
    """Return whether `images` is a features folder, whole or begun, in place of the images themselves."""
    if not isinstance(images, str | os.PathLike):
        return False
    if folder_kind(images) == FEATURES:
        return True
    begun = as_path(images) / UNFINISHED
    return begun.is_dir() if is_remote(begun) else os.path.isdir(begun)


def read_checked(file: Path, kind: Kind) -> dict[str, Any]:
    """Read a JSON file that holds what `kind` says. Raises CorruptFileError if it is damaged."""
    with refusing(file):
        value: dict[str, Any] = read_json(file)
        kind.check(value, Sizes())
    return value


def cut(names: Sequence[str], size: int) -> list[range]:
    """Part a sorted list of names into shards of about `size`; return the positions of each.

    From its ``size // 2``-th name on, a shard ends after a name whose hash falls into the first of as many classes as
    give shards `size` names on average; none has more than ``2 · size``, and the last may be shorter. Cut by number
    instead, a photo that comes first would move all those after it by one.
    """
    least = max(1, size // 2)
    classes = size - least + 1
    shards, start = [], 0
    for position, name in enumerate(names, start=1):
        n_names = position - start
        digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest()
        if (n_names >= least and int.from_bytes(digest[:8], "big") % classes == 0) or n_names >= 2 * size:
            shards.append(range(start, position))
            start = position
    if start < len(names):
        shards.append(range(start, len(names)))
    return shards


def name_hashes(names: Iterable[str]) -> NDArray[np.uint64]:
    """Return 8 bytes of each name, that tell them apart."""
    digests = [hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest() for name in names]
    return np.frombuffer(b"".join(digests), np.uint64)
