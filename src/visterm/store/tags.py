"""Tags of a catalogue's images: given by people, accepted, rejected and predicted."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import is_, itemgetter
from typing import Any, NamedTuple

import numpy as np

from visterm.core.errors import UserError
from visterm.core.id_sets import NO_IDS, Ids, union, without
from visterm.core.vocabulary import Vocabulary, tag_key
from visterm.data.tag_tree import TagTree
from visterm.store.database import WHO, CatalogueTable, as_text, now
from visterm.store.images import as_list

VERDICTS = (-1, 0, 1)

NOT_REJECTED = (
    "NOT EXISTS (SELECT 1 FROM verdicts AS r WHERE r.image_id = g.image_id AND r.tag_id = g.tag_id AND verdict = -1)"
)
"""Condition on a given tag `g`: no person rejected it."""

BY_KEY = "(SELECT id FROM tags WHERE key IN (SELECT value FROM json_each(?1)))"  # Ids of the tags with the bound keys

MAX_CACHED_TAGS, MAX_DERIVED = 5000, 128  # Maximum number of tags with cached judgements, and of derived answers
MAX_CACHED_BYTES = 2**27  # Maximum total size of both
TAG_VERSIONS = (
    "SELECT group_concat(f.value), group_concat(p.value) FROM tags LEFT JOIN meta AS f ON f.key = 'file tags ' || "
    "tags.id LEFT JOIN meta AS p ON p.key = 'person tags ' || tags.id WHERE tags.key IN "
    "(SELECT value FROM json_each(?))"
)
"""Values that change whenever tag files, or people, say something new of the tags with the bound keys."""


class ActiveTags(NamedTuple):
    """SQL conditions for the tags that count; each condition binds `values`."""

    values: tuple[str, ...]
    condition: str  # On a given tag `g`: no person rejected it or, for tags of files, a broader tag
    not_under_predicted: str  # On a prediction `p`: no person rejected a broader tag
    somewhere: str  # On a tag: at least one present image has it


def active_tags(pairs: str | None = None) -> ActiveTags:
    """Return the conditions for the tags that count.

    `pairs` are (tag id, id of a broader tag that was rejected for any image), as JSON; None: no such pairs.
    """
    no_broader = "1"
    if pairs is not None:
        no_broader = (
            "NOT EXISTS (SELECT 1 FROM verdicts AS o WHERE o.image_id = {0}.image_id AND o.verdict = -1 "
            "AND ({0}.tag_id, o.tag_id) IN "
            "(SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?)))"
        )

    not_under = "1" if pairs is None else f"(g.source = 'person' OR {no_broader.format('g')})"
    condition = f"{NOT_REJECTED} AND {not_under}"
    somewhere = (
        "(EXISTS (SELECT 1 FROM given AS g JOIN images ON images.id = image_id AND state = 'here' "
        f"WHERE tag_id = tags.id AND {condition}) OR EXISTS (SELECT 1 FROM verdicts JOIN images "
        "ON images.id = image_id AND state = 'here' WHERE tag_id = tags.id AND verdict = 1))"
    )
    return ActiveTags(() if pairs is None else (pairs,), condition, no_broader.format("p"), somewhere)


WITHOUT_TREE = active_tags()


class GivenTag(NamedTuple):
    """A tag given to an image by people: in a tag file (source "file"), or in this catalogue ("person")."""

    tag: str
    source: str
    who: str = ""  # Who gave it; empty: not known


class Prediction(NamedTuple):
    """A tag that a run predicted for an image; `confidence` is None if the run is not calibrated."""

    tag: str
    score: float
    confidence: float | None


class Verdict(NamedTuple):
    """A person's verdict on a tag of an image: +1 accepted, -1 rejected, 0 undone."""

    id: int  # Position in the log
    image_id: int
    tag: str
    verdict: int
    at: str  # UTC
    run_id: int | None  # The run that predicted the tag
    who: str  # Empty: not known


