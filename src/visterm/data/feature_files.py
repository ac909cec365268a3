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
from visterm.data import array_files
from visterm.data.image_names import name_key

SVMLIGHT = (".svm", ".svmlight", ".libsvm", ".svm.gz", ".svmlight.gz", ".libsvm.gz")
SUFFIXES = (".npy", ".npz", ".parquet", *SVMLIGHT)
NAMES = ".names.txt"
NAME_COLUMNS = ("file_name", "image", "filename", "name")
"""Columns of a Parquet file that hold names unless another is named, in this order."""

FEATURES_ALWAYS_FINE, FEATURES_PER_USED = 2**20, 1000
"""Sparse rows may have as many features as the first, or as the second for each feature that any row has a number of:
models keep some numbers of every feature, and an index far beyond the others is wrong (67,108,863 takes 25 GiB)."""

ZIP_PREFIX = b"PK"
KINDS = {
    ".npy": ("a NumPy matrix", "Write it with numpy.save, from a matrix of numbers."),
    ".npz": ("a sparse matrix as scipy.sparse.save_npz writes it", "Write it so, or a dense matrix with numpy.save."),
}
"""What the files of some endings hold, and what to do where they hold something else."""


class FeatureTable(NamedTuple):
    """Feature rows and the names of their images."""

    names: list[str]  # One a row, no two alike
    rows: Any  # array or CSR, shape (n_rows, width): of any type of number; a memory map where the file allows it


def read_features(
    path: str | os.PathLike[str],
    *,
    names: str | os.PathLike[str] | None = None,
    column: str | None = None,
    name_column: str | None = None,
) -> FeatureTable:
    """Read feature rows with the names of their images, by the ending of the file.

    The file is ``.npy`` (a matrix, which is memory-mapped), ``.npz`` (a sparse matrix as SciPy saves it), ``.parquet``
    or a folder of such files (a column of lists of numbers, or columns ``indices`` and ``values``), ``.svm``,
    ``.svmlight`` or ``.libsvm``, which may be gzipped (the targets are not looked at). A features folder of visterm is
    one, too.

    `names` is a text file of names in UTF-8, one a line, in the order of the rows. None: ``NAME.names.txt`` beside
    ``NAME.npy``; of Parquet, a column. `column` and `name_column` are those of a Parquet file. None: "features", or the
    only one of lists; "file_name", "image", "filename" or "name".

    Raises StorageError if there is no such file, or none of names; UserError if the ending is not known, or columns are
    named of a file that has none; DataError if the file is not what its ending says, a name stands twice, or there are
    not as many names as rows.
    """
    file = Path(path)
    if not file.exists():
        raise StorageError(f"There is no features file {file}. Name one that ends in {', '.join(SUFFIXES[:5])}.")
    if not (file.is_dir() or file.is_file()):
        raise StorageError(f"The features file {file} {why_no_file(file)}. Name one that lies on a disk.")
    if file.is_dir() or file.suffix == ".parquet":
        return _checked(file, *_read_parquet(file, names, column, name_column))
    if column is not None or name_column is not None:
        raise UserError(f"Only Parquet files have columns, and {file} is none. Leave column and name_column out.")
    rows = _read_matrix(file)
    return _checked(file, _read_names(_names_file(file, names)), rows)


def _read_matrix(file: Path) -> Any:
    what, advice = KINDS.get(file.suffix, ("svmlight", "Write it with sklearn.datasets.dump_svmlight_file."))
    try:
        if file.suffix in KINDS:
            _refuse_other_content(file, what, advice)
            return array_files.map_npy(file) if file.suffix == ".npy" else as_csr(array_files.read_npz(file))
        if file.name.endswith(SVMLIGHT):
            return as_csr(array_files.read_svmlight(file))
    except VistermError:
        raise
    except array_files.READ_ERRORS as error:
        # EOFError comes with words of Python's own, and others are said in terms of NumPy's and SciPy's parameters.
        said = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        reason = "it breaks off" if said.startswith("EOF") else said
        raise DataError(f"{file} cannot be read as {what}: {reason}. {advice}") from error
    raise UserError(f"{file} has an ending that is not known; expected one of {', '.join(SUFFIXES)}, or a folder.")


def _refuse_other_content(file: Path, what: str, advice: str) -> None:
    """Refuse what does not begin as its ending says, before NumPy takes it for pickled objects."""
    magic = np.lib.format.MAGIC_PREFIX
    try:
        with open_regular(file) as opened:
            begins = opened.read(len(magic))
    except OSError as error:
        raise StorageError(f"{file} cannot be read: {error.strerror or error}.") from error
    if not begins:
        raise DataError(f"{file} cannot be read as {what}: it is empty. {advice}")
    if not begins.startswith(magic if file.suffix == ".npy" else ZIP_PREFIX):
        raise DataError(f"{file} cannot be read as {what}: it begins with {begins!r}, as no such file does. {advice}")


