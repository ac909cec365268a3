"""The other program's library that a catalogue is connected to: its photos as last read, and the tags written there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import quote

from visterm.core.wording import json_text
from visterm.store.database import CatalogueTable, as_text, now
from visterm.store.images import as_list

PROGRAMS = {"immich": "Immich", "photoprism": "PhotoPrism"}  # Their names for people, by kind
MARKED = {"photoprism"}
"""Programs that tell tags that visterm wrote from people's: ours come as `RemotePhoto.guessed`, and one of `tags` is a
person's, who gave or confirmed it."""
NOT_OURS = "not ours"  # The folder of photos that are seen and take no tags, as a partner's in Immich
PARENT = "visterm"  # The tag under which ours lie, unless said otherwise
# What stands between a server's address and a photo's id in the address of the photo's page
PAGES = {"immich": "/photos/", "photoprism": "/library/browse?view=cards&q=uid:"}
PLANNED, WRITTEN, LOST, LEAVING, TAKEN, OFF = "planned", "written", "lost", "leaving", "taken", "off"
"""States of a pair: about to be written, there and ours, lost by the program after it was written, about to be taken
back, taken back, taken off by a person."""
OURS = (PLANNED, WRITTEN, LEAVING)  # States in which a pair that is there is ours


class ProgramConnection(NamedTuple):
    """Which library it is, and how far it has been read."""

    kind: str  # Of the program: "immich"
    address: str
    key_file: str | None  # Where the key is, never the key itself; None: in the environment
    settings: dict[str, Any]
    mark: str = ""  # By which reading goes on, opaque
    learn_from: str | None = None  # The run that was current when people's tags changed; None: all is learned
    synced: str | None = None  # UTC: when a round last ended
    # Of `RemotePhoto.folder`: ``[whether it keeps tags, when that was tried]``, in UTC
    folders: Mapping[str, Any] = MappingProxyType({})

    @property
    def title(self) -> str:
        """The program's name for people."""
        return PROGRAMS.get(self.kind, self.kind)

    def writes(self) -> str:
        """Return how the next round writes predictions there, in words."""
        parent, k = self.settings.get("parent"), self.settings.get("k")
        how = "as your own tags" if parent is None else f"as tags under {parent}/"
        most = f", at most {k} a photo" if k else ""
        return f"predictions {how}, with precision {self.settings.get('precision')}{most}"


@dataclass(frozen=True, slots=True)
class RemotePhoto:
    """One photo of another program's library. All texts come from its server: nothing in them is to be trusted."""

    id: str  # As the program names it; never used as a path here
    name: str  # Its file's name, shown to people
    version: str  # Of the picture: another one means that the preview is to be fetched again; "": it has no preview
    tags: tuple[str, ...]  # As the program writes them, each once: those that visterm wrote, too
    rejected: tuple[str, ...] = ()
    """Of which the program remembers that they are not there; tags that visterm took back may be among them."""
    guessed: tuple[str, ...] = ()
    """Tags that the program's own models gave: they are not read as people's, and ours need not be beside them."""
    ready: bool = True
    """Whether it takes tags already. One that is too young, so that the program would lose them, comes again in
    `RemoteLibrary.changes` until it is ready, though nothing of it changes."""
    folder: str = ""
    """The part of the library that keeps all of its tags or none (in Immich an external library), or `NOT_OURS`; "": it
    has no parts."""


@dataclass(frozen=True, slots=True)
class ConnectedPhoto:
    """A photo of the library."""

    id: int  # Names the file of its preview
    remote_id: str
    name: str
    # As last read
    tags: list[str]
    rejected: list[str]
    guessed: list[str]
    # People's tags and rejections that the catalogue has taken over; None: not yet
    given: list[str] | None
    denied: list[str] | None
    ready: bool  # Whether the server takes tags for it
    image_id: int | None  # In the catalogue; None until its preview could be indexed
    folder: str  # The part of the library that keeps all of its tags or none


