"""Word vectors in a safetensors file: a matrix that stays on disk until rows are read, and its words beside it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import DataError
from visterm.core.persist import save_arrays
from visterm.data.text_files import read_text
from visterm.data.vector_files import refuse_non_finite

VECTORS, WORDS = "vectors", "words"
"""The tensors of our own files: a matrix, and the words as bytes of UTF-8 with line feeds between them."""

_TYPES = {"F16": "<f2", "F32": "<f4", "F64": "<f8"}
_LARGEST_HEADER = 10**8


class TensorVectors:
    """A safetensors file with one matrix of word vectors, memory-mapped.

    The matrix is the only one in it, or is named "vectors". The words are its tensor "words", or else the lines of
    ``NAME.txt`` or ``vocab.txt`` beside it. Raises DataError if it is not safetensors, has no such matrix, or another
    number of words.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        header, self._start = _header(path)
        name = _matrix_name(header, path)
        kind = header[name]["dtype"]
        if kind not in _TYPES:
            raise DataError(f"{path}: the matrix '{name}' is of the type {kind}; expected {', '.join(_TYPES)}.")
        self.matrix = self._tensor(header[name], _TYPES[kind])
        self.width = self.matrix.shape[1]
        if self.width < 1:
            raise DataError(f"{path}: the matrix '{name}' has no columns; expected numbers in each row.")
        self._words = self._read_words(header)
        if len(self._words) != len(self.matrix):
            raise DataError(f"{path} has {len(self.matrix):,} vectors, but {len(self._words):,} words.")

    def words(self) -> Iterator[tuple[str, int]]:
        """Yield the words with the numbers of their rows."""
        for row, word in enumerate(self._words):
            yield word, row

    def vector(self, at: Any) -> NDArray[np.float32]:
        """Return a row."""
        return refuse_non_finite(np.array(self.matrix[at], np.float32), f"{self.path}, row {at}")

    def close(self) -> None:
        """Nothing to do: the map goes with the last array that shows it."""

    def _tensor(self, entry: dict[str, Any], kind: str) -> NDArray[Any]:
        first, last = entry["data_offsets"]
        shape = tuple(entry["shape"])
        if last - first != np.dtype(kind).itemsize * math.prod(shape) or self._start + last > self.path.stat().st_size:
            raise DataError(f"{self.path} is not whole: a tensor ends behind its end. Copy it again.")
        if last == first:
            return np.zeros(shape, kind)
        return np.memmap(self.path, kind, mode="r", offset=self._start + first, shape=shape)

    def _read_words(self, header: dict[str, Any]) -> list[str]:
        """Return the words of the rows, from the file or one beside it."""
        if WORDS in header:
            text = self._tensor(header[WORDS], "u1").tobytes().decode("utf-8", "replace")
            return text.split("\n") if text or len(self.matrix) else []
        beside = [self.path.with_suffix(".txt"), self.path.with_name("vocab.txt")]
        for path in beside:
            if path.is_file():
                return read_text(path, "list of words").removesuffix("\n").split("\n")
        raise DataError(
            f"{self.path} has no tensor '{WORDS}', and neither {beside[0].name} nor {beside[1].name} is beside it. "
            "Write the words into one of them, one a line, in the order of the rows."
        )


def save_tensor_vectors(path: Path, words: list[str], matrix: NDArray[np.float32]) -> None:
    """Write a file that `TensorVectors` reads. Raises DataError if a word has a line feed in it."""
    broken = [word for word in words if "\n" in word]
    if broken:
        raise DataError(f"The word {broken[0]!r} has a line feed in it, which a list of words cannot keep.")
    text = np.frombuffer("\n".join(words).encode(), np.uint8)
    save_arrays(path, {VECTORS: np.ascontiguousarray(matrix, np.float32), WORDS: text})


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """Read what a file says of its tensors, and where these begin."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        text = file.read(size) if size <= _LARGEST_HEADER else b""
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not a safetensors file, or not whole.") from error
    if not isinstance(header, dict):
        raise DataError(f"{path} is not a safetensors file, or not whole.")
    header.pop("__metadata__", None)
    for name, entry in header.items():
        if not _is_entry(entry):
            raise DataError(f"{path} is not a safetensors file, or not whole: what it says of '{name}' is no tensor.")
    return header, 8 + size


def _is_entry(entry: Any) -> bool:
    """Return whether it names a type, a shape and a place, as the format asks of each tensor."""
    if not isinstance(entry, dict) or not isinstance(entry.get("dtype"), str):
        return False
    shape, place = entry.get("shape"), entry.get("data_offsets")
    if not isinstance(shape, list) or not isinstance(place, list) or len(place) != 2:
        return False
    return all(type(number) is int and 0 <= number < 2**63 for number in (*shape, *place)) and place[0] <= place[1]


def _matrix_name(header: dict[str, Any], path: Path) -> str:
    matrices = [name for name, entry in header.items() if len(entry["shape"]) == 2]
    if VECTORS in matrices:
        return VECTORS
    if len(matrices) == 1:
        return str(matrices[0])
    there = f"these: {', '.join(sorted(matrices))}" if matrices else "none"
    raise DataError(f"{path}: expected one matrix (words, numbers), or one named '{VECTORS}'; there are {there}.")
