"""Pairs of a user and an item, from a DataFrame, a file or a sparse matrix; with weights and times."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from visterm.core.checks import as_csr
from visterm.core.errors import DataError, ShapeError, UserError
from visterm.data.frames import as_table
from visterm.data.tag_formats.tables import TableForm, table_rows
from visterm.data.text_files import read_text

PairSource: TypeAlias = "Pairs | str | os.PathLike[str] | sp.spmatrix | sp.sparray | Any"
"""A DataFrame, a list of dicts, a dict of columns, a CSV or JSON-lines file, or a sparse matrix (users × items)."""

FILE_COLUMNS = {"user": ("user", "user_id", "userid"), "item": ("item", "item_id", "itemid")}  # Accepted in files
EXAMPLE = '{"user": "ann", "item": "17"}'


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs of users and items, each once: of repeated pairs, weights are summed, and the last time counts."""

    users: NDArray[Any]
    """Names or numbers of the users, in the order of the rows."""
    items: NDArray[Any]
    """Names or numbers of the items, in the order of the columns."""
    weights: sp.csr_array
    """float32, shape (n_users, n_items): the weight of each pair, 1 without weights."""
    times: sp.csr_array | None = None
    """float64, of the same shape and with the same entries: ranks of the times of the pairs, from 1."""
    has_weights: bool = False
    """Whether weights were given."""
    unused: tuple[str, ...] = ()
    """Other columns of the table, which are not used: a rating, for example."""

    @classmethod
    def of(
        cls,
        source: PairSource,
        *,
        user: str = "user",
        item: str = "item",
        weight: str | None = None,
        time: str | None = None,
        users: ArrayLike | None = None,
        items: ArrayLike | None = None,
    ) -> Pairs:
        """Read pairs.

        Parameters
        ----------
        source : DataFrame, list of dicts, dict of columns, path, or sparse matrix of shape (n_users, n_items)
            Values of a matrix above 0 are weights, if they aren't all 1.
        user, item, weight, time : str
            Columns of a frame or a file. Weights are numbers above 0; times are numbers, dates or ISO 8601 texts.
        users, items : array-like, optional
            Names of the rows and columns of a matrix; None: their numbers.

        Raises
        ------
        DataError
            If a column is missing, a cell is empty, a weight isn't a number above 0, or there are no pairs.
        ShapeError
            If there are more or fewer names than rows or columns.
        """
        if isinstance(source, Pairs):
            return source
        if sp.issparse(source):
            return cls._of_matrix(source, users, items)
        if users is not None or items is not None:
            raise UserError("Names of rows and columns are for a sparse matrix.", advice="Leave `users`, `items` out.")
        names = {"user": user, "item": item, "weight": weight, "time": time}
        columns, unused = _columns(source, {role: name for role, name in names.items() if name is not None})
        user_names, user_ids = _numbered(columns["user"], user)
        item_names, item_ids = _numbered(columns["item"], item)
        values = _weights(columns["weight"], weight) if weight is not None else np.ones(user_ids.size)
        shape = user_names.size, item_names.size
        matrix = sp.csr_array((values, (user_ids, item_ids)), shape=shape, dtype=np.float32)
        matrix.sum_duplicates()
        if weight is None:
            matrix.data[:] = 1
        times = None if time is None else _latest(columns["time"], time, user_ids, item_ids, shape)
        return cls(user_names, item_names, matrix, times, weight is not None, unused)

    @classmethod
    def _of_matrix(cls, matrix: Any, users: ArrayLike | None, items: ArrayLike | None) -> Pairs:
        csr = as_csr(matrix)
        if not csr.nnz or csr.data.min() <= 0 or not np.isfinite(csr.data).all():
            problem = "The matrix of pairs needs finite values above 0, and at least one."
            raise DataError(problem, advice="Pass `matrix > 0` if values of 0 and below mean no pair.")
        names: list[NDArray[Any]] = []
        for given, length, kind in ((users, csr.shape[0], "users"), (items, csr.shape[1], "items")):
            array = np.arange(length) if given is None else np.asarray(given)
            if array.shape != (length,) or np.unique(array).size != length:
                expected = f"{length:,} names, all different"
                raise ShapeError(setting=kind, value=array.shape, expected=expected)
            names.append(array)
        return cls(names[0], names[1], csr, has_weights=bool((csr.data != 1).any()))

    def changed(self, weights: sp.csr_array) -> Pairs:
        """Return the same users and items with other pairs."""
        return Pairs(self.users, self.items, weights, None, self.has_weights)


