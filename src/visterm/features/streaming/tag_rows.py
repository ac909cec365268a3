"""The tags of images by position, in files: pairs written as they come, then sorted (CSR)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.writing import new_map

PAIRS = 2**20  # Pairs sorted at a time
STARTS, TAGS = "starts.npy", "tags.npy"

_PAIR = np.dtype([("position", np.int64), ("tag", np.uint64)])


class TagPairs:
    """Which tags the images have: hashes of the tags at first, after `sort` numbers of those that are looked at."""

    def __init__(self, folder: Path, n_images: int) -> None:
        self._folder = folder
        self._starts = new_map(folder / STARTS, np.int64, (n_images + 1,))
        self._unsorted = folder / "pairs.bin"
        self._unsorted.write_bytes(b"")

    def add(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Write more pairs of a position and a hash of a tag (`tag_hash`)."""
        block = np.array(pairs, _PAIR)
        np.add.at(self._starts, block["position"] + 1, 1)
        with self._unsorted.open("ab") as file:
            file.write(block.tobytes())

    def sort(self, keys: Sequence[str]) -> None:
        """Bring the pairs into the order of positions, and each tag to its place among the keys, -1 of others."""
        at = new_map(self._folder / "at.npy", np.int64, self._starts.shape)
        total = 0
        for start in range(0, len(at), PAIRS):
            part = slice(start, start + PAIRS)
            at[part] = self._starts[part] = np.cumsum(self._starts[part]) + total
            total = int(at[part][-1])
        hashes = np.array([tag_hash(key) for key in keys] or [0], np.uint64)
        order = np.argsort(hashes)
        hashes = hashes[order]
        self._tags = new_map(self._folder / TAGS, np.int32, (max(total, 1),))
        for block in self._blocks():
            block = block[np.argsort(block["position"], kind="stable")]
            positions, first, counts = np.unique(block["position"], return_index=True, return_counts=True)
            places = np.repeat(at[positions] - first, counts) + np.arange(block.size)
            at[positions] += counts
            near = np.minimum(np.searchsorted(hashes, block["tag"]), hashes.size - 1)
            known = (hashes[near] == block["tag"]) & bool(keys)
            self._tags[places] = np.where(known, order[near], -1)
        self._unsorted.unlink()

    def at(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the tags that some images have, and whose each is: its place among the positions."""
        starts, stops = self._starts[positions], self._starts[positions + 1]
        counts = np.asarray(stops - starts)
        ends = np.cumsum(counts)
        places = np.repeat(starts - (ends - counts), counts) + np.arange(int(ends[-1]) if ends.size else 0)
        return np.asarray(self._tags[places], np.int64), np.repeat(np.arange(positions.size), counts)

    def _blocks(self) -> Iterator[NDArray[np.void]]:
        """Yield the unsorted pairs, `PAIRS` at a time."""
        with self._unsorted.open("rb") as file:
            while (block := np.fromfile(file, _PAIR, PAIRS)).size:
                yield block


def tag_hash(key: str) -> int:
    """Return 8 bytes of a tag's key, that tell it apart."""
    return int.from_bytes(hashlib.blake2b(key.encode("utf-8", "surrogateescape"), digest_size=8).digest(), "little")


def ones_at(rows: NDArray[np.int64], columns: NDArray[np.int64], shape: tuple[int, int]) -> sp.csr_array:
    """Return ones at some places, some of which may be there twice."""
    each = np.unique(rows * shape[1] + columns)
    starts = np.searchsorted(each, np.arange(shape[0] + 1) * shape[1])
    data = np.ones(each.size, np.float32)
    return sp.csr_array((data, (each % shape[1]).astype(np.int32), starts.astype(np.int32)), shape=shape)
