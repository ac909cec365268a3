"""Parquet shards of features: file name, content hash and row of each image, readable by other programs."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import MOST_COLUMNS, as_csr, checked_csr
from visterm.core.errors import CorruptFileError, ShapeError
from visterm.core.files import open_regular
from visterm.core.remote import as_path, is_remote
from visterm.core.types import Matrix

FILE_NAME, SHA256 = "file_name", "sha256"

# Columns of rows: `FEATURES` with lists of fixed size if dense, otherwise lists of `INDICES` and `VALUES`
FEATURES, INDICES, VALUES = "features", "indices", "values"

# Errors that Arrow raises for invalid files; even names of columns may not be UTF-8
PARQUET_ERRORS = (OSError, pa.ArrowException, UnicodeDecodeError, KeyError)

_WIDTH = b"visterm.width"
_ODD_BYTE = re.compile(r"[\udc80-\udcff]")
_ESCAPE = re.compile(r"\\(\\|udc[89a-f][0-9a-f])")
LISTS = (pa.ListType, pa.LargeListType, pa.FixedSizeListType)
_IS_NUMBER = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)


class Shard(NamedTuple):
    """A part of a folder's images, with their feature rows."""

    names: list[str]  # Paths inside the image folder, with ``/`` between
    sha256: list[str]  # Hashes of the files' bytes, in hex
    rows: Matrix  # ndarray or CSR of float32, shape (n_images, width)


def shard_bytes(shard: Shard) -> bytes:
    """Return a shard as a Parquet file; the same release of pyarrow returns equal bytes for equal shards."""
    width = shard.rows.shape[1]
    columns = {FILE_NAME: pa.array(map(_text, shard.names), pa.string()), SHA256: pa.array(shard.sha256, pa.string())}
    if sp.issparse(shard.rows):
        csr = as_csr(shard.rows)
        offsets = pa.array(csr.indptr, pa.int32())
        columns[INDICES] = pa.ListArray.from_arrays(offsets, pa.array(csr.indices, pa.int32()))
        columns[VALUES] = pa.ListArray.from_arrays(offsets, pa.array(csr.data, pa.float32()))
    else:
        flat = np.ascontiguousarray(shard.rows, np.float32).reshape(-1)
        columns[FEATURES] = pa.FixedSizeListArray.from_arrays(pa.array(flat, pa.float32()), width)

    table = pa.table(columns).replace_schema_metadata({_WIDTH: str(width)})
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, compression="zstd", use_dictionary=False)
    return bytes(buffer.getvalue())


def read_shard(
    path: str | os.PathLike[str],
    texts: tuple[str, ...] = (FILE_NAME, SHA256),
    *,
    rows: bool = True,
    threads: bool = True,
) -> Shard:
    """Read a shard: the given text columns, with or without its rows; what is not read is empty.

    Without `threads`, only the caller's thread is used, because other threads are busy. Raises CorruptFileError if the
    file is not a shard, as do the functions below.
    """
    place = os.fspath(path)
    with _opened(path) as file:
        names = pq.read_schema(file).names
        row_columns = [FEATURES] if FEATURES in names else [INDICES, VALUES]
        columns = [*texts, *(row_columns if rows else [])]
        if missing := sorted(set(columns) - set(names)):
            raise CorruptFileError(
                f"{place} is no shard of features: it has no column '{missing[0]}', but {', '.join(names)}."
            )
        table = pq.read_table(file, columns=columns, partitioning=None, use_threads=threads)
        table.validate(full=True)

    for name in texts:
        if table[name].type != pa.string() or table[name].null_count:
            raise CorruptFileError(
                f"{place}: the column '{name}' is {table[name].type} with {table[name].null_count} missing; expected a "
                "text in each row."
            )

    image_names = table[FILE_NAME].to_pylist() if FILE_NAME in texts else []
    image_names = [name_of_text(text) if "\\" in text else text for text in image_names]
    hashes = table[SHA256].to_pylist() if SHA256 in texts else []
    if not rows:
        return Shard(image_names, hashes, np.empty((0, 0), np.float32))
    if len(row_columns) == 1:
        return Shard(image_names, hashes, dense_rows(table[FEATURES], place))
    width = shard_width(table.schema)
    return Shard(image_names, hashes, sparse_rows(table[INDICES], table[VALUES], place, width=width))


