"""Parquet shards of features: the file name, content hash and row of each image, for any program that reads Parquet."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import MOST_COLUMNS, as_csr, checked_csr
from visterm.core.errors import CorruptFileError, ShapeError
from visterm.core.files import check_regular
from visterm.core.remote import as_path, is_remote
from visterm.core.types import Matrix

PARQUET_ERRORS = (OSError, pa.ArrowException, UnicodeDecodeError, KeyError)
"""What Arrow raises for a file whose bytes are not what they should be: names of columns need not even be UTF-8."""


def dense_rows(column: pa.ChunkedArray, what: str) -> NDArray[np.float32]:
    """Return a column of lists of numbers, all equally long, as a matrix.

    Parameters
    ----------
    column : pyarrow.ChunkedArray
        Lists, large lists or lists of a fixed size, of any type of number.
    what : str
        What it is, for messages.

    Returns
    -------
    ndarray of float32, shape (n_rows, width)

    Raises
    ------
    ShapeError
        If it has no lists of numbers, a list is missing, holds a missing number, or is not as long as the first.
    """
    parts: list[NDArray[np.float32]] = []
    n_rows = 0
    for lists in _lists(column, what):
        lengths, flat = _lengths_and_values(lists, what, n_rows)
        width = int(lengths[0]) if not parts else parts[0].shape[1]
        odd = np.flatnonzero(lengths != width)
        if odd.size:
            raise ShapeError(
                f"{what}, row {n_rows + odd[0] + 1}: it has {lengths[odd[0]]:,} numbers, and the first row has "
                f"{width:,}; expected as many in each (or sparse rows, as columns 'indices' and 'values')."
            )
        n_rows += len(lengths)
        with np.errstate(over="ignore"):  # too large for float32 is infinite, which is refused where the row is taken
            parts.append(flat.astype(np.float32, copy=False).reshape(len(lengths), width))
    return np.concatenate(parts) if parts else np.empty((0, 0), np.float32)


def sparse_rows(
    indices: pa.ChunkedArray, values: pa.ChunkedArray, what: str, *, width: int | None = None
) -> sp.csr_array:
    """Return two columns of lists, the columns of features and their values, as a matrix.

    Parameters
    ----------
    indices, values : pyarrow.ChunkedArray
        Lists of whole numbers of 0 or more, and of numbers.
    what : str
        What they are, for messages.
    width : int, optional
        Number of features; None: one more than the largest index.

    Returns
    -------
    csr_array of float32, shape (n_rows, width)

    Raises
    ------
    ShapeError
        If they are no lists of numbers, the lists of a row are not equally long, or an index comes twice in a row, is
        below 0 or not below `width`.
    """
    _check_lists(indices.type, what, pa.types.is_integer, "whole numbers")
    lengths, columns = _joined(indices, what)
    counts, data = _joined(values, what)
    odd = np.flatnonzero(lengths != counts)
    if odd.size:
        raise ShapeError(
            f"{what}, row {odd[0] + 1}: it has {lengths[odd[0]]:,} indices and {counts[odd[0]]:,} values; expected one "
            "value an index."
        )
    width = int(columns.max(initial=-1)) + 1 if width is None else width
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    shape = (len(lengths), min(width, MOST_COLUMNS))
    with np.errstate(over="ignore"):
        return as_csr(checked_csr(data.astype(np.float32), columns, indptr, shape, what, error=ShapeError))


def _joined(column: pa.ChunkedArray, what: str) -> tuple[NDArray[np.int64], NDArray[Any]]:
    parts = []
    n_rows = 0
    for lists in _lists(column, what):
        parts.append(_lengths_and_values(lists, what, n_rows))
        n_rows += len(lists)
    if not parts:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    return np.concatenate([lengths for lengths, _ in parts]), np.concatenate([flat for _, flat in parts])


def _lists(column: pa.ChunkedArray, what: str) -> Iterator[pa.Array]:
    """Yield the chunks one by one: joined, long columns of lists overflow their 32-bit offsets."""
    _check_lists(column.type, what, _is_number, "numbers")
    for chunk in column.chunks:
        if len(chunk):
            yield chunk.storage if isinstance(chunk, pa.ExtensionArray) else chunk


def _check_lists(found: pa.DataType, what: str, right: Callable[[pa.DataType], bool], expected: str) -> None:
    """Refuse a column of anything but lists of one sort of numbers."""
    kind = found.storage_type if isinstance(found, pa.BaseExtensionType) else found
    is_list = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    if not any(test(kind) for test in is_list) or not right(kind.value_type):
        raise ShapeError(f"{what} has the type {found}; expected lists of {expected}.")


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _lengths_and_values(lists: pa.Array, what: str, before: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return how long the lists of a chunk are, and what is in them; `before` are the rows of chunks before it."""
    flat = lists.flatten()
    if lists.null_count:
        missing = int(np.argmax(lists.is_null().to_numpy(zero_copy_only=False)))
        raise ShapeError(f"{what}, row {before + missing + 1}: it is missing (null); expected a list of numbers.")
    if pa.types.is_fixed_size_list(lists.type):
        lengths = np.full(len(lists), lists.type.list_size, np.int64)
    else:
        lengths = np.diff(lists.offsets.to_numpy()).astype(np.int64)
    if flat.null_count:
        place = int(np.argmax(flat.is_null().to_numpy(zero_copy_only=False)))
        row = before + int(np.searchsorted(np.cumsum(lengths), place, side="right")) + 1
        raise ShapeError(f"{what}, row {row}: a number is missing (null); expected a number in each place.")
    return lengths, flat.to_numpy(zero_copy_only=False)


