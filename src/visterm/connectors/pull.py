"""From another program's library into a catalogue: what changed there, previews, people's tags, what was deleted."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from visterm.connectors.contract import RemoteLibrary, batches
from visterm.core.errors import DataError, ServiceError, UserError
from visterm.core.progress import SILENT, Progress, reported
from visterm.core.threads import map_ahead
from visterm.core.types import CHUNK, Skipped
from visterm.core.vocabulary import MOST_TAGS, Vocabulary, tag_key
from visterm.core.writing import write_whole
from visterm.data.program_tags import of_people
from visterm.library.feedback import spelled
from visterm.library.index import Indexing
from visterm.library.photos import ListedPhotos
from visterm.store.connected import ACTIVE, LOST, MARKS_TAGS, OFF, TAKEN, WRITTEN, Connected, ConnectedPhoto, LoggedPair
from visterm.store.database import as_text

if TYPE_CHECKING:
    from visterm.library.catalogue import Catalogue
    from visterm.store.catalogue import StoredCatalogue

PREVIEWS = "previews"
DOWNLOADS = 4  # Previews that are fetched at once
MOST_FAILED = 4  # Previews in a row at which the server fails: then it is away, and not one photo broken there
COMMITTED = 32  # Previews between two commits
INDEXED = 10_000  # Photos that are held while they are indexed
LONGEST_NAME = 255  # Letters of a photo's name that are kept


@dataclass(slots=True)
class PullResult:
    """What was read, and what the catalogue took over."""

    new: int = 0  # Photos that the catalogue did not have
    changed: int = 0  # Of other pictures than before
    deleted: int = 0
    retagged: int = 0  # Photos whose tags people changed there, those that are new here included
    taken_off: int = 0  # Tags that people took off: they are not suggested again
    skipped: list[Skipped] = field(default_factory=list)  # Photos without a preview that can be used; tried again
    unusable: Counter[str] = field(default_factory=Counter)  # Tags that no catalogue takes, by how many photos

    def as_dict(self) -> dict[str, object]:
        """Return it as it stands in JSON."""
        return asdict(self) | {"skipped": len(self.skipped), "unusable": dict(self.unusable)}


def preview_file(folder: Path, number: int) -> Path:
    """Return where the preview of a photo lies; its name is ours, and says nothing of the server's."""
    return folder / PREVIEWS / f"{number // 1000:06d}" / f"{number:09d}.jpg"


def folder_of(catalogue: Catalogue) -> Path:
    """Return the folder of a catalogue as the paths of its images begin: links followed."""
    assert catalogue.stored.folder is not None
    return Path(os.path.realpath(catalogue.stored.folder))


def read_changes(connected: Connected, library: RemoteLibrary, progress: Progress = SILENT) -> None:
    """Take in what changed since the last time, a page a transaction, so that a kill goes on after the last one."""
    connection = connected.get()
    assert connection is not None
    with reported(progress, "read the library"):
        for page in library.changes(connection.mark):
            names = [each.name.encode("utf-8", "replace").decode()[:LONGEST_NAME] or each.id for each in page.photos]
            photos = [replace(photo, name=name) for photo, name in zip(page.photos, names, strict=True)]
            connected.note(photos, page.mark)
            progress.advance(len(photos))


def find_deleted(catalogue: Catalogue, library: RemoteLibrary, progress: Progress = SILENT) -> int:
    """Mark photos that are gone there, and those that are there again; return how many went.

    Numbers are compared first, and ids are listed only if these differ. What is known of deleted photos stays. Photos
    that came without a change, as a partner's do whose sharing was switched on, are read with all others.
    """
    connected = catalogue.stored.connected
    if library.count() == connected.count():
        return 0
    ids = {photo for page in library.ids() for photo in page}
    if ids - connected.states().keys():
        connected.note((), "")
        read_changes(connected, library, progress)
    with catalogue.stored.transaction():
        states = connected.states()
        gone = [known[1:] for photo, known in states.items() if known[0] == "here" and photo not in ids]
        connected.mark([number for number, _ in gone], "gone")
        catalogue.stored.mark([image_id for _, image_id in gone if image_id is not None], "gone")
        back = [number for photo, (state, number, _) in states.items() if state == "gone" and photo in ids]
        connected.mark(back, "here")
    return len(gone)


