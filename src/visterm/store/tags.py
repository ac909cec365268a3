"""Tags of a catalogue's images: given by people, accepted and rejected, and predicted."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import is_, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from visterm.core.checks import check_choice
from visterm.core.errors import UserError
from visterm.core.vocabulary import Vocabulary, tag_key
from visterm.store.database import CatalogueTable, as_text, now
from visterm.store.images import as_list

if TYPE_CHECKING:
    from visterm.data.tag_tree import TagTree

SOURCES = ("file", "person")
VERDICTS = (-1, 0, 1)

NOT_REJECTED = (
    "NOT EXISTS (SELECT 1 FROM verdicts AS r WHERE r.image_id = g.image_id AND r.tag_id = g.tag_id AND verdict = -1)"
)
"""Of a given tag `g`: that nobody rejected it."""

MEANT = "(SELECT id FROM tags WHERE key IN (SELECT value FROM json_each(?1)))"
"""The tags that are meant, by the keys of all their spellings."""

MOST_TAGS, MOST_JUDGEMENT_BYTES = 5000, 2**26  # Tags of which is remembered what people said, and how much that is
MOST_MADE, MOST_MADE_BYTES = 128, 2**20  # Answers to searches that are remembered: how many, and of one how much


class ActiveTags(NamedTuple):
    """Which given tags count, as SQL conditions that each bind `values`."""

    values: tuple[str, ...]
    condition: str  # Of a given tag `g`: that nobody rejected it, and that it does not lie under a rejected one
    not_under: str  # That a person gave the tag `g`, or nobody rejected one above it
    not_under_predicted: str  # Of a prediction `p`: that nobody rejected a tag above it
    somewhere: str  # Of a tag: that an image which is here has it


def active_tags(pairs: str | None = None) -> ActiveTags:
    """Return which given tags count.

    `pairs` are ids of tags and of those above each that were rejected of any image, in JSON; None: there are none.
    """
    none_above = "1"
    if pairs is not None:
        none_above = (
            "NOT EXISTS (SELECT 1 FROM verdicts AS o WHERE o.image_id = {0}.image_id AND o.verdict = -1 "
            "AND ({0}.tag_id, o.tag_id) IN "
            "(SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?)))"
        )
    not_under = "1" if pairs is None else f"(g.source = 'person' OR {none_above.format('g')})"
    condition = f"{NOT_REJECTED} AND {not_under}"
    somewhere = (
        "(EXISTS (SELECT 1 FROM given AS g JOIN images ON images.id = image_id AND state = 'here' "
        f"WHERE tag_id = tags.id AND {condition}) OR EXISTS (SELECT 1 FROM verdicts JOIN images "
        "ON images.id = image_id AND state = 'here' WHERE tag_id = tags.id AND verdict = 1))"
    )
    return ActiveTags(() if pairs is None else (pairs,), condition, not_under, none_above.format("p"), somewhere)


WITHOUT_TREE = active_tags()


class GivenTag(NamedTuple):
    """A tag that an image has from people: read from a tag file, or given by a "person" in this catalogue."""

    tag: str
    source: str


class Prediction(NamedTuple):
    """A tag that a run gave to an image; the confidence is None where the run has no calibration."""

    tag: str
    score: float
    confidence: float | None


class Verdict(NamedTuple):
    """What a person said of a tag of an image: +1 accepted, -1 rejected, 0 taken back."""

    id: int  # Its number in the log
    image_id: int
    tag: str
    verdict: int
    at: str  # UTC
    run_id: int | None  # The run whose answer was shown


class Tags(CatalogueTable):
    """The tables of tags. An image *has* a tag that was given or accepted, and that was not rejected last.

    Nor has it a tag of a tag file if one above it in the tree of the run was rejected.
    """

    tree: tuple[TagTree, Vocabulary] | None = None
    """The tree and the spellings of the current run's tags; None: they have no tree."""

    def paths(self) -> tuple[str, ...]:
        """Return the tags with a ``/`` that images have here, whatever was rejected above them."""
        statement = f"SELECT name FROM tags WHERE instr(name, '/') AND {WITHOUT_TREE.somewhere} ORDER BY id"
        return self._database.keep("paths", lambda: tuple(row[0] for row in self._database.rows(statement)))

    def active(self) -> ActiveTags:
        """Return when a given tag of an image counts: this holds wherever it matters which tags images have."""
        tree = self.tree
        if tree is None:
            return WITHOUT_TREE
        return self._database.keep(("under rejected", tree[0]), lambda: self._under_rejected(*tree))

    def _under_rejected(self, words: TagTree, vocabulary: Vocabulary) -> ActiveTags:
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
        return active_tags(json.dumps(pairs)) if pairs else WITHOUT_TREE

    def names_here(self, keys: Sequence[str] | None = None) -> dict[str, str]:
        """Return the tags that images have here, by key (`tag_key`): all, or those of some keys."""
        which = "" if keys is None else "key IN (SELECT value FROM json_each(?)) AND "
        active = self.active()
        statement = f"SELECT key, name FROM tags WHERE {which}{active.somewhere} ORDER BY id DESC"
        values = () if keys is None else (json.dumps(keys),)
        return dict(self._database.rows(statement, (*values, *active.values)))

    def ids(self, names: Iterable[str], *, create: bool = False) -> dict[str, int]:
        """Return the ids of tags by name, in any spelling; those that are not there are left out, or made."""
        names = list(dict.fromkeys(names))
        with self._database.transaction(writes=create) as connection:
            if create:
                connection.executemany(
                    "INSERT INTO tags (name, key) VALUES (CAST(? AS TEXT), ?) ON CONFLICT DO NOTHING",
                    ((as_text(name), tag_key(name)) for name in names),
                )
            by_key = "SELECT id FROM tags WHERE key = ?"
            rows = {name: connection.execute(by_key, (tag_key(name),)).fetchone() for name in names}
        return {name: row[0] for name, row in rows.items() if row is not None}

    def spelled(self, name: str) -> str | None:
        """Return a tag as it is spelled here; None where there is no such tag."""
        names = self._database.rows("SELECT name FROM tags WHERE key = ?", (tag_key(name),))
        return str(names[0][0]) if names else None

    def spell_as(self, names: Iterable[str]) -> None:
        """Spell tags as in `names` from now on."""
        self._database.write_many(
            "UPDATE tags SET name = CAST(?1 AS TEXT) WHERE key = ?2 AND name != CAST(?1 AS TEXT)",
            ((as_text(name), tag_key(name)) for name in names),
        )

    def give(self, image_id: int, tags: Iterable[str], source: str) -> None:
        """Add tags to an image; one that it has from a person keeps that source."""
        self.give_many([(image_id, tags)], source)

    def give_many(self, given: Iterable[tuple[int, Iterable[str]]], source: str) -> None:
        """Add tags to images, pairs of an id and tags."""
        check_choice(source, "source", SOURCES)
        lists = [(image_id, list(tags)) for image_id, tags in given]
        with self._database.transaction() as connection:
            ids = self.ids((tag for _, tags in lists for tag in tags), create=True)
            connection.executemany(
                "INSERT INTO given (image_id, tag_id, source) VALUES (?, ?, ?) "
                "ON CONFLICT DO UPDATE SET source = 'person' WHERE excluded.source = 'person'",
                ((image_id, ids[tag], source) for image_id, tags in lists for tag in tags),
            )

    def take(self, image_id: int, tags: Iterable[str], source: str | None = None) -> None:
        """Remove given tags of an image: of one source, or whatever their source."""
        self._database.write_many(
            "DELETE FROM given WHERE image_id = ? AND tag_id = ? AND source = coalesce(?, source)",
            [(image_id, tag_id, source) for tag_id in self.ids(tags).values()],
        )

    def set_from_file(self, image_id: int, tags: Iterable[str]) -> None:
        """Put the tags that a tag file gives now in place of those it gave before; a person's stay."""
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM given WHERE image_id = ? AND source = 'file'", (image_id,))
            self.give(image_id, tags, "file")

    def given(self, image_id: int, *, standing: bool = False) -> list[GivenTag]:
        """List the given tags of an image, by name, also those that were rejected; or only those that it has."""
        active = self.active() if standing else None
        condition, values = ("1", ()) if active is None else (active.condition, active.values)
        return self._records(
            GivenTag,
            "SELECT tags.name, source FROM given AS g JOIN tags ON tags.id = tag_id "
            f"WHERE image_id = ? AND {condition} ORDER BY tags.name",
            (image_id, *values),
        )

    def held(self, image_ids: Iterable[int] | None = None) -> dict[int, list[str]]:
        """Return the tags that images have, by id of the image (None: all that are here); none for those without."""
        active = self.active()
        return self._by_image(
            f"SELECT image_id, tag_id FROM given AS g WHERE {active.condition} "
            "UNION SELECT image_id, tag_id FROM verdicts WHERE verdict = 1",
            image_ids,
            *active.values,
        )

    def rejected(self, image_ids: Iterable[int] | None = None) -> dict[int, list[str]]:
        """Return the tags that people rejected and did not take back, by id of the image (None: all that are here)."""
        return self._by_image("SELECT image_id, tag_id FROM verdicts WHERE verdict = -1", image_ids)

    def settled(self, image_ids: Iterable[int] | None = None) -> dict[int, list[str]]:
        """Return the tags that people gave, accepted or rejected here, by id of the image (None: all that are here)."""
        given = "SELECT image_id, tag_id FROM given WHERE source = 'person'"
        judged = "SELECT image_id, tag_id FROM verdicts WHERE verdict != 0"
        return self._by_image(f"{given} UNION {judged}", image_ids)

    def answers(self) -> list[tuple[int, str, bool, bool]]:
        """List what people accepted or rejected of images that are here.

        As (id of the image, tag, whether they accepted it, whether a tag file gives it).
        """
        rows = self._database.rows(
            "SELECT verdicts.image_id, tags.name, verdict = 1, given.source IS NOT NULL FROM verdicts "
            "JOIN tags ON tags.id = verdicts.tag_id "
            "JOIN images ON images.id = verdicts.image_id AND images.state = 'here' "
            "LEFT JOIN given ON given.image_id = verdicts.image_id AND given.tag_id = verdicts.tag_id "
            "AND given.source = 'file' WHERE verdict != 0"
        )
        return [(image_id, tag, bool(accepted), bool(from_file)) for image_id, tag, accepted, from_file in rows]

    def judge(self, image_id: int, tag: str, verdict: int, *, run_id: int | None = None) -> int:
        """Write down what a person says of a tag of an image, and return its number in the log; the latest counts.

        A verdict of +1 accepts, -1 rejects, 0 takes back; `run_id` is the run whose answer was shown. Raises UserError
        if `verdict` is another number.
        """
        if verdict not in VERDICTS or isinstance(verdict, bool):
            expected = "1 (accepted), -1 (rejected) or 0 (taken back)"
            raise UserError(setting="verdict", value=verdict, expected=expected)
        with self._database.transaction():
            return self._database.insert(
                "INSERT INTO feedback (image_id, tag_id, verdict, at, run_id) VALUES (?, ?, ?, ?, ?)",
                (image_id, self.ids([tag], create=True)[tag], int(verdict), now(), run_id),
            )

    def verdicts(self, image_id: int) -> dict[str, int]:
        """Return the latest verdict, +1 or -1, of each tag of an image that has one."""
        statement = (
            "SELECT tags.name, verdict FROM verdicts JOIN tags ON tags.id = tag_id "
            "WHERE image_id = ? AND verdict != 0 ORDER BY tags.name"
        )
        return dict(self._database.rows(statement, (image_id,)))

    def feedback(self, *, after: int = 0, limit: int = 1000) -> list[Verdict]:
        """Read the log of feedback from one number on, oldest first."""
        return self._records(
            Verdict,
            "SELECT feedback.id, image_id, tags.name, verdict, at, run_id FROM feedback "
            "JOIN tags ON tags.id = tag_id WHERE feedback.id > ? ORDER BY feedback.id LIMIT ?",
            (after, limit),
        )

    def set_predictions(self, run_id: int, predictions: Mapping[int, Iterable[Prediction]]) -> None:
        """Put the best few tags of images, by id, in place of what the run gave them before."""
        with self._database.transaction() as connection:
            lists = {image_id: list(best) for image_id, best in predictions.items()}
            ids = self.ids((p.tag for best in lists.values() for p in best), create=True)
            connection.executemany(
                "DELETE FROM predictions WHERE run_id = ? AND image_id = ?", ((run_id, i) for i in lists)
            )
            connection.executemany(
                "INSERT INTO predictions (run_id, image_id, tag_id, score, confidence) VALUES (?, ?, ?, ?, ?)",
                ((run_id, i, ids[p.tag], p.score, p.confidence) for i, best in lists.items() for p in best),
            )

    def predictions(self, image_id: int, run_id: int) -> list[Prediction]:
        """List what a run gave to an image, best first, without tags that a person rejected there."""
        return self._records(
            Prediction,
            "SELECT tags.name, score, confidence FROM predictions JOIN tags ON tags.id = tag_id "
            "WHERE run_id = ? AND image_id = ? AND NOT EXISTS (SELECT 1 FROM verdicts AS v "
            "WHERE v.image_id = predictions.image_id AND v.tag_id = predictions.tag_id AND verdict = -1) "
            "ORDER BY score DESC, tags.name",
            (run_id, image_id),
        )

    def counts(self) -> list[dict[str, Any]]:
        """List all tags by name, with how many images that are here have each.

        "images" is how many have it; "given", of how many it was given and not rejected; "accepted", "rejected".
        """
        of_image = "JOIN images ON images.id = image_id AND state = 'here'"
        active = self.active()
        also_given = (
            "EXISTS (SELECT 1 FROM given AS g WHERE g.image_id = v.image_id AND g.tag_id = v.tag_id "
            f"AND {active.condition})"
        )
        given_to = f"SELECT tag_id, count(*) AS n FROM given AS g {of_image} WHERE {active.condition} GROUP BY tag_id"
        judged = (
            "SELECT tag_id, sum(verdict = 1) AS accepted, sum(verdict = -1) AS rejected, "
            f"sum(verdict = 1 AND NOT {also_given}) AS more FROM verdicts AS v {of_image} GROUP BY tag_id"
        )
        rows = self._database.rows(
            "SELECT name, coalesce(n, 0), coalesce(accepted, 0), coalesce(rejected, 0), coalesce(more, 0) "
            f"FROM tags LEFT JOIN ({given_to}) AS a ON a.tag_id = tags.id "
            f"LEFT JOIN ({judged}) AS b ON b.tag_id = tags.id ORDER BY name",
            active.values * 2,
        )
        return [
            {"tag": tag, "images": given + more, "given": given, "accepted": accepted, "rejected": rejected}
            for tag, given, accepted, rejected, more in rows
        ]

    def _by_image(self, pairs: str, image_ids: Iterable[int] | None, *values: str) -> dict[int, list[str]]:
        which = "(SELECT id FROM images WHERE state = 'here')"
        if image_ids is not None:
            which, values = "(SELECT value FROM json_each(?))", (*values, as_list(image_ids))
        rows = self._database.rows(
            f"SELECT image_id, tags.name FROM ({pairs}) JOIN tags ON tags.id = tag_id WHERE image_id IN {which} "
            "ORDER BY image_id, tags.name",
            values,
        )
        return {image_id: [name for _, name in group] for image_id, group in groupby(rows, key=itemgetter(0))}