class Tags(CatalogueTable):
    """The tables of tags. An image *has* a tag that was given or accepted, unless the latest verdict rejects the tag.

    It does not have a tag from a tag file if a broader tag in the run's tag tree was rejected.
    """

    tree: tuple[TagTree, Vocabulary] | None = None  # Tag tree and vocabulary of the current run; None: no tag tree

    def paths(self) -> tuple[str, ...]:
        """Return the tags with a ``/`` that present images have, ignoring rejected broader tags."""
        statement = f"SELECT name FROM tags WHERE instr(name, '/') AND {WITHOUT_TREE.somewhere} ORDER BY id"
        return self._database.keep("paths", lambda: tuple(row[0] for row in self._database.rows(statement)))

    def active(self) -> ActiveTags:
        """Return the conditions for the tags that count in this catalogue."""
        tree = self.tree
        if tree is None:
            return WITHOUT_TREE
        return self._database.keep(("under rejected", tree[0]), lambda: self._under_rejected(*tree))

    def _under_rejected(self, base_tree: TagTree, vocabulary: Vocabulary) -> ActiveTags:
        rejected = self._database.rows(
            "SELECT id, key FROM tags WHERE EXISTS (SELECT 1 FROM verdicts WHERE tag_id = tags.id AND verdict = -1)"
        )
        tree = base_tree.with_paths(self.paths())
        keys_below = {
            broader_id: {tag_key(word) for tag in tree.below(key) for word in vocabulary.spellings(tag)}
            for broader_id, key in rejected
        }
        key_list = json.dumps(sorted(set[str]().union(*keys_below.values())))
        ids = defaultdict[str, list[int]](list)
        for tag_id, key in self._database.rows(
            "SELECT id, key FROM tags WHERE key IN (SELECT value FROM json_each(?)) ORDER BY id", (key_list,)
        ):
            ids[key].append(tag_id)
        pairs = [(i, broader) for broader, keys in keys_below.items() for key in sorted(keys) for i in ids.get(key, ())]
        return active_tags(json.dumps(pairs)) if pairs else WITHOUT_TREE

    def names_here(self, keys: Sequence[str] | None = None) -> dict[str, str]:
        """Return key (`tag_key`) -> name of the tags that present images have; optionally only for some keys."""
        key_condition = "" if keys is None else "key IN (SELECT value FROM json_each(?)) AND "
        active = self.active()
        statement = f"SELECT key, name FROM tags WHERE {key_condition}{active.somewhere} ORDER BY id DESC"
        values = () if keys is None else (json.dumps(keys),)
        return dict(self._database.rows(statement, (*values, *active.values)))

    def ids(self, names: Iterable[str], *, create: bool = False) -> dict[str, int]:
        """Return name -> id of tags, in any spelling; unknown tags are left out, or created with `create`."""
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
        """Return a tag in the catalogue's spelling; None if the tag does not exist."""
        names = self._database.rows("SELECT name FROM tags WHERE key = ?", (tag_key(name),))
        return str(names[0][0]) if names else None

    def spell_as(self, names: Iterable[str]) -> None:
        """Change the spelling of tags to `names`."""
        self._database.write_many(
            "UPDATE tags SET name = CAST(?1 AS TEXT) WHERE key = ?2 AND name != CAST(?1 AS TEXT)",
            ((as_text(name), tag_key(name)) for name in names),
        )

    def give(self, image_id: int, tags: Iterable[str], source: str) -> None:
        """Add tags to an image; tags that a person gave keep the source "person"."""
        self.give_many([(image_id, tags)], source)

    def give_many(self, given: Iterable[tuple[int, Iterable[str]]], source: str) -> None:
        """Add tags to images, as (image id, tags); `source` is "file" or "person"."""
        lists = [(image_id, list(tags)) for image_id, tags in given]
        who = WHO.get() if source == "person" else ""
        with self._database.transaction() as connection:
            ids = self.ids((tag for _, tags in lists for tag in tags), create=True)
            connection.executemany(
                "INSERT INTO given (image_id, tag_id, source, who) VALUES (?, ?, ?, ?) "
                "ON CONFLICT DO UPDATE SET source = 'person', who = coalesce(nullif(who, ''), excluded.who) "
                "WHERE excluded.source = 'person'",
                ((image_id, ids[tag], source, who) for image_id, tags in lists for tag in tags),
            )

    def remove(self, image_id: int, tags: Iterable[str], source: str | None = None) -> None:
        """Remove given tags of an image: of one source, or of any source (None)."""
        self._database.write_many(
            "DELETE FROM given WHERE image_id = ? AND tag_id = ? AND source = coalesce(?, source)",
            [(image_id, tag_id, source) for tag_id in self.ids(tags).values()],
        )

    def set_from_file(self, image_id: int, tags: Iterable[str]) -> None:
        """Replace the tags that an image has from a tag file; tags given by a person are kept."""
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM given WHERE image_id = ? AND source = 'file'", (image_id,))
            self.give(image_id, tags, "file")

    def given(self, image_id: int, *, only_active: bool = False) -> list[GivenTag]:
        """List the given tags of an image by name, including rejected tags; `only_active`: only tags that it has."""
        active = self.active() if only_active else None
        condition, values = ("1", ()) if active is None else (active.condition, active.values)
        return self._records(
            GivenTag,
            "SELECT tags.name, source, who FROM given AS g JOIN tags ON tags.id = tag_id "
            f"WHERE image_id = ? AND {condition} ORDER BY tags.name",
            (image_id, *values),
        )

    def held(self, image_ids: Iterable[int] | None = None) -> dict[int, list[str]]:
        """Return image id -> its tags, for images that have tags (None: all present images)."""
        active = self.active()
        return self._by_image(
            f"SELECT image_id, tag_id FROM given AS g WHERE {active.condition} "
            "UNION SELECT image_id, tag_id FROM verdicts WHERE verdict = 1",
            image_ids,
            *active.values,
        )

    def often_best(self, run_id: int, k: int) -> list[tuple[str, int]]:
        """Return the tags that a run predicts as the best of most images, and the number of these images."""
        return self._database.rows(
            "SELECT tags.name, count(*) AS n FROM (SELECT tag_id, max(score) FROM predictions WHERE run_id = ? "
            "GROUP BY image_id) JOIN tags ON tags.id = tag_id GROUP BY tag_id ORDER BY n DESC, tags.name LIMIT ?",
            (run_id, k),
        )

    def come_from_files(self) -> bool:
        """Return whether any image has a tag from a file."""
        return bool(self._database.value("SELECT EXISTS (SELECT 1 FROM given WHERE source = 'file')"))

    def rejected(self, image_ids: Iterable[int] | None = None) -> dict[int, list[str]]:
        """Return image id -> the tags that people rejected, for images that have any (None: all present images)."""
        return self._by_image("SELECT image_id, tag_id FROM verdicts WHERE verdict = -1", image_ids)

    def settled(self, image_ids: Iterable[int] | None = None) -> dict[int, list[str]]:
        """Return image id -> tags that people gave, accepted or rejected in this catalogue (None: present images)."""
        given = "SELECT image_id, tag_id FROM given WHERE source = 'person'"
        judgements = "SELECT image_id, tag_id FROM verdicts WHERE verdict != 0"
        return self._by_image(f"{given} UNION {judgements}", image_ids)

    def answers(self) -> list[tuple[int, str, bool, bool]]:
        """List the verdicts of people on present images.

        Each verdict is (image id, tag, whether it was accepted, whether a tag file also gives it).
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
        """Record a person's verdict on a tag of an image, and return its log id; the latest verdict counts.

        A verdict of +1 accepts the tag, -1 rejects it, 0 undoes earlier verdicts; `run_id` is the run that predicted
        the tag. Raises UserError if `verdict` is invalid.
        """
        if verdict not in VERDICTS or isinstance(verdict, bool):
            raise UserError(setting="verdict", value=verdict, expected="1 (accepted), -1 (rejected) or 0 (undone)")
        with self._database.transaction():
            return self._database.insert(
                "INSERT INTO feedback (image_id, tag_id, verdict, at, run_id, who) VALUES (?, ?, ?, ?, ?, ?)",
                (image_id, self.ids([tag], create=True)[tag], int(verdict), now(), run_id, WHO.get()),
            )

    def verdicts(self, image_id: int) -> dict[str, int]:
        """Return tag -> its latest verdict on an image, +1 or -1."""
        statement = (
            "SELECT tags.name, verdict FROM verdicts JOIN tags ON tags.id = tag_id "
            "WHERE image_id = ? AND verdict != 0 ORDER BY tags.name"
        )
        return dict(self._database.rows(statement, (image_id,)))

    def judged_by(self, image_id: int) -> dict[str, str]:
        """Return tag -> who gave the latest verdict on an image, for verdicts of which that is known."""
        statement = (
            "SELECT tags.name, who FROM feedback JOIN tags ON tags.id = tag_id WHERE feedback.id IN "
            "(SELECT max(id) FROM feedback WHERE image_id = ? GROUP BY tag_id) AND verdict != 0 AND who != ''"
        )
        return dict(self._database.rows(statement, (image_id,)))

    def feedback(self, *, after: int = 0, limit: int = 1000) -> list[Verdict]:
        """Read the log of feedback after the id `after`, oldest first."""
        return self._records(
            Verdict,
            "SELECT feedback.id, image_id, tags.name, verdict, at, run_id, who FROM feedback "
            "JOIN tags ON tags.id = tag_id WHERE feedback.id > ? ORDER BY feedback.id LIMIT ?",
            (after, limit),
        )

    def set_predictions(self, run_id: int, predictions: Mapping[int, Iterable[Prediction]]) -> None:
        """Replace a run's predictions for images: image id -> its best tags."""
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
        """List a run's predictions for an image, best first, without tags that a person rejected."""
        return self._records(
            Prediction,
            "SELECT tags.name, score, confidence FROM predictions JOIN tags ON tags.id = tag_id "
            "WHERE run_id = ? AND image_id = ? AND NOT EXISTS (SELECT 1 FROM verdicts AS v "
            "WHERE v.image_id = predictions.image_id AND v.tag_id = predictions.tag_id AND verdict = -1) "
            "ORDER BY score DESC, tags.name",
            (run_id, image_id),
        )

    def counts(self) -> list[dict[str, Any]]:
        """List all tags by name, with counts of present images.

        "images" have the tag; for "given" it was given and not rejected; "accepted" and "rejected" count verdicts.
        """
        join = "JOIN images ON images.id = image_id AND state = 'here'"
        active = self.active()
        also_given = (
            "EXISTS (SELECT 1 FROM given AS g WHERE g.image_id = v.image_id AND g.tag_id = v.tag_id "
            f"AND {active.condition})"
        )
        given_tags = f"SELECT tag_id, count(*) AS n FROM given AS g {join} WHERE {active.condition} GROUP BY tag_id"
        judgements = (
            "SELECT tag_id, sum(verdict = 1) AS accepted, sum(verdict = -1) AS rejected, "
            f"sum(verdict = 1 AND NOT {also_given}) AS more FROM verdicts AS v {join} GROUP BY tag_id"
        )
        rows = self._database.rows(
            "SELECT name, coalesce(n, 0), coalesce(accepted, 0), coalesce(rejected, 0), coalesce(more, 0) "
            f"FROM tags LEFT JOIN ({given_tags}) AS a ON a.tag_id = tags.id "
            f"LEFT JOIN ({judgements}) AS b ON b.tag_id = tags.id ORDER BY name",
            active.values * 2,
        )
        return [
            {"tag": tag, "images": given + more, "given": given, "accepted": accepted, "rejected": rejected}
            for tag, given, accepted, rejected, more in rows
        ]

    def _by_image(self, pairs_query: str, image_ids: Iterable[int] | None, *values: str) -> dict[int, list[str]]:
        images = "(SELECT id FROM images WHERE state = 'here')"
        if image_ids is not None:
            images, values = "(SELECT value FROM json_each(?))", (*values, as_list(image_ids))
        rows = self._database.rows(
            f"SELECT image_id, tags.name FROM ({pairs_query}) JOIN tags ON tags.id = tag_id WHERE image_id IN {images} "
            "ORDER BY image_id, tags.name",
            values,
        )
        return {image_id: [name for _, name in group] for image_id, group in groupby(rows, key=itemgetter(0))}


