"""Word vectors: reading the published file formats, and looking up the vectors of tags."""

from __future__ import annotations

import codecs
import gzip
import json
import mmap
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from visterm.core.errors import DataError, ShapeError
from visterm.core.files import why_no_file
from visterm.core.persist import save_arrays
from visterm.core.vocabulary import clean_tag, tag_key

MAX_COUNT_DIGITS = 12  # Longer counts are read as 10**12, because Python does not convert very long numbers
MAX_LINE_BYTES = 2**20  # Maximum length of a line: a file with longer lines is not text of vectors
MAX_WORD_BYTES = 4096  # Maximum length of a word: a longer word means that numbers are read as words

# Tensors in visterm's own files: the matrix, and the words as UTF-8 bytes separated by line feeds
VECTORS, WORDS = "vectors", "words"
_DTYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}

WordFilter: TypeAlias = Callable[[str], bool] | None  # Whether to read the vector of a word; None: read all

# Words, in the order of their file, and float32 vectors of shape (n_words, width)
WordRows: TypeAlias = tuple[list[str], NDArray[np.float32]]
TENSORS_SUFFIX = ".safetensors"

# First bytes of files that are not read -> description and advice
OTHER_FILES = {
    b"PK\x03\x04": "a zip file. Unpack it, and pass the file that was in it",
    b"\x1f\x8b": "gzipped, and not named .gz. Rename it, or unpack it",
    b"\xba\x16\x4f\x2f": "a model of fastText; expected its vectors as text (.vec)",
}
MIN_SHARE_WITH_VECTOR = 0.5  # Minimum share of a tag's words: else "the xyzzy" would be "the"
_PARTS = re.compile(r"[\s\-_/]+")


class WordVectors:
    """Words, as their source spells them, and their vectors; if a word occurs twice, the first vector counts.

    `matrix`, float32 of shape (n_words, width), may be a memory map. Raises ShapeError unless it has a row per word.
    """

    def __init__(self, words: Sequence[str], matrix: NDArray[np.float32]) -> None:
        if matrix.ndim != 2 or len(matrix) != len(words):
            raise ShapeError(f"There are {len(words)} words, but vectors of shape {matrix.shape}, not a row per word.")
        self.words = list(words)
        self.matrix = matrix
        self._rows = _first_rows(self.words)

    @cached_property
    def _rows_of_keys(self) -> dict[str, int]:
        """Key (`word_key`) -> its first row; computed on first use, as it takes seconds for millions of words."""
        return _first_rows(map(word_key, self.words))

    def __len__(self) -> int:
        return len(self.words)

    @property
    def width(self) -> int:
        """Number of values in each vector."""
        return int(self.matrix.shape[1])

    def find(self, word: str) -> int | None:
        """Return the row of a word or phrase (``New York`` finds ``new_york``), or None.

        Spellings are compared as for tags. If several words match, an exact match is preferred, then a match in lower
        case, then the first.
        """
        cleaned = clean_tag(word)
        key = word_key(cleaned)
        for spelling in (cleaned, cleaned.replace(" ", "_"), key, key.replace(" ", "_")):
            if spelling in self._rows:
                return self._rows[spelling]
        return self._rows_of_keys.get(key)


def read_word_vectors(path: str | os.PathLike[str], words: Iterable[str] | None = None) -> WordVectors:
    """Read the word vectors of all words, or only of `words`, in the order of the file.

    The file is GloVe's text, word2vec's text or binary, fastText's ``.vec`` (texts may be gzipped), detected by the
    content; or a ``.safetensors`` file with a matrix and its words (see `write_word_vectors`). `words` are
    the words or tags whose vectors are read; for a tag of several words, the vector of each word is read too. Memory
    does not grow with the file, as other rows are skipped. None: read all words; float32 safetensors are memory-mapped.
    Raises DataError, with the line, if the file does not exist, has another format, or a vector is invalid.
    """
    path = Path(path)
    reader = _reader_of(path)
    if words is None:
        return WordVectors(*reader(path, None))
    requested_keys = {key for word in words for key in map(word_key, (word, *parts_of(word)))}
    return WordVectors(*reader(path, lambda word: word_key(word) in requested_keys))


