"""What one pass over a stream keeps in bounded memory: a uniform sample of its items, or counts of its words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from visterm.core.checks import check_count


class Reservoir:
    """Keeps the `size` items of the smallest keys so far: with keys drawn uniformly, all samples are equally likely."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._keys = np.empty(0)
        self._items = np.empty(0, np.int64)

    def offer(self, keys: NDArray[np.float64], items: NDArray[np.int64]) -> None:
        """Offer more items, with a key each, both of shape (n,)."""
        keys = np.concatenate([self._keys, keys])
        kept = np.argsort(keys, kind="stable")[: self._size]
        self._keys, self._items = keys[kept], np.concatenate([self._items, items])[kept]

    def sample(self) -> NDArray[np.int64]:
        """Return the items kept, sorted."""
        return np.sort(self._items)


class BoundedCounts:
    """Counts of words, of which no more than `most` are held, 1 or more.

    When there are more, half of them are dropped: as much is taken off all counts as makes the lesser half nothing
    (Misra and Gries). A word that is held has been seen `count` times at least, and ``count + error`` at most; one that
    is not, `error` times at most. The error is 0 as long as no word was dropped. The frequent words of long texts thus
    stay, whatever their tail.

    References
    ----------
    Misra, Gries: Finding repeated elements. Science of Computer Programming 2, 1982. Agarwal et al.: Mergeable
    summaries. PODS 2012.
    """

    def __init__(self, most: int) -> None:
        check_count(most, "most")
        self._most = most
        self._counts: Counter[str] = Counter()
        self.error = 0

    def add(self, words: Iterable[str]) -> None:
        """Count some words."""
        self._counts.update(words)
        while len(self._counts) > self._most:
            counts = np.fromiter(self._counts.values(), np.int64, len(self._counts))
            subtracted = int(np.partition(counts, counts.size - self._most // 2 - 1)[counts.size - self._most // 2 - 1])
            self._counts = Counter(
                {word: count - subtracted for word, count in self._counts.items() if count > subtracted}
            )
            self.error += subtracted

    def counts(self) -> dict[str, int]:
        """Return the words that are held, with the least that each was seen."""
        return dict(self._counts)