def read_shard_index(path: str | os.PathLike[str]) -> tuple[list[str], list[str]]:
    """Read the names and the content hashes of a shard, without its rows."""
    names, sha256, _ = read_shard(path, rows=False)
    return names, sha256


def shard_row_bytes(path: str | os.PathLike[str], width: int) -> int:
    """Return how many bytes the rows of a shard take in memory, from its footer; for CSR at most 8 bytes a number."""
    with _opened(path) as file:
        metadata = pq.read_metadata(file)
        if FEATURES in metadata.schema.to_arrow_schema().names:
            return int(4 * width * metadata.num_rows)
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    columns = [group.column(number) for group in groups for number in range(group.num_columns)]
    sizes = [part.total_uncompressed_size for part in columns if part.path_in_schema.split(".")[0] in (INDICES, VALUES)]
    return int(sum(sizes) + 8 * metadata.num_rows)


def shard_width(schema: pa.Schema) -> int | None:
    """Return the number of features in the rows of a shard; None for a Parquet file of another program."""
    width = (schema.metadata or {}).get(_WIDTH)
    if width is None:
        return None
    if not (width.isdigit() and len(width) <= len(str(MOST_COLUMNS))):
        raise CorruptFileError(f"A shard of features says that its rows are {width[:20]!r} wide; expected a number.")
    return int(width)


def name_of_text(text: str) -> str:
    """Decode a text of the column to a file name, whose bytes need not be UTF-8."""
    if r"\udc" not in text:
        return text
    return _ESCAPE.sub(lambda match: "\\" if match[1] == "\\" else chr(int(match[1][1:], 16)), text)


def dense_rows(column: pa.ChunkedArray, label: str) -> NDArray[np.float32]:
    """Convert a column of equally long lists of numbers to float32 of shape (n_rows, width).

    The column has lists, large lists or lists of fixed size, of any numeric type; messages call it `label`. Raises
    ShapeError if it has no lists of numbers, a list or a number is missing, or lists differ in length.
    """
    lengths, numbers = _joined(column, label, _IS_NUMBER, "numbers")
    width = int(lengths[0]) if len(lengths) else 0
    wrong = np.flatnonzero(lengths != width)
    if wrong.size:
        raise ShapeError(
            f"{label}, row {wrong[0] + 1}: it has {lengths[wrong[0]]:,} numbers, and the first row has {width:,}; "
            "expected as many in each (or sparse rows, as columns 'indices' and 'values')."
        )
    with np.errstate(over="ignore"):  # overflow to infinity is refused when the row is used
        return numbers.astype(np.float32, copy=False).reshape(len(lengths), width)


def sparse_rows(
    indices: pa.ChunkedArray, values: pa.ChunkedArray, label: str, *, width: int | None = None
) -> sp.csr_array:
    """Convert two columns of lists, feature indices and values, to float32 CSR of shape (n_rows, width).

    Indices are whole numbers of 0 or more; messages call the columns `label`. A `width` of None is one more than the
    largest index. Raises ShapeError if the columns have no lists of numbers, the two lists of a row differ in length,
    or an index occurs twice in a row, is below 0 or not below `width`.
    """
    lengths, columns = _joined(indices, label, (pa.types.is_integer,), "whole numbers")
    counts, data = _joined(values, label, _IS_NUMBER, "numbers")
    wrong = np.flatnonzero(lengths != counts)
    if wrong.size:
        raise ShapeError(
            f"{label}, row {wrong[0] + 1}: it has {lengths[wrong[0]]:,} indices and {counts[wrong[0]]:,} values; "
            "expected one value an index."
        )
    indptr = np.concatenate([[0], np.cumsum(lengths)])

    if width is None:
        negative = np.flatnonzero(columns < 0)
        if negative.size:
            row = int(np.searchsorted(indptr, negative[0], side="right"))
            raise ShapeError(f"{label}, row {row}: it has the index {columns[negative[0]]}; expected 0 or more.")
        width = int(columns.max(initial=-1)) + 1
    shape = (len(lengths), min(width, MOST_COLUMNS))
    with np.errstate(over="ignore"):
        return as_csr(checked_csr(data.astype(np.float32), columns, indptr, shape, label, error=ShapeError))


