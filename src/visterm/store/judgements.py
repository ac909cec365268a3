"""What people said of tags, and what searches made of it, remembered as long as nobody says more of the same tags."""

from __future__ import annotations

import json
from collections.abc import Hashable, Sequence
from functools import partial
from operator import is_
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from visterm.store.database import CatalogueTable, Database
from visterm.store.tags import NOT_REJECTED, Tags

MOST_TAGS = 500  # Tags of which is remembered what people said, over changes of the catalogue
MOST_TAG_BYTES = 2**18  # Of one tag
MOST_MADE = 128  # Answers to searches that are remembered: of 64, what was said of their words, and its scores

MEANT = "(SELECT id FROM tags WHERE key IN (SELECT value FROM json_each(?1)))"
"""The tags that are meant, by the keys of all their spellings."""


def said_by(index: str, counts: str) -> str:
    """Return the statement for what people said of a tag, with the condition on given tags `g` that count."""
    return (
        f"SELECT kind, group_concat(image_id) FROM (SELECT 2 AS kind, image_id FROM given AS g INDEXED BY {index} "
        f"WHERE tag_id IN {MEANT} AND {counts} AND (image_id, tag_id) NOT IN "
        f"(SELECT image_id, tag_id FROM verdicts WHERE tag_id IN {MEANT} AND verdict = -1) UNION ALL "
        f"SELECT verdict, image_id FROM verdicts AS v WHERE tag_id IN {MEANT} AND (verdict = 1 OR verdict = -1 AND "
        f"NOT EXISTS (SELECT 1 FROM given AS g WHERE g.image_id = v.image_id AND tag_id IN {MEANT} AND {NOT_REJECTED}))"
        ") GROUP BY kind"
    )


SAID = said_by("given_by_hand", "source = 'person'")
"""What people said of a tag: 2 gave it, 1 accepted it, -1 rejected it, unless the image has it in another spelling."""


class TagJudgements(NamedTuple):
    """The images of which a person said that they have a tag, or have it not; ids in order."""

    given: NDArray[np.int64]
    has: NDArray[np.int64]  # Given or accepted
    rejected: NDArray[np.int64]


class ManualJudgements(CatalogueTable):
    """The tables of given tags and of verdicts, tag by tag."""

    def __init__(self, database: Database, tags: Tags) -> None:
        super().__init__(database)
        self._tags = tags
        self._last: dict[Hashable, TagJudgements] = {}
        self._made: dict[Hashable, tuple[Sequence[Any], Any]] = {}

    def said(self, keys: Sequence[str], *, of_files: bool = False) -> TagJudgements:
        """Return what people said of a tag, meant by the keys of all its spellings: the same object until more is said.

        With `of_files`, what tag files say counts as given.
        """
        return self._database.keep(("said", of_files, *keys), partial(self._said, keys, of_files=of_files))

    def _said(self, keys: Sequence[str], *, of_files: bool) -> TagJudgements:
        """Return what people said of a tag, without a scan of other tags; the object of the last time if it is equal.

        The tables' version changes whatever is said; so what was made of these arrays still counts.
        """
        active = self._tags.active() if of_files else None
        statement, values = (SAID, ()) if active is None else (said_by("given_by_tag", active.not_under), active.values)
        images = dict.fromkeys((2, 1, -1), np.empty(0, np.int64))
        for kind, ids in self._database.rows(statement, (json.dumps(keys), *values)):
            # as one text of each kind: numbers that come one by one take ten times as long
            images[kind] = np.unique(np.fromstring(ids, np.int64, sep=","))
        given, accepted, rejected = images.values()
        has = np.union1d(given, accepted) if len(given) and len(accepted) else given if len(given) else accepted
        if len(rejected) and len(accepted):
            rejected = np.setdiff1d(rejected, accepted, assume_unique=True)

        now, key = TagJudgements(given, has, rejected), (statement, *keys)
        before = self._last.get(key)
        if before is not None and all(map(np.array_equal, before, now)):
            return before
        if len(self._last) >= MOST_TAGS:
            self._last.clear()
        if sum(ids.nbytes for ids in now) <= MOST_TAG_BYTES:
            self._last[key] = now
        return now

    def remembered(self, key: Hashable, of: Sequence[Any]) -> Any:
        """Return what was made `of` these very objects and remembered under a key; None where it was of others.

        These are what `said` returned, or what was made of that.
        """
        known = self._made.get(key)
        return known[1] if known is not None and all(map(is_, of, known[0])) else None

    def remember(self, key: Hashable, of: Sequence[Any], answer: Any) -> None:
        """Remember what was made of some objects, for when a search is repeated."""
        if len(self._made) >= MOST_MADE:
            self._made.clear()
        self._made[key] = of, answer
