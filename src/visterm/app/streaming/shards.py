"""The shards of a features folder one by one: checked and read when they are asked for, and never kept."""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.app.features.remote_folder import feature_folder
from visterm.app.features.stored import finished_contents
from visterm.core.types import Matrix, Skipped
from visterm.data.feature_shards import read_named_rows, read_shard_index, read_shard_rows, shard_row_bytes


class Shards:
    """The rows of a features folder as they lie; an image's position counts all rows before it.

    Parameters
    ----------
    path : path-like
        What `visterm encode` wrote.

    Attributes
    ----------
    contents : Contents
        What the manifest says.
    starts : ndarray of int64, shape (n_shards + 1,)
        Position of each shard's first row; last the number of all rows.

    Raises
    ------
    StorageError
        If there is no features folder, or its job was never finished.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._folder = feature_folder(path)
        self.contents = finished_contents(self._folder)
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
        sizes = [shard_row_bytes(self._folder.source(entry), self.contents.width) for entry in self.contents.shards]
        return np.array(sizes, np.int64)

    def check(self, number: int) -> None:
        """Refuse a shard that was changed since it was written.

        Raises
        ------
        CorruptFileError
            If it was, or is missing.
        """
        self._folder.check(self.contents.shards[number])

    def names(self, number: int) -> list[str]:
        """Read the paths of a shard's images inside the image folder."""
        return read_shard_index(self._folder.source(self.contents.shards[number]))[0]

    def rows(self, number: int) -> Matrix:
        """Read the rows of a shard."""
        return read_shard_rows(self._folder.local(self.contents.shards[number]))

    def named_rows(self, number: int) -> tuple[list[str], Matrix]:
        """Read the paths of a shard's images inside the image folder, and their rows."""
        return read_named_rows(self._folder.local(self.contents.shards[number]))

    @property
    def fingerprint(self) -> str:
        """Name the output of the encoder that made the rows."""
        return self.contents.fingerprint

    @property
    def asked(self) -> str:
        """Name the encoder that was asked for, before it learned."""
        return self.contents.asked

    def encoder(self, n_jobs: int | None) -> Any:
        """Give the encoder that made the rows, to be used with `n_jobs` threads."""
        return self._folder.load_encoder(n_jobs)[0]

    def skipped(self) -> list[Skipped]:
        """Read the list of images that have no row."""
        return self._folder.skipped()
