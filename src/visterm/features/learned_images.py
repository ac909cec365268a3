"""Which images a run learned from, as hashes of their names: to tell when it is measured on them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import DataError
from visterm.core.persist import load_arrays, save_arrays

KEY = "names"


class LearnedImages:
    """A set of image names, kept as sorted hashes of 8 bytes each."""

    def __init__(self, hashes: NDArray[np.uint64] | None = None) -> None:
        self._hashes = np.empty(0, np.uint64) if hashes is None else hashes

    @classmethod
    def of(cls, names: Iterable[str]) -> LearnedImages:
        """Make the set of some names."""
        return cls(np.unique(name_hashes(names)))

    def with_names(self, names: Iterable[str]) -> LearnedImages:
        """Return the set with more names."""
        return LearnedImages(np.union1d(self._hashes, name_hashes(names)))

    def count(self, names: Sequence[str]) -> int:
        """Count the names that are in the set (or, once in 10¹⁹ / size, look as if)."""
        if not self._hashes.size:
            return 0
        requested = name_hashes(names)
        positions = np.minimum(np.searchsorted(self._hashes, requested), self._hashes.size - 1)
        return int((self._hashes[positions] == requested).sum())

    def save(self, path: Path) -> None:
        """Write the set to a file."""
        save_arrays(path, {KEY: self._hashes})

    @classmethod
    def load(cls, path: Path) -> LearnedImages:
        """Read what `save` wrote."""
        arrays = load_arrays(path)
        if list(arrays) != [KEY] or arrays[KEY].dtype != np.uint64:
            raise DataError(f"{path} holds no hashes of names")
        return cls(arrays[KEY].ravel())


def name_hashes(names: Iterable[str]) -> NDArray[np.uint64]:
    """Return 8 bytes of each name, that tell them apart."""
    digests = [hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest() for name in names]
    return np.frombuffer(b"".join(digests), np.uint64)
