"""Feature rows in Parquet files of other programs, with the names of their images; needs pyarrow (extra `parquet`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import MAX_CSR_COLUMNS, as_csr, checked_csr
from visterm.core.errors import DataError, ShapeError, UnknownNameError
from visterm.core.files import open_regular
from visterm.core.registry import unknown
from visterm.core.wording import count_of
from visterm.data.matrix_files import Rows, refuse_bomb

NAME_COLUMNS = ("file_name", "image", "filename", "name")  # Default columns of names, in order of preference
ROW_COLUMNS = (["indices", "values"], ["features"])  # Default columns of rows
LIST_TYPES = (pa.ListType, pa.LargeListType, pa.FixedSizeListType)

# Errors that Arrow raises for invalid files; even names of columns may not be UTF-8
PARQUET_ERRORS = (OSError, pa.ArrowException, UnicodeDecodeError, KeyError)

_IS_NUMBER = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)


def read_parquet(
    file: Path, column: str | None, name_column: str | None, *, with_names: bool
) -> tuple[list[str], Rows]:
    """Read the names, unless they are elsewhere, and the rows of a Parquet file, or of all such files in a folder.

    Columns and errors are those of `visterm.data.feature_files.read_features`.
    """
    files = [file]
    if file.is_dir():
        files = sorted(part for part in file.glob("*.parquet") if not part.name.startswith((".", "_")))
    if not files:
        raise DataError(f"There are no Parquet files in the folder {file}. Name a file or a folder of features.")
    files = [part.absolute() for part in files]  # pyarrow takes file:x for a URI
    try:
        for part in files:  # pyarrow must not open what is not a regular file, or unpacks to far more than features do
            open_regular(part).close()
            metadata = pq.read_metadata(part)
            groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
            n_values = sum(group.column(index).num_values for group in groups for index in range(group.num_columns))
            refuse_bomb(part, part.stat().st_size, 4 * max(n_values, metadata.num_rows))
        schema = pq.read_schema(files[0])
        lists = [str(field.name) for field in schema if isinstance(field.type, LIST_TYPES)]
        row_columns, names_column = _columns(schema.names, lists, column, name_column if with_names else None, file)
        if with_names and not names_column:
            problem = f"{file} has the columns {', '.join(schema.names)}, none of {', '.join(NAME_COLUMNS)}."
            raise DataError(problem, setting="name_column", advice="Name its column: `encoder.name_column`=NAME.")
        table = ds.dataset(files, schema=schema).to_table(columns=row_columns + [names_column] * with_names)
        table.validate(full=True)
    except PARQUET_ERRORS as error:
        raise DataError(f"{file} cannot be read as Parquet: {' '.join(str(error).split())}") from error

    label = f"{file}, column {' and '.join(map(repr, row_columns))}"
    first, second = table[row_columns[0]], table[row_columns[-1]]
    rows: Rows = _dense(first, label) if len(row_columns) == 1 else _sparse(first, second, label)
    texts = table[names_column].to_pylist() if with_names else []
    if None in texts:
        row = texts.index(None) + 1
        raise DataError(f"{file} has no name in row {row} (column '{names_column}'); expected one in each.")
    return [str(text) for text in texts], rows


def _columns(
    names: list[str], list_columns: list[str], column: str | None, name_column: str | None, file: Path
) -> tuple[list[str], str]:
    """Return the row columns and the name column, as requested or by default; "" if there is no name column."""
    for setting, requested in (("column", column), ("name_column", name_column)):
        if requested is not None and requested not in names:
            raise UnknownNameError(unknown(f"column of {file}", requested, names), setting=setting, value=requested)
    row_columns = [column] if column is not None else next((c for c in ROW_COLUMNS if set(c) <= set(names)), None)
    if row_columns is None and len(list_columns) != 1:
        problem = f"{file} has {count_of(len(list_columns), 'column')} of lists among {', '.join(names)}."
        expected = "one, or 'features', or 'indices' and 'values'"
        raise DataError(problem, setting="column", expected=expected, advice="Name it: `encoder.column`=NAME.")
    return row_columns or list_columns, name_column or next((name for name in NAME_COLUMNS if name in names), "")


def _dense(column: pa.ChunkedArray, label: str) -> NDArray[np.float32]:
    """Convert a column of equally long lists of numbers to float32 of shape (n_rows, width)."""
    lengths, numbers = _joined(column, label, _IS_NUMBER, "numbers")
    width = int(lengths[0]) if len(lengths) else 0
    misfits = np.flatnonzero(lengths != width)
    if misfits.size:
        raise ShapeError(
            f"{label}, row {misfits[0] + 1}: it has {lengths[misfits[0]]:,} numbers, and the first row has {width:,}; "
            "expected the same number in each (or sparse rows, as columns 'indices' and 'values')."
        )
    with np.errstate(over="ignore"):  # overflow to infinity is refused when the row is used
        return numbers.astype(np.float32, copy=False).reshape(len(lengths), width)


def _sparse(indices: pa.ChunkedArray, values: pa.ChunkedArray, label: str) -> sp.csr_array:
    """Convert two columns of lists, feature indices and values, to float32 CSR, as wide as the largest index says."""
    lengths, columns = _joined(indices, label, (pa.types.is_integer,), "whole numbers")
    counts, data = _joined(values, label, _IS_NUMBER, "numbers")
    misfits = np.flatnonzero(lengths != counts)
    if misfits.size:
        raise ShapeError(
            f"{label}, row {misfits[0] + 1}: it has {lengths[misfits[0]]:,} indices and {counts[misfits[0]]:,} values; "
            "expected one value per index."
        )

    indptr = np.concatenate([[0], np.cumsum(lengths)])
    shape = (len(lengths), min(int(columns.max(initial=-1)) + 1, MAX_CSR_COLUMNS))
    with np.errstate(over="ignore"):
        return as_csr(checked_csr(data.astype(np.float32), columns, indptr, shape, label, error=ShapeError))


def _joined(
    column: pa.ChunkedArray, label: str, tests: tuple[Callable[[pa.DataType], bool], ...], expected: str
) -> tuple[NDArray[np.int64], NDArray[np.number]]:
    """Return the lengths and the joined values of the lists in a column, whose type must pass one of the tests."""
    if isinstance(column.type, pa.BaseExtensionType):  # such as a tensor of fixed shape
        column = column.cast(column.type.storage_type)
    if not isinstance(column.type, LIST_TYPES) or not any(test(column.type.value_type) for test in tests):
        raise ShapeError(f"{label} has the type {column.type}; expected lists of {expected}.")
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py() + 1
        raise ShapeError(f"{label}, row {row}: it is missing (null); expected a list of numbers.")

    lengths, numbers = pc.list_value_length(column).to_numpy(), pc.list_flatten(column)
    if numbers.null_count:
        row = np.searchsorted(np.cumsum(lengths), pc.index(numbers.is_null(), True).as_py(), side="right") + 1
        raise ShapeError(f"{label}, row {row}: a number is missing (null); expected a number in each place.")
    return lengths.astype(np.int64), numbers.to_numpy()
