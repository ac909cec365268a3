"""Rows of a features folder by shard and place: shards are checked and read when they are needed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from visterm.core.types import Matrix
from visterm.data.feature_shards import Shard, read_shard
from visterm.features.contents import Contents
from visterm.features.folder import FeatureFolder
from visterm.store.rows import stack_rows

HELD = 4  # Shards kept in memory: rows are mostly read in the order of the names, as they lie


class Place(NamedTuple):
    """Where the row of an image is: the number of its shard, and its place there."""

    shard: int
    row: int


class StoredRow(NamedTuple):
    """What a shard says of an image besides its row."""

    name: str
    sha256: str
    place: Place


class StoredRows:
    """The rows of a features folder, as its manifest's `contents` say."""

    def __init__(self, folder: FeatureFolder, contents: Contents) -> None:
        self._folder, self._contents = folder, contents
        self._held: OrderedDict[int, Shard] = OrderedDict()
        self._whole: dict[int, bool] = {}

    def index(self, *, spare_damaged: bool = False) -> list[StoredRow]:
        """List the images that have a row, in the order of the folder.

        Raises CorruptFileError if a shard is missing or was changed; with `spare_damaged` it is passed over instead.
        """
        found = []
        entries = self._contents.shards
        numbers = [number for number in range(len(entries)) if not spare_damaged or self.is_whole(number)]
        for number in numbers:
            self._check(number)
        indexes = self._folder.indexes([entries[number] for number in numbers])
        for number, (names, sha256) in zip(numbers, indexes, strict=True):
            found += [
                StoredRow(name, digest, Place(number, row))
                for row, (name, digest) in enumerate(zip(names, sha256, strict=True))
            ]
        return found

    def is_whole(self, number: int) -> bool:
        """Return whether a shard is there, byte by byte as it was written; looked at once."""
        if number not in self._whole:
            self._whole[number] = self._folder.is_whole(self._contents.shards[number])
        return self._whole[number]

    def take(self, places: Sequence[Place]) -> Matrix:
        """Return the rows at some places, in that order; each shard is read once.

        Raises CorruptFileError if a shard is missing or was changed.
        """
        shards = np.array([place.shard for place in places], np.int64)
        rows = np.array([place.row for place in places], np.int64)
        order = np.argsort(shards, kind="stable")
        parts = np.split(order, np.flatnonzero(np.diff(shards[order])) + 1) if places else []
        shape = (len(places), self._contents.width)
        if self._contents.layout == "dense":
            dense = np.empty(shape, np.float32)
            for part in parts:
                dense[part] = self._shard(int(shards[part[0]])).rows[rows[part]]
            return dense
        if not parts:
            return sp.csr_array(shape, dtype=np.float32)
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        found = []
        for part in parts:
            found.append(self._shard(int(shards[part[0]])).rows[rows[part]])  # noqa: PERF401
        return stack_rows(found)[back]

    def _shard(self, number: int) -> Shard:
        if number in self._held:
            self._held.move_to_end(number)
            return self._held[number]
        self._check(number)
        self._held[number] = read_shard(self._folder.local(self._contents.shards[number]))
        if len(self._held) > HELD:
            self._held.popitem(last=False)
        return self._held[number]

    def _check(self, number: int) -> None:
        if not self.is_whole(number):
            raise self._folder.damaged(self._contents.shards[number])
