"""Arrow columns of lists as matrices: fixed or equal lengths are dense rows, indices with values are sparse ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_csr
from visterm.core.errors import ShapeError


def dense_rows(column: pa.ChunkedArray, what: str) -> NDArray[np.float32]:
    """Give a column of lists of numbers, all equally long, as a matrix.

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
        If a list is missing, holds a missing number, or is not as long as the first.
    """
    parts: list[NDArray[np.float32]] = []
    for lists in _lists(column):
        lengths, flat = _lengths_and_values(lists, what)
        width = int(lengths[0]) if not parts else parts[0].shape[1]
        odd = np.flatnonzero(lengths != width)
        if odd.size:
            raise ShapeError(
                f"{what} has a row of {lengths[odd[0]]:,} numbers among rows of {width:,}; expected as many in each "
                "(or sparse rows, as columns 'indices' and 'values')."
            )
        parts.append(flat.astype(np.float32, copy=False).reshape(len(lengths), width))
    return np.concatenate(parts) if parts else np.empty((0, 0), np.float32)


def sparse_rows(
    indices: pa.ChunkedArray, values: pa.ChunkedArray, what: str, *, width: int | None = None
) -> sp.csr_array:
    """Give two columns of lists, the columns of features and their values, as a matrix.

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
        If the lists of a row are not equally long, or an index is below 0 or not below `width`.
    """
    lengths, columns = _joined(indices, what)
    counts, data = _joined(values, what)
    if not np.array_equal(lengths, counts):
        raise ShapeError(f"{what} has rows with more indices than values, or fewer; expected one value an index.")
    largest = int(columns.max(initial=-1))
    width = largest + 1 if width is None else width
    if largest >= width or int(columns.min(initial=0)) < 0:
        raise ShapeError(f"{what} has indices from {columns.min()} to {largest}; expected 0 to {width - 1}.")
    indptr = np.concatenate([[0], np.cumsum(lengths)])
    return as_csr(sp.csr_array((data.astype(np.float32), columns, indptr), shape=(len(lengths), width)))


def _joined(column: pa.ChunkedArray, what: str) -> tuple[NDArray[np.int64], NDArray[Any]]:
    parts = [_lengths_and_values(lists, what) for lists in _lists(column)]
    if not parts:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    return np.concatenate([lengths for lengths, _ in parts]), np.concatenate([flat for _, flat in parts])


def _lists(column: pa.ChunkedArray) -> Iterator[pa.Array]:
    """Give the chunks one by one: joined, long columns of lists overflow their 32-bit offsets."""
    for chunk in column.chunks:
        if len(chunk):
            yield chunk.storage if isinstance(chunk, pa.ExtensionArray) else chunk


def _lengths_and_values(lists: pa.Array, what: str) -> tuple[NDArray[np.int64], NDArray[Any]]:
    flat = lists.flatten()
    if lists.null_count or flat.null_count:
        raise ShapeError(f"{what} has rows or numbers that are missing (null); expected a list of numbers in each row.")
    if pa.types.is_fixed_size_list(lists.type):
        lengths = np.full(len(lists), lists.type.list_size, np.int64)
    else:
        lengths = np.diff(lists.offsets.to_numpy()).astype(np.int64)
    return lengths, flat.to_numpy(zero_copy_only=False)
