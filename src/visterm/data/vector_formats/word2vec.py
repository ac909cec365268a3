"""Word vectors in the binary form of word2vec: two counts, then each word, a space and its float32 numbers."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import DataError
from visterm.data.vector_formats.source import refuse_non_finite
from visterm.data.vector_formats.text import two_counts

LONGEST_WORD = 4096
"""Bytes of a word before its space: more means that numbers are read as words."""


class BinaryVectors:
    """A memory-mapped binary of word2vec; the vectors of words that nobody asks for are stepped over.

    Parameters
    ----------
    path : Path

    Raises
    ------
    DataError
        If it does not begin with its two counts.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("rb") as file:
            self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        end = self._bytes.find(b"\n", 0, LONGEST_WORD)
        counts = two_counts(self._bytes[: max(end, 0)].split())
        if counts is None or counts[1] < 1:
            self.close()
            raise DataError(
                f"{path}: the first line is not the numbers of words and of columns, such as '3000000 300'."
            )
        self.n_words, self.width = counts
        self._first = end + 1

    def words(self) -> Iterator[tuple[str, int]]:
        """Yield the words with the places of their numbers."""
        at, size, content = self._first, 4 * self.width, self._bytes
        for number in range(self.n_words):
            space = content.find(b" ", at, at + LONGEST_WORD)
            if space < 0 or space + 1 + size > len(content):
                raise DataError(
                    f"{self.path} says that it has {self.n_words:,} words of {self.width} numbers, but number "
                    f"{number + 1:,} is not whole. Copy it again."
                )
            # word2vec's own program ends each vector with a line feed, gensim does not
            yield content[at:space].lstrip(b"\n").decode("utf-8", "replace"), space + 1
            at = space + 1 + size

    def vector(self, at: int) -> NDArray[np.float32]:
        """Return the numbers at a place."""
        vector = np.frombuffer(self._bytes[at : at + 4 * self.width], "<f4").astype(np.float32)
        return refuse_non_finite(vector, f"{self.path}, byte {at:,}")

    def close(self) -> None:
        """Let the memory map go."""
        self._bytes.close()
