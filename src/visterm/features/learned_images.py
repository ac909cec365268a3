"""Which images a run learned from, as hashes of their names: to tell when it is measured on them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class LearnedImages:
    """A set of image names, kept as sorted hashes of 8 bytes each, uint64 of shape (n_names,)."""

    hashes: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))

    @classmethod
    def of(cls, names: Iterable[str]) -> LearnedImages:
        """Make the set of some names."""
        return cls(np.unique(name_hashes(names)))

    def with_names(self, names: Iterable[str]) -> LearnedImages:
        """Return the set with more names."""
        return LearnedImages(np.union1d(self.hashes, name_hashes(names)))

    def count(self, names: Sequence[str]) -> int:
        """Count the names that are in the set (or, once in 10¹⁹ / size, look as if)."""
        if not self.hashes.size:
            return 0
        requested = name_hashes(names)
        positions = np.minimum(np.searchsorted(self.hashes, requested), self.hashes.size - 1)
        return int((self.hashes[positions] == requested).sum())


def name_hashes(names: Iterable[str]) -> NDArray[np.uint64]:
    """Return 8 bytes of each name, that tell them apart."""
    digests = [hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=8).digest() for name in names]
    return np.frombuffer(b"".join(digests), np.uint64)
