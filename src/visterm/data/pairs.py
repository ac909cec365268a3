"""Pairs of a user and an item, from a DataFrame, a file or a sparse matrix; with weights and times."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from pathlib import Path
from typing import Any, TypeAlias, TypedDict

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from visterm.core.checks import as_csr
from visterm.core.errors import DataError, ShapeError, UserError
from visterm.core.vocabulary import Vocabulary
from visterm.data.frames import as_table
from visterm.data.tag_formats.tables import TableForm, required_column, table_rows
from visterm.data.text_files import read_text

Names: TypeAlias = "Sequence[object] | NDArray[Any] | None"
"""Users or items; None: all."""

Column: TypeAlias = tuple[str, NDArray[Any], NDArray[np.int64]]
"""The name of a column, its distinct values, and for each row which of these it has."""

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
    times: NDArray[np.float64] | None = None
    """Ranks of the times of the pairs, from 1, in the order of ``weights.data``."""
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

        Raises DataError if a column is missing, a cell is empty, a weight isn't a number above 0, or there are no
        pairs; ShapeError if there are more or fewer names than rows or columns.
        """
        if isinstance(source, Pairs):
            return source
        if sp.issparse(source):
            return cls._of_matrix(source, users, items)
        if users is not None or items is not None:
            raise UserError("Names of rows and columns are for a sparse matrix.", advice="Leave `users`, `items` out.")
        names = {"user": user, "item": item, "weight": weight, "time": time}
        columns, unused = _columns(source, {role: name for role, name in names.items() if name is not None})
        (user_names, user_ids), (item_names, item_ids) = _named(*columns["user"]), _named(*columns["item"])
        shape = user_names.size, item_names.size
        values = np.ones(user_ids.size) if weight is None else _weights(*columns["weight"])
        weights = sp.csr_array((values, (user_ids, item_ids)), shape=shape, dtype=np.float32)
        weights.sum_duplicates()
        if weight is None:
            weights.data[:] = 1
        times = None
        if time is not None:
            times = np.zeros(weights.nnz)
            entries = np.unique(user_ids * shape[1] + item_ids, return_inverse=True)[1]
            np.maximum.at(times, entries, _ranks(*columns["time"]))
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

    def vocabulary(self) -> Vocabulary:
        """Return the items as tags, with their numbers of users; raise DataError if two names differ only in case."""
        n_users = np.bincount(self.weights.indices, minlength=self.items.size)
        return Vocabulary(list(map(str, self.items.tolist())), n_users)

    @cached_property
    def user_rows(self) -> dict[str, int]:
        """The row of each user, by name."""
        return dict(zip(map(str, self.users.tolist()), range(self.users.size), strict=True))

    @cached_property
    def item_columns(self) -> dict[str, int]:
        """The column of each item, by name."""
        return dict(zip(map(str, self.items.tolist()), range(self.items.size), strict=True))


def positions_of(names: Names, pairs: Pairs, kind: str) -> NDArray[np.int64]:
    """Return the rows of users, or the columns of items (`kind`: "user" or "item"), by name; None: all.

    Raises UserError for the first unknown name, or if there are no names.
    """
    all_names = pairs.users if kind == "user" else pairs.items
    if names is None or (isinstance(names, np.ndarray) and np.array_equal(names, all_names)):
        return np.arange(all_names.size)
    wanted: list[Any] = names if isinstance(names, list) else np.atleast_1d(np.asarray(names)).tolist()
    if not wanted:
        raise UserError(setting=f"{kind}s", value=wanted, expected=f"one {kind} or more, or None for all")
    known = pairs.user_rows if kind == "user" else pairs.item_columns
    positions = np.fromiter(map(known.get, map(str, wanted), repeat(-1)), np.int64, len(wanted))
    if (positions < 0).any():
        unknown = wanted[int(positions.argmin())]
        raise UserError(
            f"{unknown!r} is not among the {len(known):,} {kind}s.",
            setting=f"{kind}s", value=unknown,
            advice=f"New {kind}s: " + ("`fold_in`." if kind == "user" else "`add_items`."),
        )  # fmt: skip
    return positions


def _columns(source: Any, requested: dict[str, str]) -> tuple[dict[str, Column], tuple[str, ...]]:
    """Return the columns of a frame or a file by role (`requested`: role -> name), and the names of the others.

    Raises DataError if a column is missing or has empty cells.
    """
    accepted = {role: COMMON_NAMES.get(name, (name,)) for role, name in requested.items()}
    label = "The table"
    if isinstance(source, str | os.PathLike):
        path, form = Path(source), TableForm(tuple(accepted.values()), EXAMPLE)
        rows = table_rows(path, read_text(path, "file of pairs", or_utf16=True), form)
        label, source = f"The file {path}", [row.cells for row in rows]
    if (table := as_table(source)) is None:
        raise UserError(
            f"Pairs are a {type(source).__name__}.",
            expected="a DataFrame, a list of dicts, a file with rows, or a sparse matrix (users × items)",
        )
    names, columns = list(map(str, table.names)), {}
    for role, alternatives in accepted.items():
        name = required_column(alternatives, names, label, f" of {role}s", f"Name it: `{role}`.")
        values, numbers = table.numbered(name)
        empty = [values.index(value) for value in (None, "") if value in values]
        if empty or not values:
            row = int(np.isin(numbers, empty).argmax()) if empty else 0
            raise DataError(f"{label} has no {role} in row {row + 1:,} (column '{name}'). Remove such rows.")
        columns[role] = name, np.asarray(values), numbers
    used = {name for name, _, _ in columns.values()}
    return columns, tuple(name for name in names if name not in used)


def _named(name: str, values: NDArray[Any], numbers: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the names in a column, sorted, and the number of each row's name; names are whole numbers or texts."""
    if values.dtype.kind == "f" and not (values == np.floor(values)).all():
        raise DataError(f"The column '{name}' has the number {values[values != np.floor(values)][0]}; expected names.")
    names, order = np.unique(as_names(values), return_inverse=True)
    return names, order[numbers]


def as_names(values: NDArray[Any]) -> NDArray[Any]:
    """Return whole numbers, or texts that are all whole numbers, as int64, and anything else as texts."""
    is_number = values.dtype.kind in "iuf"
    if not is_number and all(isinstance(value, str) and value.isdecimal() for value in values):
        is_number = (values.astype(np.int64).astype(str) == values.astype(str)).all()  # "07" is a name
    return values.astype(np.int64 if is_number else str)


def _weights(name: str, values: NDArray[Any], numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the weight of each row; raise DataError if one isn't a finite number above 0."""
    try:
        weights = values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"The column '{name}' has texts; expected weights, numbers above 0.") from error
    if not np.isfinite(weights).all() or weights.min() <= 0:
        raise DataError(f"The column '{name}' has the weight {weights.min():g}; expected finite numbers above 0.")
    return weights[numbers]


def _ranks(name: str, values: NDArray[Any], numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the rank of each row's time, from 1; equal times have equal ranks. Raises DataError for other texts."""
    try:
        times = values if values.dtype.kind in "iufM" else values.astype("datetime64[us]")
    except (TypeError, ValueError) as error:
        raise DataError(f"The column '{name}' has {values[0]!r:.60}; expected numbers, dates or ISO 8601.") from error
    return np.unique(times, return_inverse=True)[1].astype(np.float64)[numbers] + 1
