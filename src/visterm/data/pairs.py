"""Pairs of a user and an item, from a DataFrame, a file or a sparse matrix; with weights and times."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count, repeat
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from visterm.core.checks import as_csr
from visterm.core.errors import DataError, ShapeError, UserError
from visterm.data.frames import as_table
from visterm.data.tag_formats.tables import TableForm, required_column, table_rows
from visterm.data.tag_queries import HeldOutTags, hold_one_out
from visterm.data.text_files import read_text

PairSource: TypeAlias = "Pairs | str | os.PathLike[str] | sp.spmatrix | sp.sparray | Any"
"""A DataFrame, a list of dicts, a dict of columns, a CSV or JSON-lines file, or a sparse matrix (users × items)."""


class PairColumns(TypedDict, total=False):
    """The columns of a table of pairs, or the names of a matrix's rows and columns; as in `visterm.fit_pairs`."""

    user: str
    item: str
    weight: str | None
    time: str | None
    users: ArrayLike | None
    items: ArrayLike | None


COMMON_NAMES = {"user": ("user", "user_id", "userId"), "item": ("item", "item_id", "itemId")}  # Also accepted
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
        """Read pairs; the parameters are those of `visterm.fit_pairs`.

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
        values = np.ones(user_ids.size) if weight is None else _weights(np.asarray(columns["weight"]), weight)
        shape = user_names.size, item_names.size
        weights = sp.csr_array((values, (user_ids, item_ids)), shape=shape, dtype=np.float32)
        weights.sum_duplicates()
        if weight is None:
            weights.data[:] = 1
        times = None
        if time is not None:
            ranks = _ranks(np.asarray(columns["time"]), time)
            latest_first = np.argsort(-ranks, kind="stable")
            latest = latest_first[np.unique((user_ids * shape[1] + item_ids)[latest_first], return_index=True)[1]]
            times = sp.csr_array((ranks[latest], (user_ids[latest], item_ids[latest])), shape=shape)
        return cls(user_names, item_names, weights, times, weight is not None, unused)

    @classmethod
    def _of_matrix(cls, matrix: Any, users: ArrayLike | None, items: ArrayLike | None) -> Pairs:
        csr = as_csr(matrix)
        if not csr.nnz or csr.data.min() < 0 or not np.isfinite(csr.data).all():
            problem = "The matrix of pairs needs finite values above 0, and at least one."
            raise DataError(problem, advice="Pass `matrix > 0` if values of 0 and below mean no pair.")
        names: list[NDArray[Any]] = []
        for given, length, kind in ((users, csr.shape[0], "users"), (items, csr.shape[1], "items")):
            array = np.arange(length) if given is None else np.asarray(given)
            if array.shape != (length,):
                raise ShapeError(setting=kind, value=array.shape, expected=f"{length:,} names")
            if given is not None and (repeated := [name for name, n in Counter(array.tolist()).items() if n > 1]):
                raise DataError(f"Two of the {kind} are named {repeated[0]!r}.", advice="Make the names all different.")
            names.append(array)
        return cls(names[0], names[1], csr, has_weights=bool((csr.data != 1).any()))

    def hold_one_out(self, rng: np.random.Generator) -> HeldOutTags:
        """Hold out a random item of each user with two or more; raise DataError if there is no such user."""
        if self.weights.nnz and np.diff(self.weights.indptr).max() < 2:
            raise DataError("No user has two items or more, of which one could be held out.")
        return hold_one_out(self.weights, rng)

    @cached_property
    def user_rows(self) -> dict[str, int]:
        """The row of each user, by name."""
        return dict(zip(map(str, self.users.tolist()), range(self.users.size), strict=True))

    @cached_property
    def item_columns(self) -> dict[str, int]:
        """The column of each item, by name."""
        return dict(zip(map(str, self.items.tolist()), range(self.items.size), strict=True))


def positions_of(names: Sequence[Any] | NDArray[Any], known: dict[str, int], kind: str) -> NDArray[np.int64]:
    """Return the rows of users, or the columns of items, by name; raise UserError for the first unknown name."""
    wanted: list[Any] = names if isinstance(names, list) else np.atleast_1d(np.asarray(names)).tolist()
    positions = np.fromiter(map(known.get, map(str, wanted), repeat(-1)), np.int64, len(wanted))
    if (positions < 0).any():
        unknown = wanted[int(positions.argmin())]
        raise UserError(
            f"{unknown!r} is not among the {len(known):,} {kind}s.",
            setting=f"{kind}s", value=unknown,
            advice=f"New {kind}s: " + ("`fold_in`." if kind == "user" else "`add_items`."),
        )  # fmt: skip
    return positions


def _columns(source: Any, requested: dict[str, str]) -> tuple[dict[str, list[Any]], tuple[str, ...]]:
    """Return the columns of a frame or a file by role (`requested`: role -> name), and the names of the others.

    Raises DataError if a column is missing or has empty cells.
    """
    accepted = {role: COMMON_NAMES.get(name, (name,)) for role, name in requested.items()}
    if isinstance(source, str | os.PathLike):
        path = Path(source)
        form = TableForm(tuple(accepted.values()), EXAMPLE)
        rows = table_rows(path, read_text(path, "file of pairs", or_utf16=True), form)
        label, source = f"The file {path}", [row.cells for row in rows]
    else:
        label = "The table"
    if (table := as_table(source)) is None:
        raise UserError(
            f"Pairs are a {type(source).__name__}.",
            expected="a DataFrame, a list of dicts, a file with rows, or a sparse matrix (users × items)",
        )
    names, used, columns = list(map(str, table.names)), [], {}
    for role in requested:
        name = required_column(accepted[role], names, label, f" of {role}s", f"Name it: `{role}`.")
        cells = table.cells(name)
        if not cells or None in cells or "" in cells:
            row = next((index for index, cell in enumerate(cells) if cell in (None, "")), 0)
            raise DataError(f"{label} has no {role} in row {row + 1:,} (column '{name}'). Remove such rows.")
        used.append(name)
        columns[role] = cells
    return columns, tuple(name for name in names if name not in used)


def _numbered(cells: list[Any], name: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the distinct names, sorted, and the number of each row's name; names are whole numbers or texts."""
    numbers_seen: defaultdict[Any, int] = defaultdict(count().__next__)  # to sort the texts of all rows takes longer
    rows = np.fromiter(map(numbers_seen.__getitem__, cells), np.int64, len(cells))
    column = np.asarray(list(numbers_seen))
    if column.dtype.kind == "f" and not (column == np.floor(column)).all():
        raise DataError(f"The column '{name}' has the number {column[column != np.floor(column)][0]}; expected names.")
    names, numbers = np.unique(as_names(column), return_inverse=True)
    return names, numbers.astype(np.int64)[rows]


