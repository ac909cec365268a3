"""Word vectors as text, a line a word: GloVe; word2vec's text and fastText's ``.vec`` begin with their two counts."""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import DataError
from visterm.data.vector_formats.source import refuse_non_finite

MOST_DIGITS = 12
"""Of a count: more is taken for the next power of ten, as Python converts no text of thousands of digits."""

LONGEST_LINE = 2**20
"""Bytes that are read in search of a line's end: more is no text of vectors."""


class TextLine(NamedTuple):
    """What follows the word of a line, not yet turned into numbers."""

    number: int
    numbers: bytes


class TextVectors:
    """A text of word vectors; read line by line, so that memory does not grow with the file.

    The numbers are the last ones of a line, so a word may have spaces in it (GloVe's 840B has such).

    Parameters
    ----------
    path : Path
        May be gzipped, by the ending ``.gz``.

    Raises
    ------
    DataError
        If its first line is neither a word with its numbers, nor the two counts with such a line below.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] = _opened(path)
        try:
            line = self._line(1)
            if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                raise DataError(f"{path} is in UTF-16; expected UTF-8. Save it as 'UTF-8'.")
            first = line.split()
            self.counts = two_counts(first)
            self.width = len(first) - 1 if self.counts is None else self.counts[1]
            if self.width < 1:
                shown = _shown(b" ".join(first))
                raise DataError(
                    f"{path}, line 1: {shown}; expected a word and the numbers of its vector, parted by spaces."
                )
            for _, at in self.words():
                self.vector(at)
                break
        except BaseException:
            self._file.close()
            raise

    def words(self) -> Iterator[tuple[str, TextLine]]:
        """Yield the words with their lines, from the first on."""
        self._file.seek(0)
        n_words = number = 0
        if self.counts is not None:
            self._line(1)
            number = 1
        while True:
            number += 1
            line = self._line(number)
            if line:
                n_words += 1
                yield self._parted(line, number)
            elif self._at_end:
                break
        if self.counts is not None and n_words < self.counts[0]:
            raise DataError(
                f"{self.path} says that it has {self.counts[0]:,} words, but ends after {n_words:,}. Copy it again."
            )

    def vector(self, at: TextLine) -> NDArray[np.float32]:
        """Return the numbers of a line."""
        place = f"{self.path}, line {at.number}"
        try:
            numbers = [float(cell) for cell in at.numbers.split()]
        except ValueError:
            numbers = []
        if len(numbers) != self.width:
            raise DataError(f"{place}: {_shown(at.numbers)}; expected {self.width} numbers after the word.")
        with np.errstate(over="ignore"):  # too large for float32 is infinite, which is refused
            return refuse_non_finite(np.array(numbers, np.float32), place)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _parted(self, line: bytes, number: int) -> tuple[str, TextLine]:
        """Part the word from its numbers, which are only counted: most words of a file are not wanted."""
        if line.count(b" ") == self.width:
            word, _, numbers = line.partition(b" ")
        else:
            cells = line.split()
            if len(cells) <= self.width:
                raise DataError(
                    f"{self.path}, line {number}: {_shown(line)}; expected a word and {self.width} numbers."
                )
            word, numbers = (b" ".join(part) for part in (cells[: -self.width], cells[-self.width :]))
            if len(cells) > self.width + 1 and _is_fraction(cells[-self.width - 1]):
                raise DataError(
                    f"{self.path}, line {number}: {_shown(line)}; it has more than {self.width} numbers after the word."
                )
        return word.decode("utf-8", "replace"), TextLine(number, numbers)

    def _line(self, number: int) -> bytes:
        """Read a line without the white space at its end."""
        try:
            line = self._file.readline(LONGEST_LINE)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{self.path} cannot be unpacked: {error}. Copy it again.") from error
        self._at_end = not line
        if len(line) >= LONGEST_LINE:
            raise DataError(f"{self.path}, line {number} has a million characters; this is no text of word vectors.")
        return (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).rstrip()


def _opened(path: Path) -> IO[bytes]:
    return cast("IO[bytes]", gzip.GzipFile(path)) if path.suffix == ".gz" else path.open("rb")


def two_counts(cells: list[bytes]) -> tuple[int, int] | None:
    """Return the numbers of words and of columns that stand in the first line of word2vec and fastText, or None."""
    if len(cells) == 2 and all(cell.isdigit() for cell in cells):
        n_words, width = (int(cell) if len(cell) <= MOST_DIGITS else 10**MOST_DIGITS for cell in cells)
        return n_words, width
    return None


def _is_fraction(cell: bytes) -> bool:
    """Return whether a cell is a number of a vector rather than of words such as "catch 22"."""
    try:
        float(cell)
    except ValueError:
        return False
    return b"." in cell


def _shown(line: bytes) -> str:
    text = line[:200].decode("utf-8", "replace")
    return f"'{text[:40]}{' …' if len(text) > 40 else ''}'"
