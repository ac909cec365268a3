"""Feature rows that other programs made, with the names of their images: NumPy, SciPy, Parquet and svmlight files."""

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
from visterm.core.errors import (
    DataError,
    ShapeError,
    StorageError,
    TooLargeError,
    UnknownNameError,
    UserError,
    VistermError,
)
from visterm.core.files import GB, MB, open_regular, read_regular, why_no_file
from visterm.core.registry import unknown
from visterm.core.wording import count_of
from visterm.data.image_folders import name_key

SVMLIGHT = (".svm", ".svmlight", ".libsvm", ".svm.gz", ".svmlight.gz", ".libsvm.gz")
SUFFIXES = (".npy", ".npz", ".parquet", *SVMLIGHT)
NAMES = ".names.txt"
# Default name columns of a Parquet file, in order of preference
NAME_COLUMNS = ("file_name", "image", "filename", "name")

ROW_COLUMNS = (["indices", "values"], ["features"])  # Default row columns of a Parquet file

# Maximum number of features in sparse rows: the first, or the second times the number of used features if larger.
# Models keep some numbers for every feature, and an index far above the others is a mistake (67,108,863 takes 25 GiB)
MIN_FEATURE_LIMIT, FEATURES_PER_USED = 2**20, 1000

# Suffix -> description, first bytes, and advice for a file with other content
KINDS = {
    ".npy": ("a NumPy matrix", np.lib.format.MAGIC_PREFIX, "Write it with numpy.save, from a matrix of numbers."),
    ".npz": ("a sparse matrix of scipy.sparse.save_npz", b"PK", "Write it so, or a dense matrix with numpy.save."),
}

NUMERIC_KINDS = "fiub"  # NumPy's dtype kinds of numbers
MAX_FEATURES = 2**26  # Maximum number of columns: models keep some numbers for each, and a larger index is a mistake
MAX_EXPANSION = 100  # Maximum ratio of unpacked to compressed size: features and their indices reach ten
ALWAYS_FINE = 64 * MB  # Size in bytes that any file may unpack to

_INDEX_ARRAYS = {"csr": ("indices", "indptr"), "csc": ("indices", "indptr"), "coo": ("row", "col")}  # Index arrays
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}

# Errors that NumPy, zip files and decompressors raise for invalid bytes
READ_ERRORS = (
    ValueError, SyntaxError, TypeError, LookupError, EOFError, OSError, OverflowError, MemoryError, RuntimeError,
    tokenize.TokenError, struct.error, zipfile.BadZipFile, zlib.error, lzma.LZMAError,
)  # fmt: skip


Numbers: TypeAlias = "NDArray[Any]"  # Of any numeric dtype
Rows: TypeAlias = "Numbers | sp.csr_array"


class FeatureTable(NamedTuple):
    """Feature rows and the names of their images."""

    names: list[str]  # One for each row, unique
    rows: Rows  # array or CSR, shape (n_rows, width), of any numeric dtype; a memory map if the file allows it


def read_features(
    path: str | os.PathLike[str],
    *,
    names: str | os.PathLike[str] | None = None,
    column: str | None = None,
    name_column: str | None = None,
) -> FeatureTable:
    """Read feature rows with the names of their images; the suffix of the file decides the format.

    The file is ``.npy`` (a matrix, which is memory-mapped), ``.npz`` (a sparse matrix as SciPy saves it), ``.parquet``
    or a folder of such files (a column of lists of numbers, or columns ``indices`` and ``values``), ``.svm``,
    ``.svmlight`` or ``.libsvm``, which may be gzipped (the targets are ignored). A features folder of visterm is also
    accepted.

    `names` is a UTF-8 text file with one name per line, in the order of the rows. None: ``NAME.names.txt`` beside
    ``NAME.npy``, or a column of the Parquet file. `column` and `name_column` are columns of a Parquet file. None:
    "features", or the only column of lists; "file_name", "image", "filename" or "name".

    Raises StorageError if the file or the file of names is missing; UserError if the suffix is unknown, or columns are
    named for a format without columns; DataError if the content does not match the suffix, a name occurs twice, or the
    numbers of names and rows differ.
    """
    file = Path(path)
    if not file.exists():
        raise StorageError(f"There is no features file {file}. Name one that ends in {', '.join(SUFFIXES[:5])}.")
    if not (file.is_dir() or file.is_file()):
        raise StorageError(f"The features file {file} {why_no_file(file)}. Name one that lies on a disk.")
    if file.is_dir() or file.suffix == ".parquet":
        return _validated_table(file, *_read_parquet(file, names, column, name_column))

    if column is not None or name_column is not None:
        name, value = ("column", column) if column is not None else ("name_column", name_column)
        raise UserError(
            f"Only Parquet files have columns, and {file} is none.", setting=name, value=value, advice="Leave it out."
        )

    rows = _read_matrix(file)
    if names is None:
        ending = next(suffix for suffix in (*SUFFIXES[::-1], file.suffix) if file.name.endswith(suffix))
        names = file.with_name(file.name.removesuffix(ending) + NAMES)
    return _validated_table(file, _read_names(Path(names)), rows)


