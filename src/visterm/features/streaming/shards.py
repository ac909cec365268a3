"""The shards of a features folder one by one: checked and read when they are needed, and never kept."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import EncoderMismatchError
from visterm.core.types import Matrix, Skipped
from visterm.data.feature_shards import read_named_rows, read_shard_index, read_shard_rows, shard_row_bytes
from visterm.encoders.contract import AnyEncoder
from visterm.features.remote_folder import feature_folder
from visterm.features.stored import finished_contents

T = TypeVar("T")


class Shards:
    """The rows of features folders as they lie; an image's position counts all rows before it.

    Several folders are read one after the other, all by the same encoder. `contents` is what the manifest says; of
    several folders that of the first that has rows, with the shards of all. `starts`, int64 (n_shards + 1,), has the
    position of each shard's first row; last the number of all rows. Raises StorageError if there is no features folder,
    or its job was never finished; EncoderMismatchError if the folders are of different encoders.
    """

    def __init__(self, path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> None:
        paths = [path] if isinstance(path, str | os.PathLike) else list(path)
        self._folders = [feature_folder(one) for one in paths]
        each = list(map(finished_contents, self._folders))
        for folder, contents in zip(self._folders, each, strict=True):
            if contents.fingerprint != each[0].fingerprint:
                raise EncoderMismatchError(
                    f"{self._folders[0].path} has features of '{each[0].encoder}' with the fingerprint "
                    f"{each[0].fingerprint}, and {folder.path} of '{contents.encoder}' with {contents.fingerprint}: "
                    "their rows do not go together. Encode all with one encoder: visterm encode IMAGES --encoder RUN "
                    "-o FEATURES takes that of a run."
                )
        self._of = [folder for folder, contents in zip(self._folders, each, strict=True) for _ in contents.shards]
        known = next((contents for contents in each if contents.n_rows), each[0])
        self.contents = replace(known, shards=[entry for contents in each for entry in contents.shards])
        self.starts: NDArray[np.int64] = np.cumsum([0, *(entry.rows for entry in self.contents.shards)], dtype=np.int64)

    def __len__(self) -> int:
        return len(self.contents.shards)

    @property
    def n_rows(self) -> int:
        """Images with a row."""
        return int(self.starts[-1])

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """Bytes of the rows of each shard in memory; shape (n_shards,)."""
        if self.contents.layout == "dense":
            return np.diff(self.starts) * 4 * self.contents.width
        sizes = [
            shard_row_bytes(folder.source(entry), self.contents.width)
            for folder, entry in zip(self._of, self.contents.shards, strict=True)
        ]
        return np.array(sizes, np.int64)

    def check(self, number: int) -> None:
        """Refuse a shard that was changed since it was written. Raises CorruptFileError if it was, or is missing."""
        self._of[number].check(self.contents.shards[number])

    def place(self, number: int) -> str:
        """Return the features folder of a shard."""
        return os.fspath(self._of[number].path)

    @property
    def n_folders(self) -> int:
        """Features folders."""
        return len(self._folders)

    def names(self, number: int) -> list[str]:
        """Read the paths of a shard's images inside the image folder."""
        return read_shard_index(self._of[number].source(self.contents.shards[number]))[0]

    def rows(self, number: int) -> Matrix:
        """Read the rows of a shard."""
        return read_shard_rows(self._of[number].local(self.contents.shards[number]))

    def named_rows(self, number: int) -> tuple[list[str], Matrix]:
        """Read the paths of a shard's images inside the image folder, and their rows."""
        return read_named_rows(self._of[number].local(self.contents.shards[number]))

    @property
    def fingerprint(self) -> str:
        """Return the fingerprint of the encoder that made the rows."""
        return self.contents.fingerprint

    @property
    def requested(self) -> str:
        """Return the fingerprint of the encoder that was requested, before it learned."""
        return self.contents.asked

    def encoder(self, n_jobs: int | None) -> AnyEncoder:
        """Return the encoder that made the rows, to be used with `n_jobs` threads."""
        return self._folders[0].load_encoder(n_jobs)[0]

    def skipped(self) -> list[Skipped]:
        """Read the list of images that have no row."""
        return [item for folder in self._folders for item in folder.skipped()]


def read_ahead(read: Callable[[int], T], n_parts: int) -> Generator[T]:
    """Yield ``read(0)`` .. ``read(n_parts - 1)``; an error of a part is raised when its turn comes."""
    with ThreadPoolExecutor(1, thread_name_prefix="visterm-reads") as reader:
        coming: list[Future[T]] = [reader.submit(read, 0)] if n_parts else []
        for number in range(n_parts):
            part = coming.pop().result()
            if number + 1 < n_parts:
                coming.append(reader.submit(read, number + 1))
            yield part
