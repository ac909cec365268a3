"""Arrow columns of lists as matrices: fixed or equal lengths are dense rows, indices with values are sparse ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import MOST_COLUMNS, as_csr, checked_csr
from visterm.core.errors import ShapeError

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
