"""Checks of matrices, seeds and sizes before they reach compiled code, and small helpers for rows of matrices."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from visterm.core.errors import DataError, ShapeError, TooLargeError, UserError, VistermError
from visterm.core.types import Matrix

MAX_CSR_COLUMNS = 2**31 - 1  # Maximum number of columns of a sparse matrix: compiled code uses 32-bit indices
BLOCK_ROWS = 2**16  # Number of rows checked at a time


def as_csr(matrix: Any) -> sp.csr_array:
    """Return a canonical CSR of float32: sorted columns, no duplicates, no stored zeros; the input is not changed.

    Raises DataError if indices or pointers of a sparse matrix are out of range.
    """
    if hasattr(matrix, "check_format"):  # CSR, CSC and BSR have it; compiled code doesn't check their pointers
        try:
            matrix.check_format(full_check=True)
        except ValueError as error:
            raise DataError(f"A sparse matrix of shape {matrix.shape} is damaged: {error}. Build it again.") from error
    csr = sp.csr_array(matrix, dtype=np.float32)
    canonical = csr.has_canonical_format and (csr.nnz == 0 or bool(csr.data.all()))
    if not canonical:
        csr = csr.copy()
        csr.sum_duplicates()
        csr.eliminate_zeros()
    return csr


def as_rows(matrix: Matrix, name: str, width: int | None = None, *, allow_vector: bool = False) -> Matrix:
    """Return rows as C-contiguous float32 or canonical CSR, without a copy if `matrix` already has this form.

    With `allow_vector`, a vector is accepted as one row. Raises ShapeError if `matrix` is not two-dimensional, or does
    not have `width` columns (None: any number); DataError if it is not numeric or not finite.
    """
    if sp.issparse(matrix):
        rows: Matrix = as_csr(matrix)
    else:
        try:
            rows = np.ascontiguousarray(matrix, dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise DataError(f"{name} must be numbers, (n, width), not {type(matrix).__name__}.") from error
    if allow_vector and rows.ndim == 1:
        rows = rows[None, :]
    if rows.ndim != 2:
        raise ShapeError(f"{name} has {rows.ndim} dimensions; expected 2, (n, width).")
    values: NDArray[np.float32] = rows.data if sp.issparse(rows) else rows  # type: ignore[assignment]
    if not all_finite(values):
        raise DataError(f"{name} contains NaN or infinity. Fit the model again with a lower learning_rate.")
    if width is not None and rows.shape[1] != width:
        raise width_error(name, rows.shape[1], width)
    return rows


def width_error(name: str, n_columns: int, width: int) -> ShapeError:
    """Return the error for rows whose number of columns differs from that of the store."""
    return ShapeError(
        f"{name} has {n_columns} columns, but the rows of this store have {width}. "
        "Rows and queries must come from the same model."
    )


def as_ids(ids: ArrayLike) -> NDArray[np.int64]:
    """Return the ids to search among as sorted, unique int64. Raises DataError if they are not whole numbers."""
    array = np.asarray(ids)
    if array.size and array.dtype.kind not in "iu":
        raise DataError(f"The ids to search among are of {array.dtype}; expected whole numbers.")
    array = array.astype(np.int64, copy=False).ravel()
    return array if (np.diff(array) > 0).all() else np.unique(array)


def checked_csr(
    data: ArrayLike,
    indices: ArrayLike,
    indptr: ArrayLike,
    shape: Sequence[int],
    label: str,
    *,
    unique: bool = True,
    error: type[VistermError] = DataError,
) -> sp.csr_array:
    """Return a CSR matrix built from parts that come from a file, after validating them.

    Compiled code doesn't check `indptr` and `indices`: a value out of range would read or write other memory. `label`
    is the file and its part, for messages. With `unique`, a row with the same column twice is refused; otherwise its
    numbers are added, as SciPy does. Raises DataError (or `error`), which names the row, if the parts have the wrong
    type, or don't match each other or the shape.
    """
    data, indices, indptr = np.asarray(data), np.asarray(indices), np.asarray(indptr)
    has_whole_sizes = all(isinstance(number, int | np.integer) and not isinstance(number, bool) for number in shape)
    if len(shape) != 2 or not has_whole_sizes or min(shape) < 0 or shape[1] > MAX_CSR_COLUMNS:
        raise error(f"{label}: the shape is {tuple(shape)}; expected rows and at most {MAX_CSR_COLUMNS:,} columns.")
    n_rows, n_columns = int(shape[0]), int(shape[1])
    for name, part, kinds in (("data", data, "fiub"), ("indices", indices, "iu"), ("indptr", indptr, "iu")):
        if part.ndim != 1 or part.dtype.kind not in kinds:
            expected = "numbers" if name == "data" else "whole numbers"
            raise error(f"{label}: '{name}' is {part.dtype} of shape {part.shape}; expected one row of {expected}.")

    if len(indptr) != n_rows + 1 or indptr[0] != 0:
        n, start = len(indptr), ", ".join(map(str, indptr[:3]))
        raise error(f"{label}: 'indptr' has {n:,} numbers from {start} on; expected {n_rows + 1:,} that begin with 0.")
    decreases = np.flatnonzero(indptr[1:] < indptr[:-1])
    if decreases.size:
        raise error(f"{label}, row {decreases[0] + 1}: it ends before it begins; expected 'indptr' to rise.")
    if len(indices) != len(data) or indptr[-1] > len(data):
        n, n_indices, total = len(data), len(indices), int(indptr[-1])
        raise error(f"{label}: {n:,} values, {n_indices:,} indices and rows of {total:,} in all; expected the same.")

    data, indices = data[: int(indptr[-1])], indices[: int(indptr[-1])]
    invalid_entries = np.flatnonzero((indices < 0) | (indices >= n_columns))
    if invalid_entries.size:
        row, index = int(np.searchsorted(indptr, invalid_entries[0], side="right")), int(indices[invalid_entries[0]])
        expected = f"0 to {n_columns - 1}, as there are {n_columns:,} columns" if n_columns else "none, without columns"
        raise error(f"{label}, row {row}: it has the index {index}; expected {expected}.")

    csr = sp.csr_array((data, indices, indptr), shape=(n_rows, n_columns))
    if unique:
        _refuse_repeated(csr, label, error)
    return csr


def _refuse_repeated(csr: sp.csr_array, label: str, error: type[VistermError]) -> None:
    """Refuse a row with the same column twice."""
    rows = csr.sorted_indices()
    is_repeat = rows.indices[1:] == rows.indices[:-1]
    starts = rows.indptr[1:-1]
    is_repeat[starts[(starts > 0) & (starts < rows.nnz)] - 1] = False  # the two indices belong to different rows
    repeats = np.flatnonzero(is_repeat)
    if repeats.size:
        row = int(np.searchsorted(rows.indptr, repeats[0], side="right"))
        raise error(f"{label}, row {row}: it has the index {int(rows.indices[repeats[0]])} twice; expected it once.")


def check_tags(Y: Any, n_images: int) -> sp.csr_array:
    """Return the tag matrix `Y`, (n_images, n_tags) or a vector for one tag, as float32 CSR of +1 and -1.

    A value above 0 means that the image has the tag, 0 unknown, below 0 explicitly not. Raises ShapeError if `Y` is not
    two-dimensional or does not have `n_images` rows; DataError if `Y` is not numeric, not finite, or a vector of class
    numbers.
    """
    advice = "scikit-learn's LabelBinarizer (one class per image) or MultiLabelBinarizer (lists of tags) makes them."
    if Y is None:
        raise DataError("requires y to be passed, but the target y is None: Y holds the tags, (n_images, n_tags).")
    if not sp.issparse(Y):
        try:
            Y = np.asarray(Y, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"Y must be numbers (above 0 given, below 0 explicitly not), not {type(Y).__name__} of other things. "
                f"Turn words into columns: Vocabulary.encode, or {advice}"
            ) from error
        if Y.ndim == 1:
            if not np.isin(Y[np.isfinite(Y)], (-1, 0, 1)).all():
                raise DataError(
                    f"Y is a vector with values such as {np.unique(Y)[-1]:g}; expected a matrix of 0 and 1, "
                    f"(n_images, n_tags), with one column per tag: {advice}"
                )
            Y = Y[:, None]
        if Y.ndim != 2:
            raise ShapeError(f"Y has {Y.ndim} dimensions; expected 2, (n_images, n_tags).")

    if Y.shape[0] != n_images:
        raise ShapeError(f"Y has {Y.shape[0]} rows, but X has {n_images} (inconsistent numbers of images).")
    if Y.shape[1] == 0:
        raise ShapeError("Y has 0 tags (columns); at least 1 is needed.")
    csr = as_csr(Y)
    if not np.isfinite(csr.data).all():
        raise DataError("Y contains NaN or infinity; expected finite numbers.")
    return sp.csr_array((np.sign(csr.data), csr.indices, csr.indptr), shape=csr.shape)


def check_k(k: int, n: int) -> int:
    """Return the number of results to return out of `n`: all if `k` is 0, else at most `k`."""
    if not isinstance(k, int | np.integer) or isinstance(k, bool) or k < 0:
        raise UserError(setting="k", value=k, expected="a whole number, 1 or more (0 means all)")
    return n if k == 0 else min(int(k), n)


def check_count(value: object, name: str, otherwise: str = "") -> None:
    """Refuse a setting that is not a whole number of 1 or more; see `check_number` for `otherwise`."""
    if value is None and otherwise.startswith("or None"):
        return
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        choice = f", {otherwise}" if otherwise else ""
        raise UserError(setting=name, value=value, expected=f"a whole number of 1 or more{choice}")


def check_number(
    value: object,
    name: str,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float = math.inf,
    most: float = math.inf,
    otherwise: str = "",
) -> None:
    """Refuse a setting that is not a number above `above` (or at least `least`) and below `below` (or at most `most`).

    `otherwise` adds another accepted value to the message; if it begins with "or None", None is accepted.
    """
    if value is None and otherwise.startswith("or None"):
        return
    is_in_range = False
    if isinstance(value, int | float | np.number) and not isinstance(value, bool):
        is_high_enough = (above is None or value > above) and (least is None or value >= least)
        is_in_range = bool(is_high_enough and value < below and value <= most)
    if not is_in_range:
        choice = f", {otherwise}" if otherwise else ""
        raise UserError(setting=name, value=value, expected=f"{_range_text(above, least, below, most)}{choice}")


def check_choice(value: object, name: str, choices: Iterable[str]) -> None:
    """Refuse a setting that is not one of the choices."""
    accepted_values = tuple(choices)
    if value not in accepted_values:
        raise UserError(setting=name, value=value, expected=f"one of: {', '.join(accepted_values)}")


def check_flag(value: object, name: str) -> None:
    """Refuse a setting that is neither True nor False."""
    if not isinstance(value, bool | np.bool_):
        raise UserError(setting=name, value=value, expected="True or False")


def _range_text(above: float | None, least: float | None, below: float, most: float) -> str:
    """Return the accepted range for messages: ``a number from 0 to 1``, ``a finite number above 0``."""
    if least is not None and most < math.inf:
        return f"a number from {least:g} to {most:g}"
    low = f"above {above:g}" if above is not None else f"of {least:g} or more" if least is not None else ""
    high = f"below {below:g}" if below < math.inf else f"at most {most:g}" if most < math.inf else ""
    if not high:
        return f"a finite number {low}".rstrip()
    return f"a number {low} and {high}" if low else f"a number, {high}"


def check_magnitude(values: NDArray[np.number], limit: float, label: str) -> None:
    """Refuse numbers whose squares and products would overflow."""
    magnitude = max(abs(float(values.max(initial=0))), abs(float(values.min(initial=0))))
    if magnitude > limit:
        raise DataError(f"{label} has values of up to {magnitude:.3g}; expected at most {limit:g}. Scale the features.")


def check_size(n_bytes: int, limit: int, label: str, advice: str) -> None:
    """Refuse to build something larger than `limit` bytes."""
    if n_bytes > limit:
        size_text, limit_text = f"{n_bytes / 2**30:.1f} GiB", f"{limit / 2**30:.1f} GiB"
        raise TooLargeError(f"{label} would take {size_text}; the limit is {limit_text}. {advice}")


def as_generator(random_state: object) -> np.random.Generator:
    """Return a NumPy generator for any type of ``random_state``.

    None means a random seed; the same whole number, or a `RandomState` / `Generator` in the same state, gives the same
    stream.
    """
    if isinstance(random_state, np.random.Generator):
        return np.random.default_rng(random_state.integers(2**63))
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31 - 1))
    if random_state is None or (
        isinstance(random_state, int | np.integer) and not isinstance(random_state, bool) and random_state >= 0
    ):
        return np.random.default_rng(random_state)
    expected = "None, a whole number of 0 or more or a NumPy generator"
    raise UserError(setting="random_state", value=random_state, expected=expected)


def finite_rows(rows: Any) -> NDArray[np.bool_]:
    """Return whether all numbers are finite, per row of a dense or CSR matrix; shape (n,)."""
    is_finite: NDArray[np.bool_] = np.ones(rows.shape[0], np.bool_)
    if sp.issparse(rows):
        is_finite[np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))[~np.isfinite(rows.data)]] = False
    else:
        np.isfinite(rows).all(axis=1, out=is_finite)
    return is_finite


def all_finite(array: NDArray[np.generic]) -> bool:
    """Return whether all numbers of an array are finite; always True for other types of values."""
    if not np.issubdtype(array.dtype, np.inexact):
        return True
    rows = np.atleast_1d(array)
    return all(np.isfinite(rows[start : start + BLOCK_ROWS]).all() for start in range(0, len(rows), BLOCK_ROWS))


def identity_rows(n_images: int) -> sp.csr_array:
    """Return the identity matrix of float32 as CSR, shape (n_images, n_images)."""
    return sp.csr_array(sp.eye_array(n_images, dtype=np.float32, format="csr"))


def is_identity(X: Any, *, part: bool = False) -> bool:
    """Return whether a matrix is the identity in canonical CSR form; False for any dense matrix.

    With `part`, some rows of an identity in ascending order count, too.
    """
    if not sp.issparse(X) or X.nnz != X.shape[0] or not (part or X.shape[0] == X.shape[1]):
        return False
    is_ascending = bool((np.diff(X.indices) > 0).all()) and bool((np.diff(X.indptr) == 1).all())
    return is_ascending and bool((X.data == 1).all())


def count_rows(Y: Matrix | None) -> int:
    """Return the number of images of a tag matrix, for a fit without features.

    Raises DataError if `Y` is None or has no rows.
    """
    if Y is None:
        raise DataError("Both X and Y are None: Y holds the tags, (n_images, n_tags).")
    n_images: int = Y.shape[0] if sp.issparse(Y) else len(np.atleast_1d(np.asarray(Y)))
    if n_images == 0:
        raise DataError("Y has 0 rows (images); at least 1 is needed.")
    return n_images


def stack_rows(parts: Sequence[Matrix]) -> Matrix:
    """Stack matrices vertically: an array if all parts are arrays, else CSR; shape (0, 0) without parts."""
    if not parts:
        return np.empty((0, 0), np.float32)
    if len(parts) == 1:
        return parts[0]
    if any(sp.issparse(part) for part in parts):
        return sp.csr_array(sp.vstack([sp.csr_array(part) for part in parts], format="csr"))
    return np.concatenate(parts)


def row_lengths(rows: Matrix) -> NDArray[np.float32]:
    """Return the Euclidean length of each row."""
    if isinstance(rows, sp.csr_array):
        squares = np.asarray(rows.multiply(rows).sum(axis=1), np.float32).ravel()
    else:
        squares = np.asarray(np.einsum("ij,ij->i", rows, rows), np.float32)
    return np.sqrt(squares)