def judged_sql(active: ActiveTags) -> str:
    """Return the query for people's judgements of a tag, except undoubted tags from tag files.

    Its rows are (kind, image ids). Kind 2 has the tag by a person; 1: accepted; -1: rejected, unless the image has the
    tag in another spelling; 3: the tag, or a broader one, was rejected, so a tag from a tag file may not count; where
    it does, kind 2 has the image, too. It binds the keys of the tag, and twice the values of `active`.
    """
    broader = (
        ""
        if not active.values
        else (
            " UNION SELECT json_extract(value, '$[1]') FROM json_each(?2) WHERE json_extract(value, '$[0]') IN "
            + BY_KEY
        )
    )
    doubted = f"SELECT image_id FROM verdicts WHERE verdict = -1 AND tag_id IN ({BY_KEY[1:-1]}{broader})"
    return (
        "SELECT kind, group_concat(image_id) FROM (SELECT 2 AS kind, image_id FROM given AS g INDEXED BY given_by_hand "
        f"WHERE source = 'person' AND tag_id IN {BY_KEY} AND {NOT_REJECTED} UNION ALL SELECT 3, image_id FROM "
        f"({doubted}) UNION ALL SELECT 2, g.image_id FROM (SELECT DISTINCT image_id FROM ({doubted})) AS d "
        f"CROSS JOIN given AS g ON g.image_id = d.image_id AND g.tag_id IN {BY_KEY} WHERE {active.condition} UNION ALL "
        f"SELECT verdict, image_id FROM verdicts AS v WHERE tag_id IN {BY_KEY} AND (verdict = 1 OR verdict = -1 AND "
        f"NOT EXISTS (SELECT 1 FROM given AS g WHERE g.image_id = v.image_id AND tag_id IN {BY_KEY} AND {NOT_REJECTED}"
        "))) GROUP BY kind"
    )


