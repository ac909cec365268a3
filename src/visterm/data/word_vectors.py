"""Word vectors: the files in which others publish them, and from their words to the tags of a vocabulary."""

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
from visterm.data.text_files import read_text

MOST_DIGITS = 12  # Of a count: more is taken for the next power of ten, as Python converts no text of thousands
LONGEST_LINE = 2**20  # Bytes that are read in search of a line's end: more is no text of vectors
LONGEST_WORD = 4096  # Bytes of a word before its space: more means that numbers are read as words

# The tensors of our own files: a matrix, and the words as bytes of UTF-8 with line feeds between them
VECTORS, WORDS = "vectors", "words"
_TYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}

Wants: TypeAlias = Callable[[str], bool] | None  # Says of a word whether its vector is to be read; None: all are

# Words, in the order of their file, and float32 vectors of shape (n_words, width)
WordRows: TypeAlias = tuple[list[str], NDArray[np.float32]]
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
            raise ShapeError(f"There are {len(words)} words, but vectors of shape {matrix.shape}; expected a row each.")
        self.words = list(words)
        self.matrix = matrix
        self._rows = _first_rows(self.words)

    @cached_property
    def _rows_of_keys(self) -> dict[str, int]:
        """The first row of each key; made when it is first needed, because it takes seconds for millions of words."""
        return _first_rows(map(word_key, self.words))

    def __len__(self) -> int:
        return len(self.words)

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


def write_word_vectors(path: Path, vectors: WordVectors) -> None:
    """Write word vectors as safetensors, which `read_word_vectors` maps into memory instead of reading.

    The file is named ``.safetensors``. Raises DataError if a word has a line feed in it.
    """
    broken = [word for word in vectors.words if "\n" in word]
    if broken:
        raise DataError(f"The word {broken[0]!r} has a line feed in it, which a list of words cannot keep.")
    text = np.frombuffer("\n".join(vectors.words).encode(), np.uint8)
    save_arrays(path, {VECTORS: np.ascontiguousarray(vectors.matrix, np.float32), WORDS: text})


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
        row_of_tag, parts = vectors.find(tag), parts_of(tag)
        known = [row for row in map(vectors.find, parts) if row is not None] if row_of_tag is None else [row_of_tag]
        if row_of_tag is not None or len(known) >= max(1, LEAST_KNOWN * len(parts)):
            rows[number] = np.mean(vectors.matrix[known], axis=0, dtype=np.float64)
            has_vector[number] = True
    return rows, has_vector


def _first_rows(words: Iterable[str]) -> dict[str, int]:
    """Return the row of each word, of a repeated one the first."""
    rows: dict[str, int] = {}
    for row, word in enumerate(words):
        rows.setdefault(word, row)
    return rows


def word_key(word: str) -> str:
    """Return that by which words are compared: as tags are, and with ``_`` for a space."""
    is_plain = word.isascii() and word.isalnum()  # as the most, of millions of words
    return word.lower() if is_plain else tag_key(word.replace("_", " "))


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

    for packed, description in PACKED.items():
        if start.startswith(packed):
            raise DataError(f"{path} is {description}. Unpack it, and pass the file that was in it.")
    if start.startswith(FASTTEXT_BINARY):
        raise DataError(f"{path} is a model of fastText; expected its vectors as text: what ends with .vec.")
    if counts is None:
        return read_text_vectors
    line, end, _ = second.partition(b"\n")
    cells = line.split() if end else line.split()[:-1]  # the last may be cut off
    return read_text_vectors if are_numbers(cells[1:][-counts[1] :]) else read_binary_vectors


