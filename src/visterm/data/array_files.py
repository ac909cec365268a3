"""Matrices in files of NumPy, SciPy and svmlight, read only after their headers were compared with their bytes."""

from __future__ import annotations

import gzip
import io
import lzma
import math
import os
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import checked_csr
from visterm.core.errors import DataError, ShapeError, TooLargeError
from visterm.core.files import MB, open_regular

NUMBERS = "fiub"  # Kinds of NumPy types that are numbers
MOST_FEATURES = 2**26
"""Columns of a matrix: models keep some numbers of each, and more than these is an index that is wrong."""
MOST_GROWTH = 100  # How many times its own size a compressed file may unpack to: features and their indices reach ten
ALWAYS_FINE = 64 * MB  # Bytes that any file may unpack to
_PLACES = {"csr": ("indices", "indptr"), "csc": ("indices", "indptr"), "coo": ("row", "col")}
"""The parts of a sparse matrix, beside its data, by its form."""

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
READ_ERRORS = (
    ValueError, SyntaxError, TypeError, KeyError, IndexError, EOFError, OSError, OverflowError, RecursionError,
    MemoryError, NotImplementedError, RuntimeError, tokenize.TokenError, struct.error, zipfile.BadZipFile, zlib.error,
    lzma.LZMAError,
)  # fmt: skip
"""What the readers of NumPy, of zip files and of compressions raise for bytes that are not what they should be."""


class _Header(NamedTuple):
    """The type and shape of an array, and the byte of the file at which its numbers begin."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    start: int

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def map_npy(path: Path) -> NDArray[Any]:
    """Map the matrix of a ``.npy`` file into memory.

    Raises ShapeError if it holds something else than a matrix of numbers; READ_ERRORS if it is no such file, or has
    less than its header promises.
    """
    with open_regular(path) as file:
        header = _header(file, os.fstat(file.fileno()).st_size)
        if len(header.shape) != 2 or header.dtype.kind not in NUMBERS:
            raise not_a_matrix(path, header.dtype, header.shape)
        if 0 in header.shape:
            return np.empty(header.shape, header.dtype)
        order: Any = "F" if header.fortran else "C"
        return np.memmap(file, header.dtype, mode="r", offset=header.start, shape=header.shape, order=order)


def read_npz(path: Path) -> sp.csr_array:
    """Read the sparse matrix of a ``.npz`` file that SciPy saved as CSR, CSC or COO.

    Raises DataError if the parts do not fit each other, or a place has two numbers; TooLargeError if it would unpack to
    far more than such a file does; READ_ERRORS if it is no such file.
    """
    with open_regular(path) as file, zipfile.ZipFile(file) as archive:
        packed = os.fstat(file.fileno()).st_size
        refuse_bomb(path, packed, sum(member.file_size for member in archive.infolist()))
        kind = _member(archive, "format", path, "SU").item()
        kind = kind.decode("ascii", "replace") if isinstance(kind, bytes) else kind
        shape = _member(archive, "shape", path, "iu").ravel().tolist()
        refuse_bomb(path, packed, 8 * max(shape[:1], default=0))  # where each row begins, whatever form it is in
        if kind not in _PLACES:
            raise DataError(
                f"{path} holds a matrix in the form '{kind}'; expected csr, csc or coo. Save matrix.tocsr()."
            )
        data, first, second = (_member(archive, name, path) for name in ("data", *_PLACES[kind]))
    if kind == "coo":
        return _of_places(path, data, first, second, shape)
    if kind == "csc":
        return sp.csr_array(checked_csr(data, first, second, shape[::-1], f"{path} (CSC: its rows are columns)").T)
    return checked_csr(data, first, second, shape, str(path))


def refuse_bomb(path: Path, packed: int, unpacked: int) -> None:
    """Refuse a file that unpacks to far more than features do. Raises TooLargeError if so."""
    if unpacked > max(ALWAYS_FINE, MOST_GROWTH * packed):
        raise TooLargeError(
            f"{path} has {packed:,} bytes and would unpack to {unpacked:,}; expected at most {MOST_GROWTH} times its "
            "size, as of features. If it is what it should be, save it without compression."
        )


def open_unpacked(path: Path) -> IO[bytes]:
    """Open a file for reading, through gzip if it is named ``.gz``; reading ends where it grows too much.

    Raises OSError if it is no regular file.
    """
    file = open_regular(path)
    return io.BufferedReader(_Unpacked(path, file)) if path.suffix == ".gz" else file


class _Unpacked(io.RawIOBase):
    """Unpacks gzip, and refuses to go on where a file unpacks to far more than features do."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path, self._file = path, file
        self._packed = os.fstat(file.fileno()).st_size
        self._gzip = gzip.GzipFile(fileobj=file)
        self._read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self._gzip.read(len(buffer))
        buffer[: len(content)] = content
        self._read += len(content)
        refuse_bomb(self._path, self._packed, self._read)
        return len(content)

    def close(self) -> None:
        self._file.close()
        super().close()


def not_a_matrix(path: Path, dtype: Any, shape: tuple[int, ...]) -> ShapeError:
    """Return the error that says what a file holds instead of a matrix of numbers."""
    return ShapeError(f"{path} holds {dtype} of shape {shape}; expected a matrix of numbers, a row for each image.")


