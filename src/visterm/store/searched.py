"""What a search by words, filters or another picture asks of a catalogue, or of several that are searched as one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from visterm.core.checks import as_ids, as_rows, check_k
from visterm.core.errors import CorruptFileError
from visterm.core.executor import Shards
from visterm.core.products import merged
from visterm.core.types import Matrix, Ranking
from visterm.core.vocabulary import Vocabulary
from visterm.store.connected import Connected
from visterm.store.current_rows import CurrentRows
from visterm.store.database import Database, as_text
from visterm.store.filters import Filter, conditions_of, image_ids
from visterm.store.frames import Frames
from visterm.store.held import NOT_REJECTED
from visterm.store.images import AMONG, Images, as_list
from visterm.store.rows import stack_rows
from visterm.store.sorting import COLUMNS, in_order
from visterm.store.stored_rows import VERSION, StoredRows
from visterm.store.tags import Tags

if TYPE_CHECKING:
    from visterm.data.tag_tree import TagTree

Ids: TypeAlias = NDArray[np.int64]
SearchedRows: TypeAlias = "CurrentRows | ShardedRows"  # Rows that are searched, under the ids of their images
Searched: TypeAlias = "SearchedCatalogue | SearchedUnion"  # One catalogue, or several as one; ids are those of its rows

ONE_BY_ONE = 50  # Images below which it is quicker to ask for their names one after another
MOST_LAST = 500  # Tags of which is remembered what people said, over changes of the catalogue
MOST_LAST_BYTES = 2**18  # Of one tag
APART = 2**40  # Ids that each catalogue has room for: images come while others search, and the ids of no other move


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


class Said(NamedTuple):
    """The images of which a person said that they have a tag, or have it not; ids in order."""

    given: NDArray[np.int64]
    has: NDArray[np.int64]  # Given or accepted
    rejected: NDArray[np.int64]


class Where(NamedTuple):
    """Which image an id is."""

    name: str
    path: str | None
    id: int  # In its catalogue
    catalogue: str | None = None  # The catalogue, where there are several
    at: float | None = None  # Of a video: the moment that was found, in seconds
    link: str | None = None  # Its page in the program that the catalogue is connected to


class SearchedCatalogue:
    """The half of a `StoredCatalogue` that searches ask."""

    database: Database
    images: Images
    tags: Tags
    connected: Connected
    _rows: StoredRows
    _current: CurrentRows | None = None
    frames: Frames

    @cached_property
    def _last_said(self) -> dict[tuple[str, ...], Said]:
        return {}

    def __len__(self) -> int:
        """Return how many images can be searched: here, and with a row of the current run."""
        return len(self.current_rows())

    def current_rows(self) -> CurrentRows:
        """Return the current run's rows as they are committed now: what a search looks at from its start to its end.

        They are the last ones again, while nothing has changed. Raises ReplacedError if the catalogue was removed or
        replaced since it was opened: the maps are of files that are gone.
        """
        self.database.check_in_place()
        now = partial(self.database.keep, "rows", partial(self.database.value, VERSION))
        rows, version = self._current, now()
        while rows is None or rows.version != version:
            try:
                rows = self._current = self._rows.read_current()
                break
            except CorruptFileError:
                before, version = version, now()
                if version == before:  # else another process compacted just now, and removed what was old
                    raise
        return rows

    def search(self, q: Any, k: int = 10, *, among: Any = None) -> Ranking:
        """Find the k images (0: all) with the largest dot products with a query row, (width,), or with each of several.

        `q` is array-like or CSR. `among` are ids of the images to search (see `find`); those without a row are left
        out. Returns ids of images and scores, (n_queries, min(k, n_searched)), best first.
        """
        return self.current_rows().search(q, k, among=among)

    def products(self, q: Any, ids: Any = None, *, unit: bool = False) -> NDArray[np.float32]:
        """Return the dot products of images (None: of `searchable()`) with query rows, in their order, unsorted.

        They are float32, shape (n_images, n_queries); with `unit`, rows count as if their length were 1.
        Raises DataError if an image has no row of the current run.
        """
        return self.current_rows().products(q, ids, unit=unit)

    def highest(self, q: Any) -> NDArray[np.float32]:
        """Return the largest product that any image has with each of some query rows, shape (n_queries,)."""
        return self.current_rows().highest(q)

    def rows(self, ids: Any) -> Matrix:
        """Return the current run's rows of some images, array or CSR: what "like this image" searches by.

        Raises DataError if an image has no row of the current run.
        """
        return self.current_rows().rows(ids)

    def searchable(self) -> Ids:
        """Return the ids of the images that can be searched, in order."""
        return self.current_rows().ids

    def find(self, among: Filter, sort: str | None = None) -> Ids:
        """Return the ids of the images that pass a filter, ascending, or sorted by one of `COLUMNS`."""
        conditions, values = conditions_of(among, self.tags.stands())
        if sort is not None:
            return self.database.keep(("find", sort, *conditions, *values), lambda: self.sorted(self.find(among), sort))
        key = ("find", *conditions, *values)
        return self.database.keep(key, lambda: image_ids(self.database, conditions, values))

    def sorted(self, ids: Ids, sort: str) -> Ids:
        """Return ids of images sorted by one of `COLUMNS`."""
        return in_order(sort, ids, self.column(ids, COLUMNS[sort]))

    def column(self, ids: Ids, column: str) -> list[str | None]:
        """Return a column of the table of images: "taken", "name" or "added" of each of some images."""
        found = dict(self.database.rows(f"SELECT id, {column} FROM images WHERE {AMONG}", (as_list(ids),)))
        return [found.get(int(i)) for i in ids]

    def said(self, words: Sequence[Sequence[str]], *, of_files: bool = False) -> list[Said]:
        """Return what people said of some tags, each meant by the keys of all its spellings.

        With `of_files`, what tag files say counts as given.
        """
        stands = self.tags.stands() if of_files else None
        statement, values = (SAID, ()) if stands is None else (said_by("given_by_tag", stands.not_under), stands.values)
        keep = self.database.keep
        return [keep(("said", of_files, *keys), partial(self._said, statement, keys, values)) for keys in words]

    def _said(self, statement: str, keys: Sequence[str], values: Sequence[str]) -> Said:
        """Return what people said of a tag, without a scan of other tags."""
        images = dict.fromkeys((2, 1, -1), np.empty(0, np.int64))
        for kind, ids in self.database.rows(statement, (json.dumps(keys), *values)):
            # as one text of each kind: numbers that come one by one take ten times as long
            images[kind] = np.unique(np.fromstring(ids, np.int64, sep=","))
        given, accepted, rejected = images.values()
        has = np.union1d(given, accepted) if len(given) and len(accepted) else given if len(given) else accepted
        if len(rejected) and len(accepted):
            rejected = np.setdiff1d(rejected, accepted, assume_unique=True)
        return self._as_before((statement, *keys), Said(given, has, rejected))

    def _as_before(self, key: tuple[str, ...], now: Said) -> Said:
        """Return what was said the last time, where it is the same: what was computed of it still counts."""
        before = self._last_said.get(key)
        if before is not None and all(map(np.array_equal, before, now)):
            return before
        if len(self._last_said) >= MOST_LAST:
            self._last_said.clear()
        if sum(ids.nbytes for ids in now) <= MOST_LAST_BYTES:
            self._last_said[key] = now
        return now

    def held(self, keys: Sequence[str] | None = None) -> dict[str, str]:
        """Return the tags that images have here, by key (`tag_key`): all, or those of some keys."""
        which = "" if keys is None else "key IN (SELECT value FROM json_each(?)) AND "
        stands = self.tags.stands()
        statement = f"SELECT key, name FROM tags WHERE {which}{stands.somewhere} ORDER BY id DESC"
        return dict(self.database.rows(statement, (*(() if keys is None else (json.dumps(keys),)), *stands.values)))

    def know_tree(self, words: TagTree | None, vocabulary: Vocabulary) -> None:
        """Take the tree of the run that is used from now on, see `HeldTags.know_tree`."""
        self.tags.know_tree(words, vocabulary)

    def paths(self) -> tuple[str, ...]:
        """Return the tags with a ``/`` that images have here."""
        return self.tags.paths()

    def where(self, ids: Sequence[int], q: Any = None) -> list[Where]:
        """Return which images some ids are; of videos the moment with the largest product with a row, (1, width)."""
        there = self.database.kept()
        missing = [int(i) for i in ids if i not in there]
        if len(missing) < ONE_BY_ONE:
            one = "SELECT name, path, id FROM images WHERE id = ?"
            found = [row for i in missing for row in self.database.rows(one, (i,))]
        else:
            found = self.database.rows(
                "SELECT name, path, id FROM images WHERE id IN (SELECT value FROM json_each(?))", (as_list(missing),)
            )
        links = self.connected.links(missing) if missing else {}
        there.update((number, Where(name, path, number, link=links.get(number))) for name, path, number in found)
        if not self.frames.known:
            return [there[i] for i in ids]
        moments = self._moments(ids, q)
        return [there[i]._replace(at=moments.get(int(i))) for i in ids]

    def _moments(self, ids: Sequence[int], q: Any) -> dict[int, float]:
        """Return the moment of those of some images that are videos: the best for a row, or the first."""
        found = self.frames.by_video(ids)
        if q is None or not found:
            return {video: frames[0].at for video, frames in found.items()}
        every = [frame for frames in found.values() for frame in frames]
        products = self.current_rows().row_products(q, [frame.image_id for frame in every])[:, 0].tolist()
        by_product = sorted(zip(products, every, strict=True), key=lambda pair: (pair[0], -pair[1].at))
        return {frame.video_id: frame.at for _, frame in by_product}  # the last of each counts: the best

    def at_path(self, path: str) -> int | None:
        """Return the image that lies at a path now."""
        found = self.images.by_path(path)
        return None if found is None else found.id

    def called(self, name: str) -> list[int]:
        """Return the images of a name, or whose path ends so."""
        found = self.database.rows(
            "SELECT id FROM images WHERE state = 'here' AND (name = CAST(? AS TEXT) OR "
            "substr(path, -length(CAST(? AS TEXT)) - 1) = '/' || CAST(? AS TEXT)) ORDER BY id",
            [as_text(name)] * 3,
        )
        return [int(row[0]) for row in found]


class ShardedRows:
    """Rows of several stores, searched as one.

    The id of a row is its id in its shard, and what that shard's ids begin from (`bases`, ascending; a shard's own ids
    are less than the distance to the next). Scores, order and ties are those of one store with all rows under these
    ids: the best of all are among the best of each shard. Shards have the searches of a `StoredCatalogue`; some may be
    empty.
    """

    def __init__(self, shards: Shards, bases: Sequence[int]) -> None:
        self._shards = shards
        self._bases = np.asarray(bases, np.int64)

    def __len__(self) -> int:
        return sum(self.of_all("__len__"))

    @property
    def ids(self) -> Ids:
        """Ids of the images, in order."""
        return self.joined(self.of_all("searchable"))

    def search(self, q: Any, k: int = 10, *, among: Any = None) -> Ranking:
        """Find the rows with the largest dot products, see `StoredCatalogue.search`."""
        Q, k = as_rows(q, "q", or_one=True), check_k(k, len(self))
        arguments: list[dict[str, Any]] = [{"q": Q, "k": max(k, 1)} for _ in self._bases]
        if among is not None:
            ids = as_ids(among)
            for given, base, places in zip(arguments, self._bases, self._divided(ids), strict=True):
                given["among"] = ids[places] - base
        found: list[Ranking] = self._shards.ask("search", arguments)
        nothing = Ranking(np.empty((Q.shape[0], 0), np.int64), np.empty((Q.shape[0], 0), np.float32))
        under = [Ranking(one.ids + base, one.scores) for one, base in zip(found, self._bases, strict=True)]
        best = merged([nothing, *under], k)
        return Ranking(best.ids[:, :k], best.scores[:, :k])

    def products(self, q: Any, ids: Any = None, *, unit: bool = False) -> NDArray[np.float32]:
        """Return the products of images (None: of all) with query rows, shape (n_images, n_queries)."""
        Q = as_rows(q, "q", or_one=True)
        if ids is None:
            return np.concatenate(self.of_all("products", q=Q, unit=unit))
        requested = np.asarray(ids, np.int64).ravel()
        found = np.empty((len(requested), Q.shape[0]), np.float32)
        for places, products in self.of_some("products", requested, q=Q, unit=unit):
            found[places] = products
        return found

    def highest(self, q: Any) -> NDArray[np.float32]:
        """Return the largest product that any image has with each of some query rows, shape (n_queries,)."""
        found: NDArray[np.float32] = np.max(self.of_all("highest", q=q), axis=0)
        return found

    def rows(self, ids: Any) -> Matrix:
        """Return the rows of some images."""
        found = [(at, rows) for at, rows in self.of_some("rows", np.asarray(ids, np.int64).ravel()) if len(at)]
        if not found:
            return np.empty((0, 0), np.float32)
        return stack_rows([rows for _, rows in found])[np.argsort(np.concatenate([places for places, _ in found]))]

    def of_all(self, what: str, **given: Any) -> list[Any]:
        """Call a method of each shard with the same arguments, and return the answers in order."""
        return self._shards.ask(what, [given] * len(self._bases))

    def of_some(self, what: str, ids: Ids, **given: Any) -> list[tuple[Ids, Any]]:
        """Ask each shard about those of some images that are its own; return their places in `ids`, and answers."""
        divided = self._divided(ids)
        arguments = [given | {"ids": ids[places] - base} for places, base in zip(divided, self._bases, strict=True)]
        return list(zip(divided, self._shards.ask(what, arguments), strict=True))

    def joined(self, found: Sequence[Any]) -> Ids:
        """Return ids of each shard in one array, as ids of the whole."""
        parts = [np.asarray(ids, np.int64) + base for ids, base in zip(found, self._bases, strict=True)]
        return np.concatenate([np.empty(0, np.int64), *parts])

    def _divided(self, ids: Ids) -> list[Ids]:
        """Return the places, in `ids`, of those of each shard."""
        of_shard = np.searchsorted(self._bases, ids, "right") - 1
        return [np.flatnonzero(of_shard == shard) for shard in range(len(self._bases))]


class SearchedUnion:
    """Catalogues as searches ask them, see `Searched`: shards of `StoredCatalogue`, and their names for people."""

    def __init__(self, shards: Shards, names: Sequence[str]) -> None:
        self._names = list(names)
        self._rows = ShardedRows(shards, [APART * i for i in range(len(self._names))])

    def current_rows(self) -> ShardedRows:
        """Return the rows of all catalogues; each looks which ones it has now at each search."""
        return self._rows

    def find(self, among: Filter, sort: str | None = None) -> Ids:
        """Return the ids of the images that pass a filter, ascending, or sorted."""
        found = self._rows.joined(self._rows.of_all("find", among=among))
        return found if sort is None else self.sorted(found, sort)

    def sorted(self, ids: Ids, sort: str) -> Ids:
        """Return ids of images sorted by one of `COLUMNS`."""
        values: list[str | None] = [None] * len(ids)
        for places, found in self._rows.of_some("column", ids, column=COLUMNS[sort]):
            for place, value in zip(places.tolist(), found, strict=True):
                values[place] = value
        return in_order(sort, ids, values)

    def said(self, words: Sequence[Sequence[str]], *, of_files: bool = False) -> list[Said]:
        """Return what people said of some tags."""
        found: list[list[Said]] = self._rows.of_all("said", words=words, of_files=of_files)
        return [Said(*map(self._rows.joined, zip(*of_word, strict=True))) for of_word in zip(*found, strict=True)]

    def held(self, keys: Sequence[str]) -> dict[str, str]:
        """Return those of some tags that images have: as the first catalogue spells them."""
        found: list[dict[str, str]] = self._rows.of_all("held", keys=keys)
        return {key: name for names in reversed(found) for key, name in names.items()}

    def know_tree(self, words: TagTree | None, vocabulary: Vocabulary) -> None:
        """Take the tree of the run of all catalogues."""
        self._rows.of_all("know_tree", words=words, vocabulary=vocabulary)

    def paths(self) -> tuple[str, ...]:
        """Return the tags with a ``/`` that images have."""
        found: list[tuple[str, ...]] = self._rows.of_all("paths")
        return tuple(dict.fromkeys(path for paths in found for path in paths))

    def where(self, ids: Sequence[int], q: Any = None) -> list[Where]:
        """Return which images some ids are."""
        found: dict[int, Where] = {}
        answers = self._rows.of_some("where", np.asarray(ids, np.int64), q=q)
        for name, (places, these) in zip(self._names, answers, strict=True):
            found |= {int(at): one._replace(catalogue=name) for at, one in zip(places, these, strict=True)}
        return [found[place] for place in range(len(ids))]

    def at_path(self, path: str) -> int | None:
        """Return the image that lies at a path now: of the first catalogue that has it."""
        found = self._rows.of_all("at_path", path=path)
        ids = self._rows.joined([[] if one is None else [one] for one in found])
        return int(ids[0]) if len(ids) else None

    def called(self, name: str) -> list[int]:
        """Return the images of a name, or whose path ends so."""
        ids: list[int] = self._rows.joined(self._rows.of_all("called", name=name)).tolist()
        return ids
