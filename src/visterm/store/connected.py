"""The connection of a catalogue to another program's library, such as Immich's: its photos, and tags written to it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote

from visterm.core.wording import json_text
from visterm.store.database import CatalogueTable, as_text, now
from visterm.store.images import as_list

PROGRAMS = {"immich": "Immich", "photoprism": "PhotoPrism"}  # Kind of program -> its display name
MARKS_TAGS = {"photoprism"}
"""Programs that mark automatic tags: `RemotePhoto.guessed` includes tags written by visterm, and `RemotePhoto.tags` has
only tags that a person added or confirmed."""
NOT_OURS = "not ours"  # Folder of photos that can be read but not tagged, such as a partner's photos in Immich
PARENT = "visterm"  # Default parent tag of the tags that visterm writes
# Kind of program -> path between the server's address and the photo id in the address of a photo's page
PHOTO_PAGE_PATHS = {"immich": "/photos/", "photoprism": "/library/browse?view=cards&q=uid:"}
PLANNED, WRITTEN, LOST, LEAVING, TAKEN, OFF = "planned", "written", "lost", "leaving", "taken", "off"
"""States of a written tag: to be written, written, lost by the program after writing, to be removed, removed by
visterm, removed by a person."""
ACTIVE = (PLANNED, WRITTEN, LEAVING)  # In these states, a tag that is in the program is one that visterm wrote
PHOTOS_PER_QUERY = 10_000  # Number of photos in memory during indexing


class ProgramConnection(NamedTuple):
    """The library that a catalogue is connected to, and the position up to which it was read."""

    kind: str  # Kind of program: "immich" or "photoprism"
    address: str
    key_file: str | None  # Path of the file with the API key; None: the key is in the environment
    settings: dict[str, Any]
    mark: str = ""  # Opaque position from which to continue reading
    learn_from: str | None = None  # Current run when people first changed tags; None: no changes to learn
    synced: str | None = None  # UTC time at which the latest sync ended
    # `RemotePhoto.folder` -> ``[whether it keeps tags, UTC time of that test]``
    folders: Mapping[str, Any] = MappingProxyType({})

    @property
    def title(self) -> str:
        """Display name of the program."""
        return PROGRAMS.get(self.kind, self.kind)

    def writes(self) -> str:
        """Describe in words how the next sync writes predicted tags."""
        parent, k = self.settings.get("parent"), self.settings.get("k")
        form = "as your own tags" if parent is None else f"as tags under {parent}/"
        limit = f", at most {k} per photo" if k else ""
        return f"predictions {form}, with precision {self.settings.get('precision')}{limit}"


@dataclass(frozen=True, slots=True)
class RemotePhoto:
    """One photo of another program's library. All texts come from its server and are untrusted."""

    id: str  # The program's own id; never used in a local path
    name: str  # File name, for display
    version: str  # Changes when the preview has to be downloaded again; "": no preview
    tags: tuple[str, ...]  # In the program's spelling, without duplicates; includes tags that visterm wrote
    rejected: tuple[str, ...] = ()  # Tags that the program stores as rejected; may include tags that visterm removed
    guessed: tuple[str, ...] = ()
    """Tags that the program's own models predicted; visterm neither learns from these tags nor writes them again."""
    ready: bool = True
    """Whether the photo can be tagged. The program would lose tags of a photo that is still being imported, so
    `RemoteLibrary.changes` lists such a photo again until it is ready."""
    folder: str = ""
    """The part of the library that the photo belongs to (in Immich an external library), or `NOT_OURS`; "" if the
    library has no parts. Either all photos of a part keep tags, or none do."""


@dataclass(frozen=True, slots=True)
class ConnectedPhoto:
    """A photo of the connected library, as the catalogue's tables store it."""

    id: int  # Also the file name of its preview
    remote_id: str
    name: str
    # As read from the program in the latest sync
    tags: list[str]
    rejected: list[str]
    guessed: list[str]
    # Tags and rejections by people that were copied into the catalogue; None: not copied yet
    given: list[str] | None
    denied: list[str] | None
    ready: bool  # See `RemotePhoto.ready`
    image_id: int | None  # Its image in the catalogue; None until its preview is indexed
    folder: str  # See `RemotePhoto.folder`