def read_text_vectors(path: Path, wants: Wants) -> WordRows:
    """Read a text of word vectors line by line, so that memory does not grow with the file.

    It may be gzipped, by the ending ``.gz``. The numbers are the last ones of a line, so a word may have spaces in it
    (GloVe's 840B has such). Raises DataError if its first line is neither a word with its numbers, nor the two counts
    with such a line below, or another line is broken.
    """
    words: list[str] = []
    rows: list[NDArray[np.float32]] = []
    with cast("IO[bytes]", gzip.GzipFile(path)) if path.suffix == ".gz" else path.open("rb") as file:
        lines = _lines(path, file)
        first = next(lines, (1, b""))
        cells = first[1].split()
        counts = two_counts(cells)
        width = len(cells) - 1 if counts is None else counts[1]
        if width < 1:
            text = _shown(b" ".join(cells))
            raise DataError(f"{path}, line 1: {text}; expected a word and the numbers of its vector, parted by spaces.")

        n_words = 0
        for number, line in lines if counts is not None else chain([first], lines):
            n_words += 1
            where = f"{path}, line {number}"
            word, numbers = _parted(line, width, where)
            is_wanted = wants is None or wants(word)
            if is_wanted or n_words == 1:  # the first shows whether this is such a text
                vector = _numbers(numbers, width, where)
            if is_wanted:
                words.append(word)
                rows.append(vector)

    if counts is not None and n_words < counts[0]:
        raise DataError(f"{path} says that it has {counts[0]:,} words, but ends after {n_words:,}. Copy it again.")
    return words, np.array(rows, np.float32).reshape(len(rows), width)


def read_binary_vectors(path: Path, wants: Wants) -> WordRows:
    """Read a binary of word2vec, mapped into memory; the vectors of words that nobody asks for are stepped over.

    Raises DataError if it does not begin with its two counts, or is not whole.
    """
    words: list[str] = []
    rows: list[NDArray[np.float32]] = []
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        end = content.find(b"\n", 0, LONGEST_WORD)
        n_words, width = two_counts(content[: max(end, 0)].split()) or (0, 0)
        if width < 1:
            raise DataError(f"{path}: the first line is not two numbers, of words and columns, such as '3000000 300'.")
        after = end + 1
        for number in range(n_words):
            space = content.find(b" ", after, after + LONGEST_WORD)
            if space < 0 or space + 1 + 4 * width > len(content):
                raise DataError(
                    f"{path} says that it has {n_words:,} words of {width} numbers, but number {number + 1:,} is not "
                    "whole. Copy it again."
                )
            # word2vec's own program ends each vector with a line feed, gensim does not
            word = content[after:space].lstrip(b"\n").decode("utf-8", "replace")
            after = space + 1 + 4 * width
            if wants is None or wants(word):
                vector = np.frombuffer(content[space + 1 : after], "<f4").astype(np.float32)
                words.append(word)
                rows.append(_finite(vector, f"{path}, byte {space + 1:,}"))
    return words, np.array(rows, np.float32).reshape(len(rows), width)


def read_tensor_vectors(path: Path, wants: Wants) -> WordRows:
    """Read a safetensors file with one matrix of word vectors, mapped into memory; all of float32 stay on disk.

    The matrix is the only one in it, or is named "vectors". The words are its tensor "words", or else the lines of
    ``NAME.txt`` or ``vocab.txt`` beside it. Raises DataError if it is not safetensors, has no such matrix, or another
    number of words.
    """
    header, start = _header(path)

    def tensor(name: str, kind: str) -> NDArray[np.float32]:
        first, last = header[name]["data_offsets"]
        shape = tuple(header[name]["shape"])
        return np.memmap(path, kind, "r", start + first, shape) if last > first else np.zeros(0, kind)

    matrices = [name for name, entry in header.items() if len(entry["shape"]) == 2]
    if VECTORS not in matrices and len(matrices) != 1:
        names = f"these: {', '.join(sorted(matrices))}" if matrices else "none"
        raise DataError(f"{path}: expected one matrix (words, numbers), or one named '{VECTORS}'; there are {names}.")
    name = VECTORS if VECTORS in matrices else matrices[0]
    kind = header[name]["dtype"]
    if kind not in _TYPES:
        raise DataError(f"{path}: the matrix '{name}' is of the type {kind}; expected {', '.join(_TYPES)}.")
    if 0 in header[name]["shape"]:
        lacking = "columns" if header[name]["shape"][0] else "rows"
        raise DataError(f"{path}: the matrix '{name}' has no {lacking}; expected a word and numbers in each row.")
    matrix = tensor(name, _TYPES[kind])

    beside = [path.with_suffix(".txt"), path.with_name("vocab.txt")]
    if WORDS in header:
        text = tensor(WORDS, "u1").tobytes().decode("utf-8", "replace")
        words = text.split("\n")
    elif (file := next(filter(Path.is_file, beside), None)) is not None:
        words = read_text(file, "list of words").removesuffix("\n").split("\n")
    else:
        raise DataError(
            f"{path} has no tensor '{WORDS}', and neither {beside[0].name} nor {beside[1].name} is beside it. Write "
            "the words into one of them, one a line, in the order of the rows."
        )
    if len(words) != len(matrix):
        raise DataError(f"{path} has {len(matrix):,} vectors, but {len(words):,} words.")

    if wants is None and matrix.dtype == np.float32:
        return words, matrix
    chosen = [row for row, word in enumerate(words) if wants is None or wants(word)]
    rows = [_finite(np.array(matrix[row], np.float32), f"{path}, row {row}") for row in chosen]
    return [words[row] for row in chosen], np.array(rows, np.float32).reshape(len(rows), matrix.shape[1])


