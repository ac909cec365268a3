"""Reading the shards of features folders on demand, finding the rows of images by name, and chunks for annotation."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from visterm.core.checks import stack_rows
from visterm.core.errors import DataError, EncoderMismatchError
from visterm.core.progress import Progress
from visterm.core.threads import map_ahead
from visterm.core.types import Chunk, Ints, Place, Skipped
from visterm.data.feature_shards import Shard, read_shard, read_shard_index, shard_row_bytes
from visterm.data.image_folders import plain_name
from visterm.encoders.contract import AnyEncoder
from visterm.features.folder import name_hashes
from visterm.features.remote_folder import feature_folder
from visterm.features.stored import finished_contents
from visterm.features.training_rows import check_fingerprint

ROWS_PER_CHUNK = 4096  # Approximate number of rows per chunk, large enough to make the overhead per chunk small

T = TypeVar("T")


class Shards:
    """The rows of one or more features folders; an image's position is the number of rows before it.

    All folders must be of the same encoder. `contents` is from the manifest of the first folder that has rows, with the
    shards of all folders. `starts`, int64 (n_shards + 1,), has the position of each shard's first row, and finally the
    number of all rows, `n_rows`. Raises StorageError if a path is not a features folder, or its job is not finished;
    EncoderMismatchError if the folders are of different encoders.
    """

    def __init__(self, path: Place | Sequence[Place]) -> None:
        paths = [path] if isinstance(path, str | os.PathLike) else list(path)
        self._folders = [feature_folder(path) for path in paths]
        self.n_folders = len(paths)
        headers = list(map(finished_contents, self._folders))
        for folder, contents in zip(self._folders, headers, strict=True):
            if contents.fingerprint != headers[0].fingerprint:
                raise EncoderMismatchError(
                    f"{self._folders[0].path} and {folder.path} have features of different encoders "
                    f"({headers[0].fingerprint}, {contents.fingerprint}): their rows do not go together. Encode all "
                    "with one encoder: visterm encode IMAGES --encoder RUN"
                )

        self._owner = [folder for folder, contents in zip(self._folders, headers, strict=True) for _ in contents.shards]
        first = next((contents for contents in headers if contents.shards), headers[0])
        self.contents = replace(first, shards=[entry for contents in headers for entry in contents.shards])
        self.starts: Ints = np.cumsum([0, *(entry.rows for entry in self.contents.shards)], dtype=np.int64)
        self.n_rows = int(self.starts[-1])

    def __len__(self) -> int:
        return len(self.contents.shards)

    @cached_property
    def sizes(self) -> Ints:
        """Memory of each shard's rows in bytes, shape (n_shards,)."""
        if self.contents.layout == "dense":
            return np.diff(self.starts) * 4 * self.contents.width
        sources = (folder.source(entry) for folder, entry in zip(self._owner, self.contents.shards, strict=True))
        return np.array([*map(shard_row_bytes, sources)], np.int64)

    def check(self, number: int) -> None:
        """Raise CorruptFileError if a shard is missing, or was changed since it was written."""
        self._owner[number].check(self.contents.shards[number])

    def names(self, number: int) -> list[str]:
        """Read the paths of a shard's images inside the image folder."""
        return read_shard_index(self._owner[number].source(self.contents.shards[number]))[0]

    def read(self, number: int) -> Shard:
        """Read a shard."""
        return read_shard(self._owner[number].local(self.contents.shards[number]))

    def encoder(self, n_jobs: int | None) -> AnyEncoder:
        """Return the encoder that made the rows, set to `n_jobs` threads."""
        return self._folders[0].load_encoder(n_jobs)[0]

    def skipped(self) -> list[Skipped]:
        """Read the list of images without a row."""
        return [item for folder in self._folders for item in folder.skipped()]

    def groups(self) -> list[list[int]]:
        """Group consecutive shards, given by number, into groups with about as many rows as a chunk."""
        return grouped(range(len(self)), np.diff(self.starts), ROWS_PER_CHUNK)

    def chunk(self, numbers: Sequence[int]) -> Chunk:
        """Read the names and rows of shards. Raises CorruptFileError if a shard is missing or was changed."""
        for number in numbers:
            self.check(number)
        shards = [self.read(number) for number in numbers]
        return Chunk([name for shard in shards for name in shard.names], stack_rows([s.rows for s in shards]), [])

    def refuse_duplicate_names(self) -> None:
        """Raise `DataError` if an image is in two of the folders, which would make its tags ambiguous."""
        if self.n_folders > 1:
            self.index()

    def index(self) -> NameIndex:
        """Index the images by their names. Raises DataError if an image is in two of the folders."""
        index = NameIndex(map(self.names, range(len(self))))
        if self.n_folders == 1:
            return index
        for row in np.flatnonzero(index.hashes[1:] == index.hashes[:-1]):  # two names may have the same hash
            positions = index.positions[row : row + 2]
            numbers = (np.searchsorted(self.starts, positions, side="right") - 1).tolist()
            first, second = (self.names(n)[i - self.starts[n]] for n, i in zip(numbers, positions, strict=True))
            if first == second:
                one, other = (self._owner[number].path for number in numbers)
                raise DataError(
                    f"The image '{first}' is in {one} and in {other}; expected one row per image. Encode folders whose "
                    "images have different names, or leave one of the two out."
                )
        return index