def as_names(column: NDArray[Any]) -> NDArray[Any]:
    """Return whole numbers, or texts that are all whole numbers, as int64, and anything else as texts."""
    is_number = column.dtype.kind in "iuf"
    if not is_number and all(isinstance(cell, str) and cell.isdecimal() for cell in column.tolist()):
        is_number = (column.astype(np.int64).astype(str) == column.astype(str)).all()  # "07" is a name
    return column.astype(np.int64 if is_number else str)


def _weights(column: NDArray[Any], name: str) -> NDArray[np.float64]:
    """Return weights as numbers; raise DataError if one isn't a finite number above 0."""
    try:
        values = column.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"The column '{name}' has texts; expected weights, numbers above 0.") from error
    if not np.isfinite(values).all() or values.min() <= 0:
        raise DataError(f"The column '{name}' has the weight {values.min():g}; expected finite numbers above 0.")
    return values


def _ranks(column: NDArray[Any], name: str) -> NDArray[np.float64]:
    """Return the ranks of times, from 1; equal times have equal ranks. Raises DataError for texts without a date."""
    try:
        times = column if column.dtype.kind in "iufM" else column.astype("datetime64[us]")
    except (TypeError, ValueError) as error:
        raise DataError(f"The column '{name}' has {column[0]!r:.60}; expected numbers, dates or ISO 8601.") from error
    return np.unique(times, return_inverse=True)[1].ravel().astype(np.float64) + 1