OF_FILES = (
    f"SELECT group_concat(image_id) FROM given INDEXED BY given_by_tag WHERE tag_id IN {BY_KEY} "
    "AND (image_id, tag_id) NOT IN (SELECT image_id, tag_id FROM given INDEXED BY given_by_hand "
    f"WHERE source = 'person' AND tag_id IN {BY_KEY})"
)
"""The ids of the images that have a tag from a tag file, through indexes only, as these may be all images."""


class TagJudgements(NamedTuple):
    """The images that people gave a tag to, or rejected it for; ascending ids."""

    given: Ids
    tagged: Ids  # Given or accepted
    rejected: Ids


@dataclass(eq=False)
class ManualJudgements(CatalogueTable):
    """Cache of people's judgements of tags, and of answers derived from them, until the judgements change."""

    _tags: Tags
    # Keys of a tag -> state of the database that it was compared with, versions, parts, judgements
    _cache: dict[tuple[str, ...], tuple[object, Sequence[object], list[Ids], TagJudgements]] = field(
        default_factory=dict, init=False
    )
    _derived: dict[Hashable, tuple[Sequence[object], Any]] = field(default_factory=dict, init=False)
    _n_bytes: int = field(default=0, init=False)  # Of all that came into the caches since they were empty

    def of_tag(self, keys: Sequence[str]) -> TagJudgements:
        """Return people's judgements of a tag with these keys; the same object until the judgements change.

        Tags from tag files count as given. Only this tag's records are read, and only after one of them has changed;
        those from tag files, which may be of all images, only after one of a file has.
        """
        state, key = self._database.keep("state of judgements", object), tuple(keys)  # new after any change
        compared_with, versions, parts, cached = self._cache.get(key, (None, (), [], None))
        if cached is not None and compared_with is state:
            return cached

        active, keys_text = self._tags.active(), json.dumps(keys)
        # Versions are read before what they are of: after a change in between, all is read again at the next search
        new_versions = [*self._database.rows(TAG_VERSIONS, (keys_text,))[0], state if active.values else None]
        if cached is None or new_versions != versions:
            is_of_file_new = cached is None or new_versions[0] != versions[0]
            of_files = _ids_in(self._database.value(OF_FILES, (keys_text,))) if is_of_file_new else parts[0]
            texts = dict(self._database.rows(judged_sql(active), (keys_text, *active.values * 2)))
            new_parts = [of_files, *(_ids_in(texts.get(kind)) for kind in (2, 1, -1, 3))]
            if cached is None or not all(map(np.array_equal, parts, new_parts)):
                _, given, accepted, rejected, doubted = new_parts
                given = union(without(of_files, doubted), given)
                cached = TagJudgements(given, union(given, accepted), without(rejected, accepted))
                self._make_room([*new_parts, *cached])
            versions, parts = new_versions, new_parts
        self._cache[key] = state, versions, parts, cached
        return cached

    def _make_room(self, added: Iterable[object]) -> None:
        """Empty the caches if they would become too large; those of tags stay if only derived answers are many."""
        self._n_bytes += sum({id(part): getattr(part, "nbytes", 0) for part in added}.values())
        if len(self._derived) >= MAX_DERIVED:
            self._derived = {}
        if len(self._cache) >= MAX_CACHED_TAGS or self._n_bytes > MAX_CACHED_BYTES:
            self._cache, self._derived, self._n_bytes = {}, {}, 0

    def remembered(self, key: Hashable, sources: Sequence[object]) -> Any:
        """Return the cached answer for a key if it was derived from the same objects `sources`, compared by identity.

        The objects are results of `of_tag`, or derived from such results. Returns None if they are different.
        """
        cached_sources, answer = self._derived.get(key, ((), None))
        return answer if len(sources) == len(cached_sources) and all(map(is_, sources, cached_sources)) else None

    def remember(self, key: Hashable, sources: Sequence[object], answer: Iterable[object]) -> None:
        """Cache an answer that was derived from the objects `sources`, for repeated searches."""
        self._make_room(answer)
        self._derived[key] = sources, answer


def _ids_in(text: str | None) -> Ids:
    """Return the ids in a text of `group_concat`: reading them row by row takes ten times as long."""
    return NO_IDS if text is None else np.unique(np.fromstring(text, np.int64, sep=","))