def judged_by(index: str, counts: str) -> str:
    """Return the statement for what people judged of a tag, with the condition on given tags `g` that count."""
    return (
        f"SELECT kind, group_concat(image_id) FROM (SELECT 2 AS kind, image_id FROM given AS g INDEXED BY {index} "
        f"WHERE tag_id IN {MEANT} AND {counts} AND (image_id, tag_id) NOT IN "
        f"(SELECT image_id, tag_id FROM verdicts WHERE tag_id IN {MEANT} AND verdict = -1) UNION ALL "
        f"SELECT verdict, image_id FROM verdicts AS v WHERE tag_id IN {MEANT} AND (verdict = 1 OR verdict = -1 AND "
        f"NOT EXISTS (SELECT 1 FROM given AS g WHERE g.image_id = v.image_id AND tag_id IN {MEANT} AND {NOT_REJECTED}))"
        ") GROUP BY kind"
    )


BY_HAND = judged_by("given_by_hand", "source = 'person'")
"""Whether people said that an image has a tag: 2 gave it, 1 accepted it, -1 rejected it.

An image that has the tag in another spelling does not count as rejected."""


class TagJudgements(NamedTuple):
    """The images of which a person said that they have a tag, or have it not; ids in order."""

    given: NDArray[np.int64]
    has: NDArray[np.int64]  # Given or accepted
    rejected: NDArray[np.int64]


