"""Where the row of each image lies, by name: 16 bytes an image in files, none of them in memory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import DataError
from visterm.core.writing import new_map
from visterm.data.image_names import plain_name
from visterm.features.learned_images import name_hashes
from visterm.features.streaming.shards import Shards

BUCKET = 2**20  # Names sorted at a time, about


class NameIndex:
    """Finds positions of images by hashes of their names (as `LearnedImages` keeps them).

    `names` are lists of the names of all `n` images, in the order of the positions; its files lie in `folder`.
    """

    def __init__(self, folder: Path, names: Iterable[list[str]], n: int) -> None:
        unsorted = new_map(folder / "names.npy", np.uint64, (n,))
        start = 0
        for some in names:
            unsorted[start : start + len(some)] = name_hashes(some)
            start += len(some)
        self.hashes = new_map(folder / "hashes.npy", np.uint64, (n,))
        self.positions = new_map(folder / "positions.npy", np.int64, (n,))
        n_buckets = max(1, -(-n // BUCKET))
        start = 0
        for bucket in range(n_buckets):
            found, where = _of_bucket(unsorted, bucket, n_buckets)
            order = np.argsort(found)
            stop = start + found.size
            self.hashes[start:stop], self.positions[start:stop] = found[order], where[order]
            start = stop

    def find(self, names: list[str]) -> NDArray[np.int64]:
        """Return the position of each name, -1 of those that no image has; shape (n_names,).

        A name that no image has as it is written is looked for as `plain_name` has it.
        """
        found = self._find(names)
        odd = [i for i in np.flatnonzero(found < 0).tolist() if plain_name(names[i]) != names[i]]
        if odd:
            found[odd] = self._find([plain_name(names[i]) for i in odd])
        return found

    def _find(self, names: list[str]) -> NDArray[np.int64]:
        requested = name_hashes(names)
        if not len(self.hashes):
            return np.full(requested.size, -1, np.int64)
        place = np.minimum(np.searchsorted(self.hashes, requested), len(self.hashes) - 1)
        return np.where(self.hashes[place] == requested, self.positions[place], -1)


def index_names(folder: Path, shards: Shards) -> NameIndex:
    """Index the images of features folders by their names. Raises DataError if an image is in two of the folders."""
    index = NameIndex(folder, (shards.names(number) for number in range(len(shards))), shards.n_rows)
    if shards.n_folders > 1:
        for start in range(0, len(index.hashes), BUCKET):
            part = np.asarray(index.hashes[start : start + BUCKET + 1])
            for place in start + np.flatnonzero(part[1:] == part[:-1]):
                _refuse_one_name(shards, index.positions[place : place + 2])
    return index


def _refuse_one_name(shards: Shards, positions: NDArray[np.int64]) -> None:
    """Raise where the images at two positions have one name; a hash may be that of two."""
    numbers = np.searchsorted(shards.starts, positions, side="right") - 1
    first, second = (
        shards.names(number)[position - shards.starts[number]]
        for number, position in zip(numbers.tolist(), positions.tolist(), strict=True)
    )
    if first == second:
        raise DataError(
            f"The image '{first}' is in {shards.place(numbers[0])} and in {shards.place(numbers[1])}; expected one "
            "row an image. Encode folders whose images are named apart, or leave one of the two out."
        )


def _of_bucket(hashes: NDArray[np.uint64], bucket: int, n_buckets: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the hashes of one of `n_buckets` even ranges, with their positions; the file is read part by part."""
    first, last = (np.uint64(min(number * 2**64 // n_buckets, 2**64 - 1)) for number in (bucket, bucket + 1))
    parts, places = [], []
    for start in range(0, len(hashes), BUCKET):
        part = np.asarray(hashes[start : start + BUCKET])
        here = np.flatnonzero((part >= first) & ((part < last) | (bucket == n_buckets - 1)))
        parts.append(part[here])
        places.append(here + start)
    if not parts:
        return np.empty(0, np.uint64), np.empty(0, np.int64)
    return np.concatenate(parts), np.concatenate(places)