def _read_matrix(file: Path) -> Rows:
    description, magic, advice = KINDS.get(
        file.suffix, ("svmlight", b"", "Write it with sklearn.datasets.dump_svmlight_file.")
    )
    try:
        if file.suffix in KINDS:
            try:
                with open_regular(file) as opened:
                    first_bytes = opened.read(len(np.lib.format.MAGIC_PREFIX))
            except OSError as error:
                raise StorageError(f"{file} cannot be read: {error.strerror or error}.") from error
            if not first_bytes.startswith(magic):  # otherwise NumPy would read it as a pickle
                reason = f"it begins with {first_bytes!r}, as no such file does" if first_bytes else "it is empty"
                raise DataError(f"{file} cannot be read as {description}: {reason}. {advice}")
            return map_npy(file) if file.suffix == ".npy" else as_csr(read_npz(file))
        if file.name.endswith(SVMLIGHT):
            return as_csr(read_svmlight(file))
    except VistermError:
        raise
    except READ_ERRORS as error:
        # EOFError has a message of Python's own; other messages mention parameters of NumPy and SciPy.
        message = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        reason = "it breaks off" if message.startswith("EOF") else message
        raise DataError(f"{file} cannot be read as {description}: {reason}. {advice}") from error
    expected = f"one of {', '.join(SUFFIXES)}, or a folder"
    raise UserError(f"{file} has an ending that is not known.", setting="path", value=file, expected=expected)


def _read_parquet(
    file: Path, names: str | os.PathLike[str] | None, column: str | None, name_column: str | None
) -> tuple[list[str], Rows]:
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    from visterm.data import feature_shards as shards  # imports pyarrow

    parts = [file]
    if file.is_dir():
        file = file / "data" if (file / "data").is_dir() else file  # a features folder of visterm
        parts = sorted(part for part in file.glob("*.parquet") if not part.name.startswith((".", "_")))
    if not parts:
        raise DataError(f"There are no Parquet files in the folder {file}. Name a file or a folder of features.")
    parts = [part.absolute() for part in parts]  # pyarrow takes file:x for a URI
    try:
        for part in parts:
            open_regular(part).close()  # refuses pipes and devices before pyarrow opens the file
            metadata = pq.read_metadata(part)
            groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
            n_values = sum(group.column(index).num_values for group in groups for index in range(group.num_columns))
            refuse_bomb(part, part.stat().st_size, 4 * max(n_values, metadata.num_rows))
        schema = pq.read_schema(parts[0])
        lists = [str(field.name) for field in schema if isinstance(field.type, shards.LISTS)]
        of_rows, of_names = _columns(schema.names, lists, column, None if names is not None else name_column, file)
        if names is None and not of_names:
            problem = f"{file} has the columns {', '.join(schema.names)}, none of {', '.join(NAME_COLUMNS)}."
            raise DataError(problem, setting="name_column", advice="Name that of names: `encoder.name_column`=NAME.")
        table = ds.dataset(parts, schema=schema).to_table(columns=[*of_rows, *([of_names] if names is None else [])])
        table.validate(full=True)
    except shards.PARQUET_ERRORS as error:
        raise DataError(f"{file} cannot be read as Parquet: {' '.join(str(error).split())}") from error

    label = f"{file}, column {' and '.join(map(repr, of_rows))}"
    width = shards.shard_width(schema)
    first, second = table[of_rows[0]], table[of_rows[-1]]
    is_dense = len(of_rows) == 1
    rows: Rows = shards.dense_rows(first, label) if is_dense else shards.sparse_rows(first, second, label, width=width)
    if names is not None:
        return _read_names(Path(names)), rows
    texts = table[of_names].to_pylist()
    if None in texts:
        row = texts.index(None) + 1
        raise DataError(f"{file} has no name in row {row} (column '{of_names}'); expected one in each.")
    return [str(text) if width is None else shards.name_of_text(text) for text in texts], rows