def _columns(source: Any, names: dict[str, str]) -> tuple[dict[str, NDArray[Any]], tuple[str, ...]]:
    """Return the columns of a frame or a file, by role, and the names of the others.

    Raises DataError if a column is missing or has empty cells.
    """
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        form = TableForm(tuple((names[role], *FILE_COLUMNS.get(role, ())) for role in names), EXAMPLE)
        rows = table_rows(path, read_text(path, "file of pairs", or_utf16=True), form)
        present = list(dict.fromkeys(name for row in rows for name in row.cells))
        column_of = {
            role: next((n for n in (name, *FILE_COLUMNS.get(role, ())) if n in present), name)
            for role, name in names.items()
        }
        cells = {name: [row.cells.get(name) for row in rows] for name in column_of.values()}
        where = f"The file {path}"
    elif (table := as_table(source)) is not None:
        present, column_of, where = list(map(str, table.names)), names, "The table"
        cells = {name: table.cells(name) for name in column_of.values() if name in table.names}
    else:
        raise UserError(
            f"Pairs are a {type(source).__name__}.",
            expected="a DataFrame, a list of dicts, a file, or a sparse matrix (users × items)",
        )
    for role, name in column_of.items():
        if name not in present or not cells.get(name):
            raise DataError(
                f"{where} has no column '{name}' for the {role}s, or no rows. Its columns: {', '.join(present[:8])}. "
                f"Name it: `{role}`."
            )
        if None in cells[name] or "" in cells[name]:
            empty = next(index for index, cell in enumerate(cells[name]) if cell in (None, ""))
            raise DataError(f"{where} has no {role} in row {empty + 1:,} (column '{name}'). Remove such rows.")
    unused = tuple(name for name in present if name not in column_of.values())
    return {role: np.asarray(cells[name]) for role, name in column_of.items()}, unused


def _numbered(column: NDArray[Any], name: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the distinct names, sorted, and the number of each row's name; names are whole numbers or texts."""
    if column.dtype.kind == "f" and not (column == np.floor(column)).all():
        raise DataError(f"The column '{name}' has the number {column[column != np.floor(column)][0]}; expected names.")
    is_number = column.dtype.kind in "iuf"
    if not is_number and all(isinstance(cell, str) and cell.isdecimal() for cell in column.tolist()):
        is_number = (column.astype(np.int64).astype(str) == column.astype(str)).all()  # "07" is a name
    column = column.astype(np.int64) if is_number else column.astype(str)
    names, numbers = np.unique(column, return_inverse=True)
    return names, numbers.astype(np.int64)


def _weights(column: NDArray[Any], name: str | None) -> NDArray[np.float64]:
    try:
        values = column.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"The column '{name}' has texts; expected weights, numbers above 0.") from error
    if not np.isfinite(values).all() or values.min() <= 0:
        raise DataError(f"The column '{name}' has the weight {values.min():g}; expected finite numbers above 0.")
    return values


def _latest(
    column: NDArray[Any], name: str, users: NDArray[np.int64], items: NDArray[np.int64], shape: tuple[int, int]
) -> sp.csr_array:
    """Return the rank of each pair's last time."""
    try:
        if column.dtype.kind not in "iufM":
            column = column.astype("datetime64[us]")
    except (TypeError, ValueError) as error:
        raise DataError(f"The column '{name}' has {column[0]!r:.60}; expected numbers, dates or ISO 8601.") from error
    ranks = np.unique(column, return_inverse=True)[1].ravel() + 1.0
    order = np.lexsort((-ranks, items, users))
    users, items, ranks = users[order], items[order], ranks[order]
    is_last = np.concatenate([[True], (np.diff(users) != 0) | (np.diff(items) != 0)])
    return sp.csr_array((ranks[is_last], (users[is_last], items[is_last])), shape=shape)


def positions_of(names: Sequence[Any] | NDArray[Any], known: NDArray[Any], kind: str) -> NDArray[np.int64]:
    """Return the positions of names among the sorted or unsorted `known`; raise UserError for the first unknown one."""
    wanted = np.atleast_1d(np.asarray(names))
    if known.dtype.kind in "iu" and wanted.dtype.kind not in "iu":
        texts = wanted.astype(str)
        wanted = np.array([int(text) if text.isdecimal() else -1 for text in texts], np.int64)
    elif known.dtype.kind not in "iu":
        wanted = wanted.astype(str)

    order = np.argsort(known, kind="stable")
    positions = order[np.minimum(np.searchsorted(known, wanted, sorter=order), known.size - 1)]
    if (unknown := known[positions] != wanted).any():
        name = np.atleast_1d(np.asarray(names))[unknown][0]
        raise UserError(
            f"{name!r} is not among the {known.size:,} {kind}s.",
            setting=f"{kind}s", value=name,
            advice=f"New {kind}s: " + ("`fold_in`." if kind == "user" else "`add_items`."),
        )  # fmt: skip
    return positions