class LoggedPair(NamedTuple):
    """A tag of a photo that was written, or is about to be."""

    photo_id: int
    remote_id: str
    name: str  # Of its file there
    image_id: int | None
    text: str  # As the program writes it: "visterm/cat"
    tag: str  # As the catalogue has it: "cat"
    state: str
    here: int  # Whether the photo is there, 0 or 1
    sure: int  # Whether the state was read again some seconds later, 0 or 1
    losses: int  # How many times it vanished, and nobody may have taken it off
    folder: str

    def is_ours_if_there(self, prefixes: tuple[str, ...]) -> bool:
        """Return whether a pair that was taken, lost or taken off is still ours where it is there again.

        Nobody but us writes tags with the `Connected.prefixes`; of others it is ours only if it came back at once.
        """
        return self.text.startswith(prefixes) or (self.state != OFF and not self.sure)


class Connected(CatalogueTable):
    """The tables of a connection. All of one page, and each step of writing, is one transaction of the caller's."""

    def get(self) -> ProgramConnection | None:
        """Return the connection; None of a catalogue of files."""
        statement = "SELECT folders, kind, address, key_file, settings, mark, learn_from, synced FROM connection"
        for folders, kind, address, key_file, settings, *rest in self._database.rows(statement):
            connection = ProgramConnection(kind, address, key_file, json.loads(settings), *rest)
            return connection._replace(folders=json.loads(folders))
        return None

    def put(self, connection: ProgramConnection) -> None:
        """Put a connection in place of what was there."""
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
        """Return how the tags begin that only we write."""
        connection = self.get()
        parent = None if connection is None else connection.settings.get("parent")
        return f"{PARENT}/", f"{parent or PARENT}/"

    def set_folders(self, folders: Mapping[str, Any]) -> None:
        """Note which folders keep tags, and when that was tried."""
        self._database.write("UPDATE connection SET folders = ?", (json_text(folders),))

    def learn_later(self, run: str) -> None:
        """Note that people's tags have changed since a run was learned, if that is not noted yet."""
        self._database.write("UPDATE connection SET learn_from = coalesce(learn_from, ?)", (run,))

    def has_learned(self) -> None:
        """Note that there is nothing to learn any more."""
        self._database.write("UPDATE connection SET learn_from = NULL")

    def note(self, photos: Iterable[RemotePhoto], mark: str) -> None:
        """Take in a page of what has changed, and how far that brings reading."""
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
        """Count the photos that are there."""
        return int(self._database.value("SELECT count(*) FROM remote_photos WHERE state = 'here'"))

    def count_young(self) -> int:
        """Count the photos that don't take tags yet."""
        statement = "SELECT count(*) FROM remote_photos WHERE state = 'here' AND NOT ready AND folder != ?"
        return int(self._database.value(statement, (NOT_OURS,)))

    def to_fetch(self) -> list[tuple[int, str, str, str]]:
        """List id, remote id, version and name of the photos whose preview is not that of their version."""
        return self._database.rows(
            "SELECT id, remote_id, version, name FROM remote_photos "
            "WHERE state = 'here' AND version != '' AND fetched IS NOT version ORDER BY id"
        )

    def without_preview(self) -> list[str]:
        """List the photos that have no preview though they are there for some time: their names, with their ids."""
        rows = self._database.rows(
            "SELECT name, remote_id FROM remote_photos WHERE state = 'here' AND version = '' AND ready ORDER BY id"
        )
        return [f"{name} ({remote_id})" for name, remote_id in rows]

    def set_touched(self, stamps: Mapping[str, str]) -> None:
        """Note the stamps that photos, by their ids there, had when our last request was worked through."""
        self._database.write_many(
            "UPDATE remote_photos SET touched = ? WHERE remote_id = ?", [(stamp, n) for n, stamp in stamps.items()]
        )

    def touched(self, photo_ids: Iterable[int]) -> dict[str, str]:
        """Return these stamps of some photos, by the photos' ids there."""
        among = "id IN (SELECT value FROM json_each(?))"
        statement = f"SELECT remote_id, touched FROM remote_photos WHERE touched != '' AND {among}"
        return dict(self._database.rows(statement, (as_list(photo_ids),)))

    def set_fetched(self, versions: Iterable[tuple[int, str | None]]) -> None:
        """Note of which version the previews are that lie here, by id; None: of none that can be used."""
        self._database.write_many(
            "UPDATE remote_photos SET fetched = ?, stale = 1 WHERE id = ?", ((v, i) for i, v in versions)
        )

    def fetched(self, limit: int, *, after: int = 0, stale: bool = False) -> list[ConnectedPhoto]:
        """List photos that have a preview, by id from one on; or those of which the catalogue has an older state."""
        which = "AND stale " if stale else ""
        return self._photos(
            f"WHERE state = 'here' AND fetched IS NOT NULL {which}AND id > ? ORDER BY id LIMIT ?", after, limit
        )

    def of_images(self, image_ids: Iterable[int]) -> dict[int, ConnectedPhoto]:
        """Return the photos that are there of images of the catalogue, by the images' ids."""
        which = "WHERE state = 'here' AND image_id IN (SELECT value FROM json_each(?))"
        photos = self._photos(which, as_list(image_ids))
        return {photo.image_id: photo for photo in photos if photo.image_id is not None}

    def links(self, image_ids: Iterable[int]) -> dict[int, str]:
        """Return the addresses of photos' pages in their program, by the images' ids; none of a catalogue of files."""
        rows = self._database.rows(
            "SELECT image_id, remote_id, kind, address FROM remote_photos, connection "
            "WHERE state = 'here' AND image_id IN (SELECT value FROM json_each(?))",
            (as_list(image_ids),),
        )
        return {
            image_id: f"{address}{PAGES[kind]}{quote(remote_id, safe='')}"
            for image_id, remote_id, kind, address in rows
            if kind in PAGES
        }

    def set_image(self, photo_id: int, image_id: int, given: Sequence[str], denied: Sequence[str]) -> None:
        """Note which image a photo is, and which of people's tags and rejections the catalogue has of it now."""
        self._database.write(
            "UPDATE remote_photos SET image_id = ?, given = ?, denied = ?, stale = 0 WHERE id = ?",
            (image_id, json.dumps(list(given)), json.dumps(list(denied)), photo_id),
        )

    def states(self) -> dict[str, tuple[str, int, int | None]]:
        """Return state, id and image of all photos that were read, those that are gone too, by their ids there."""
        rows = self._database.rows("SELECT remote_id, state, id, image_id FROM remote_photos ORDER BY id")
        return {remote_id: (state, number, image_id) for remote_id, state, number, image_id in rows}

    def mark(self, photo_ids: Iterable[int], state: str) -> None:
        """Mark photos as "here" or "gone"."""
        self._database.write(
            "UPDATE remote_photos SET state = ?, stale = 1 WHERE id IN (SELECT value FROM json_each(?))",
            (state, as_list(photo_ids)),
        )

    def spellings(self) -> list[tuple[str, int]]:
        """Return people's tags as the program writes them, with how many photos have each, the most frequent first."""
        return self._database.rows(
            "SELECT value, count(*) AS n FROM remote_photos, json_each(remote_photos.tags) "
            "WHERE state = 'here' GROUP BY value ORDER BY n DESC, value"
        )

    def pairs(self, *states: str, photo_ids: Iterable[int] | None = None) -> list[LoggedPair]:
        """List pairs of some states, by tag and photo."""
        among = "" if photo_ids is None else "AND photo_id IN (SELECT value FROM json_each(?)) "
        values = [json.dumps(states)] if photo_ids is None else [json.dumps(states), as_list(photo_ids)]
        return self._records(
            LoggedPair,
            "SELECT photo_id, remote_id, p.name, image_id, tag, tags.name, w.state, p.state = 'here', sure, losses, "
            "folder "
            "FROM remote_pairs AS w JOIN remote_photos AS p ON p.id = photo_id JOIN tags ON tags.id = tag_id "
            f"WHERE w.state IN (SELECT value FROM json_each(?)) {among}ORDER BY tag, photo_id",
            values,
        )

    def plan(self, pairs: Iterable[tuple[int, str, int, float]]) -> None:
        """Write down pairs that are about to be written: photo, text, id of the tag, confidence."""
        self._database.write_many(
            "INSERT INTO remote_pairs (photo_id, tag, tag_id, confidence, state, at) VALUES (?, ?, ?, ?, 'planned', ?) "
            "ON CONFLICT DO UPDATE SET tag_id = excluded.tag_id, confidence = excluded.confidence, state = 'planned', "
            "at = excluded.at, sure = 0",
            ((*pair, now()) for pair in pairs),
        )

    def set_state(self, state: str, pairs: Iterable[tuple[int, str]]) -> None:
        """Put pairs, of a photo's id and a text, into a state.

        Photos have what was written, and not what was taken back, from then on: what a person does next is a change.
        """
        pairs = list(pairs)
        with self._database.transaction():
            self._database.write_many(
                "UPDATE remote_pairs SET state = ?, at = ?, sure = 0, losses = losses + ? "
                "WHERE photo_id = ? AND tag = ?",
                ((state, now(), state == LOST, *pair) for pair in pairs),
            )
            if state not in (WRITTEN, TAKEN, LOST):
                return
            photos: dict[int, set[str]] = {}
            for photo_id, text in pairs:
                photos.setdefault(photo_id, set()).add(text)
            connection = self.get()
            column = "guessed" if connection is not None and connection.kind in MARKED else "tags"
            statement = f"SELECT id, {column} FROM remote_photos WHERE id IN (SELECT value FROM json_each(?))"

            changed = []
            for number, tags in self._database.rows(statement, (as_list(photos),)):
                before = set(json.loads(tags))
                after = before | photos[number] if state == WRITTEN else before - photos[number]
                changed.append((_texts(after), number))
            self._database.write_many(f"UPDATE remote_photos SET {column} = ? WHERE id = ?", changed)

    def set_sure(self, pairs: Iterable[tuple[int, str]]) -> None:
        """Note that pairs were read again, and are as they were."""
        self._database.write_many("UPDATE remote_pairs SET sure = 1 WHERE photo_id = ? AND tag = ?", pairs)

    def give_up(self, pairs: Iterable[tuple[int, str]]) -> None:
        """Take pairs out of the log: they are a person's now."""
        self._database.write_many("DELETE FROM remote_pairs WHERE photo_id = ? AND tag = ?", pairs)

    def forget(self, pairs: Iterable[tuple[int, str]]) -> None:
        """Forget pairs that were not written; those that the program lost once are lost again."""
        pairs = list(pairs)
        with self._database.transaction():
            self._database.write_many("DELETE FROM remote_pairs WHERE photo_id = ? AND tag = ? AND losses = 0", pairs)
            self._database.write_many("UPDATE remote_pairs SET state = 'lost' WHERE photo_id = ? AND tag = ?", pairs)

    def take_over(self, other: Connected) -> None:
        """Copy the connection and its photos from another database, before anything of them was indexed."""
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
                number, remote_id, name, json.loads(tags), json.loads(rejected), json.loads(guessed),
                given and json.loads(given), denied and json.loads(denied), bool(ready), image_id, folder,
            )
            for number, remote_id, name, tags, rejected, guessed, given, denied, ready, image_id, folder in rows
        ]  # fmt: skip


def _texts(texts: Iterable[str]) -> str:
    """Return texts as they are stored: in one order, so that the same are equal."""
    return json.dumps(sorted(set(texts)))