def _columns(
    names: list[str], list_columns: list[str], column: str | None, name_column: str | None, file: Path
) -> tuple[list[str], str]:
    """Return the row columns and the name column, as requested or by default; "" if there is no name column."""
    for setting, requested in (("column", column), ("name_column", name_column)):
        if requested is not None and requested not in names:
            raise UnknownNameError(unknown(f"column of {file}", requested, names), setting=setting, value=requested)
    usual = [column] if column is not None else next((c for c in ROW_COLUMNS if set(c) <= set(names)), None)
    if usual is None and len(list_columns) != 1:
        problem = f"{file} has {count_of(len(list_columns), 'column')} of lists among {', '.join(names)}."
        expected = "one, or 'features', or 'indices' and 'values'"
        raise DataError(problem, setting="column", expected=expected, advice="Name it: `encoder.column`=NAME.")
    return usual or list_columns, name_column or next((name for name in NAME_COLUMNS if name in names), "")


def _read_names(file: Path) -> list[str]:
    """Read one name per line; bytes that are not UTF-8 are kept."""
    try:
        text = read_regular(file, 4 * GB).decode("utf-8-sig", "surrogateescape")
    except OSError as error:
        raise StorageError(
            f"The names of the rows cannot be read from {file}: {error.strerror}.",
            advice="Write one image name a line there, in the order of the rows, or name the file that has them: "
            "`encoder.names`=FILE.",
        ) from error
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines[:-1] if lines[-1] == "" else lines


def _validated_table(file: Path, names: list[str], rows: Rows) -> FeatureTable:
    if rows.ndim != 2 or rows.dtype.kind not in NUMERIC_KINDS:
        raise ShapeError(
            f"{file} holds {rows.dtype} of shape {rows.shape}; expected a matrix of numbers, a row for each image."
        )
    if rows.shape[0] != len(names):
        n_rows, n_names = count_of(rows.shape[0], "row"), count_of(len(names), "name")
        raise ShapeError(f"{file} has {n_rows}, and there are {n_names}; expected a name a row.")

    if 0 in rows.shape:
        raise ShapeError(f"{file} has {rows.shape[0]} rows of {rows.shape[1]} numbers; expected 1 or more of both.")
    _refuse_too_wide(file, rows)
    row_of: dict[str, int] = {}

    for row, name in enumerate(names):
        other_row = row_of.setdefault(name_key(name), row)
        if other_row != row:
            raise DataError(
                f"'{name}' is the name of the rows {other_row + 1} and {row + 1} of {file}; expected one row an image."
            )
    return FeatureTable(names, rows)


def _refuse_too_wide(file: Path, rows: Any) -> None:
    """Refuse too many features, before a model allocates memory for them."""
    if rows.shape[1] <= MIN_FEATURE_LIMIT:
        return
    limit, place = MAX_FEATURES, ""
    if sp.issparse(rows) and rows.nnz:
        n_used = np.unique(rows.indices).size
        limit = min(MAX_FEATURES, max(MIN_FEATURE_LIMIT, FEATURES_PER_USED * n_used))
        largest = int(np.argmax(rows.indices))
        row = np.searchsorted(rows.indptr, largest, side="right")
        place = f"; row {row} has the index {rows.indices[largest]}"

    if rows.shape[1] > limit:
        reason = f", as only {n_used:,} of them have numbers" if limit < MAX_FEATURES else ""
        raise ShapeError(
            f"{file} has {rows.shape[1]:,} features (columns){place}; expected at most {limit:,}{reason}. Correct the "
            "index, or number the features from 0."
        )


class _Header(NamedTuple):
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    start: int  # Byte position of the first value

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def map_npy(path: Path) -> Numbers:
    """Map the array of a ``.npy`` file into memory.

    Raises READ_ERRORS if it is not such a file, or is shorter than its header says.
    """
    with open_regular(path) as file:
        header = _header(file, os.fstat(file.fileno()).st_size)
        if 0 in header.shape:
            return np.empty(header.shape, header.dtype)
        order: Any = "F" if header.fortran else "C"
        return np.memmap(file, header.dtype, "r", header.start, header.shape, order)


