"""Which given tags count, as SQL: not those that were rejected, nor those of tag files under a rejected one."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from visterm.core.vocabulary import Vocabulary, tag_key
from visterm.store.database import Table

if TYPE_CHECKING:
    from visterm.data.tag_tree import TagTree

NOT_REJECTED = (
    "NOT EXISTS (SELECT 1 FROM verdicts AS r WHERE r.image_id = g.image_id AND r.tag_id = g.tag_id AND verdict = -1)"
)
"""Of a given tag `g`: that nobody rejected it."""


class Stands(NamedTuple):
    """Whether a given tag counts: conditions, and the values that they bind, the same for each."""

    pairs: str | None = None
    """Ids of tags and of those above each that were rejected of any image, as pairs in JSON; None: there are none."""

    @property
    def values(self) -> tuple[str, ...]:
        """What each condition binds."""
        return () if self.pairs is None else (self.pairs,)

    @property
    def condition(self) -> str:
        """Of a given tag `g`: that nobody rejected it, and that it does not lie under a rejected one."""
        return f"{NOT_REJECTED} AND {self.not_under}"

    @property
    def not_under(self) -> str:
        """The condition that a person gave the tag `g`, or nobody rejected one above it."""
        return "1" if self.pairs is None else f"(g.source = 'person' OR {self.none_above('g')})"

    def none_above(self, tag: str) -> str:
        """Return the condition that nobody rejected a tag above this one of an image (columns image_id and tag_id)."""
        if self.pairs is None:
            return "1"
        return (
            f"NOT EXISTS (SELECT 1 FROM verdicts AS o WHERE o.image_id = {tag}.image_id AND o.verdict = -1 "
            f"AND ({tag}.tag_id, o.tag_id) IN "
            "(SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?)))"
        )

    @property
    def somewhere(self) -> str:
        """Of a tag: that an image which is here has it."""
        return (
            "(EXISTS (SELECT 1 FROM given AS g JOIN images ON images.id = image_id AND state = 'here' "
            f"WHERE tag_id = tags.id AND {self.condition}) OR EXISTS (SELECT 1 FROM verdicts JOIN images "
            "ON images.id = image_id AND state = 'here' WHERE tag_id = tags.id AND verdict = 1))"
        )


WITHOUT_TREE = Stands()


class HeldTags(Table):
    """The tags of a catalogue with the tree of its run, by which a rejected tag speaks against those under it."""

    _tree: tuple[TagTree, Vocabulary] | None = None

    def know_tree(self, words: TagTree | None, vocabulary: Vocabulary) -> None:
        """Take the tree and the spellings of tags of the run that is used from now on; None: its tags have no tree."""
        self._tree = (words, vocabulary) if words else None

    def paths(self) -> tuple[str, ...]:
        """Return the tags with a ``/`` that images have here, whatever was rejected above them."""
        statement = f"SELECT name FROM tags WHERE instr(name, '/') AND {WITHOUT_TREE.somewhere} ORDER BY id"
        return self._database.keep("paths", lambda: tuple(row[0] for row in self._database.rows(statement)))

    def stands(self) -> Stands:
        """Return when a given tag of an image counts: this holds wherever it matters which tags images have."""
        tree = self._tree
        if tree is None:
            return WITHOUT_TREE
        return self._database.keep(("under rejected", tree[0]), lambda: self._under_rejected(*tree))

    def _under_rejected(self, words: TagTree, vocabulary: Vocabulary) -> Stands:
        rejected = self._database.rows(
            "SELECT id, key FROM tags WHERE EXISTS (SELECT 1 FROM verdicts WHERE tag_id = tags.id AND verdict = -1)"
        )
        tree = words.with_paths(self.paths())
        under = {
            over: {tag_key(word) for tag in tree.below(key) for word in vocabulary.spellings(tag)}
            for over, key in rejected
        }
        wanted = json.dumps(sorted(set[str]().union(*under.values())))
        ids = defaultdict[str, list[int]](list)
        for number, key in self._database.rows(
            "SELECT id, key FROM tags WHERE key IN (SELECT value FROM json_each(?)) ORDER BY id", (wanted,)
        ):
            ids[key].append(number)
        pairs = [(number, over) for over, keys in under.items() for key in sorted(keys) for number in ids.get(key, ())]
        return Stands(json.dumps(pairs)) if pairs else WITHOUT_TREE