def two_counts(cells: list[bytes]) -> tuple[int, int] | None:
    """Return the numbers of words and of columns that stand in the first line of word2vec and fastText, or None."""
    if len(cells) == 2 and all(cell.isdigit() for cell in cells):
        n_words, width = (int(cell) if len(cell) <= MOST_DIGITS else 10**MOST_DIGITS for cell in cells)
        return n_words, width
    return None


def _lines(path: Path, file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the numbers and the lines of a text without the white space at their ends; the first, and others not empty.

    Raises DataError if the text cannot be unpacked, is in UTF-16, or has a line that no such text has.
    """
    number = 0
    while True:
        number += 1
        try:
            line = file.readline(LONGEST_LINE)
        except (OSError, EOFError, zlib.error) as error:
            raise DataError(f"{path} cannot be unpacked: {error}. Copy it again.") from error
        if not line:
            return
        if len(line) >= LONGEST_LINE:
            raise DataError(f"{path}, line {number} has a million characters; this is no text of word vectors.")
        if number == 1 and line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise DataError(f"{path} is in UTF-16; expected UTF-8. Save it as 'UTF-8'.")
        line = (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).rstrip()
        if line or number == 1:
            yield number, line


def _parted(line: bytes, width: int, where: str) -> tuple[str, bytes]:
    """Part the word from its numbers, which are only counted: most words of a file are not requested."""
    if line.count(b" ") == width:
        word, _, numbers = line.partition(b" ")
        return word.decode("utf-8", "replace"), numbers
    cells = line.split()
    if len(cells) <= width:
        raise DataError(f"{where}: {_shown(line)}; expected a word and {width} numbers.")
    last = cells[-width - 1]
    if len(cells) > width + 1 and b"." in last and are_numbers([last]):  # unlike the words of "catch 22"
        raise DataError(f"{where}: {_shown(line)}; it has more than {width} numbers after the word.")
    return b" ".join(cells[:-width]).decode("utf-8", "replace"), b" ".join(cells[-width:])


def _numbers(text: bytes, width: int, where: str) -> NDArray[np.float32]:
    cells = text.split()
    if len(cells) != width or not are_numbers(cells):
        raise DataError(f"{where}: {_shown(text)}; expected {width} numbers after the word.")
    with np.errstate(over="ignore"):  # too large for float32 is infinite, which is refused
        return _finite(np.array([float(cell) for cell in cells], np.float32), where)


def are_numbers(cells: list[bytes]) -> bool:
    """Return whether cells are numbers, one or more."""
    try:
        return bool([float(cell) for cell in cells])
    except ValueError:
        return False


def _finite(vector: NDArray[np.float32], where: str) -> NDArray[np.float32]:
    if not np.isfinite(vector).all():
        raise DataError(f"{where}: the vector has infinite or undefined numbers. Take the line out, or the whole file.")
    return vector


def _shown(line: bytes) -> str:
    text = line[:200].decode("utf-8", "replace")
    return f"'{text[:40]}{' …' if len(text) > 40 else ''}'"


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """Read what a file says of its tensors, after safetensors has compared that with its size, and where they begin."""
    try:
        with safe_open(path, framework="numpy"), path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
    except (OSError, SafetensorError) as error:
        raise DataError(f"{path} is not a safetensors file, or not whole.") from error
    header.pop("__metadata__", None)
    return header, 8 + size
