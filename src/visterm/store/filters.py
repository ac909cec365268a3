"""Which images a search is among, as one statement with bound values; and in which order photos are listed."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import UserError
from visterm.core.remote import in_full, start_of_paths
from visterm.core.vocabulary import tag_key
from visterm.store.database import Database, as_text
from visterm.store.images import file_type_of
from visterm.store.tags import WITHOUT_TREE, ActiveTags

PREDICTED_FROM = 0.5  # A tag counts as predicted, and is exported, from this confidence on: rather right than wrong

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

LARGEST = 2**63 - 1  # The largest whole number that SQLite holds
_DATE = re.compile(r"\d{4}(?:-\d\d(?:-\d\d(?:T\d\d(?::\d\d(?::\d\d)?)?)?)?)?", re.ASCII)

# That a tag is one that is meant, by the keys of its spellings
TAGGED = "tag_id IN (SELECT id FROM tags WHERE key IN (SELECT value FROM json_each(?)))"

REJECTED = f"id IN (SELECT image_id FROM verdicts WHERE {TAGGED} AND verdict = -1)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Filter:
    """What images have to be; what is left out does not matter. All of it has to hold.

    Raises UserError if a date, a folder or a size is none: nothing would pass, and nobody would know why.
    """

    tags: tuple[str, ...] = ()  # That an image has, each: given or accepted, and not rejected
    without: tuple[str, ...] = ()  # That it has not
    predicted: tuple[str, ...] = ()  # That the current run predicted for it, each, and that no person rejected
    min_confidence: float | None = None
    """Least confidence of the predicted ones. None: 0.5, and all that are stored if the run has no confidences."""
    folder: str | None = None
    """That its file lies in, or in a folder inside it: as names begin with it ("Cats/kittens"), or by its path."""
    folder_path: str | None = None
    """That folder in full, links followed, where the one who asks has another working folder; None: found here."""
    taken_from: str | None = None  # ISO 8601, as far as it goes ("2019", "2019-07-01"). Without a known date: falls out
    taken_to: str | None = None  # It counts to the end of what it names
    min_bytes: int | None = None  # Of the file, included
    max_bytes: int | None = None
    file_type: str | None = None  # "jpeg" ("jpg" is the same), "png", ...
    unreviewed: bool = False  # Not reviewed by a person yet
    spellings: Mapping[str, Sequence[str]] = field(default_factory=dict, compare=False)
    """Of tags above that have aliases or tags under them: all words that mean them. Case never counts."""
    named: Mapping[str, Sequence[str]] = field(default_factory=dict, compare=False)
    """Of tags that have others under them: the words that mean them alone."""

    def __post_init__(self) -> None:
        """Check what can be wrong."""
        lists: dict[str, object] = {"tags": self.tags, "without": self.without, "predicted": self.predicted}
        for name, tags in lists.items():
            if isinstance(tags, str):  # its letters would be taken for tags
                raise UserError(setting=name, value=tags, expected="a tuple of tags")
        for name, text in (("taken_from", self.taken_from), ("taken_to", self.taken_to)):
            if text is not None and not is_date(text):
                expected = "a year, a month or a day: 2024, 2024-05 or 2024-05-31"
                raise UserError(setting=name, value=text, expected=expected)
        if self.folder is not None and "\0" in self.folder:
            raise UserError(setting="folder", value=self.folder, expected="the path of a folder, without zero bytes")
        for name, size in (("min_bytes", self.min_bytes), ("max_bytes", self.max_bytes)):
            if size is not None and not 0 <= size <= LARGEST:
                raise UserError(setting=name, value=size, expected=f"a number of bytes, 0 to {LARGEST:.2g}")

    def __bool__(self) -> bool:
        """Return whether anything is asked for: without that, every image passes."""
        return self != Filter()


def is_date(text: str) -> bool:
    """Return whether a text is a year, month, day or time of ISO 8601 that the calendar has."""
    if not _DATE.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text + "0001-01-01T00:00:00"[len(text) :])
    except ValueError:
        return False
    return True


def image_ids(database: Database, conditions: Sequence[str], values: Sequence[object]) -> NDArray[np.int64]:
    """Return the ids of the images that are here and pass conditions (`conditions_of`), in order: one statement."""
    where = " AND ".join(["state = 'here'", *conditions])
    rows = database.rows(f"SELECT id FROM images WHERE {where} ORDER BY id", values)
    return np.fromiter((row[0] for row in rows), np.int64, len(rows))


def conditions_of(among: Filter, active: ActiveTags = WITHOUT_TREE) -> tuple[list[str], list[object]]:
    """Return a filter as SQL conditions on ``images``, and the values to bind, in their order.

    `active` says which given tags count, see `Tags.active`.
    """
    has = (
        f"id IN (SELECT image_id FROM given AS g WHERE {TAGGED} AND {active.condition} "
        f"UNION ALL SELECT image_id FROM verdicts WHERE {TAGGED} AND verdict = 1)"
    )
    conditions: list[str] = []
    values: list[object] = []

    def add(condition: str, *bound: object) -> None:
        conditions.append(condition)
        values.extend(bound)

    def keys(tag: str, spellings: Mapping[str, Sequence[str]] = among.spellings) -> str:
        return json.dumps([tag_key(spelling) for spelling in spellings.get(tag, [tag])])

    for tags, holds in ((among.tags, ""), (among.without, "NOT ")):
        for tag in tags:
            add(f"{holds}{has}", keys(tag), *active.values, keys(tag))
    for tag in among.predicted:
        least = PREDICTED_FROM if among.min_confidence is None else among.min_confidence
        sure = "(confidence IS NULL OR confidence >= ?)" if among.min_confidence is None else "confidence >= ?"
        add(
            "id IN (SELECT image_id FROM predictions AS p WHERE run_id = (SELECT id FROM runs WHERE current = 1) "
            f"AND {TAGGED} AND {sure} AND NOT EXISTS (SELECT 1 FROM verdicts AS v WHERE v.image_id = p.image_id AND "
            f"v.tag_id = p.tag_id AND verdict = -1) AND {active.not_under_predicted})",
            keys(tag), least, *active.values,
        )  # fmt: skip
        add(f"NOT {REJECTED}", keys(tag, among.named if tag in among.named else among.spellings))
    if among.folder is not None:
        folder = among.folder_path or os.fspath(in_full(among.folder))
        inside, text = start_of_paths(folder), "CAST(? AS TEXT)"
        named = os.path.normpath(among.folder).replace(os.sep, "/") + "/"  # no name begins with "./", "../" or "/"
        add(
            f"(folder = {text} OR substr(folder, 1, length({text})) = {text} "
            f"OR substr(name, 1, length({text})) = {text})",
            *map(as_text, (folder, inside, inside, named, named)),
        )
    file_type = among.file_type and file_type_of(f"x.{among.file_type.strip().removeprefix('.')}")
    for condition, value in (
        ("taken >= ?", among.taken_from),
        ("substr(taken, 1, length(?)) <= ?", among.taken_to),
        ("n_bytes >= ?", among.min_bytes),
        ("n_bytes <= ?", among.max_bytes),
        ("file_type = ?", file_type),
    ):
        if value is not None:
            add(condition, *[value] * condition.count("?"))
    if among.unreviewed:
        add("reviewed IS NULL")
    return conditions, values


def in_order(sort: str, ids: NDArray[np.int64], values: Sequence[str | None]) -> NDArray[np.int64]:
    """Return ids in an order, by the values of its column; photos without a date come last, equal ones as they were."""
    keys: list[Any] = [value or "" for value in values]
    if sort == NAME:
        keys = [name_key(value) for value in keys]
    elif sort == OLDEST:
        keys = [(value is None, value or "") for value in values]
    order = sorted(range(len(ids)), key=keys.__getitem__, reverse=sort not in (NAME, OLDEST))
    return ids[np.array(order, np.int64)]


def name_key(name: str) -> Any:
    """Return what names are sorted by: folder by folder, "ä" as "a", small and capital alike, and 2 before 10."""
    plain = "".join(letter for letter in unicodedata.normalize("NFKD", name) if not unicodedata.combining(letter))
    return [
        [(len(part.lstrip("0")), part) if i % 2 else part for i, part in enumerate(_DIGITS.split(folder))]
        for folder in plain.casefold().split("/")
    ]
