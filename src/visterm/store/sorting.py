"""The order in which photos are listed, other than by how well they match: by date taken, name or entry."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import UserError
from visterm.core.wording import one_of

CHANCE, TAKEN, OLDEST, NAME, ADDED = "chance", "taken", "oldest", "name", "added"
SORTS = {
    CHANCE: "match, best first",
    TAKEN: "date taken, newest first",
    OLDEST: "date taken, oldest first",
    NAME: "name",
    ADDED: "date added, newest first",
}
"""What photos can be sorted by, and its name for people."""

COLUMNS = {TAKEN: "taken", OLDEST: "taken", NAME: "name", ADDED: "added"}
"""The column of ``images`` that each order reads."""

_DIGITS = re.compile(r"(\d+)")


def check_sort(sort: str | None, name: str = "sort") -> None:
    """Refuse an order that is none. Raises UserError."""
    if sort is not None and sort not in SORTS:
        raise UserError(f"{name} is {sort!r}; expected {one_of(list(SORTS))}.")


def in_order(sort: str, ids: NDArray[np.int64], values: Sequence[str | None]) -> NDArray[np.int64]:
    """Return ids in an order, by the values of its column; photos without a date come last, equal ones as they were."""
    places = range(len(ids))
    if sort == NAME:
        keys = [name_key(value or "") for value in values]
        order = sorted(places, key=keys.__getitem__)
    elif sort == OLDEST:
        order = sorted(places, key=lambda i: (values[i] is None, values[i] or ""))
    else:
        order = sorted(places, key=lambda i: values[i] or "", reverse=True)
    return ids[np.array(order, np.int64)]


def name_key(name: str) -> Any:
    """Return what names are sorted by: folder by folder, "ä" as "a", small and capital alike, and 2 before 10."""
    plain = "".join(letter for letter in unicodedata.normalize("NFKD", name) if not unicodedata.combining(letter))
    return [
        [(len(part.lstrip("0")), part) if i % 2 else part for i, part in enumerate(_DIGITS.split(folder))]
        for folder in plain.casefold().split("/")
    ]