FILE_NAME, SHA256 = "file_name", "sha256"
FEATURES, INDICES, VALUES = "features", "indices", "values"
"""The columns; rows are `FEATURES`, a list of fixed size, if dense, and else lists of `INDICES` and `VALUES`."""

_WIDTH = b"visterm.width"
_ODD_BYTE = re.compile(r"[\udc80-\udcff]")
_ESCAPE = re.compile(r"\\(\\|udc[89a-f][0-9a-f])")


class Shard(NamedTuple):
    """Some images of a folder, with their feature rows.

    Attributes
    ----------
    names : list of str
        Paths inside the image folder, with ``/`` between.
    sha256 : list of str
        Of the files' bytes, in hex.
    rows : ndarray or CSR of float32, shape (n_images, width)
    """

    names: list[str]
    sha256: list[str]
    rows: Matrix


def shard_bytes(shard: Shard) -> bytes:
    """Return a shard as a Parquet file: equal shards give equal bytes, by the same release of pyarrow."""
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


def read_shard(path: str | os.PathLike[str]) -> Shard:
    """Read what `shard_bytes` gave.

    Raises
    ------
    CorruptFileError
        If it is no such file.
    """
    table = _read(path)
    names, sha256 = _index(table)
    if FEATURES in table.column_names:
        return Shard(names, sha256, dense_rows(table[FEATURES], os.fspath(path)))
    rows = sparse_rows(table[INDICES], table[VALUES], os.fspath(path), width=shard_width(table.schema))
    return Shard(names, sha256, rows)


def read_shard_index(path: str | os.PathLike[str]) -> tuple[list[str], list[str]]:
    """Read the names and the content hashes of a shard, without its rows.

    Raises
    ------
    CorruptFileError
        If it is no such file.
    """
    return _index(_read(path, [FILE_NAME, SHA256]))


def read_shard_rows(path: str | os.PathLike[str]) -> Matrix:
    """Read the rows of a shard without names and hashes, on the thread that asks: others are at work.

    Raises
    ------
    CorruptFileError
        If it is no such file.
    """
    schema = _schema(path)
    dense = FEATURES in schema.names
    table = _read(path, [FEATURES] if dense else [INDICES, VALUES], threads=False)
    if dense:
        return dense_rows(table[FEATURES], os.fspath(path))
    return sparse_rows(table[INDICES], table[VALUES], os.fspath(path), width=shard_width(schema))


def read_named_rows(path: str | os.PathLike[str]) -> tuple[list[str], Matrix]:
    """Read the names and the rows of a shard without hashes, on the thread that asks.

    Raises
    ------
    CorruptFileError
        If it is no such file.
    """
    schema = _schema(path)
    dense = FEATURES in schema.names
    table = _read(path, [FILE_NAME, FEATURES] if dense else [FILE_NAME, INDICES, VALUES], threads=False)
    names = [name_of_text(text) for text in table[FILE_NAME].to_pylist()]
    if dense:
        return names, dense_rows(table[FEATURES], os.fspath(path))
    return names, sparse_rows(table[INDICES], table[VALUES], os.fspath(path), width=shard_width(schema))


