"""Word vectors in files of text (GloVe, word2vec, fastText) and in the binary form of word2vec."""

from __future__ import annotations

import codecs
import gzip
import mmap
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import DataError

MOST_DIGITS = 12
"""Of a count: more is taken for the next power of ten, as Python converts no text of thousands of digits."""

LONGEST_LINE = 2**20  # Bytes that are read in search of a line's end: more is no text of vectors
LONGEST_WORD = 4096  # Bytes of a word before its space: more means that numbers are read as words


def refuse_non_finite(vector: NDArray[np.float32], place: str) -> NDArray[np.float32]:
    """Return the vector if all its numbers are finite. Raises DataError if one is infinite or NaN, with the place."""
    if not np.isfinite(vector).all():
        raise DataError(f"{place}: the vector has infinite or undefined numbers. Take the line out, or the whole file.")
    return vector


class TextLine(NamedTuple):
    """What follows the word of a line, not yet turned into numbers."""

    number: int
    numbers: bytes


class TextVectors:
    """A text of word vectors; read line by line, so that memory does not grow with the file.

    It may be gzipped, by the ending ``.gz``. The numbers are the last ones of a line, so a word may have spaces in it
    (GloVe's 840B has such). Raises DataError if its first line is neither a word with its numbers, nor the two counts
    with such a line below.
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

    def vector(self, at: Any) -> NDArray[np.float32]:
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
        """Part the word from its numbers, which are only counted: most words of a file are not requested."""
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
    """Open a file, through gzip if it is named ``.gz``."""
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


class BinaryVectors:
    """A memory-mapped binary of word2vec; the vectors of words that nobody asks for are stepped over.

    Raises DataError if it does not begin with its two counts.
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

    def vector(self, at: Any) -> NDArray[np.float32]:
        """Return the numbers at a place."""
        vector = np.frombuffer(self._bytes[at : at + 4 * self.width], "<f4").astype(np.float32)
        return refuse_non_finite(vector, f"{self.path}, byte {at:,}")

    def close(self) -> None:
        """Close the memory map."""
        self._bytes.close()
