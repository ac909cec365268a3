"""Matrices of other programs in NumPy's, SciPy's and svmlight's files, whose bytes are checked before they are used."""

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
from typing import IO, Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_csr, checked_csr
from visterm.core.errors import DataError, StorageError, TooLargeError, VistermError
from visterm.core.files import MB, open_regular

SVMLIGHT = (".svm", ".svmlight", ".libsvm", ".svm.gz", ".svmlight.gz", ".libsvm.gz")

# Suffix -> description, first bytes, and advice for a file with other content
FORMATS = {
    ".npy": ("a NumPy matrix", np.lib.format.MAGIC_PREFIX, "Write it with numpy.save, from a matrix of numbers."),
    ".npz": ("a sparse matrix of scipy.sparse.save_npz", b"PK", "Write it so, or a dense matrix with numpy.save."),
}

NUMERIC_KINDS = "fiub"  # NumPy's dtype kinds of numbers
MAX_FEATURES = 2**26  # Maximum number of columns: models keep some numbers for each, and a larger index is a mistake
MAX_EXPANSION = 100  # Maximum ratio of unpacked to compressed size: features and their indices reach ten
ALWAYS_ALLOWED_BYTES = 64 * MB  # Size in bytes that any file may unpack to

_INDEX_ARRAYS = {"csr": ("indices", "indptr"), "csc": ("indices", "indptr"), "coo": ("row", "col")}  # Index arrays
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}

# Errors that NumPy, zip files and decompressors raise for invalid bytes
READ_ERRORS = (
    ValueError, SyntaxError, TypeError, LookupError, EOFError, OSError, OverflowError, MemoryError, RuntimeError,
    tokenize.TokenError, struct.error, zipfile.BadZipFile, zlib.error, lzma.LZMAError,
)  # fmt: skip


Numbers: TypeAlias = "NDArray[Any]"  # Of any numeric dtype
Rows: TypeAlias = "Numbers | sp.csr_array"


def read_matrix(file: Path) -> Rows:
    """Read a ``.npy`` file, which is memory-mapped, a ``.npz`` file, or a file with a suffix in `SVMLIGHT`.

    Raises DataError if its content does not match the suffix; StorageError if it cannot be read.
    """
    description, magic, advice = FORMATS.get(
        file.suffix, ("svmlight", b"", "Write it with sklearn.datasets.dump_svmlight_file.")
    )
    try:
        if file.suffix not in FORMATS:
            return as_csr(read_svmlight(file)[0])
        try:
            with open_regular(file) as opened:
                first_bytes = opened.read(len(np.lib.format.MAGIC_PREFIX))
        except OSError as error:
            raise StorageError(f"{file} cannot be read: {error.strerror or error}.") from error
        if not first_bytes.startswith(magic):  # otherwise NumPy would read it as a pickle
            reason = f"it begins with {first_bytes!r}, as no such file does" if first_bytes else "it is empty"
            raise DataError(f"{file} cannot be read as {description}: {reason}. {advice}")
        return _map_npy(file) if file.suffix == ".npy" else as_csr(_read_npz(file))
    except VistermError:
        raise
    except READ_ERRORS as error:
        # EOFError has a message of Python's own; other messages mention parameters of NumPy and SciPy.
        message = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        reason = "it is truncated" if message.startswith("EOF") else message
        raise DataError(f"{file} cannot be read as {description}: {reason}. {advice}") from error


class _Header(NamedTuple):
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    start: int  # Byte position of the first value

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def _map_npy(path: Path) -> Numbers:
    with open_regular(path) as file:
        header = _header(file, os.fstat(file.fileno()).st_size)
        if 0 in header.shape:
            return np.empty(header.shape, header.dtype)
        return np.memmap(file, header.dtype, "r", header.start, header.shape, "F" if header.fortran else "C")


def _read_npz(path: Path) -> sp.csr_array:
    """Read the sparse matrix of a ``.npz`` file that SciPy saved as CSR, CSC or COO."""
    with open_regular(path) as file, zipfile.ZipFile(file) as archive:
        n_packed = os.fstat(file.fileno()).st_size
        refuse_bomb(path, n_packed, sum(member.file_size for member in archive.infolist()))
        kind = _member(archive, "format", path, "SU").item()
        kind = kind.decode("ascii", "replace") if isinstance(kind, bytes) else kind
        shape = _member(archive, "shape", path, "iu").ravel().tolist()
        refuse_bomb(path, n_packed, 8 * max(shape[:1], default=0))  # the index pointer of the CSR matrix
        if kind not in _INDEX_ARRAYS:
            raise DataError(f"{path} holds a matrix in the form '{kind}'; expected csr, csc or coo: matrix.tocsr().")
        data = _member(archive, "data", path)
        first, second = (_member(archive, name, path, "iu") for name in _INDEX_ARRAYS[kind])

    if kind == "coo":  # `first` and `second` are the row and the column of each value
        if len(shape) != 2 or first.ndim != 1 or not data.shape == first.shape == second.shape:
            problem = f"{path}: {data.shape} values are in rows {first.shape} and columns {second.shape}"
            raise DataError(f"{problem} of a matrix {tuple(shape)}.")
        order = np.argsort(first, kind="stable")
        indptr = np.searchsorted(first[order], np.arange(shape[0] + 1))  # refused if a row is not in the matrix
        if len(indptr) == 0 or indptr[0] != 0 or indptr[-1] != data.size:
            raise DataError(f"{path}: the values are in rows {first.min()} to {first.max()} of {shape[0]}.")
        return checked_csr(data[order], second[order], indptr, shape, str(path))
    if kind == "csc":
        return sp.csr_array(checked_csr(data, first, second, shape[::-1], f"{path} (CSC: its rows are columns)").T)
    return checked_csr(data, first, second, shape, str(path))


