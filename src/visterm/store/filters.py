"""Which images a search is among: by tags, folder, date, size, type and review, as one statement with bound values."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.store.database import Database, as_text

TAG = "(SELECT id FROM tags WHERE name = CAST(? AS TEXT))"


@dataclass(frozen=True, kw_only=True, slots=True)
class Filter:
    """What images have to be; what is left out does not matter. All of it has to hold.

    Attributes
    ----------
    tags : tuple of str
        That an image has, each: given or accepted, and not rejected.
    without : tuple of str
        That it has not.
    predicted : tuple of str
        That the current run predicted for it, each, among its best few, and that no person rejected.
    min_confidence : float or None
        Least confidence of the predicted ones.
    folder : str or None
        That its file lies in, or in a folder inside it.
    taken_from, taken_to : str or None
        ISO 8601, as far as it goes ("2019", "2019-07-01"); `taken_to` counts to the end of what it names. Images
        whose date is not known fall out.
    min_bytes, max_bytes : int or None
        Of the file, both included.
    file_type : str or None
        "jpeg", "png", ...
    unreviewed : bool
        Not reviewed by a person yet.
    """

    tags: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    predicted: tuple[str, ...] = ()
    min_confidence: float | None = None
    folder: str | None = None
    taken_from: str | None = None
    taken_to: str | None = None
    min_bytes: int | None = None
    max_bytes: int | None = None
    file_type: str | None = None
    unreviewed: bool = False

    def __bool__(self) -> bool:
        """Say whether anything is asked for: without that, every image passes."""
        return self != Filter()


def image_ids(database: Database, wanted: Filter) -> NDArray[np.int64]:
    """Give the ids of the images that are here and pass a filter, in order: one statement."""
    conditions, values = conditions_of(wanted)
    where = " AND ".join(["state = 'here'", *conditions])
    found = database.rows(f"SELECT id FROM images WHERE {where} ORDER BY id", values)
    return np.fromiter((row[0] for row in found), np.int64, len(found))


def conditions_of(wanted: Filter) -> tuple[list[str], list[Any]]:
    """Give a filter as SQL conditions on ``images``, and the values to bind, in their order."""
    conditions: list[str] = []
    values: list[Any] = []

    def add(condition: str, *bound: Any) -> None:
        conditions.append(condition)
        values.extend(bound)

    for tag in wanted.tags:
        add(_has(), *[as_text(tag)] * 3)
    for tag in wanted.without:
        add(f"NOT {_has()}", *[as_text(tag)] * 3)
    for tag in wanted.predicted:
        add(
            "id IN (SELECT image_id FROM predictions WHERE run_id = (SELECT id FROM runs WHERE current = 1) "
            f"AND tag_id = {TAG} AND (? IS NULL OR confidence >= ?))",
            as_text(tag), wanted.min_confidence, wanted.min_confidence,
        )  # fmt: skip
        add(f"id NOT IN (SELECT image_id FROM verdicts WHERE tag_id = {TAG} AND verdict = -1)", as_text(tag))
    if wanted.folder is not None:
        folder = os.path.abspath(wanted.folder)
        inside = folder.rstrip("/") + "/"
        text = "CAST(? AS TEXT)"
        add(f"(folder = {text} OR substr(folder, 1, length({text})) = {text})", *map(as_text, (folder, inside, inside)))
    if wanted.taken_from is not None:
        add("taken >= ?", wanted.taken_from)
    if wanted.taken_to is not None:
        add("substr(taken, 1, length(?)) <= ?", wanted.taken_to, wanted.taken_to)
    if wanted.min_bytes is not None:
        add("n_bytes >= ?", wanted.min_bytes)
    if wanted.max_bytes is not None:
        add("n_bytes <= ?", wanted.max_bytes)
    if wanted.file_type is not None:
        add("file_type = ?", wanted.file_type.lower())
    if wanted.unreviewed:
        add("reviewed IS NULL")
    return conditions, values


def _has() -> str:
    """Give the condition that an image has a tag; binds its name three times."""
    return (
        f"(id IN (SELECT image_id FROM given WHERE tag_id = {TAG} "
        f"UNION ALL SELECT image_id FROM verdicts WHERE tag_id = {TAG} AND verdict = 1) "
        f"AND id NOT IN (SELECT image_id FROM verdicts WHERE tag_id = {TAG} AND verdict = -1))"
    )
