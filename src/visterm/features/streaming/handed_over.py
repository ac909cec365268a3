"""What a streamed fit leaves in its folder: checkpoints, and what workers in other processes train on and stop by."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from safetensors import safe_open

from visterm.core.jsonlines import json_text
from visterm.core.persist import save_arrays
from visterm.core.remote import as_path
from visterm.core.writing import whole_file
from visterm.features.streaming.joining import JoinedTags
from visterm.features.streaming.shards import Shards
from visterm.features.streaming.survey import Survey
from visterm.features.streaming.tag_rows import TagRows
from visterm.features.streaming.windows import RowCopy, ShardWindows
from visterm.models.ranking.streamed_fit import Checkpoint

HANDED_OVER, HELD_OUT = "handed_over.json", "held_out.npy"

EVERY = 20.0  # Seconds between checkpoints, at least, and 20 times as long as one takes
CHECKPOINT = "checkpoint.safetensors"
OF, FACTS = "of", "facts"
CSR = ("data", "indices", "indptr", "shape")


class HandedOver(NamedTuple):
    """A fit that is ready to be trained, in a folder that all workers see."""

    folder: Path
    features: list[str]  # The features folders, absolute: workers may be elsewhere
    of: str  # What the checkpoints are of, see `FileCheckpoints`
    every: float  # Seconds between checkpoints


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

    `copied` says whether the folder has a `RowCopy`. For `window` and `seed` see `ShardWindows`, for `of` and `every`
    see `FileCheckpoints`.
    """
    tags.save_columns(folder)
    facts = {
        "learned": tags.learned, "tags": tags.n_tags, "pairs": found.n_pairs, "mean_length": found.mean_length,
        "window": window, "seed": seed, "copied": copied,
    }  # fmt: skip
    (folder / HANDED_OVER).write_text(json_text(facts), encoding="utf-8")
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
    facts = json.loads((folder / HANDED_OVER).read_text(encoding="utf-8"))
    shards = Shards(handed.features)
    X = read_matrix(folder, "valid.X")
    valid = None if X is None else (X, read_matrix(folder, "valid.Y"))
    windows = ShardWindows(
        shards, TagRows.opened(folder, facts["learned"], facts["tags"]), held_out=np.load(folder / HELD_OUT),
        n_pairs=facts["pairs"], mean_length=facts["mean_length"], window=facts["window"], seed=facts["seed"],
        copy=RowCopy.written(folder, shards) if facts["copied"] else None, rank=rank, n_workers=n_workers,
    )  # fmt: skip
    return Part(windows, valid, FileCheckpoints(folder, handed.of, handed.every))


class FileCheckpoints:
    """Keeps the last checkpoint in a folder, at least `every` seconds after the one before; 0 keeps each.

    `of` names the data, the settings and the windows: checkpoints of others are ignored. `went_on` says whether `last`
    found one.
    """

    def __init__(self, folder: Path, of: str, every: float = EVERY) -> None:
        self._file, self._of, self._every = folder / CHECKPOINT, of, every
        self._next = time.monotonic() + every
        self.went_on = False

    def last(self) -> Checkpoint | None:
        """Return the last checkpoint; None if there is none of the same data and settings."""
        if not self._file.exists():
            return None
        with safe_open(self._file, framework="numpy") as file:
            metadata = file.metadata() or {}
            if metadata.get(OF) != self._of:
                return None
            self.went_on = True
            return Checkpoint(json.loads(metadata[FACTS]), {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118

    def there(self) -> bool:
        """Return whether there is a checkpoint of the same data and settings."""
        if not self._file.exists():
            return False
        with safe_open(self._file, framework="numpy") as file:
            return bool((file.metadata() or {}).get(OF) == self._of)

    def offer(self, make: Callable[[], Checkpoint]) -> None:
        """Write a checkpoint if enough time has passed."""
        if time.monotonic() >= self._next:
            self.keep(make)

    def keep(self, make: Callable[[], Checkpoint]) -> None:
        """Write a checkpoint now; after a kill the one before is still whole."""
        began = time.monotonic()
        made = make()
        with whole_file(self._file) as temporary:
            save_arrays(temporary, made.arrays, {OF: self._of, FACTS: json.dumps(made.facts)})
        done = time.monotonic()
        self._next = done + max(self._every, 20 * (done - began) if self._every else 0.0)


def write_matrix(folder: Path, name: str, matrix: Any) -> None:
    """Write a matrix, dense or CSR, for processes to map: it is there once a machine, however many read it."""
    if not sp.issparse(matrix):
        np.save(folder / f"{name}.npy", np.asarray(matrix))
        return
    csr = sp.csr_array(matrix)
    for part in CSR:
        np.save(folder / f"{name}.{part}.npy", np.asarray(getattr(csr, part)))


def read_matrix(folder: Path, name: str) -> Any:
    """Map a matrix into memory, to be read only; None where nothing was written under that name."""
    if (folder / f"{name}.npy").exists():
        return np.load(folder / f"{name}.npy", mmap_mode="r")
    if not (folder / f"{name}.shape.npy").exists():
        return None
    data, indices, indptr, shape = (np.load(folder / f"{name}.{part}.npy", mmap_mode="r") for part in CSR)
    return sp.csr_array((data, indices, indptr), shape=tuple(int(size) for size in shape))