def read_npz(path: Path) -> sp.csr_array:
    """Read the sparse matrix of a ``.npz`` file that SciPy saved as CSR, CSC or COO.

    Raises DataError if the arrays are inconsistent, or an entry occurs twice; TooLargeError if it would unpack to far
    more than features do; READ_ERRORS if it is not such a file.
    """
    with open_regular(path) as file, zipfile.ZipFile(file) as archive:
        packed = os.fstat(file.fileno()).st_size
        refuse_bomb(path, packed, sum(member.file_size for member in archive.infolist()))
        kind = _member(archive, "format", path, "SU").item()
        kind = kind.decode("ascii", "replace") if isinstance(kind, bytes) else kind
        shape = _member(archive, "shape", path, "iu").ravel().tolist()
        refuse_bomb(path, packed, 8 * max(shape[:1], default=0))  # the index pointer of the CSR matrix
        if kind not in _INDEX_ARRAYS:
            raise DataError(f"{path} holds a matrix in the form '{kind}'; expected csr, csc or coo: matrix.tocsr().")
        data, first, second = (_member(archive, name, path) for name in ("data", *_INDEX_ARRAYS[kind]))

    if kind == "coo":  # `first` and `second` are the row and the column of each value
        if data.ndim != 1 or not data.shape == first.shape == second.shape:
            raise DataError(
                f"{path}: there are {data.size} values, {first.size} rows and {second.size} columns of them."
            )
        if len(shape) != 2 or first.dtype.kind not in "iu":
            raise DataError(f"{path}: the rows of the values are no whole numbers, or the shape is {tuple(shape)}.")
        outside = np.flatnonzero((first < 0) | (first >= shape[0]))
        if outside.size:
            value, row = outside[0] + 1, first[outside[0]]
            raise DataError(f"{path}: value {value} is in row {row}; expected 0 to {shape[0] - 1}.")
        order = np.argsort(first, kind="stable")
        indptr = np.concatenate([[0], np.cumsum(np.bincount(first.astype(np.int64), minlength=shape[0]))])
        return checked_csr(data[order], second[order], indptr, shape, str(path))
    if kind == "csc":
        return sp.csr_array(checked_csr(data, first, second, shape[::-1], f"{path} (CSC: its rows are columns)").T)
    return checked_csr(data, first, second, shape, str(path))


def refuse_bomb(path: Path, packed: int, unpacked: int) -> None:
    """Raise TooLargeError if a file unpacks to far more than features do."""
    if unpacked > max(ALWAYS_FINE, MAX_EXPANSION * packed):
        raise TooLargeError(
            f"{path} has {packed:,} bytes and would unpack to {unpacked:,}; expected at most {MAX_EXPANSION} times its "
            "size, as of features. If it is what it should be, save it without compression."
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
            f"{part} breaks off: the header promises {dtype} of shape {shape}, {header.size:,} bytes, and "
            f"{max(0, size - header.start):,} are there"
        )
    return header


def read_svmlight(path: Path) -> sp.csr_array:
    """Read the rows of a svmlight file, which may be gzipped, as float32; the targets are ignored.

    Columns are numbered from 0 or 1, as in the file. Raises DataError if a line is invalid: the message names the line
    and the problem; TooLargeError if it would unpack to far more than features do; ValueError, OverflowError or
    OSError if it is not such a file.
    """
    from sklearn.datasets import load_svmlight_file

    try:
        with open_unpacked(path) as file:
            rows = load_svmlight_file(file, dtype=np.float32, multilabel=True)[0]
    except (ValueError, OverflowError):
        _refuse_first_wrong_line(path)
        raise
    if not np.isfinite(rows.data).all() or rows.indices.min(initial=0) < 0 or rows.shape[1] > MAX_FEATURES:
        _refuse_first_wrong_line(path)
    return checked_csr(rows.data, rows.indices, rows.indptr, rows.shape, str(path))


def _refuse_first_wrong_line(path: Path) -> None:
    with open_unpacked(path) as file:
        for number, line in enumerate(file, start=1):
            cells = line.partition(b"#")[0].split()
            previous_index = -1
            for pair in cells if cells and b":" in cells[0] else cells[1:]:
                index, _, value = pair.partition(b":")
                if index == b"qid":
                    continue
                if problem := _problem_of_pair(index, value, previous_index):
                    text = pair[:40].decode("utf-8", "replace")
                    raise DataError(f"{path}, line {number}: '{text}' {problem}. Correct the line, or leave it out.")
                previous_index = int(index)


def _problem_of_pair(index: bytes, value: bytes, previous_index: int) -> str:
    """Return what is wrong with a pair INDEX:NUMBER, as the end of a sentence; "" if it is valid."""
    if not index.isdigit():
        return "does not begin with an index; expected INDEX:NUMBER, with a whole number of 0 or more"
    if len(index) > len(str(MAX_FEATURES)) or int(index) >= MAX_FEATURES:
        return f"has too large an index; expected at most {MAX_FEATURES - 1:,}"
    if int(index) <= previous_index:
        return f"comes after the index {previous_index}; expected indices in ascending order, each once"
    try:
        number = float(value)
    except ValueError:
        return "does not end with a number; expected INDEX:NUMBER"
    return "" if math.isfinite(number) else "has a number that is not finite"
