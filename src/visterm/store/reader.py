"""What a search by words, filters or another picture asks of a catalogue."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import CorruptFileError
from visterm.core.types import Matrix, Ranking
from visterm.store.connected import Connected
from visterm.store.current_rows import CurrentRows
from visterm.store.database import Database, as_text
from visterm.store.filters import Filter, conditions_of, image_ids
from visterm.store.frames import Frames
from visterm.store.held import NOT_REJECTED
from visterm.store.images import AMONG, Images, as_list
from visterm.store.sorting import COLUMNS, in_order
from visterm.store.stored_rows import VERSION, StoredRows
from visterm.store.tags import Tags

Ids: TypeAlias = NDArray[np.int64]

ONE_BY_ONE = 50  # Images below which it is quicker to ask for their names one after another
MOST_LAST = 500  # Tags of which is remembered what people said, over changes of the catalogue
MOST_LAST_BYTES = 2**18  # Of one tag

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
    id: int
    at: float | None = None  # Of a video: the moment that was found, in seconds
    link: str | None = None  # Its page in the program that the catalogue is connected to


class CatalogueReader:
    """Read side of a catalogue: what searches need of a `StoredCatalogue`."""

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
