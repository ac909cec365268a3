"""Filters of images, converted to SQL conditions with bound values; and the orders in which photos are listed."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from visterm.core.errors import UserError
from visterm.core.remote import absolute, start_of_paths
from visterm.core.vocabulary import tag_key
from visterm.store.database import as_text
from visterm.store.images import file_type_of
from visterm.store.tags import WITHOUT_TREE, ActiveTags

PREDICTED_FROM = 0.5  # Minimum confidence at which a tag counts as predicted and is exported

MATCH, TAKEN, OLDEST, NAME, ADDED = "chance", "taken", "oldest", "name", "added"
SORTS = {
    MATCH: "match, best first",
    TAKEN: "date taken, newest first",
    OLDEST: "date taken, oldest first",
    NAME: "name",
    ADDED: "date added, newest first",
}
"""Sort key -> its description for people."""

COLUMNS = {TAKEN: "taken", OLDEST: "taken", NAME: "name", ADDED: "added"}
"""Sort key -> its column in the table ``images``."""

_DIGITS = re.compile(r"(\d+)")

MAX_INT = 2**63 - 1  # The largest integer that SQLite can store
_DATE = re.compile(r"\d{4}(?:-\d\d(?:-\d\d(?:T\d\d(?::\d\d(?::\d\d)?)?)?)?)?", re.ASCII)

# Condition: the tag has one of the bound keys, which are the spellings of one tag
TAGGED = "tag_id IN (SELECT id FROM tags WHERE key IN (SELECT value FROM json_each(?)))"

REJECTED = f"id IN (SELECT image_id FROM verdicts WHERE {TAGGED} AND verdict = -1)"


@dataclass(frozen=True, kw_only=True, slots=True)
class Filter:
    """Conditions that an image must meet; a condition with its default value does not apply.

    Raises UserError if a date, a folder or a size is invalid, because no image would pass.
    """

    tags: tuple[str, ...] = ()  # Tags that the image has: given or accepted, and not rejected
    without: tuple[str, ...] = ()  # Tags that the image does not have
    predicted: tuple[str, ...] = ()  # Tags that the current run predicted, and that no person rejected
    min_confidence: float | None = None
    """Minimum confidence of `predicted`. None: 0.5, or all stored predictions if the run has no confidences."""
    folder: str | None = None
    """Folder that contains the file, directly or in a subfolder: the start of its name ("Cats/kittens"), or a path."""
    folder_path: str | None = None
    """`folder` as an absolute path without links, if the caller has another working directory; None: from `folder`."""
    taken_from: str | None = None  # ISO 8601, may be partial ("2019"); undated images don't pass
    taken_to: str | None = None  # Inclusive: to the end of that year, month or day
    min_bytes: int | None = None  # Size of the file, inclusive
    max_bytes: int | None = None
    file_type: str | None = None  # "jpeg" ("jpg" is the same), "png", ...
    unreviewed: bool = False  # Not reviewed by a person yet
    spellings: Mapping[str, Sequence[str]] = field(default_factory=dict, compare=False)
    """Tag -> all words for the tag, if it has aliases or narrower tags. Case is ignored."""
    exact_spellings: Mapping[str, Sequence[str]] = field(default_factory=dict, compare=False)
    """Tag -> the words for exactly this tag, if it has narrower tags."""

    def __post_init__(self) -> None:
        """Check the values."""
        lists: dict[str, object] = {"tags": self.tags, "without": self.without, "predicted": self.predicted}
        for name, tags in lists.items():
            if isinstance(tags, str):  # its letters would be treated as tags
                raise UserError(setting=name, value=tags, expected="a tuple of tags")
        for name, text in (("taken_from", self.taken_from), ("taken_to", self.taken_to)):
            if text is not None and not is_date(text):
                expected = "a year, a month or a day: 2024, 2024-05 or 2024-05-31"
                raise UserError(setting=name, value=text, expected=expected)
        if self.folder is not None and "\0" in self.folder:
            raise UserError(setting="folder", value=self.folder, expected="the path of a folder, without zero bytes")
        for name, size in (("min_bytes", self.min_bytes), ("max_bytes", self.max_bytes)):
            if size is not None and not 0 <= size <= MAX_INT:
                raise UserError(setting=name, value=size, expected=f"a number of bytes, 0 to {MAX_INT:.2g}")

    def __bool__(self) -> bool:
        """Return whether the filter has a condition; without one, every image passes."""
        return self != Filter()


def is_date(text: str) -> bool:
    """Return whether a text is a valid year, month, day or time in ISO 8601."""
    if not _DATE.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text + "0001-01-01T00:00:00"[len(text) :])
    except ValueError:
        return False
    return True


def conditions_of(limits: Filter, active: ActiveTags = WITHOUT_TREE) -> tuple[list[str], list[object]]:
    """Convert a filter to SQL conditions on ``images``, and the values to bind, in the order of the conditions.

    `active` has the conditions on given tags (see `Tags.active`).
    """
    has_tag = (
        f"id IN (SELECT image_id FROM given AS g WHERE {TAGGED} AND {active.condition} "
        f"UNION ALL SELECT image_id FROM verdicts WHERE {TAGGED} AND verdict = 1)"
    )
    conditions: list[str] = []
    values: list[object] = []

    def add(condition: str, *bound: object) -> None:
        conditions.append(condition)
        values.extend(bound)

    def keys(tag: str, spellings: Mapping[str, Sequence[str]] = limits.spellings) -> str:
        return json.dumps([tag_key(spelling) for spelling in spellings.get(tag, [tag])])

    for tags, negation in ((limits.tags, ""), (limits.without, "NOT ")):
        for tag in tags:
            add(f"{negation}{has_tag}", keys(tag), *active.values, keys(tag))
    for tag in limits.predicted:
        threshold = PREDICTED_FROM if limits.min_confidence is None else limits.min_confidence
        minimum = "(confidence IS NULL OR confidence >= ?)" if limits.min_confidence is None else "confidence >= ?"
        add(
            "id IN (SELECT image_id FROM predictions AS p WHERE run_id = (SELECT id FROM runs WHERE current = 1) "
            f"AND {TAGGED} AND {minimum} AND NOT EXISTS (SELECT 1 FROM verdicts AS v WHERE v.image_id = p.image_id AND "
            f"v.tag_id = p.tag_id AND verdict = -1) AND {active.not_under_predicted})",
            keys(tag), threshold, *active.values,
        )  # fmt: skip
        add(f"NOT {REJECTED}", keys(tag, limits.exact_spellings if tag in limits.exact_spellings else limits.spellings))

    if limits.folder is not None:
        folder = limits.folder_path or os.fspath(absolute(limits.folder))
        prefix, text = start_of_paths(folder), "CAST(? AS TEXT)"
        name_prefix = os.path.normpath(limits.folder).replace(os.sep, "/") + "/"  # names never begin with "." or "/"
        add(
            f"(folder = {text} OR substr(folder, 1, length({text})) = {text} "
            f"OR substr(name, 1, length({text})) = {text})",
            *map(as_text, (folder, prefix, prefix, name_prefix, name_prefix)),
        )
    for condition, value in (
        ("taken >= ?", limits.taken_from),
        ("substr(taken, 1, length(?)) <= ?", limits.taken_to),
        ("n_bytes >= ?", limits.min_bytes),
        ("n_bytes <= ?", limits.max_bytes),
        ("file_type = ?", limits.file_type and file_type_of(f"x.{limits.file_type.strip().removeprefix('.')}")),
    ):
        if value is not None:
            add(condition, *[value] * condition.count("?"))
    if limits.unreviewed:
        add("reviewed IS NULL")
    return conditions, values


def name_key(name: str) -> Any:
    """Return the sort key of a name: by folder, ignoring case and accents, and with 2 before 10."""
    base = "".join(letter for letter in unicodedata.normalize("NFKD", name) if not unicodedata.combining(letter))
    return [
        [(len(part.lstrip("0")), part) if i % 2 else part for i, part in enumerate(_DIGITS.split(folder))]
        for folder in base.casefold().split("/")
    ]