def refuse_bomb(path: Path, n_packed: int, n_unpacked: int) -> None:
    """Raise TooLargeError if a file unpacks to far more than features do."""
    if n_unpacked > max(ALWAYS_ALLOWED_BYTES, MAX_EXPANSION * n_packed):
        raise TooLargeError(
            f"{path} has {n_packed:,} bytes and would unpack to {n_unpacked:,}; expected at most {MAX_EXPANSION} times "
            "its size, more than features need. If the file is right, save it uncompressed."
        )


def open_unpacked(path: Path) -> IO[bytes]:
    """Open a file for reading, through gzip if it is named ``.gz``. Raises OSError if it is not a regular file."""
    return io.BufferedReader(_Unpacked(path)) if path.suffix == ".gz" else open_regular(path)


class _Unpacked(io.RawIOBase):
    """Unpacks gzip, and stops with an error when a file unpacks to far more than features do."""

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, open_regular(path)
        self._packed = os.fstat(self._file.fileno()).st_size
        self._gzip = gzip.GzipFile(fileobj=self._file)
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


def _member(archive: zipfile.ZipFile, name: str, path: Path, kinds: str = NUMERIC_KINDS) -> Numbers:
    """Read one array of an archive, up to the size that its directory declares."""
    try:
        info = archive.getinfo(f"{name}.npy")
    except KeyError as error:
        raise DataError(
            f"{path} has no '{name}'; expected a sparse matrix, with data, format, shape and its indices.",
            advice="Write it with scipy.sparse.save_npz.",
        ) from error
    with archive.open(info) as member:
        header = _header(member, info.file_size, f"its part '{name}'")
        if header.dtype.kind not in kinds:
            expected = "whole numbers" if kinds == "iu" else "numbers" if kinds == NUMERIC_KINDS else "a text"
            raise DataError(f"{path}, '{name}': it holds {header.dtype}; expected {expected}.")
        content = member.read(header.size)
    numbers = np.frombuffer(content, header.dtype) if content else np.empty(0, header.dtype)
    return numbers.reshape(header.shape, order="F" if header.fortran else "C")


def _header(file: IO[bytes], size: int, part: str = "it") -> _Header:
    """Read the header of a ``.npy`` file; refuse Python objects, and arrays larger than the file."""
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"{part} is in version {version[0]}.{version[1]} of NumPy's format; expected 1.0 or 2.0")
    shape, fortran, dtype = _HEADERS[version](file)
    header = _Header(dtype, shape, fortran, file.tell())
    if dtype.hasobject:
        raise ValueError(f"{part} holds Python objects, which are never loaded")
    if min(shape, default=0) < 0 or header.start + header.size > size:
        raise ValueError(
            f"{part} is truncated: the header promises {dtype} of shape {shape}, {header.size:,} bytes, and "
            f"{max(0, size - header.start):,} are there"
        )
    return header


def read_svmlight(path: Path) -> tuple[sp.csr_array, list[tuple[float, ...]]]:
    """Read the rows of a svmlight file, which may be gzipped, as float32, and the targets of each.

    Columns are numbered from 0 or 1, as in the file. Raises DataError if a line is invalid: the message names the line
    and the problem; TooLargeError if it would unpack to far more than features do; ValueError, OverflowError or
    OSError if it is not such a file.
    """
    from sklearn.datasets import load_svmlight_file

    try:
        with open_unpacked(path) as file:
            rows, targets = load_svmlight_file(file, dtype=np.float32, multilabel=True)
    except (ValueError, OverflowError):
        _refuse_first_wrong_line(path)
        raise
    if not np.isfinite(rows.data).all() or rows.indices.min(initial=0) < 0 or rows.shape[1] > MAX_FEATURES:
        _refuse_first_wrong_line(path)
    return checked_csr(rows.data, rows.indices, rows.indptr, rows.shape, str(path)), targets


def _refuse_first_wrong_line(path: Path) -> None:
    """Raise DataError for the first target or pair INDEX:NUMBER that is invalid."""
    with open_unpacked(path) as file:
        for number, line in enumerate(file, start=1):
            cells = line.partition(b"#")[0].split()
            least = 0
            if cells and b":" not in cells[0] and not all(map(_is_finite, cells[0].split(b","))):
                text = cells[0][:40].decode("utf-8", "replace")
                raise DataError(f"{path}, line {number}: '{text}'; expected numbers as targets, such as 1,3.")
            for pair in cells if cells and b":" in cells[0] else cells[1:]:
                index, _, value = pair.partition(b":")
                if index == b"qid":
                    continue
                is_index = index.isdigit() and len(index) <= len(str(MAX_FEATURES))
                if not is_index or not least <= int(index) < MAX_FEATURES or not _is_finite(value):
                    text = pair[:40].decode("utf-8", "replace")
                    expected = f"expected INDEX:NUMBER with an index of {least:,} to {MAX_FEATURES - 1:,}, in ascending"
                    raise DataError(f"{path}, line {number}: '{text}'; {expected} order, and a finite number.")
                least = int(index) + 1


def _is_finite(text: bytes) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