def grouped(numbers: Iterable[int], sizes: Ints, limit: int) -> list[list[int]]:
    """Group numbers in order, so that the `sizes` of a group sum to at most `limit`; a larger one is a group alone."""
    groups: list[list[int]] = []
    free = 0
    for number in numbers:
        if not groups or sizes[number] > free:
            groups.append([])
            free = limit
        groups[-1].append(number)
        free -= int(sizes[number])
    return groups


class NameIndex:
    """Finds positions of images by hashes of their names (like `LearnedImages`), with 16 bytes per image.

    `names` yields lists with the names of all images, in the order of the positions.
    """

    def __init__(self, names: Iterable[list[str]]) -> None:
        hashes = np.concatenate([np.empty(0, np.uint64), *map(name_hashes, names)])
        self.positions = np.argsort(hashes)
        self.hashes = hashes[self.positions]

    def find(self, names: list[str]) -> Ints:
        """Return the position of each name, or -1 if no image has it; shape (n_names,).

        A name that is not found as written is looked up as `plain_name` spells it.
        """
        positions = self._find(names)
        respelled = [i for i in np.flatnonzero(positions < 0).tolist() if plain_name(names[i]) != names[i]]
        if respelled:
            positions[respelled] = self._find([plain_name(names[i]) for i in respelled])
        return positions

    def _find(self, names: list[str]) -> Ints:
        requested = name_hashes(names)
        if not len(self.hashes):
            return np.full(requested.size, -1, np.int64)
        nearest = np.minimum(np.searchsorted(self.hashes, requested), len(self.hashes) - 1)
        return np.where(self.hashes[nearest] == requested, self.positions[nearest], -1)


def stored_chunks(encoder: AnyEncoder, features: Place | Sequence[Place], progress: Progress) -> Iterator[Chunk]:
    """Yield the images of features folders, named by their paths inside the image folder.

    Raises EncoderMismatchError if another encoder made the rows; DataError if an image is in two of the folders;
    CorruptFileError if a shard is missing or was changed.
    """
    shards = Shards(features)
    check_fingerprint(encoder, shards.contents)
    shards.refuse_duplicate_names()
    groups = shards.groups()
    progress.start("tag photos", shards.n_rows)
    with closing(map_ahead(shards.chunk, groups)) as chunks:
        for chunk in chunks:
            yield chunk
            progress.advance(len(chunk.names))
    yield Chunk([], np.empty((0, 0), np.float32), shards.skipped())
