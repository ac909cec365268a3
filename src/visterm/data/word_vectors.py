"""Word vectors: from the files in which others publish them, and from words to the tags of a vocabulary."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import DataError, ShapeError
from visterm.core.files import why_no_file
from visterm.core.vocabulary import clean_tag, tag_key
from visterm.data.vector_files import (
    LONGEST_LINE,
    Wants,
    WordRows,
    are_numbers,
    read_binary_vectors,
    read_tensor_vectors,
    read_text_vectors,
    save_tensor_vectors,
    two_counts,
)

TENSORS = ".safetensors"
FASTTEXT_BINARY = b"\xba\x16\x4f\x2f"
PACKED = {b"PK\x03\x04": "a zip file", b"\x1f\x8b": "gzipped, and not named .gz"}

LEAST_KNOWN = 0.5  # Share of a tag's words that must have a vector, so that "the xyzzy" is not what "the" is
_PARTS = re.compile(r"[\s\-_/]+")


class WordVectors:
    """Words, as their source spells them, with a vector each; of words that are there twice the first counts.

    `matrix`, float32 of shape (n_words, width), may be a memory map. Raises ShapeError if there is not one row a word.
    """

    def __init__(self, words: Sequence[str], matrix: NDArray[np.float32]) -> None:
        if matrix.ndim != 2 or len(matrix) != len(words):
            raise ShapeError(
                f"There are {len(words)} words, but vectors of shape {matrix.shape}; expected a row a word."
            )
        self.words = list(words)
        self.matrix = matrix
        self._rows: dict[str, int] = {}
        for row, word in enumerate(self.words):
            self._rows.setdefault(word, row)

    @cached_property
    def _rows_of_keys(self) -> dict[str, int]:
        """The first row of each key; made when it is first needed, because it takes seconds for millions of words."""
        rows: dict[str, int] = {}
        for row, word in enumerate(self.words):
            rows.setdefault(word_key(word), row)
        return rows

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and self.find(word) is not None

    @property
    def width(self) -> int:
        """Numbers of each vector."""
        return int(self.matrix.shape[1])

    def find(self, word: str) -> int | None:
        """Return the row of a word or of words in a row (``New York`` finds ``new_york``), or None.

        Spellings are compared as those of tags are. Of several that are equal so, the one written like `word` counts,
        then the one in small letters, then the first.
        """
        cleaned = clean_tag(word)
        key = word_key(cleaned)
        for spelling in (cleaned, cleaned.replace(" ", "_"), key, key.replace(" ", "_")):
            if spelling in self._rows:
                return self._rows[spelling]
        return self._rows_of_keys.get(key)


def read_word_vectors(path: str | os.PathLike[str], words: Iterable[str] | None = None) -> WordVectors:
    """Read word vectors, of all words or only of some, in the order of the file; other words are left out.

    The file is GloVe's text, word2vec's text or binary, fastText's ``.vec`` (texts may be gzipped), known by what is in
    them; or a ``.safetensors`` file of a matrix whose words are in it or in a text beside it. `words` are words or tags
    to read the vectors of; of tags of several words, those of the words too. Only their rows are kept, and read where
    the format allows it, so that memory does not grow with the file. None: all; the matrix is then a memory map where a
    file of float32 has one. Raises DataError if there is no such file, it is none of these, or a vector is broken; with
    the line.
    """
    path = Path(path)
    read = _reader_of(path)
    if words is None:
        return WordVectors(*read(path, None))
    wanted = {key for word in words for key in map(word_key, (word, *parts_of(word)))}
    return WordVectors(*read(path, lambda word: word_key(word) in wanted))


def write_word_vectors(path: str | os.PathLike[str], vectors: WordVectors) -> None:
    """Write word vectors as safetensors, which `read_word_vectors` maps into memory instead of reading.

    Raises DataError if the file is not named ``.safetensors``, or a word has a line feed in it.
    """
    path = Path(path)
    if path.suffix != TENSORS:
        raise DataError(f"Word vectors are written as {TENSORS}, and the file is {path}. Name it so.")
    save_tensor_vectors(path, vectors.words, vectors.matrix)


def vectors_of_tags(vectors: WordVectors, tags: Iterable[str]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return the vectors of tags: their own, or of tags of several words the mean of their words'.

    What stands between spaces, hyphens or slashes is a word. Returns float32 rows of shape (n_tags, width), zeros where
    nothing is found; and bool of shape (n_tags,), whether the tag, or at least half of its words, has a vector. Words
    without one do not count in the mean.
    """
    tags = list(tags)
    rows = np.zeros((len(tags), vectors.width), np.float32)
    has_vector = np.zeros(len(tags), np.bool_)
    for number, tag in enumerate(tags):
        whole, parts = vectors.find(tag), parts_of(tag)
        known = [row for row in map(vectors.find, parts) if row is not None] if whole is None else [whole]
        if whole is not None or len(known) >= max(1, LEAST_KNOWN * len(parts)):
            rows[number] = np.mean(vectors.matrix[known], axis=0, dtype=np.float64)
            has_vector[number] = True
    return rows, has_vector


def word_key(word: str) -> str:
    """Return that by which words are compared: as tags are, and with ``_`` for a space."""
    if word.isascii() and word.isalnum():  # the most, of millions of words
        return word.lower()
    return tag_key(word.replace("_", " "))


def parts_of(tag: str) -> list[str]:
    """Return the words of a tag."""
    return [part for part in _PARTS.split(tag) if part]


def _reader_of(path: Path) -> Callable[[Path, Wants], WordRows]:
    """Return what reads a file of word vectors, by its ending or what is in it. Raises DataError if nothing does."""
    if not path.is_file():
        raise DataError(
            f"The file of word vectors {path} {why_no_file(path)}; expected GloVe, word2vec, fastText or safetensors."
        )
    if path.suffix in (TENSORS, ".gz"):
        return read_tensor_vectors if path.suffix == TENSORS else read_text_vectors
    with path.open("rb") as file:
        start = file.readline(LONGEST_LINE)
        counts = two_counts(start.split()) if len(start) < 100 else None
        second = file.read(64 * (counts[1] + 1)) if counts is not None and counts[1] < LONGEST_LINE else b""
    if not start:
        raise DataError(f"The file of word vectors {path} is empty.")
    for packed, what in PACKED.items():
        if start.startswith(packed):
            raise DataError(f"{path} is {what}. Unpack it, and pass the file that was in it.")
    if start.startswith(FASTTEXT_BINARY):
        raise DataError(
            f"{path} is a model of fastText; expected its vectors as text, in the file that ends with .vec."
        )
    if counts is None:
        return read_text_vectors
    line, end, _ = second.partition(b"\n")
    cells = line.split() if end else line.split()[:-1]  # the last may be cut off
    return read_text_vectors if are_numbers(cells[1:][-counts[1] :]) else read_binary_vectors
