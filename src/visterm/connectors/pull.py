"""Update a catalogue from another program's library: changes, previews, people's tags, and deleted photos."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from visterm.connectors.contract import RemoteLibrary, batches
from visterm.core.errors import DataError, ServiceError, UserError
from visterm.core.progress import Progress, reported
from visterm.core.threads import map_ahead
from visterm.core.types import CHUNK, Skipped
from visterm.core.vocabulary import MAX_TAGS, Vocabulary, tag_key
from visterm.core.writing import write_whole
from visterm.data.program_tags import people_tags
from visterm.library.catalogue import Catalogue
from visterm.library.feedback import spelled
from visterm.library.index import Indexing
from visterm.library.photos import ListedPhotos
from visterm.store.catalogue import StoredCatalogue
from visterm.store.connected import ACTIVE, LOST, MARKS_TAGS, OFF, TAKEN, WRITTEN, Connected, ConnectedPhoto, LoggedPair
from visterm.store.database import as_text

PREVIEWS = "previews"
MAX_DOWNLOADS = 4  # Number of parallel downloads of previews
MAX_FAILURES_IN_A_ROW = 4  # After these, the problem is the server, not a single photo
PREVIEWS_PER_COMMIT = 32  # Each commit waits for the disk
MAX_NAME_LENGTH = 255  # Longer names of photos are cut


@dataclass(slots=True)
class PullResult:
    """The result of an update from another program's library."""

    new: int = 0  # Number of new photos
    changed: int = 0  # Number of photos whose picture changed
    deleted: int = 0
    retagged: int = 0  # Number of photos, including new ones, whose tags people changed
    taken_off: int = 0  # Number of tags that people removed; they are not suggested again
    skipped: list[Skipped] = field(default_factory=list)  # Photos without a usable preview, which are tried again
    unusable: Counter[str] = field(default_factory=Counter)  # Invalid tag -> number of photos

    def as_dict(self) -> dict[str, object]:
        """Return the result as JSON data."""
        return asdict(self) | {"skipped": len(self.skipped), "unusable": dict(self.unusable)}


def preview_file(folder: Path, photo_id: int) -> Path:
    """Return the path of a photo's preview, which depends only on the catalogue's own id."""
    return folder / PREVIEWS / f"{photo_id // 1000:06d}" / f"{photo_id:09d}.jpg"


def folder_of(catalogue: Catalogue) -> Path:
    """Return the folder of a catalogue with links resolved, like the paths of its images."""
    assert catalogue.stored.folder is not None
    return Path(os.path.realpath(catalogue.stored.folder))


def read_changes(connected: Connected, library: RemoteLibrary, progress: Progress) -> None:
    """Read changes since the last time, one transaction per page, so that a killed process can continue."""
    connection = connected.get()
    assert connection is not None
    with reported(progress, "read the library"):
        for page in library.changes(connection.mark):
            names = [p.name.encode("utf-8", "replace").decode()[:MAX_NAME_LENGTH] or p.id for p in page.photos]
            photos = [replace(photo, name=name) for photo, name in zip(page.photos, names, strict=True)]
            connected.note(photos, page.mark)
            progress.advance(len(photos))