def fetch_previews(
    connected: Connected, library: RemoteLibrary, folder: Path, progress: Progress = SILENT
) -> list[Skipped]:
    """Fetch the previews that are missing, a few at once; return the photos without one, with reasons.

    Raises ServiceError if the server fails at some in a row; what was fetched counts.
    """
    wanted = connected.to_fetch()
    skipped = [
        Skipped(photo, f"{library.title} could not make a preview of it") for photo in connected.without_preview()
    ]
    done: list[tuple[int, str | None]] = []
    in_a_row = 0

    def fetch(entry: tuple[int, str, str, str]) -> DataError | ServiceError | None:
        try:
            file, content = preview_file(folder, entry[0]), library.preview(entry[1])
        except (DataError, ServiceError) as error:
            return error
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, content)
        return None

    fetched = map_ahead(fetch, wanted, DOWNLOADS, 2 * DOWNLOADS, "visterm-fetch")
    try:
        with reported(progress, "fetch previews", len(wanted)), closing(fetched):
            for (number, photo, version, name), error in zip(wanted, fetched, strict=True):
                if error is None:
                    done.append((number, version))
                    in_a_row = 0
                else:
                    skipped.append(Skipped(f"{name} ({photo})", str(error)))
                    in_a_row = in_a_row + 1 if isinstance(error, ServiceError) else 0
                    if in_a_row == MOST_FAILED:
                        raise error
                progress.advance()
                if len(done) >= COMMITTED:
                    connected.set_fetched(done)
                    done.clear()
    finally:
        connected.set_fetched(done)
    return skipped


def ingest(catalogue: Catalogue, progress: Progress = SILENT, *, learn: bool = True) -> PullResult:
    """Bring the catalogue to what was read and fetched; with `learn`, note whether there is something to learn."""
    stored, pulled = catalogue.stored, PullResult()
    folder, after = folder_of(catalogue), 0
    while photos := stored.connected.fetched(INDEXED, after=after, stale=True):
        after = photos[-1].id
        people = PeoplesTags(stored.connected, pulled.unusable, catalogue.tagger.vocabulary, stored)
        people_tags = [people.of(photo.id, photo.tags) for photo in photos]
        paths, names = [str(preview_file(folder, photo.id)) for photo in photos], [photo.name for photo in photos]
        listed = ListedPhotos(paths, names, list(people_tags), catalogue.tagger.encoder, None, None)
        done = Indexing(catalogue.tagger, stored).run(listed, chunk_size=CHUNK, progress=progress)
        pulled.new, pulled.changed = pulled.new + done.new, pulled.changed + done.changed
        broken = {item.image: item.reason for item in done.skipped}
        for some in batches(zip(photos, people_tags, paths, strict=True), CHUNK):
            with stored.transaction():
                if _apply_tags(stored, people, some, broken, pulled) and learn:
                    stored.connected.learn_later(stored.origin.fingerprint)
    return pulled


def _apply_tags(
    stored: StoredCatalogue,
    people: PeoplesTags,
    photos: Sequence[tuple[ConnectedPhoto, list[str], str]],
    broken: dict[str, str],
    pulled: PullResult,
) -> int:
    """Take over what people said of photos that are indexed now; return for how many they changed tags.

    `photos` come with people's tags and the path of the preview; `broken` says which previews can't be read, and why.
    """
    ours: dict[int, list[LoggedPair]] = {}
    for pair in stored.connected.pairs(*ACTIVE, TAKEN, LOST, OFF, photo_ids=[photo.id for photo, *_ in photos]):
        ours.setdefault(pair.photo_id, []).append(pair)

    n_retagged = 0
    for photo, tags, path in photos:
        if path in broken:
            pulled.skipped.append(Skipped(f"{photo.name} ({photo.remote_id})", broken[path]))
            stored.connected.set_fetched([(photo.id, None)])
            continue
        statement = "SELECT id FROM images WHERE path = CAST(? AS TEXT) AND state = 'here'"
        image_id = stored.database.value(statement, (as_text(path),))
        if image_id is not None:  # else it was stopped before it was its turn
            n_off, is_changed = people.update_verdicts(stored, photo, image_id, tags, ours.get(photo.id, ()))
            pulled.taken_off += n_off
            n_retagged += is_changed

    pulled.retagged += n_retagged
    return n_retagged


def _by_key(tags: Iterable[str]) -> dict[str, str]:
    return {tag_key(tag): tag for tag in tags}


def _less(tags: dict[str, str], others: dict[str, str]) -> dict[str, str]:
    return {key: tag for key, tag in tags.items() if key not in others}