@dataclass(eq=False)
class ManualJudgements(CatalogueTable):
    """What people said of tags, and what searches made of it: remembered until more is said of the same tags."""

    _tags: Tags
    _known: dict[Hashable, tuple[object, TagJudgements]] = field(default_factory=dict, init=False)
    _n_bytes: int = field(default=0, init=False)
    _made: dict[Hashable, tuple[Sequence[object], Any]] = field(default_factory=dict, init=False)

    def of_tag(self, keys: Sequence[str], *, of_files: bool = False) -> TagJudgements:
        """Return what people said of a tag, meant by the keys of all its spellings: the same object until more is said.

        With `of_files`, what tag files say counts as given. Other tags are not scanned.
        """
        version = self._database.keep("version of judgements", object)  # another object once anything has changed
        active = self._tags.active() if of_files else None
        statement, values = (
            (BY_HAND, ()) if active is None else (judged_by("given_by_tag", active.not_under), active.values)
        )
        key = (statement, *keys)
        version_before, before = self._known.get(key, (None, None))
        if before is not None and version_before is version:
            return before

        images = dict.fromkeys((2, 1, -1), np.empty(0, np.int64))
        for kind, ids in self._database.rows(statement, (json.dumps(keys), *values)):
            # as one text of each kind: numbers that come one by one take ten times as long
            images[kind] = np.unique(np.fromstring(ids, np.int64, sep=","))
        given, accepted, rejected = images.values()
        has = np.union1d(given, accepted) if len(given) and len(accepted) else given if len(given) else accepted
        if len(rejected) and len(accepted):
            rejected = np.setdiff1d(rejected, accepted, assume_unique=True)

        judgements = TagJudgements(given, has, rejected)
        if before is not None and all(map(np.array_equal, before, judgements)):
            judgements = before  # so that what was made of these arrays still counts
        n_bytes, n_bytes_before = (sum(ids.nbytes for ids in each or ()) for each in (judgements, before))
        self._n_bytes += n_bytes - n_bytes_before
        if len(self._known) >= MOST_TAGS or self._n_bytes > MOST_JUDGEMENT_BYTES:
            self._known, self._n_bytes = {}, n_bytes
        self._known[key] = version, judgements
        return judgements

    def remembered(self, key: Hashable, of: Sequence[object]) -> Any:
        """Return what was made `of` these very objects and remembered under a key; None where it was of others.

        These are what `of_tag` returned, or what was made of that.
        """
        known = self._made.get(key)
        return known[1] if known is not None and all(map(is_, of, known[0])) else None

    def remember(self, key: Hashable, of: Sequence[object], answer: Iterable[object]) -> None:
        """Remember what was made of some objects, for when a search is repeated."""
        if sum(getattr(part, "nbytes", 0) for part in answer) <= MOST_MADE_BYTES:
            if len(self._made) >= MOST_MADE:
                self._made.clear()
            self._made[key] = of, answer