def shard_row_bytes(path: str | os.PathLike[str], width: int) -> int:
    """Say how many bytes the rows of a shard take in memory, from its footer: those of CSR, 8 a number at most.

    Raises
    ------
    CorruptFileError
        If it is no such file.
    """
    try:
        with _source(path) as file:
            found = pq.read_metadata(file)
    except PARQUET_ERRORS as error:
        raise CorruptFileError(f"{os.fspath(path)} cannot be read as a shard of features: {error}.") from error
    if FEATURES in found.schema.to_arrow_schema().names:
        return int(4 * width * found.num_rows)
    groups = [found.row_group(number) for number in range(found.num_row_groups)]
    columns = [group.column(number) for group in groups for number in range(group.num_columns)]
    sizes = [part.total_uncompressed_size for part in columns if part.path_in_schema.split(".")[0] in (INDICES, VALUES)]
    return int(sum(sizes) + 8 * found.num_rows)


def shard_width(schema: pa.Schema) -> int | None:
    """Say how many features the rows of a shard have; None of a Parquet file that is none of ours."""
    width = (schema.metadata or {}).get(_WIDTH)
    if width is None:
        return None
    if not (width.isdigit() and len(width) <= len(str(MOST_COLUMNS))):
        raise CorruptFileError(
            f"A shard of features says that its rows have {width[:20]!r} numbers; expected a number."
        )
    return int(width)


@contextmanager
def _source(path: str | os.PathLike[str]) -> Iterator[Any]:
    """Yield what pyarrow reads a file from: of an object in a store, only the parts that are asked for."""
    if is_remote(path):
        with as_path(path).open("rb") as file:
            yield file
    else:
        check_regular(path)
        yield os.fspath(path)


def _schema(path: str | os.PathLike[str]) -> Any:
    try:
        with _source(path) as file:
            return pq.read_schema(file)
    except PARQUET_ERRORS as error:
        raise CorruptFileError(f"{os.fspath(path)} cannot be read as a shard of features: {error}.") from error


def _read(path: str | os.PathLike[str], columns: list[str] | None = None, *, threads: bool = True) -> Any:
    try:
        with _source(path) as file:
            table = pq.read_table(file, columns=columns, partitioning=None, use_threads=threads)
        table.validate(full=True)
    except PARQUET_ERRORS as error:
        raise CorruptFileError(f"{os.fspath(path)} cannot be read as a shard of features: {error}.") from error
    known = {FILE_NAME, SHA256} | ({FEATURES} if FEATURES in table.column_names else {INDICES, VALUES})
    missing = sorted(known.intersection(columns or known) - set(table.column_names))
    if missing:
        raise CorruptFileError(
            f"{os.fspath(path)} is no shard of features: it has no column '{missing[0]}', but "
            f"{', '.join(table.column_names)}."
        )
    for name in {FILE_NAME, SHA256}.intersection(table.column_names):
        if table[name].type != pa.string() or table[name].null_count:
            raise CorruptFileError(
                f"{os.fspath(path)}: the column '{name}' is {table[name].type} with {table[name].null_count} missing; "
                "expected a text in each row."
            )
    return table


def _index(table: Any) -> tuple[list[str], list[str]]:
    return [name_of_text(text) for text in table[FILE_NAME].to_pylist()], table[SHA256].to_pylist()


def _text(name: str) -> str:
    r"""Return a file name as UTF-8 can hold it: odd bytes as ``\udcff``, and in such a name backslashes doubled."""
    if not _ODD_BYTE.search(name) and r"\udc" not in name:
        return name
    return _ODD_BYTE.sub(lambda found: f"\\u{ord(found[0]):04x}", name.replace("\\", r"\\"))


def name_of_text(text: str) -> str:
    """Return the file name of an image as the column has it, odd bytes and all."""
    if r"\udc" not in text:
        return text
    return _ESCAPE.sub(lambda found: "\\" if found[1] == "\\" else chr(int(found[1][1:], 16)), text)