def _joined(
    column: pa.ChunkedArray, name: str, tests: tuple[Callable[[pa.DataType], bool], ...], expected: str
) -> tuple[NDArray[np.int64], NDArray[np.number]]:
    """Return the lengths and the joined values of the lists in a column, whose type must pass one of the tests.

    Chunks are processed one by one, because the 32-bit offsets of long columns would overflow.
    """
    list_type = column.type.storage_type if isinstance(column.type, pa.BaseExtensionType) else column.type
    if not isinstance(list_type, LISTS) or not any(test(list_type.value_type) for test in tests):
        raise ShapeError(f"{name} has the type {column.type}; expected lists of {expected}.")

    lengths: list[NDArray[np.int64]] = []
    parts: list[NDArray[np.number]] = []
    n_before = 0
    for chunk in filter(len, column.chunks):
        lists = chunk.storage if isinstance(chunk, pa.ExtensionArray) else chunk
        numbers = lists.flatten()
        if lists.null_count:
            missing = int(np.argmax(lists.is_null().to_numpy(zero_copy_only=False)))
            raise ShapeError(f"{name}, row {n_before + missing + 1}: it is missing (null); expected a list of numbers.")
        if pa.types.is_fixed_size_list(lists.type):
            lengths.append(np.full(len(lists), lists.type.list_size, np.int64))
        else:
            lengths.append(np.diff(lists.offsets.to_numpy()).astype(np.int64))
        if numbers.null_count:
            index = int(np.argmax(numbers.is_null().to_numpy(zero_copy_only=False)))
            row = n_before + int(np.searchsorted(np.cumsum(lengths[-1]), index, side="right")) + 1
            raise ShapeError(f"{name}, row {row}: a number is missing (null); expected a number in each place.")
        n_before += len(lists)
        parts.append(numbers.to_numpy(zero_copy_only=False))
    if not lengths:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    return np.concatenate(lengths), np.concatenate(parts)


@contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[str | IO[bytes]]:
    """Yield a path or an open file for pyarrow; convert pyarrow's errors to CorruptFileError."""
    try:
        if not is_remote(path):
            open_regular(path).close()  # refuses pipes and devices before pyarrow opens the file
            if not _ODD_BYTE.search(os.fspath(path)):
                yield os.path.abspath(path)  # pyarrow takes file:x for a URI
                return
        with as_path(path).open("rb") as file:  # pyarrow cannot open names that aren't UTF-8
            yield file
    except PARQUET_ERRORS as error:
        raise CorruptFileError(
            f"{os.fspath(path)} cannot be read as a shard of features: {' '.join(str(error).split()).rstrip('.')}. "
            "Restore it from a backup, or run the command that wrote it again."
        ) from error


def _text(name: str) -> str:
    r"""Encode a file name as UTF-8 text: invalid bytes as ``\udcff``, and in such a name backslashes doubled."""
    if not _ODD_BYTE.search(name) and r"\udc" not in name:
        return name
    return _ODD_BYTE.sub(lambda match: f"\\u{ord(match[0]):04x}", name.replace("\\", r"\\"))
