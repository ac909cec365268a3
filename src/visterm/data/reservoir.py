"""A uniform sample of items, drawn in one pass over parts that come one by one, in memory for the sample alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Reservoir:
    """Keeps the items of the smallest keys so far: with keys drawn uniformly, all samples are equally likely.

    Parameters
    ----------
    size : int
        Items to keep; fewer, where fewer are offered.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._keys = np.empty(0)
        self._items = np.empty(0, np.int64)

    def offer(self, keys: NDArray[np.float64], items: NDArray[np.int64]) -> None:
        """Take note of more items, with a key each, both of shape (n,)."""
        keys = np.concatenate([self._keys, keys])
        kept = np.argsort(keys, kind="stable")[: self._size]
        self._keys, self._items = keys[kept], np.concatenate([self._items, items])[kept]

    def sample(self) -> NDArray[np.int64]:
        """Return the items kept, sorted."""
        return np.sort(self._items)
