"""Counting words in bounded memory: exact until there are too many, then with an error that is known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from visterm.core.checks import check_count


class BoundedCounts:
    """Counts of words, of which no more than `most` are held.

    When there are more, half of them are dropped: as much is taken off all counts as makes the lesser half nothing
    (Misra and Gries). A word that is held has been seen `count` times at least, and ``count + error`` at most; one that
    is not, `error` times at most. The frequent words of long texts thus stay, whatever their tail.

    Parameters
    ----------
    most : int
        1 or more.

    Attributes
    ----------
    error : int
        0 as long as no word was dropped.

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
            taken = int(np.partition(counts, counts.size - self._most // 2 - 1)[counts.size - self._most // 2 - 1])
            self._counts = Counter({word: count - taken for word, count in self._counts.items() if count > taken})
            self.error += taken

    def counts(self) -> dict[str, int]:
        """Return the words that are held, with the least that each was seen."""
        return dict(self._counts)
