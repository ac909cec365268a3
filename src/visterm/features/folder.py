"""A features folder on disk: its files, how it is changed atomically, and how an interrupted change is completed.

FEATURES
├── manifest.json     the finished contents: encoder, counts, the shards in order with their hashes
├── skipped.jsonl     the images that could not be read
├── .lock             held by the writing process, which .lock.json describes
├── encoder/          the fitted encoder
├── data/             only the shards, for other programs to read
└── .unfinished/      during a job, and after a kill: the finished shards; once all are finished, a manifest
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from visterm.core import persist
from visterm.core.errors import CorruptFileError, OutOfSpaceError, StorageError
from visterm.core.learned import HASH, Kind, Listed, Record, Sizes, Text, Whole
from visterm.core.persist import folder_kind, read_json, read_skipped, refusing, write_skipped
from visterm.core.remote import absolute, as_path, is_remote
from visterm.core.tables import ENCODERS
from visterm.core.types import Skipped
from visterm.core.wording import json_text
from visterm.core.writing import holder_note, locked, sync, write_whole, writing
from visterm.encoders.contract import AnyEncoder

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

T = TypeVar("T")

ENCODER, DATA, SKIPPED, ASKED, LOCK = "encoder", "data", "skipped.jsonl", "asked.json", ".lock"
LEASE = "lock.json"  # Replaces the lock in an object store: see `remote_folder`
_LOCKS = frozenset({LOCK, holder_note(Path(LOCK)).name})


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


class FeatureFolder:
    """The files of a features folder on this machine; for object stores see `feature_folder`.

    `kind` is the kind in its manifest, and `contents_class` a dataclass of the manifest's fields, with `shards` and
    `n_rows`; a job keeps unfinished files in the folder `unfinished`.
    """

    kind: ClassVar[str] = FEATURES
    contents_class: ClassVar[type[Any]] = Contents
    unfinished_name: ClassVar[str] = UNFINISHED
    manifest_kind: ClassVar[Record] = Record(
        {
            "images": Text(),
            "n_images": Whole(),
            "n_skipped": Whole(),
            "encoder": Text(),
            "settings": Record(),
            "asked": Text(),
            "fingerprint": Text(),
            "width": Whole(),
            "layout": Text(pattern="dense|sparse"),
            "shard_size": Whole(least=1),
            "shards": Listed(ENTRY),
        }
    )

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = as_path(path)
        self.data = self.path / DATA
        self.unfinished = self.path / self.unfinished_name

    def check_path(self) -> None:
        """Check, before any long work, that the path can be used for a features folder.

        Raises StorageError unless it is a features folder, finished or not, or is empty or missing.
        """
        if not self.is_begun():
            persist.check_target(self.path, self.kind)

    def is_begun(self) -> bool:
        """Return whether a job was killed here before it finished for the first time."""
        names = {entry.name for entry in self.path.iterdir()} if self.path.is_dir() else set()
        own_names = {ENCODER, DATA, SKIPPED, self.unfinished_name, *_LOCKS}
        return not names.isdisjoint({self.unfinished_name, LOCK}) and all(
            name in own_names or name.startswith(f".{ENCODER}.") for name in names
        )

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Create the folder, and lock it against writing by other processes; the lock ends with the process.

        Raises StorageError if another process writes into it.
        """
        self.path.mkdir(parents=True, exist_ok=True)

        def refusal(holder: str) -> StorageError:
            return StorageError(
                f"Another process is writing into {self.path} ({holder}). Wait until it is done, or use another folder."
            )

        with locked(self.path / LOCK, refusal):
            try:
                self.unfinished.mkdir(exist_ok=True)
                yield
            finally:
                other_names = {file.name for file in self.path.iterdir()} - {self.unfinished.name, *_LOCKS}
                if not other_names or persist.MANIFEST in other_names:  # else the empty folder marks it as visterm's
                    with suppress(OSError):
                        self.unfinished.rmdir()
                for name in _LOCKS:  # last, because another process may write afterwards
                    with suppress(OSError):  # Windows keeps a file that is locked
                        (self.path / name).unlink()
                if not other_names:
                    with suppress(OSError):
                        self.path.rmdir()

    def begin(self) -> None:
        """Complete an interrupted change, and create the folder for the shards of a new job."""
        self.settle()
        self.unfinished.mkdir(exist_ok=True)

    def contents(self) -> Any | None:
        """Complete an interrupted change, and read the manifest; None if no job has finished yet.

        Raises StorageError if its format is not supported, or another process is making that change; CorruptFileError
        if a file other than a shard is missing or was changed, or the manifest is broken.
        """
        if (self.unfinished / persist.MANIFEST).exists():
            with self.locked():
                self.settle()
        if not (self.path / persist.MANIFEST).exists():
            return None
        file = persist.open_folder(self.path, self.kind) / persist.MANIFEST
        with persist.refusing(file):
            facts = persist.read_json(file)
            self.manifest_kind.check(facts, Sizes())
            names = [name for name in self.contents_class.__slots__ if name != "shards"]
            shards = [ShardEntry(**entry) for entry in facts["shards"]]
            return self.contents_class(**{name: facts[name] for name in names}, shards=shards)

    def skipped(self) -> list[Skipped]:
        """Read the list of images without a row."""
        return read_skipped(self.path / SKIPPED)

    def shard_to_write(self, file: str) -> Path:
        """Return the path where a job writes a shard until all shards are finished."""
        return self.unfinished / file

    def is_written(self, entry: ShardEntry) -> bool:
        """Return whether a shard of an unfinished job exists and is unchanged."""
        file = self.shard_to_write(entry.file)
        return file.is_file() and persist.file_hash(file) == entry.sha256

    def is_intact(self, entry: ShardEntry) -> bool:
        """Return whether a shard exists and is unchanged."""
        file = self.data / entry.file
        return file.is_file() and persist.file_hash(file) == entry.sha256

    def local(self, entry: ShardEntry) -> Path:
        """Return a shard as a file on this machine; raise `CorruptFileError` if it is missing."""
        file = self.data / entry.file
        if not file.is_file():
            raise self.damaged(entry)
        return file

    source = local  # A path for reading parts of a shard; raise `CorruptFileError` if it is missing

    def read_each(self, read: Callable[[Path], T], files: Iterable[Path]) -> Iterator[T]:
        """Read files of the folder in the given order."""
        return map(read, files)

    def check(self, entry: ShardEntry) -> None:
        """Raise `CorruptFileError` if a shard is missing, or was changed since it was written."""
        if not self.is_intact(entry):
            raise self.damaged(entry)

    def damaged(self, entry: ShardEntry) -> CorruptFileError:
        """Return the error for a shard that is missing or was changed."""
        file = self.data / entry.file
        state = "was changed since it was written. Remove it, and run" if file.is_file() else "is missing. Run"
        return CorruptFileError(
            f"{file} {state} the command of visterm encode that made {self.path} again to encode these photos."
        )

    def notes(self) -> list[dict[str, Any]]:
        """Read the notes of an unfinished job on its finished shards."""
        files = (file for file in self.files_of(self.unfinished) if file.suffix == ".json")
        notes = (file for file in files if file.name not in (persist.MANIFEST, LEASE))
        return list(self.read_each(lambda file: read_checked(file, NOTE), notes))

    def has_encoder(self) -> bool:
        """Return whether a fitted encoder is saved, which is then never fitted again."""
        return persist.folder_kind(self.path / ENCODER) is not None

    def save_encoder(self, encoder: AnyEncoder, first: FirstJob) -> None:
        """Save the fitted encoder, with the request of the first job."""
        with persist.new_folder(absolute(self.path / ENCODER), ENCODER) as folder:
            persist.save_estimator(encoder, ENCODERS, folder, ENCODER)
            persist.write_json(folder / ASKED, first._asdict())

    def load_encoder(self, n_jobs: int | None) -> tuple[AnyEncoder, FirstJob]:
        """Return the fitted encoder, set to `n_jobs` threads, and the request of the first job."""
        folder = persist.open_folder(self.path / ENCODER, ENCODER)
        encoder = persist.load_estimator(ENCODERS, folder, ENCODER).set_known(n_jobs=n_jobs)
        return encoder, FirstJob(**read_checked(folder / ASKED, ASKED_KIND))

    def commit(self, contents: Any, skipped: Sequence[Skipped]) -> None:
        """Replace the contents; the shards are already in ``data`` or in ``.unfinished``.

        After a kill before the manifest is in ``.unfinished``, the old contents remain; after a later kill, `settle`
        completes the new contents.
        """
        pending = self.unfinished / SKIPPED
        write_skipped(pending, skipped)
        files = self.files_of(self.path / ENCODER)
        sums = {file.relative_to(self.path).as_posix(): persist.file_hash(file) for file in files}
        sums[SKIPPED] = persist.file_hash(pending)
        facts = {"kind": self.kind, persist.FORMAT_KEY: persist.FORMAT, "sha256": sums, "n_rows": contents.n_rows}
        facts |= asdict(contents)
        write_whole(self.unfinished / persist.MANIFEST, (json_text(facts, indent=1, sort_keys=True) + "\n").encode())
        self.settle()

    def settle(self) -> None:
        """Complete a change whose manifest is written, from any step at which it stopped; then remove old shards."""
        pending = self.unfinished / persist.MANIFEST
        if pending.exists():
            self.data.mkdir(exist_ok=True)
            for name in sorted(entry["file"] for entry in read_checked(pending, self.manifest_kind)["shards"]):
                if (self.unfinished / name).exists():
                    os.replace(self.unfinished / name, self.data / name)
            if (self.unfinished / SKIPPED).exists():
                os.replace(self.unfinished / SKIPPED, self.path / SKIPPED)
            sync(self.data)
            os.replace(pending, self.path / persist.MANIFEST)
            sync(self.path)
            shutil.rmtree(self.unfinished)
        if (self.path / persist.MANIFEST).exists():
            self._sweep()

    def _sweep(self) -> None:
        names = {entry["file"] for entry in read_checked(self.path / persist.MANIFEST, self.manifest_kind)["shards"]}
        for file in self.files_of(self.data):
            if file.name not in names:
                file.unlink()

    def files_of(self, folder: Path) -> list[Path]:
        """List the files in a sub-folder, sorted by name."""
        return sorted(folder.glob("*"))


@contextmanager
def naming_a_full_disk(path: Path) -> Iterator[None]:
    """Extend the error for a full disk with what is safe and how to continue."""
    try:
        with writing(path):
            yield
    except OutOfSpaceError as error:
        raise OutOfSpaceError(f"{error} Finished parts are safe: run the same command again to continue.") from error
