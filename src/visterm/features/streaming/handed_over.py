"""What a streamed fit has prepared, left in its folder for workers in other processes: windows, rows to stop by."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from visterm.core.jsonlines import json_text
from visterm.core.remote import as_path
from visterm.features.streaming.checkpoints import FileCheckpoints
from visterm.features.streaming.joining import JoinedTags
from visterm.features.streaming.mapped_rows import read_matrix, write_matrix
from visterm.features.streaming.shards import Shards
from visterm.features.streaming.survey import Survey
from visterm.features.streaming.tag_rows import TagRows
from visterm.features.streaming.windows import RowCopy, ShardWindows

FACTS, HELD_OUT = "handed_over.json", "held_out.npy"


class HandedOver(NamedTuple):
    """A fit that is ready to be trained, in a folder that all workers see.

    Attributes
    ----------
    folder : Path
    features : list of str
        The features folders, absolute: workers may be elsewhere.
    of : str
        What the checkpoints are of, see `FileCheckpoints`.
    every : float
        Seconds between checkpoints.
    """

    folder: Path
    features: list[str]
    of: str
    every: float


class Part(NamedTuple):
    """What one worker trains on, and stops by; and the checkpoints, which all go on from and the first one writes."""

    windows: ShardWindows
    valid: tuple[Any, Any] | None
    checkpoints: FileCheckpoints


def hand_over(
    folder: Path,
    features: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    tags: JoinedTags,
    found: Survey,
    *,
    window: int,
    seed: int,
    copied: bool,
    of: str,
    every: float,
) -> HandedOver:
    """Write down, beside the tags, what workers need beyond them.

    Parameters
    ----------
    folder : Path
        That of the tags, and of the copy of the rows where there is one.
    features : path-like, or several
    tags : JoinedTags
    found : Survey
    window, seed
        See `ShardWindows`.
    copied : bool
        Whether the folder has a `RowCopy`.
    of, every
        See `FileCheckpoints`.
    """
    tags.save_columns(folder)
    facts = {
        "learned": tags.learned, "tags": tags.n_tags, "pairs": found.n_pairs, "mean_length": found.mean_length,
        "window": window, "seed": seed, "copied": copied,
    }  # fmt: skip
    (folder / FACTS).write_text(json_text(facts), encoding="utf-8")
    np.save(folder / HELD_OUT, found.held_out)
    for old in folder.glob("valid.*"):
        old.unlink()
    for name, matrix in zip(("valid.X", "valid.Y"), found.valid or (), strict=False):
        write_matrix(folder, name, matrix)
    several = [features] if isinstance(features, str | os.PathLike) else features
    return HandedOver(folder, [os.fspath(as_path(one).absolute()) for one in several], of, every)


def take_part(handed: HandedOver, rank: int, n_workers: int) -> Part:
    """Open the part of one of `n_workers` workers."""
    folder = handed.folder
    facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
    shards = Shards(handed.features)
    X = read_matrix(folder, "valid.X")
    valid = None if X is None else (X, read_matrix(folder, "valid.Y"))
    windows = ShardWindows(
        shards,
        TagRows.opened(folder, facts["learned"], facts["tags"]),
        held_out=np.load(folder / HELD_OUT),
        n_pairs=facts["pairs"],
        mean_length=facts["mean_length"],
        window=facts["window"],
        seed=facts["seed"],
        copy=RowCopy.written(folder, shards) if facts["copied"] else None,
        rank=rank,
        n_workers=n_workers,
    )
    return Part(windows, valid, FileCheckpoints(folder, handed.of, handed.every))