def _member(archive: zipfile.ZipFile, name: str, path: Path, kinds: str = NUMBERS) -> NDArray[Any]:
    """Read one array of an archive, at most as many bytes as its directory says."""
    try:
        info = archive.getinfo(f"{name}.npy")
    except KeyError as error:
        raise DataError(
            f"{path} has no '{name}'; expected a sparse matrix, with data, format, shape and its indices. Write it "
            "with scipy.sparse.save_npz."
        ) from error
    with archive.open(info) as member:
        header = _header(member, info.file_size, f"its part '{name}'")
        if header.dtype.kind not in kinds:
            raise DataError(f"{path}, '{name}': it holds {header.dtype}; expected numbers.")
        content = member.read(header.size)
    numbers = np.frombuffer(content, header.dtype) if content else np.empty(0, header.dtype)
    return numbers.reshape(header.shape, order="F" if header.fortran else "C")


def _header(file: IO[bytes], size: int, part: str = "it") -> _Header:
    """Read what a ``.npy`` file says of its array, and refuse objects and more bytes than the file has."""
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"{part} is in version {version[0]}.{version[1]} of NumPy's format; expected 1.0 or 2.0")
    shape, fortran, dtype = _HEADERS[version](file)
    header = _Header(dtype, shape, fortran, file.tell())
    if dtype.hasobject:
        raise ValueError(f"{part} holds Python objects, which are never loaded")
    if min(shape, default=0) < 0 or header.start + header.size > size:
        raise ValueError(
            f"{part} breaks off: the header promises {dtype} of shape {shape}, {header.size:,} bytes, and "
            f"{max(0, size - header.start):,} are there"
        )
    return header


def _of_places(path: Path, data: Any, rows: Any, columns: Any, shape: list[int]) -> sp.csr_array:
    """Make a matrix of values and of the row and the column of each."""
    if not data.shape == rows.shape == columns.shape or data.ndim != 1:
        raise DataError(f"{path}: there are {data.size} values, {rows.size} rows and {columns.size} columns of them.")
    if len(shape) != 2 or rows.dtype.kind not in "iu" or columns.dtype.kind not in "iu":
        raise DataError(f"{path}: the places of the values are no whole numbers, or the shape is {tuple(shape)}.")
    for name, places, end in (("row", rows, shape[0]), ("column", columns, shape[1])):
        outside = np.flatnonzero((places < 0) | (places >= end))
        if outside.size:
            raise DataError(
                f"{path}: value {outside[0] + 1} is in {name} {places[outside[0]]}; expected 0 to {end - 1}."
            )
    order = np.argsort(rows, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows.astype(np.int64), minlength=shape[0]))])
    return checked_csr(data[order], columns[order], indptr, shape, str(path))


def read_svmlight(path: Path) -> sp.csr_array:
    """Read the rows of a file, which may be gzipped, as float32; the targets are not looked at.

    Columns begin with index 0 or 1, whichever the file begins with. Raises DataError if a line cannot be understood:
    the message names it, and what is wrong with it; TooLargeError if it would unpack to far more than such a file does;
    ValueError, OverflowError, OSError if it is no such file.
    """
    from sklearn.datasets import load_svmlight_file

    try:
        with open_unpacked(path) as file:
            rows = load_svmlight_file(file, dtype=np.float32, multilabel=True)[0]
    except (ValueError, OverflowError):
        _refuse_first_wrong_line(path)
        raise
    if not np.isfinite(rows.data).all() or rows.indices.min(initial=0) < 0 or rows.shape[1] > MOST_FEATURES:
        _refuse_first_wrong_line(path)
    return checked_csr(rows.data, rows.indices, rows.indptr, rows.shape, str(path))


def _refuse_first_wrong_line(path: Path) -> None:
    """Name the first line of a svmlight file that is wrong, if any is."""
    with open_unpacked(path) as file:
        for number, line in enumerate(file, start=1):
            cells = line.partition(b"#")[0].split()
            last = -1
            for pair in cells if cells and b":" in cells[0] else cells[1:]:
                index, _, value = pair.partition(b":")
                if index == b"qid":
                    continue
                wrong = _wrong(index, value, last)
                if wrong:
                    shown = pair[:40].decode("utf-8", "replace")
                    raise DataError(f"{path}, line {number}: '{shown}' {wrong}. Correct the line, or leave it out.")
                last = int(index)


def _wrong(index: bytes, value: bytes, last: int) -> str:
    """Return what is wrong with a pair, as the end of a sentence; empty if nothing is."""
    if not index.isdigit():
        return "does not begin with an index; expected INDEX:NUMBER, with a whole number of 0 or more"
    if len(index) > len(str(MOST_FEATURES)) or int(index) >= MOST_FEATURES:
        return f"has too large an index; expected at most {MOST_FEATURES - 1:,}"
    if int(index) <= last:
        return f"comes after the index {last}; expected indices in ascending order, each once"
    try:
        number = float(value)
    except ValueError:
        return "does not end with a number; expected INDEX:NUMBER"
    return "" if math.isfinite(number) else "has a number that is not finite"