def write_word_vectors(path: Path, vectors: WordVectors) -> None:
    """Write word vectors as safetensors, which `read_word_vectors` can map into memory.

    The suffix must be ``.safetensors``. Raises DataError if a word contains a line feed.
    """
    invalid_words = [word for word in vectors.words if "\n" in word]
    if invalid_words:
        raise DataError(f"The word {invalid_words[0]!r} has a line feed in it, which a list of words cannot keep.")
    text = np.frombuffer("\n".join(vectors.words).encode(), np.uint8)
    save_arrays(path, {VECTORS: np.ascontiguousarray(vectors.matrix, np.float32), WORDS: text})


def vectors_of_tags(vectors: WordVectors, tags: Iterable[str]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Return the vectors of tags: the tag's own vector, or else the mean of the vectors of its words.

    Words are separated by spaces, hyphens or slashes; the mean ignores words without a vector. Returns float32 rows of
    shape (n_tags, width), zeros for tags without a vector; and bool of shape (n_tags,), whether the tag, or at least
    half of its words, has a vector.
    """
    tags = list(tags)
    rows = np.zeros((len(tags), vectors.width), np.float32)
    has_vector = np.zeros(len(tags), np.bool_)
    for number, tag in enumerate(tags):
        row_of_tag, parts = vectors.find(tag), parts_of(tag)
        hits = [row for row in map(vectors.find, parts) if row is not None] if row_of_tag is None else [row_of_tag]
        if row_of_tag is not None or len(hits) >= max(1, MIN_SHARE_WITH_VECTOR * len(parts)):
            rows[number] = np.mean(vectors.matrix[hits], axis=0, dtype=np.float64)
            has_vector[number] = True
    return rows, has_vector


def _first_rows(words: Iterable[str]) -> dict[str, int]:
    rows: dict[str, int] = {}
    for row, word in enumerate(words):
        rows.setdefault(word, row)
    return rows


def word_key(word: str) -> str:
    """Return the key by which words are compared: the key of a tag, with ``_`` read as a space."""
    is_plain = word.isascii() and word.isalnum()  # most words
    return word.lower() if is_plain else tag_key(word.replace("_", " "))


def parts_of(tag: str) -> list[str]:
    """Return the words of a tag."""
    return [part for part in _PARTS.split(tag) if part]


def _reader_of(path: Path) -> Callable[[Path, WordFilter], WordRows]:
    """Return the reader of a file, by its suffix or content. Raises DataError if the format is unknown."""
    if not path.is_file():
        expected = "GloVe, word2vec, fastText or safetensors"
        raise DataError(f"The file of word vectors {path} {why_no_file(path)}; expected {expected}.")
    if path.suffix in (TENSORS_SUFFIX, ".gz"):
        return read_tensor_vectors if path.suffix == TENSORS_SUFFIX else read_text_vectors
    with path.open("rb") as file:
        first_line = file.readline(MAX_LINE_BYTES)
        counts = two_counts(first_line.split()) if len(first_line) < 100 else None
        second_line = file.read(64 * (counts[1] + 1)) if counts is not None and counts[1] < MAX_LINE_BYTES else b""
    if not first_line:
        raise DataError(f"The file of word vectors {path} is empty.")

    if (description := OTHER_FILES.get(first_line[:4]) or OTHER_FILES.get(first_line[:2])) is not None:
        raise DataError(f"{path} is {description}.")
    if counts is None:
        return read_text_vectors
    line, end, _ = second_line.partition(b"\n")
    cells = line.split() if end else line.split()[:-1]  # the last cell may be cut off
    return read_text_vectors if are_numbers(cells[1:][-counts[1] :]) else read_binary_vectors


def read_text_vectors(path: Path, is_requested: WordFilter) -> WordRows:
    """Read a text of word vectors line by line, so memory does not grow with the file.

    Files with the suffix ``.gz`` are unpacked. The vector is at the end of a line, so a word may contain spaces (as in
    GloVe's 840B). Raises DataError if the first line is neither a word with its vector nor the two counts of word2vec,
    or if any line is invalid.
    """
    words: list[str] = []
    rows: list[NDArray[np.float32]] = []
    with cast("IO[bytes]", gzip.GzipFile(path)) if path.suffix == ".gz" else path.open("rb") as file:
        lines = _lines(path, file)
        first_line = next(lines, (1, b""))
        cells = first_line[1].split()
        counts = two_counts(cells)
        least, width = counts or (0, len(cells) - 1)
        if width < 1:
            text = _preview(b" ".join(cells))
            raise DataError(f"{path}, line 1: {text}; expected a word and its vector, separated by spaces.")

        n_words = 0
        for n_words, (number, line) in enumerate(chain([] if counts else [first_line], lines), start=1):
            source = f"{path}, line {number}"
            word, numbers = _split_word(line, width, source)
            is_read = is_requested is None or is_requested(word)
            if is_read or n_words == 1:  # the first vector is always parsed, to check the format
                vector = _numbers(numbers, width, source)
            if is_read:
                words.append(word)
                rows.append(vector)

    if n_words < least:
        raise DataError(f"{path} says that it has {least:,} words, but ends after {n_words:,}. Copy it again.")
    return words, np.array(rows, np.float32).reshape(len(rows), width)


def read_binary_vectors(path: Path, is_requested: WordFilter) -> WordRows:
    """Read a word2vec binary through a memory map; the vectors of other words are skipped.

    Raises DataError if it does not begin with its two counts, or is cut off.
    """
    words: list[str] = []
    rows: list[NDArray[np.float32]] = []
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        end = content.find(b"\n", 0, MAX_WORD_BYTES)
        n_words, width = two_counts(content[: max(end, 0)].split()) or (0, 0)
        if width < 1:
            raise DataError(f"{path}: the first line is not two numbers, of words and columns, such as '3000000 300'.")
        position = end + 1
        for number in range(n_words):
            space = content.find(b" ", position, position + MAX_WORD_BYTES)
            if space < 0 or space + 1 + 4 * width > len(content):
                problem = f"{path} says that it has {n_words:,} words of {width} numbers"
                raise DataError(f"{problem}, but number {number + 1:,} is not complete. Copy it again.")
            # word2vec ends each vector with a line feed, gensim does not
            word = content[position:space].lstrip(b"\n").decode("utf-8", "replace")
            position = space + 1 + 4 * width
            if is_requested is None or is_requested(word):
                vector = np.frombuffer(content[space + 1 : position], "<f4").astype(np.float32)
                words.append(word)
                rows.append(_finite(vector, f"{path}, byte {space + 1:,}"))
    return words, np.array(rows, np.float32).reshape(len(rows), width)


def read_tensor_vectors(path: Path, is_requested: WordFilter) -> WordRows:
    """Read a safetensors file with one matrix of word vectors; a float32 matrix stays on disk if all words are read.

    The matrix is the only one in the file, or is named "vectors". The words are the tensor "words", as bytes of UTF-8,
    one per line. Raises DataError if the file is not safetensors or has no such tensors, or the matrix does not have
    one row per word.
    """
    header, first_line = _header(path)

    def tensor(name: str, dtype: str) -> NDArray[np.float32]:
        first, stop = header[name]["data_offsets"]
        shape = tuple(header[name]["shape"])
        return np.memmap(path, dtype, "r", first_line + first, shape) if stop > first else np.zeros(0, dtype)

    matrices = [name for name, entry in header.items() if len(entry["shape"]) == 2]
    if VECTORS not in matrices and len(matrices) != 1:
        names = ", ".join(sorted(matrices)) or "none"
        raise DataError(f"{path}: expected one matrix (words, numbers), or one named '{VECTORS}'; it has {names}.")
    name = VECTORS if VECTORS in matrices else matrices[0]
    dtype, shape = header[name]["dtype"], header[name]["shape"]
    if dtype not in _DTYPES or 0 in shape:
        expected = f"expected {', '.join(_DTYPES)}, and a word and numbers in each row"
        raise DataError(f"{path}: the matrix '{name}' is of the type {dtype} and the shape {shape}; {expected}.")
    matrix = tensor(name, _DTYPES[dtype])

    if WORDS not in header:
        expected = "the words as bytes of UTF-8, one per line, in the order of the rows"
        raise DataError(f"{path} has no tensor '{WORDS}'; expected {expected}.")
    words = tensor(WORDS, "u1").tobytes().decode("utf-8", "replace").split("\n")
    if len(words) != len(matrix):
        raise DataError(f"{path} has {len(matrix):,} vectors, but {len(words):,} words.")

    if is_requested is None and matrix.dtype == np.float32:
        return words, matrix
    row_numbers = [row for row, word in enumerate(words) if is_requested is None or is_requested(word)]
    rows = [_finite(np.array(matrix[row], np.float32), f"{path}, row {row}") for row in row_numbers]
    return [words[row] for row in row_numbers], np.array(rows, np.float32).reshape(len(rows), matrix.shape[1])


def two_counts(cells: list[bytes]) -> tuple[int, int] | None:
    """Parse the first line of word2vec and fastText, the numbers of words and columns; None for any other line."""
    if len(cells) == 2 and all(cell.isdigit() for cell in cells):
        n_words, width = (int(cell) if len(cell) <= MAX_COUNT_DIGITS else 10**MAX_COUNT_DIGITS for cell in cells)
        return n_words, width
    return None


def _lines(path: Path, file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield line numbers and right-stripped lines; empty lines are skipped, except for the first.

    Raises DataError if the text cannot be unpacked, is in UTF-16, or has a line that is too long.
    """
    number = 0
    while True:
        number += 1
        try:
            line = file.readline(MAX_LINE_BYTES)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{path} cannot be unpacked: {error}. Copy it again.") from error
        if not line:
            return
        if len(line) >= MAX_LINE_BYTES:
            raise DataError(f"{path}, line {number} has a million characters, so it is not text of word vectors.")
        if number == 1 and line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise DataError(f"{path} is in UTF-16; expected UTF-8. Save it as 'UTF-8'.")
        line = (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).rstrip()
        if line or number == 1:
            yield number, line


def _split_word(line: bytes, width: int, source: str) -> tuple[str, bytes]:
    """Split a line into the word and its vector; the vector is not parsed, as most words are not requested."""
    if line.count(b" ") == width:
        word, _, numbers = line.partition(b" ")
        return word.decode("utf-8", "replace"), numbers
    cells = line.split()
    if len(cells) <= width:
        raise DataError(f"{source}: {_preview(line)}; expected a word and {width} numbers.")
    previous = cells[-width - 1]
    if len(cells) > width + 1 and b"." in previous and are_numbers([previous]):  # unlike the words of "catch 22"
        raise DataError(f"{source}: {_preview(line)}; it has more than {width} numbers after the word.")
    return b" ".join(cells[:-width]).decode("utf-8", "replace"), b" ".join(cells[-width:])


def _numbers(text: bytes, width: int, source: str) -> NDArray[np.float32]:
    cells = text.split()
    if len(cells) != width or not are_numbers(cells):
        raise DataError(f"{source}: {_preview(text)}; expected {width} numbers after the word.")
    with np.errstate(over="ignore"):  # overflow to infinity is refused
        return _finite(np.array([float(cell) for cell in cells], np.float32), source)


def are_numbers(cells: list[bytes]) -> bool:
    """Return whether all cells are numbers; False without cells."""
    try:
        return bool([float(cell) for cell in cells])
    except ValueError:
        return False


def _finite(vector: NDArray[np.float32], source: str) -> NDArray[np.float32]:
    if not np.isfinite(vector).all():
        raise DataError(f"{source}: the vector has infinite or undefined numbers. Remove it, or use another file.")
    return vector


def _preview(line: bytes) -> str:
    text = line[:200].decode("utf-8", "replace")
    return f"'{text[:40]}{' …' if len(text) > 40 else ''}'"


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """Return the header of a safetensors file, which safetensors has validated, and the offset of the first tensor."""
    try:
        with safe_open(path, framework="numpy"), path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path} is not a safetensors file, or not complete.") from error
    header.pop("__metadata__", None)
    return header, 8 + size
