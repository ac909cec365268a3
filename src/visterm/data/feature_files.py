"""Feature rows that other programs made, with the names of their images: NumPy, SciPy, Parquet and svmlight files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import as_csr
from visterm.core.errors import DataError, ShapeError, StorageError, UnknownNameError, UserError, VistermError
from visterm.core.files import GB, check_regular, open_regular, read_regular, why_no_file
from visterm.core.registry import unknown
from visterm.core.wording import count_of
from visterm.data.array_files import (
    MOST_FEATURES,
    NUMBERS,
    READ_ERRORS,
    map_npy,
    not_a_matrix,
    read_npz,
    read_svmlight,
    refuse_bomb,
)
from visterm.data.image_names import name_key

SVMLIGHT = (".svm", ".svmlight", ".libsvm", ".svm.gz", ".svmlight.gz", ".libsvm.gz")
SUFFIXES = (".npy", ".npz", ".parquet", *SVMLIGHT)
NAMES = ".names.txt"
NAME_COLUMNS = ("file_name", "image", "filename", "name")
"""Columns of a Parquet file that names are taken from unasked, in this order."""


ZIP_PREFIX = b"PK"
KINDS = {
    ".npy": ("a NumPy matrix", "Write it with numpy.save, from a matrix of numbers."),
    ".npz": ("a sparse matrix as scipy.sparse.save_npz writes it", "Write it so, or a dense matrix with numpy.save."),
}
"""What the files of some endings hold, and what to do where they hold something else."""


class FeatureTable(NamedTuple):
    """Feature rows and the names of their images.

    Attributes
    ----------
    names : list of str
        One a row, no two alike.
    rows : array or CSR, shape (n_rows, width)
        Of any type of number; a memory map where the file allows it.
    """

    names: list[str]
    rows: Any


def read_features(
    path: str | os.PathLike[str],
    *,
    names: str | os.PathLike[str] | None = None,
    column: str | None = None,
    name_column: str | None = None,
) -> FeatureTable:
    """Read feature rows with the names of their images.

    Parameters
    ----------
    path : path-like
        By its ending: ``.npy`` (a matrix, which is memory-mapped), ``.npz`` (a sparse matrix as SciPy saves it),
        ``.parquet`` or a folder of such files (a column of lists of numbers, or columns ``indices`` and ``values``),
        ``.svm``, ``.svmlight`` or ``.libsvm``, which may be gzipped (the targets are not looked at). A features folder
        of visterm is one, too.
    names : path-like, optional
        A text file of names in UTF-8, one a line, in the order of the rows. None: ``NAME.names.txt`` beside
        ``NAME.npy``; of Parquet, a column.
    column, name_column : str, optional
        Columns of a Parquet file. None: "features", or the only one of lists; "file_name", "image", "filename" or
        "name".

    Returns
    -------
    FeatureTable

    Raises
    ------
    StorageError
        If there is no such file, or none of names.
    UserError
        If the ending is not known, or columns are named of a file that has none.
    DataError
        If the file is not what its ending says, a name stands twice, or there are not as many names as rows.
    """
    file = Path(path)
    if not file.exists():
        raise StorageError(f"There is no features file {file}. Give one that ends in {', '.join(SUFFIXES[:5])}.")
    if not (file.is_dir() or file.is_file()):
        raise StorageError(f"The features file {file} {why_no_file(file)}. Give one that lies on a disk.")
    if file.is_dir() or file.suffix == ".parquet":
        return _checked(file, *_read_parquet(file, names, column, name_column))
    if column is not None or name_column is not None:
        raise UserError(f"Only Parquet files have columns, and {file} is none. Leave column and name_column out.")
    rows = _read_matrix(file)
    return _checked(file, _read_names(_names_file(file, names)), rows)


def _read_matrix(file: Path) -> Any:
    _refuse_other_content(file)
    try:
        if file.suffix == ".npy":
            return map_npy(file)
        if file.suffix == ".npz":
            return as_csr(read_npz(file))
        if file.name.endswith(SVMLIGHT):
            return as_csr(read_svmlight(file))
    except VistermError:
        raise
    except READ_ERRORS as error:
        what, advice = KINDS.get(file.suffix, ("svmlight", "Write it with sklearn.datasets.dump_svmlight_file."))
        raise DataError(f"{file} cannot be read as {what}: {_reason(error)}. {advice}") from error
    raise UserError(f"{file} has an ending that is not known; expected one of {', '.join(SUFFIXES)}, or a folder.")


def _reason(error: Exception) -> str:
    """Say in plain words what NumPy and SciPy say in terms of their own parameters."""
    text = " ".join(str(error).split()).rstrip(".") or type(error).__name__
    return "it breaks off" if text.startswith("EOF") else text


def _refuse_other_content(file: Path) -> None:
    """Refuse what does not begin as its ending says, before NumPy takes it for pickled objects."""
    if file.suffix not in KINDS:
        return
    what, advice = KINDS[file.suffix]
    try:
        with open_regular(file) as opened:
            begins = opened.read(len(np.lib.format.MAGIC_PREFIX))
    except OSError as error:
        raise StorageError(f"{file} cannot be read: {error.strerror or error}.") from error
    if not begins:
        raise DataError(f"{file} cannot be read as {what}: it is empty. {advice}")
    if not begins.startswith(np.lib.format.MAGIC_PREFIX if file.suffix == ".npy" else ZIP_PREFIX):
        raise DataError(f"{file} cannot be read as {what}: it begins with {begins!r}, as no such file does. {advice}")


def _read_parquet(
    file: Path, names: str | os.PathLike[str] | None, column: str | None, name_column: str | None
) -> tuple[list[str], Any]:
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    from visterm.data.feature_shards import (
        INDICES,
        PARQUET_ERRORS,
        VALUES,
        dense_rows,
        name_of_text,
        shard_width,
        sparse_rows,
    )

    if (file / "data").is_dir():  # a features folder of visterm
        file = file / "data"
    try:
        parts = _parts_of(file)
        for part in parts:
            check_regular(part)
            _refuse_parquet_bomb(part, pq.read_metadata(part))
        schema = pq.read_schema(parts[0])
        sparse = column is None and {INDICES, VALUES} <= set(schema.names)
        wanted = [INDICES, VALUES] if sparse else [_list_column(schema, column, file)]
        named = None if names is not None else _name_column(schema.names, name_column, file)
        table = ds.dataset(parts, schema=schema).to_table(columns=[*wanted, *([named] if named else [])])
        table.validate(full=True)
    except PARQUET_ERRORS as error:
        raise DataError(f"{file} cannot be read as Parquet: {' '.join(str(error).split())}") from error
    what = f"{file}, column {' and '.join(map(repr, wanted))}"
    width = shard_width(schema)
    if sparse:
        rows: Any = sparse_rows(table[INDICES], table[VALUES], what, width=width)
    else:
        rows = dense_rows(table[wanted[0]], what)
    if names is not None:
        return _read_names(Path(names)), rows
    texts = table[named].to_pylist()
    if None in texts:
        raise DataError(f"{file} has no name in row {texts.index(None) + 1} (column '{named}'); expected one in each.")
    return [str(text) if width is None else name_of_text(text) for text in texts], rows


def _refuse_parquet_bomb(file: Path, found: Any) -> None:
    """Refuse a file that says that it holds far more numbers than its bytes can."""
    groups = [found.row_group(number) for number in range(found.num_row_groups)]
    n_values = sum(group.column(place).num_values for group in groups for place in range(group.num_columns))
    refuse_bomb(file, file.stat().st_size, 4 * max(n_values, found.num_rows))


def _parts_of(file: Path) -> list[Path]:
    if not file.is_dir():
        return [file]
    parts = sorted(part for part in file.glob("*.parquet") if not part.name.startswith((".", "_")))
    if not parts:
        raise DataError(f"There are no Parquet files in the folder {file}. Give a file or a folder of features.")
    return parts


def _list_column(schema: Any, column: str | None, file: Path) -> str:
    import pyarrow as pa

    if column is not None:
        if column not in schema.names:
            raise UnknownNameError(unknown(f"column of {file}", column, schema.names))
        return column
    if "features" in schema.names:
        return "features"
    is_list = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    lists = [field.name for field in schema if any(test(field.type) for test in is_list)]
    if len(lists) != 1:
        raise DataError(
            f"{file} has {count_of(len(lists), 'column')} of lists among {', '.join(schema.names)}; expected one, or "
            "'features', or 'indices' and 'values'. Name it with column=... (--encoder-set column=NAME)."
        )
    return str(lists[0])


def _name_column(columns: Sequence[str], name_column: str | None, file: Path) -> str:
    if name_column is not None:
        if name_column not in columns:
            raise UnknownNameError(unknown(f"column of {file}", name_column, list(columns)))
        return name_column
    found = [column for column in NAME_COLUMNS if column in columns]
    if not found:
        raise DataError(
            f"{file} has the columns {', '.join(columns)}, none of {', '.join(NAME_COLUMNS)}. Name the column of file "
            "names with name_column=... (--encoder-set name_column=NAME)."
        )
    return found[0]


def _names_file(file: Path, names: str | os.PathLike[str] | None) -> Path:
    if names is not None:
        return Path(names)
    ending = next(suffix for suffix in (*SUFFIXES[::-1], file.suffix) if file.name.endswith(suffix))
    return file.with_name(file.name[: len(file.name) - len(ending)] + NAMES)


def _read_names(file: Path) -> list[str]:
    try:
        text = read_regular(file, 4 * GB).decode("utf-8-sig", "surrogateescape")
    except OSError as error:
        raise StorageError(
            f"The names of the rows cannot be read from {file}: {error.strerror}. Write one image name a line there, "
            "in the order of the rows, or name the file that has them (--encoder-set names=FILE)."
        ) from error
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines[:-1] if lines[-1] == "" else lines


def _checked(file: Path, names: list[str], rows: Any) -> FeatureTable:
    if rows.ndim != 2 or rows.dtype.kind not in NUMBERS:
        raise not_a_matrix(file, rows.dtype, rows.shape)
    if rows.shape[0] != len(names):
        raise ShapeError(
            f"{file} has {count_of(rows.shape[0], 'row')}, and there are {count_of(len(names), 'name')}; expected "
            "a name a row."
        )
    if 0 in rows.shape:
        raise ShapeError(f"{file} has {rows.shape[0]} rows of {rows.shape[1]} numbers; expected 1 or more of both.")
    if rows.shape[1] > MOST_FEATURES:
        raise ShapeError(_too_wide(file, rows))
    places: dict[str, int] = {}
    for place, name in enumerate(names):
        first = places.setdefault(name_key(name), place)
        if first != place:
            raise DataError(
                f"'{name}' is the name of the rows {first + 1} and {place + 1} of {file}; expected one row an image."
            )
    return FeatureTable(names, rows)


def _too_wide(file: Path, rows: Any) -> str:
    where = ""
    if sp.issparse(rows) and rows.nnz:
        largest = int(np.argmax(rows.indices))
        row = np.searchsorted(rows.indptr, largest, side="right")
        where = f"; row {row} has the index {rows.indices[largest]}"
    return (
        f"{file} has {rows.shape[1]:,} features (columns){where}; expected at most {MOST_FEATURES:,}. Correct the "
        "index, or number the features from 0."
    )