def _read_parquet(
    file: Path, names: str | os.PathLike[str] | None, column: str | None, name_column: str | None
) -> tuple[list[str], Any]:
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    from visterm.data import feature_shards as shards  # which loads pyarrow

    parts = [file]
    if file.is_dir():
        file = file / "data" if (file / "data").is_dir() else file  # a features folder of visterm
        parts = sorted(part for part in file.glob("*.parquet") if not part.name.startswith((".", "_")))
    if not parts:
        raise DataError(f"There are no Parquet files in the folder {file}. Name a file or a folder of features.")
    parts = [part.absolute() for part in parts]  # pyarrow takes file:x for an address
    try:
        for part in parts:
            check_regular(part)
            facts = pq.read_metadata(part)
            groups = [facts.row_group(number) for number in range(facts.num_row_groups)]
            n_values = sum(group.column(place).num_values for group in groups for place in range(group.num_columns))
            array_files.refuse_bomb(part, part.stat().st_size, 4 * max(n_values, facts.num_rows))
        schema = pq.read_schema(parts[0])
        sparse = column is None and {shards.INDICES, shards.VALUES} <= set(schema.names)
        of_rows = [shards.INDICES, shards.VALUES] if sparse else [_list_column(schema, column, file)]
        of_names = None if names is not None else _name_column(schema.names, name_column, file)
        table = ds.dataset(parts, schema=schema).to_table(columns=[*of_rows, *([of_names] if of_names else [])])
        table.validate(full=True)
    except shards.PARQUET_ERRORS as error:
        raise DataError(f"{file} cannot be read as Parquet: {' '.join(str(error).split())}") from error
    what = f"{file}, column {' and '.join(map(repr, of_rows))}"
    width = shards.shard_width(schema)
    rows: Any = (
        shards.sparse_rows(table[shards.INDICES], table[shards.VALUES], what, width=width)
        if sparse
        else shards.dense_rows(table[of_rows[0]], what)
    )
    if names is not None:
        return _read_names(Path(names)), rows
    texts = table[of_names].to_pylist()
    if None in texts:
        raise DataError(
            f"{file} has no name in row {texts.index(None) + 1} (column '{of_names}'); expected one in each."
        )
    return [str(text) if width is None else shards.name_of_text(text) for text in texts], rows


def _list_column(schema: Any, column: str | None, file: Path) -> str:
    """Return the column of dense rows: the one that is named, "features", or the only one of lists."""
    from visterm.data.feature_shards import FEATURES, is_list

    if column is not None:
        return _known_column(schema.names, column, file)
    lists = [FEATURES] if FEATURES in schema.names else [str(field.name) for field in schema if is_list(field.type)]
    if len(lists) != 1:
        raise DataError(
            f"{file} has {count_of(len(lists), 'column')} of lists among {', '.join(schema.names)}; expected one, or "
            "'features', or 'indices' and 'values'. Name it with column=... (--encoder-set column=NAME)."
        )
    return lists[0]


def _name_column(columns: Sequence[str], name_column: str | None, file: Path) -> str:
    if name_column is not None:
        return _known_column(columns, name_column, file)
    found = next((column for column in NAME_COLUMNS if column in columns), None)
    if found is None:
        raise DataError(
            f"{file} has the columns {', '.join(columns)}, none of {', '.join(NAME_COLUMNS)}. Name the column of file "
            "names with name_column=... (--encoder-set name_column=NAME)."
        )
    return found


def _known_column(columns: Sequence[str], column: str, file: Path) -> str:
    if column not in columns:
        raise UnknownNameError(unknown(f"column of {file}", column, list(columns)))
    return column


def _names_file(file: Path, names: str | os.PathLike[str] | None) -> Path:
    if names is not None:
        return Path(names)
    ending = next(suffix for suffix in (*SUFFIXES[::-1], file.suffix) if file.name.endswith(suffix))
    return file.with_name(file.name[: len(file.name) - len(ending)] + NAMES)


def _read_names(file: Path) -> list[str]:
    """Read a name a line, odd bytes and all."""
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
    if rows.ndim != 2 or rows.dtype.kind not in array_files.NUMBERS:
        raise array_files.not_a_matrix(file, rows.dtype, rows.shape)
    if rows.shape[0] != len(names):
        raise ShapeError(
            f"{file} has {count_of(rows.shape[0], 'row')}, and there are {count_of(len(names), 'name')}; expected "
            "a name a row."
        )
    if 0 in rows.shape:
        raise ShapeError(f"{file} has {rows.shape[0]} rows of {rows.shape[1]} numbers; expected 1 or more of both.")
    if rows.shape[1] > FEATURES_ALWAYS_FINE:
        _refuse_too_wide(file, rows)
    places: dict[str, int] = {}
    for place, name in enumerate(names):
        first = places.setdefault(name_key(name), place)
        if first != place:
            raise DataError(
                f"'{name}' is the name of the rows {first + 1} and {place + 1} of {file}; expected one row an image."
            )
    return FeatureTable(names, rows)


def _refuse_too_wide(file: Path, rows: Any) -> None:
    """Refuse more features than a model can keep numbers of, before any model makes room for them."""
    most, where = array_files.MOST_FEATURES, ""
    if sp.issparse(rows) and rows.nnz:
        n_used = np.unique(rows.indices).size
        most = min(array_files.MOST_FEATURES, max(FEATURES_ALWAYS_FINE, FEATURES_PER_USED * n_used))
        largest = int(np.argmax(rows.indices))
        row = np.searchsorted(rows.indptr, largest, side="right")
        where = f"; row {row} has the index {rows.indices[largest]}"
    if rows.shape[1] > most:
        why = f", as only {n_used:,} of them have numbers" if most < array_files.MOST_FEATURES else ""
        raise ShapeError(
            f"{file} has {rows.shape[1]:,} features (columns){where}; expected at most {most:,}{why}. Correct the "
            "index, or number the features from 0."
        )