class PeoplesTags:
    """Tells people's tags from those that visterm wrote, and spells them as the run and the catalogue do.

    `unusable` counts those that no catalogue takes.
    """

    def __init__(
        self,
        connected: Connected,
        unusable: Counter[str],
        vocabulary: Vocabulary,
        stored: StoredCatalogue | None = None,
    ) -> None:
        self._vocabulary, self._stored = vocabulary, stored
        connection = connected.get()
        assert connection is not None
        parent = connection.settings.get("parent")
        self._under = None if parent is None else tag_key(f"{parent}/")
        self._ours: dict[int, set[str]] = {}
        self._marked, self._prefixes = connection.kind in MARKS_TAGS, connected.prefixes()
        for pair in () if self._marked else connected.pairs(*ACTIVE):
            self._ours.setdefault(pair.photo_id, set()).add(pair.text)
        self._unusable = unusable
        self._spelled: dict[str, str | None] = {}

    def of(self, photo_id: int, tags: Iterable[str]) -> list[str]:
        """Return people's tags of a photo, without those that visterm wrote or that lie under its own parent.

        A program may write ours in capitals of its own; where ours is there as it was written, others are people's.
        """
        listed, ours = tuple(tags), self._ours.get(photo_id, set())
        rewritten = {tag_key(text) for text in ours.difference(listed)}
        under = self._under
        return self.usable(
            tag
            for tag in of_people(listed)
            if tag not in ours
            and tag_key(tag) not in rewritten
            and not (under and f"{tag_key(tag)}/".startswith(under))
        )

    def usable(self, tags: Iterable[str]) -> list[str]:
        """Return tags as the catalogue spells them, each once; count those that it does not take."""
        names: dict[str, None] = {}
        for tag in tags:
            if tag not in self._spelled:
                try:
                    self._spelled[tag] = spelled(self._vocabulary, tag, self._stored)
                except UserError:
                    self._spelled[tag] = None
            name = self._spelled[tag]
            if name is None or (len(names) == MOST_TAGS and name not in names):
                self._unusable[tag] += 1
            else:
                names[name] = None
        return list(names)

    def update_verdicts(
        self, stored: StoredCatalogue, photo: ConnectedPhoto, image: int, tags: list[str], pairs: Sequence[LoggedPair]
    ) -> tuple[int, bool]:
        """Reject the tags of one photo that people took off there, and no longer those that they gave again.

        `image` is its number in the catalogue, `tags` are people's, and `pairs` those of ours in the log. Returns how
        many tags were taken off, and whether people changed any.
        """
        gone = self._note_vanished(stored.connected, photo, pairs)
        taken_back = _by_key(pair.text for pair in pairs if pair.state == TAKEN)
        no = [text for text in photo.rejected if tag_key(text) not in taken_back]
        now, before = _by_key(tags), _by_key(photo.given or ())
        denied, denied_before = _by_key(self.usable(no)), _by_key(photo.denied or ())
        off = {**_by_key(pair.tag for pair in gone), **_less(before, now), **_less(denied, denied_before)}
        off = _less(off, {**now, **_by_key(photo.guessed)})

        verdicts = stored.tags.verdicts(image)
        for tag in sorted(off.values()):
            if verdicts.get(tag) != -1:
                stored.tags.judge(image, tag, -1)
        for tag in sorted({**_less(now, before), **_less(_less(denied_before, denied), off)}.values()):
            if verdicts.get(tag) == -1:
                stored.tags.judge(image, tag, 0)

        stored.connected.set_image(photo.id, image, tags, list(denied.values()))
        return len(off), bool(off) or now.keys() != before.keys() or denied.keys() != denied_before.keys()

    def _note_vanished(
        self, connected: Connected, photo: ConnectedPhoto, pairs: Sequence[LoggedPair]
    ) -> list[LoggedPair]:
        """Note which of our pairs of one photo vanished or came back; return those that a person took off.

        One that was not read again after it was written may have been lost by the program, and is written again, once.
        One that a person confirmed is theirs from then on.
        """
        remote_keys = set(map(tag_key, [*photo.tags, *photo.guessed]))
        confirmed = set(map(tag_key, photo.tags)) if self._marked else set()

        states: dict[str, list[LoggedPair]] = {OFF: [], LOST: [], WRITTEN: []}
        for pair in pairs:
            is_there = tag_key(pair.text) in remote_keys
            if pair.state == WRITTEN and tag_key(pair.text) in confirmed:
                connected.give_up([(pair.photo_id, pair.text)])
            elif pair.state == WRITTEN and not is_there:
                states[OFF if pair.sure or pair.losses else LOST].append(pair)
            elif pair.state in (LOST, TAKEN, OFF) and is_there and pair.is_ours_if_there(self._prefixes):
                states[WRITTEN].append(pair)

        for state, some in states.items():
            connected.set_state(state, [(pair.photo_id, pair.text) for pair in some])
        return states[OFF]