def find_deleted(catalogue: Catalogue, library: RemoteLibrary, progress: Progress) -> int:
    """Mark deleted and restored photos; return the number of deleted photos.

    Ids are only listed if the number of photos differs. Data of deleted photos is kept. If there are new photos that
    were not listed as changed, such as those of a partner who started sharing, all photos are read again.
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
        gone = [entry[1:] for photo, entry in states.items() if entry[0] == "here" and photo not in ids]
        connected.mark([photo_id for photo_id, _ in gone], "gone")
        catalogue.stored.mark([image_id for _, image_id in gone if image_id is not None], "gone")
        restored = [photo_id for photo, (state, photo_id, _) in states.items() if state == "gone" and photo in ids]
        connected.mark(restored, "here")
    return len(gone)


def fetch_previews(connected: Connected, library: RemoteLibrary, folder: Path, progress: Progress) -> list[Skipped]:
    """Download missing previews, a few in parallel; return the photos without a preview, with reasons.

    Raises ServiceError after several failures in a row; previews downloaded before are kept.
    """
    photos = connected.to_fetch()
    missing = [entry for entry in photos if entry[2]]
    reason = f"{library.title} could not make a preview of it"
    skipped = [Skipped(f"{name} ({photo})", reason) for _, photo, version, name in photos if not version]
    fetched: list[tuple[int, str | None]] = []
    n_failures = 0

    def fetch(entry: tuple[int, str, str, str]) -> DataError | ServiceError | None:
        try:
            file, content = preview_file(folder, entry[0]), library.preview(entry[1])
        except (DataError, ServiceError) as error:
            return error
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, content)
        return None

    errors = map_ahead(fetch, missing, MAX_DOWNLOADS, 2 * MAX_DOWNLOADS, "visterm-fetch")
    try:
        with reported(progress, "fetch previews", len(missing)), closing(errors):
            for (photo_id, photo, version, name), error in zip(missing, errors, strict=True):
                if error is None:
                    fetched.append((photo_id, version))
                else:
                    skipped.append(Skipped(f"{name} ({photo})", str(error)))
                n_failures = n_failures + 1 if isinstance(error, ServiceError) else 0
                if error is not None and n_failures == MAX_FAILURES_IN_A_ROW:
                    raise error
                progress.advance()
                if len(fetched) == PREVIEWS_PER_COMMIT:
                    connected.set_fetched(fetched)
                    fetched.clear()
    finally:
        connected.set_fetched(fetched)
    return skipped


def ingest(catalogue: Catalogue, progress: Progress, *, learn: bool = True) -> PullResult:
    """Index photos that were read and downloaded; with `learn`, record whether people changed tags."""
    stored, pulled = catalogue.stored, PullResult()
    folder = folder_of(catalogue)
    for photos in stored.connected.with_preview(stale=True):
        people_filter = PeopleTagFilter(stored.connected, pulled.unusable, catalogue.tagger.vocabulary, stored)
        people_tags = [people_filter.of(photo.id, photo.tags) for photo in photos]
        paths, names = [str(preview_file(folder, photo.id)) for photo in photos], [photo.name for photo in photos]
        listed = ListedPhotos(paths, names, list(people_tags), catalogue.tagger.encoder, None, None)
        indexed = Indexing(catalogue.tagger, stored).run(listed, chunk_size=CHUNK, progress=progress)
        pulled.new, pulled.changed = pulled.new + indexed.new, pulled.changed + indexed.changed
        unreadable = {item.image: item.reason for item in indexed.skipped}
        for batch in batches(zip(photos, people_tags, paths, strict=True), CHUNK):
            with stored.transaction():
                if _apply_tags(stored, people_filter, batch, unreadable, pulled) and learn:
                    stored.connected.learn_later(stored.origin.fingerprint)
    return pulled


def _apply_tags(
    stored: StoredCatalogue,
    people_filter: PeopleTagFilter,
    photos: Sequence[tuple[ConnectedPhoto, list[str], str]],
    unreadable: dict[str, str],
    pulled: PullResult,
) -> int:
    """Apply people's tags of indexed photos to the catalogue; return the number of photos whose tags changed.

    `photos` are (photo, people's tags, preview path); `unreadable` maps preview paths to errors.
    """
    pairs_of: dict[int, list[LoggedPair]] = {}
    for pair in stored.connected.pairs(*ACTIVE, TAKEN, LOST, OFF, photo_ids=[photo.id for photo, *_ in photos]):
        pairs_of.setdefault(pair.photo_id, []).append(pair)

    n_retagged = 0
    for photo, tags, path in photos:
        if path in unreadable:
            pulled.skipped.append(Skipped(f"{photo.name} ({photo.remote_id})", unreadable[path]))
            stored.connected.set_fetched([(photo.id, None)])
            continue
        statement = "SELECT id FROM images WHERE path = CAST(? AS TEXT) AND state = 'here'"
        image_id = stored.database.value(statement, (as_text(path),))
        if image_id is not None:  # otherwise indexing was stopped before this photo
            pairs = pairs_of.get(photo.id, ())
            n_removed, is_changed = people_filter.update_verdicts(stored, photo, image_id, tags, pairs)
            pulled.taken_off += n_removed
            n_retagged += is_changed

    pulled.retagged += n_retagged
    return n_retagged


def _by_key(tags: Iterable[str]) -> dict[str, str]:
    return {tag_key(tag): tag for tag in tags}


def _minus(tags: dict[str, str], others: dict[str, str]) -> dict[str, str]:
    return {key: tag for key, tag in tags.items() if key not in others}


class PeopleTagFilter:
    """Separates people's tags from tags that visterm wrote, and normalises their spelling.

    `unusable` counts invalid tags.
    """

    def __init__(
        self, connected: Connected, unusable: Counter[str], vocabulary: Vocabulary, stored: StoredCatalogue | None
    ) -> None:
        self._vocabulary, self._stored = vocabulary, stored
        connection = connected.get()
        assert connection is not None
        parent = connection.settings.get("parent")
        self._parent_key = None if parent is None else tag_key(f"{parent}/")
        self._written: dict[int, set[str]] = {}
        self._marks_tags, self._prefixes = connection.kind in MARKS_TAGS, connected.prefixes()
        for pair in () if self._marks_tags else connected.pairs(*ACTIVE):
            self._written.setdefault(pair.photo_id, set()).add(pair.text)
        self._unusable = unusable
        self._spellings: dict[str, str | None] = {}

    def of(self, photo_id: int, tags: Iterable[str]) -> list[str]:
        """Return people's tags of a photo, without tags that visterm wrote or that are below its parent tag.

        The program may change the case of visterm's tags. If one also exists as written, other spellings are people's.
        """
        listed, written = tuple(tags), self._written.get(photo_id, set())
        rewritten_keys = {tag_key(text) for text in written.difference(listed)}
        parent_key = self._parent_key
        return self.usable(
            tag
            for tag in people_tags(listed)
            if tag not in written
            and tag_key(tag) not in rewritten_keys
            and not (parent_key and f"{tag_key(tag)}/".startswith(parent_key))
        )

    def usable(self, tags: Iterable[str]) -> list[str]:
        """Return valid tags in the catalogue's spelling, without duplicates; count invalid tags."""
        names: dict[str, None] = {}
        for tag in tags:
            if tag not in self._spellings:
                try:
                    self._spellings[tag] = spelled(self._vocabulary, tag, self._stored)
                except UserError:
                    self._spellings[tag] = None
            name = self._spellings[tag]
            if name is None or (len(names) == MAX_TAGS and name not in names):
                self._unusable[tag] += 1
            else:
                names[name] = None
        return list(names)

    def update_verdicts(
        self, stored: StoredCatalogue, photo: ConnectedPhoto, image: int, tags: list[str], pairs: Sequence[LoggedPair]
    ) -> tuple[int, bool]:
        """Reject tags that people removed from one photo, and undo rejections of tags that they added again.

        `image` is its image id, `tags` are people's tags, and `pairs` are the photo's logged pairs. Returns the number
        of removed tags, and whether people changed any tags.
        """
        gone = self._vanished(stored.connected, photo, pairs)
        taken_back = _by_key(pair.text for pair in pairs if pair.state == TAKEN)
        rejected = [text for text in photo.rejected if tag_key(text) not in taken_back]
        given, given_before = _by_key(tags), _by_key(photo.given or ())
        denied, denied_before = _by_key(self.usable(rejected)), _by_key(photo.denied or ())
        removed = {**_by_key(pair.tag for pair in gone), **_minus(given_before, given), **_minus(denied, denied_before)}
        removed = _minus(removed, {**given, **_by_key(photo.guessed)})

        verdicts = stored.tags.verdicts(image)
        for tag in sorted(removed.values()):
            if verdicts.get(tag) != -1:
                stored.tags.judge(image, tag, -1)
        for tag in sorted({**_minus(given, given_before), **_minus(_minus(denied_before, denied), removed)}.values()):
            if verdicts.get(tag) == -1:
                stored.tags.judge(image, tag, 0)

        stored.connected.set_image(photo.id, image, tags, list(denied.values()))
        return len(removed), bool(removed or given.keys() ^ given_before.keys() or denied.keys() ^ denied_before.keys())

    def _vanished(self, connected: Connected, photo: ConnectedPhoto, pairs: Sequence[LoggedPair]) -> list[LoggedPair]:
        """Record which of visterm's pairs of one photo vanished or reappeared; return those that a person removed.

        A vanished pair that was not confirmed after writing may have been lost by the program, and is written once
        more. A pair that a person confirmed becomes the person's tag.
        """
        remote_keys = set(map(tag_key, [*photo.tags, *photo.guessed]))
        confirmed = set(map(tag_key, photo.tags)) if self._marks_tags else set()

        states: dict[str, list[LoggedPair]] = {OFF: [], LOST: [], WRITTEN: []}
        for pair in pairs:
            is_there = tag_key(pair.text) in remote_keys
            if pair.state == WRITTEN and tag_key(pair.text) in confirmed:
                connected.give_up(pair)
            elif pair.state == WRITTEN and not is_there:
                states[OFF if pair.sure or pair.losses else LOST].append(pair)
            elif pair.state in (LOST, TAKEN, OFF) and is_there and pair.is_ours_if_present(self._prefixes):
                states[WRITTEN].append(pair)

        for state, changed in states.items():
            connected.set_state(state, changed)
        return states[OFF]