class LoggedPair(NamedTuple):
    """A photo and a tag that was or will be written to it (a "pair")."""

    photo_id: int
    remote_id: str
    name: str  # File name in the program
    image_id: int | None
    text: str  # In the program's spelling: "visterm/cat"
    tag: str  # In the catalogue's spelling: "cat"
    confidence: float
    folder: str
    state: str = PLANNED
    here: int = 1  # Whether the program still has the photo, 0 or 1
    sure: int = 0  # Whether the state was confirmed by reading it again some seconds later, 0 or 1
    losses: int = 0  # Number of times that the tag vanished, although perhaps no person removed it

    @property
    def key(self) -> tuple[int, str]:
        """Key of the pair in the log."""
        return self.photo_id, self.text

    @property
    def remote_key(self) -> tuple[str, str]:
        """The photo's id and the tag as the program knows them."""
        return self.remote_id, self.text

    def is_ours_if_present(self, prefixes: tuple[str, ...]) -> bool:
        """Return whether a removed or lost tag that is in the program again was written by visterm.

        Only visterm writes tags with the `Connected.prefixes`; any other tag is ours only if it reappeared immediately.
        """
        return self.text.startswith(prefixes) or (self.state != OFF and not self.sure)


class Connected(CatalogueTable):
    """Tables of a connection. The caller opens one transaction per page that is read and per step of writing."""

    def get(self) -> ProgramConnection | None:
        """Return the connection; None for a catalogue of files."""
        statement = "SELECT folders, kind, address, key_file, settings, mark, learn_from, synced FROM connection"
        for folders, kind, address, key_file, settings, *rest in self._database.rows(statement):
            connection = ProgramConnection(kind, address, key_file, json.loads(settings), *rest)
            return connection._replace(folders=json.loads(folders))
        return None

    def put(self, connection: ProgramConnection) -> None:
        """Store the connection, replacing the previous one."""
        self._database.write(
            "INSERT OR REPLACE INTO connection (id, kind, address, key_file, settings, mark, learn_from, synced, "
            "folders) VALUES (1, ?, ?, CAST(? AS TEXT), ?, ?, ?, ?, ?)",
            (
                connection.kind, connection.address,
                None if connection.key_file is None else as_text(connection.key_file),
                json_text(connection.settings), connection.mark, connection.learn_from, connection.synced,
                json_text(dict(connection.folders)),
            ),
        )  # fmt: skip

    def prefixes(self) -> tuple[str, ...]:
        """Return the prefixes of tags that only visterm writes."""
        connection = self.get()
        parent = None if connection is None else connection.settings.get("parent")
        return f"{PARENT}/", f"{parent or PARENT}/"

    def learn_later(self, run: str) -> None:
        """Record that people changed tags since `run` was trained, unless an earlier change is recorded."""
        self._database.write("UPDATE connection SET learn_from = coalesce(learn_from, ?)", (run,))

    def update(self, **values: Any) -> None:
        """Change some fields of the stored connection."""
        with self._database.transaction():
            connection = self.get()
            assert connection is not None
            self.put(connection._replace(**values))

    def note(self, photos: Iterable[RemotePhoto], mark: str) -> None:
        """Store one page of changed photos, and the position from which to continue reading."""
        values = [
            (
                photo.id, as_text(photo.name), photo.version, _texts(photo.tags), _texts(photo.rejected),
                _texts(photo.guessed), photo.ready, photo.folder,
            )
            for photo in photos
        ]  # fmt: skip
        with self._database.transaction() as connection:
            connection.executemany(
                "INSERT INTO remote_photos (remote_id, name, version, tags, rejected, guessed, ready, folder) "
                "VALUES (?, CAST(? AS TEXT), ?, ?, ?, ?, ?, ?) ON CONFLICT (remote_id) DO UPDATE SET "
                "stale = stale OR state = 'gone' OR name != excluded.name OR version != excluded.version OR "
                "tags != excluded.tags OR rejected != excluded.rejected OR guessed != excluded.guessed, "
                "name = excluded.name, version = excluded.version, tags = excluded.tags, "
                "rejected = excluded.rejected, guessed = excluded.guessed, ready = excluded.ready, state = 'here', "
                "folder = excluded.folder",
                values,
            )
            connection.execute("UPDATE connection SET mark = ?", (mark,))

    def count(self) -> int:
        """Count the photos that the program still has."""
        return int(self._database.value("SELECT count(*) FROM remote_photos WHERE state = 'here'"))

    def count_not_ready(self) -> int:
        """Count the photos that cannot be tagged yet."""
        statement = "SELECT count(*) FROM remote_photos WHERE state = 'here' AND NOT ready AND folder != ?"
        return int(self._database.value(statement, (NOT_OURS,)))

    def to_fetch(self) -> list[tuple[int, str, str, str]]:
        """List id, remote id, version and name of photos whose preview is outdated, or that are ready without one."""
        return self._database.rows(
            "SELECT id, remote_id, version, name FROM remote_photos WHERE state = 'here' "
            "AND ((version != '' AND fetched IS NOT version) OR (version = '' AND ready)) ORDER BY id"
        )

    def set_touched(self, stamps: Mapping[str, str]) -> None:
        """Store the time stamps that photos had after visterm's latest request: remote id -> stamp."""
        self._database.write_many(
            "UPDATE remote_photos SET touched = ? WHERE remote_id = ?", [(stamp, i) for i, stamp in stamps.items()]
        )

    def touched(self, photo_ids: Iterable[int]) -> dict[str, str]:
        """Remote id -> its stamp from `set_touched`, for the photos that have one."""
        condition = "id IN (SELECT value FROM json_each(?))"
        statement = f"SELECT remote_id, touched FROM remote_photos WHERE touched != '' AND {condition}"
        return dict(self._database.rows(statement, (as_list(photo_ids),)))

    def set_fetched(self, versions: Iterable[tuple[int, str | None]]) -> None:
        """Store the version of each photo's local preview, as (id, version); None: the preview cannot be used."""
        self._database.write_many(
            "UPDATE remote_photos SET fetched = ?, stale = 1 WHERE id = ?", ((v, i) for i, v in versions)
        )

    def with_preview(self, *, stale: bool = False) -> Iterator[list[ConnectedPhoto]]:
        """Yield lists of photos with a preview, by id; with `stale`, only those with unread changes."""
        where = f"WHERE state = 'here' AND fetched IS NOT NULL {'AND stale ' if stale else ''}AND id > ?"
        after = -1
        while photos := self._photos(f"{where} ORDER BY id LIMIT {PHOTOS_PER_QUERY}", after):
            yield photos
            after = photos[-1].id

    def of_images(self, image_ids: Iterable[int]) -> dict[int, ConnectedPhoto]:
        """Image id -> its photo in the connected program, for the images that have one."""
        where = "WHERE state = 'here' AND image_id IN (SELECT value FROM json_each(?))"
        photos = self._photos(where, as_list(image_ids))
        return {photo.image_id: photo for photo in photos if photo.image_id is not None}

    def links(self, image_ids: Iterable[int]) -> dict[int, str]:
        """Image id -> address of its page in the connected program; empty for a catalogue of files."""
        rows = self._database.rows(
            "SELECT image_id, remote_id, kind, address FROM remote_photos, connection "
            "WHERE state = 'here' AND image_id IN (SELECT value FROM json_each(?))",
            (as_list(image_ids),),
        )
        return {
            image_id: f"{address}{PHOTO_PAGE_PATHS[kind]}{quote(remote_id, safe='')}"
            for image_id, remote_id, kind, address in rows
            if kind in PHOTO_PAGE_PATHS
        }

    def set_image(self, photo_id: int, image_id: int, given: Sequence[str], denied: Sequence[str]) -> None:
        """Store a photo's image in the catalogue, and the people's tags and rejections copied to that image."""
        self._database.write(
            "UPDATE remote_photos SET image_id = ?, given = ?, denied = ?, stale = 0 WHERE id = ?",
            (image_id, json.dumps(list(given)), json.dumps(list(denied)), photo_id),
        )

    def states(self) -> dict[str, tuple[str, int, int | None]]:
        """Remote id -> (state, id, image id), including photos that are gone."""
        rows = self._database.rows("SELECT remote_id, state, id, image_id FROM remote_photos ORDER BY id")
        return {remote_id: (state, photo_id, image_id) for remote_id, state, photo_id, image_id in rows}

    def mark(self, photo_ids: Iterable[int], state: str) -> None:
        """Mark photos as "here" or "gone"."""
        self._database.write(
            "UPDATE remote_photos SET state = ?, stale = 1 WHERE id IN (SELECT value FROM json_each(?))",
            (state, as_list(photo_ids)),
        )

    def spellings(self) -> list[tuple[str, int]]:
        """Return people's tags in the program's spelling with their number of photos, most frequent first."""
        return self._database.rows(
            "SELECT value, count(*) AS n FROM remote_photos, json_each(remote_photos.tags) "
            "WHERE state = 'here' GROUP BY value ORDER BY n DESC, value"
        )

    def pairs(self, *states: str, photo_ids: Iterable[int] | None = None) -> list[LoggedPair]:
        """List photo-tag pairs in any of `states`, ordered by tag and photo."""
        among = "" if photo_ids is None else "AND photo_id IN (SELECT value FROM json_each(?)) "
        return self._records(
            LoggedPair,
            "SELECT photo_id, remote_id, p.name, image_id, tag, tags.name, confidence, folder, w.state, "
            "p.state = 'here', sure, losses "
            "FROM remote_pairs AS w JOIN remote_photos AS p ON p.id = photo_id JOIN tags ON tags.id = tag_id "
            f"WHERE w.state IN (SELECT value FROM json_each(?)) {among}ORDER BY tag, photo_id",
            [json.dumps(states)] if photo_ids is None else [json.dumps(states), as_list(photo_ids)],
        )

    def plan(self, pairs: Iterable[LoggedPair], tag_ids: Mapping[str, int]) -> None:
        """Record pairs that will be written; `tag_ids` are the ids of their tags."""
        self._database.write_many(
            "INSERT INTO remote_pairs (photo_id, tag, tag_id, confidence, state, at) VALUES (?, ?, ?, ?, 'planned', ?) "
            "ON CONFLICT DO UPDATE SET tag_id = excluded.tag_id, confidence = excluded.confidence, state = 'planned', "
            "at = excluded.at, sure = 0",
            ((*pair.key, tag_ids[pair.tag], pair.confidence, now()) for pair in pairs),
        )

    def set_state(self, state: str, pairs: Iterable[LoggedPair]) -> None:
        """Set the state of pairs.

        The photos' stored tags are updated too, so any later difference is a change by a person.
        """
        pairs = list(pairs)
        with self._database.transaction():
            self._database.write_many(
                "UPDATE remote_pairs SET state = ?, at = ?, sure = 0, losses = losses + ? "
                "WHERE photo_id = ? AND tag = ?",
                ((state, now(), state == LOST, *pair.key) for pair in pairs),
            )
            if state not in (WRITTEN, TAKEN, LOST):
                return
            photos: dict[int, set[str]] = {}
            for pair in pairs:
                photos.setdefault(pair.photo_id, set()).add(pair.text)
            connection = self.get()
            column = "guessed" if connection is not None and connection.kind in MARKS_TAGS else "tags"
            statement = f"SELECT id, {column} FROM remote_photos WHERE id IN (SELECT value FROM json_each(?))"

            new_values = []
            for photo_id, tags in self._database.rows(statement, (as_list(photos),)):
                old_tags = set(json.loads(tags))
                new_tags = old_tags | photos[photo_id] if state == WRITTEN else old_tags - photos[photo_id]
                new_values.append((_texts(new_tags), photo_id))
            self._database.write_many(f"UPDATE remote_photos SET {column} = ? WHERE id = ?", new_values)

    def set_sure(self, pairs: Iterable[LoggedPair]) -> None:
        """Record that the state of pairs was confirmed by reading them again."""
        keys = [pair.key for pair in pairs]
        self._database.write_many("UPDATE remote_pairs SET sure = 1 WHERE photo_id = ? AND tag = ?", keys)

    def give_up(self, pair: LoggedPair) -> None:
        """Delete a pair that a person has confirmed: the tag is now a person's tag."""
        self._database.write("DELETE FROM remote_pairs WHERE photo_id = ? AND tag = ?", pair.key)

    def forget(self, pairs: Iterable[LoggedPair]) -> None:
        """Delete pairs that were not written; pairs that the program lost before become `LOST` again."""
        keys = [pair.key for pair in pairs]
        with self._database.transaction():
            self._database.write_many("DELETE FROM remote_pairs WHERE photo_id = ? AND tag = ? AND losses = 0", keys)
            self._database.write_many("UPDATE remote_pairs SET state = 'lost' WHERE photo_id = ? AND tag = ?", keys)

    def take_over(self, other: Connected) -> None:
        """Copy the connection and its photos from another database, before any photo is indexed."""
        names = "id, remote_id, name, version, fetched, tags, rejected, guessed, ready, state, folder"
        other_connection = other.get()
        rows = other._database.rows(f"SELECT {names} FROM remote_photos ORDER BY id")
        with self._database.transaction():
            if other_connection is not None:
                self.put(other_connection)
            self._database.write_many(
                f"INSERT INTO remote_photos ({names}) VALUES (?, ?, CAST(? AS TEXT), ?, ?, ?, ?, ?, ?, ?, ?)",
                ((*row[:2], as_text(row[2]), *row[3:]) for row in rows),
            )

    def _photos(self, where: str, *values: object) -> list[ConnectedPhoto]:
        rows = self._database.rows(
            "SELECT p.id, p.remote_id, p.name, p.tags, p.rejected, p.guessed, p.given, p.denied, p.ready, p.image_id, "
            f"p.folder FROM remote_photos AS p {where}",
            values,
        )
        return [
            ConnectedPhoto(
                photo_id, remote_id, name, json.loads(tags), json.loads(rejected), json.loads(guessed),
                given and json.loads(given), denied and json.loads(denied), bool(ready), image_id, folder,
            )
            for photo_id, remote_id, name, tags, rejected, guessed, given, denied, ready, image_id, folder in rows
        ]  # fmt: skip


def _texts(texts: Iterable[str]) -> str:
    """Return texts as JSON, sorted and without duplicates, so equal sets have equal texts."""
    return json.dumps(sorted(set(texts)))
