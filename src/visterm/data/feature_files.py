"""Feature rows on disk with the names of their images: matrices and Parquet of other programs, and visterm's shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import stack_rows
from visterm.core.errors import DataError, MissingExtraError, ShapeError, StorageError, UserError
from visterm.core.files import GB, read_regular, why_no_file
from visterm.core.types import Place
from visterm.core.wording import count_of
from visterm.data.feature_shards import SUFFIX, read_shard
from visterm.data.image_folders import name_key
from visterm.data.matrix_files import MAX_FEATURES, NUMERIC_KINDS, SVMLIGHT, Rows, read_matrix

SUFFIXES = (".npy", ".npz", ".parquet", *SVMLIGHT)
NAMES_SUFFIX = ".names.txt"

# Maximum number of features in sparse rows: the first, or the second times the number of used features if larger.
# Models keep some numbers for every feature, and an index far above the others is a mistake (67,108,863 takes 25 GiB)
MIN_FEATURE_LIMIT, FEATURES_PER_USED = 2**20, 1000


class FeatureTable(NamedTuple):
    """Feature rows and the names of their images."""

    names: list[str]  # One for each row, unique
    rows: Rows  # array or CSR, shape (n_rows, width), of any numeric dtype; a memory map if the file allows it


def read_features(
    path: Place, *, names: Place | None = None, column: str | None = None, name_column: str | None = None
) -> FeatureTable:
    """Read feature rows with the names of their images; the suffix of the file decides the format.

    The file is ``.npy`` (a matrix, which is memory-mapped), ``.npz`` (a sparse matrix as SciPy saves it), ``.parquet``
    or a folder of such files (a column of lists of numbers, or columns ``indices`` and ``values``), ``.svm``,
    ``.svmlight`` or ``.libsvm``, which may be gzipped (the targets are ignored). A features folder of visterm is also
    accepted. Parquet needs the extra `parquet`.

    `names` is a UTF-8 text file with one name per line, in the order of the rows. None: ``NAME.names.txt`` beside
    ``NAME.npy``, or a column of the Parquet file. `column` and `name_column` are columns of a Parquet file. None:
    "features", or the only column of lists; "file_name", "image", "filename" or "name".

    Raises StorageError if the file or the file of names is missing; UserError if the suffix is unknown, or columns are
    named for a format without columns; MissingExtraError if Parquet cannot be read; DataError if the content does not
    match the suffix, a name occurs twice, or the numbers of names and rows differ.
    """
    file = Path(path)
    if not file.exists():
        raise StorageError(f"There is no features file {file}. Name one that ends in {', '.join(SUFFIXES[:5])}.")
    if not (file.is_dir() or file.is_file()):
        raise StorageError(f"The features file {file} {why_no_file(file)}. Pass a file on a disk.")
    shards = sorted((file / "data").glob(f"*{SUFFIX}"))
    is_parquet = file.suffix == ".parquet" or (file.is_dir() and not shards)

    for setting, value in (("column", column), ("name_column", name_column)):
        if value is not None and not is_parquet:
            raise UserError(
                f"Only Parquet files have columns, not {file}.", setting=setting, value=value, advice="Leave it out."
            )

    if is_parquet:
        try:
            from visterm.data.parquet_files import read_parquet  # imports pyarrow
        except ImportError as error:
            raise MissingExtraError(
                f"{file} is Parquet, which needs the package 'pyarrow'. Install it with: pip install 'visterm[parquet]'"
            ) from error
        names_in_file, rows = read_parquet(file, column, name_column, with_names=names is None)
    elif shards:
        parts = [read_shard(shard) for shard in shards]
        names_in_file, rows = [name for part in parts for name in part.names], stack_rows([p.rows for p in parts])
    elif file.name.endswith(SUFFIXES):
        rows = read_matrix(file)
        if names is None:
            ending = next(suffix for suffix in SUFFIXES[::-1] if file.name.endswith(suffix))
            names = file.with_name(file.name.removesuffix(ending) + NAMES_SUFFIX)
    else:
        expected = f"one of {', '.join(SUFFIXES)}, or a folder"
        raise UserError(f"{file} has an ending that is not known.", setting="path", value=file, expected=expected)
    return _validated_table(file, names_in_file if names is None else _read_names(Path(names)), rows)


def _read_names(file: Path) -> list[str]:
    """Read one name per line; bytes that are not UTF-8 are kept."""
    try:
        text = read_regular(file, 4 * GB).decode("utf-8-sig", "surrogateescape")
    except OSError as error:
        raise StorageError(
            f"The names of the rows cannot be read from {file}: {error.strerror}.",
            advice="Write one image name per line there, in the order of the rows, or pass `encoder.names`=FILE.",
        ) from error
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines[:-1] if lines[-1] == "" else lines


def _validated_table(file: Path, names: list[str], rows: Rows) -> FeatureTable:
    if rows.ndim != 2 or rows.dtype.kind not in NUMERIC_KINDS or 0 in rows.shape:
        raise ShapeError(f"{file} holds {rows.dtype} of shape {rows.shape}; expected a matrix of numbers.")
    if rows.shape[0] != len(names):
        n_rows, n_names = count_of(rows.shape[0], "row"), count_of(len(names), "name")
        raise ShapeError(f"{file} has {n_rows}, and there are {n_names}; expected one name per row.")
    _refuse_too_wide(file, rows)
    row_of: dict[str, int] = {}

    for row, name in enumerate(names):
        other_row = row_of.setdefault(name_key(name), row)
        if other_row != row:
            raise DataError(
                f"'{name}' is the name of the rows {other_row + 1} and {row + 1} of {file}; expected one row per image."
            )
    return FeatureTable(names, rows)


def _refuse_too_wide(file: Path, rows: Any) -> None:
    """Refuse too many features, before a model allocates memory for them."""
    n_used, example = rows.shape[1], ""
    if sp.issparse(rows) and rows.nnz and rows.shape[1] > MIN_FEATURE_LIMIT:
        n_used, largest = np.unique(rows.indices).size, int(np.argmax(rows.indices))
        row = np.searchsorted(rows.indptr, largest, side="right")
        example = f", {n_used:,} with numbers; row {row} has the index {rows.indices[largest]}"
    limit = min(MAX_FEATURES, max(MIN_FEATURE_LIMIT, FEATURES_PER_USED * n_used))
    if rows.shape[1] > limit:
        raise ShapeError(
            f"{file} has {rows.shape[1]:,} features (columns){example}; expected at most {limit:,}. Correct the index, "
            "or number the features from 0."
        )
