"""Predictions into another program's library: planned, written, read again; and taken back, never a person's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from visterm.connectors.contract import PhotoTag, RemoteLibrary, batches, connector_class
from visterm.connectors.passes import BUSY, CHANGED, WriteResult, write
from visterm.core.progress import SILENT, Progress, reported
from visterm.core.types import CHUNK
from visterm.core.vocabulary import clean_tag, tag_key
from visterm.data.tag_tree import own_names, path_text
from visterm.library.export.items import ExportItem, Parents
from visterm.library.export.sources import CatalogueSource, Limits
from visterm.store.connected import ACTIVE, LEAVING, LOST, NOT_OURS, OFF, PLANNED, TAKEN, WRITTEN, Connected, LoggedPair
from visterm.store.database import now

if TYPE_CHECKING:
    from visterm.library.catalogue import Catalogue
    from visterm.store.catalogue import StoredCatalogue

ASKED = 5000  # Pairs that are planned, written and read again at once
AGAIN = 10.0  # Seconds after the last job, after which pairs are read once more
MOST_UNDONE = 5  # Times that an undo takes what came back
TRY_AGAIN = timedelta(days=1)  # After which one photo of a folder that kept no tags is tried again
VANISHED = "the server accepted it, and lost it when it read the photo's file again; tried again in the next round"


class TagChange(NamedTuple):
    """A pair that is written or taken back."""

    photo: str  # As the program names it
    name: str  # Of its file there
    tag: str  # As it stands there
    confidence: float | None = None  # Of one that is written; None: it is taken back

    def as_dict(self) -> dict[str, object]:
        """Return it as it stands in JSON."""
        facts: dict[str, object] = {"photo": self.photo, "name": self.name, "tag": self.tag}
        if self.confidence is None:
            return facts | {"change": "taken"}
        return facts | {"change": "written", "confidence": round(self.confidence, 4)}


@dataclass(slots=True)
class PushResult:
    """What was written there; of a dry run what would be."""

    wanted: int = 0  # Pairs that are to be there
    written: int = 0  # Pairs that are there now, read again
    taken: int = 0  # Pairs of ours that are not there any more
    refused: int = 0  # Pairs that the server did not take, or did not keep; they are tried again the next time
    waiting: int = 0  # Pairs that are left for the next round
    reasons: Counter[str] = field(default_factory=Counter)  # Why pairs were refused, or are left
    young: int = 0  # Photos that get tags in a later round, as they came just now
    keepless: int = 0  # Photos that should have tags, and of which the program keeps none
    left_alone: int = 0  # The tags that these photos don't get
    stalled: bool = False  # Whether the jobs of the server do not end: nothing more is sent
    changes: list[TagChange] = field(default_factory=list)  # All pairs that were written or taken

    def as_dict(self) -> dict[str, object]:
        """Return it as it stands in JSON."""
        return {"written": self.written, "taken": self.taken, "refused": self.refused, "waiting": self.waiting}

    def refuse(self, reasons: Iterable[str]) -> None:
        """Count pairs that the server did not take, or did not keep."""
        counted = Counter(reasons)
        self.refused += counted.total()
        self.reasons += counted

    def leave(self, reason: str, n: int) -> None:
        """Count pairs that are left for the next round."""
        self.waiting += n
        self.reasons += Counter({reason: n})

    def leave_open(self, outcome: WriteResult) -> None:
        """Count the pairs that a request didn't settle."""
        self.stalled = outcome.stalled
        self.leave(CHANGED, 0 if outcome.stalled else len(outcome.unsent))
        self.leave(BUSY, len(outcome.unsettled) + (len(outcome.unsent) if outcome.stalled else 0))


class _PlannedTag(NamedTuple):
    """A pair that is to be there."""

    photo_id: int
    remote_id: str
    name: str
    text: str
    tag: str
    confidence: float
    folder: str

    @property
    def key(self) -> tuple[int, str]:
        """The pair in the log."""
        return self.photo_id, self.text


def recover(connected: Connected, library: RemoteLibrary) -> None:
    """Find out what became of the pairs that a kill, or a server that went away, left in the middle.

    They were planned when they were not there: those that are there now are ours.
    """
    open_pairs = connected.pairs(PLANNED, LEAVING)
    if open_pairs and library.queued:
        photos, stamps = {pair.remote_id for pair in open_pairs}, library.recent().stamps
        connected.set_touched({photo: stamps[photo] for photo in photos.intersection(stamps)})
    for some in batches(open_pairs, ASKED):
        _settle(connected, some, library.existing([*map(_pair, some)]))


def push(
    catalogue: Catalogue,
    library: RemoteLibrary,
    *,
    parent: str | None,
    precision: float,
    k: int = 0,
    dry_run: bool = False,
    progress: Progress = SILENT,
) -> PushResult:
    """Write the predictions that are sure enough, and take back those of ours that are not any more.

    Tags that people gave or accepted in the catalogue are written, too. A pair that they gave in the other program is
    not; what they took off or rejected is not, and is taken back if it was ours. Without confidences no prediction is
    written, and none is taken back. `parent` is the tag under which all of ours lie; None: they are written as people's
    own. A photo gets at most `k` predictions, the surest; 0: all that are sure enough.
    """
    connected = catalogue.stored.connected
    ours = {(pair.photo_id, pair.text): pair for pair in connected.pairs(*ACTIVE, OFF)}

    writer = _PairWriter(catalogue.stored, library, progress, check=parent is None)
    folders, pushed, limits = writer.folders, writer.pushed, Limits(k, precision=precision)
    wanted = {pair.key: pair for pair in _planned_tags(catalogue, parent, limits, pushed, progress)}
    pushed.wanted = len(wanted)
    leaving = [pair for key, pair in ours.items() if pair.state == WRITTEN and pair.here and key not in wanted]
    if not has_cutoffs(catalogue):  # only what people have said yes or no to themselves
        images, tags = {pair.image_id for pair in leaving if pair.image_id is not None}, catalogue.stored.tags
        judged = [*tags.held(images).items(), *tags.rejected(images).items()]
        known = {(image_id, tag_key(tag)) for image_id, some in judged for tag in some}
        leaving = [pair for pair in leaving if (pair.image_id, tag_key(pair.tag)) in known]

    fresh = sorted((pair for key, pair in wanted.items() if key not in ours), key=lambda p: (p.text, p.photo_id))
    fresh = folders.writable_pairs(fresh, pushed)
    if dry_run:
        pushed.written, pushed.taken = len(fresh), len(leaving)
        pushed.changes = [*map(_taken, leaving), *map(_written, fresh)]
        return pushed

    with reported(progress, "write tags", len(leaving) + len(fresh)):
        writer.take(leaving)
        if first := folders.first(fresh):
            writer.write(first)
            tried = {pair.key for pair in first}
            fresh = folders.writable_pairs([pair for pair in fresh if pair.key not in tried], pushed)
        for some in batches(fresh, ASKED):
            writer.write(some)
        writer.read_again()
    return pushed


def take_all(
    catalogue: Catalogue, library: RemoteLibrary, *, dry_run: bool = False, progress: Progress = SILENT
) -> PushResult:
    """Take back all pairs that the log says are ours, and no other, until nothing is left or the server keeps it.

    Pairs that came back after they were taken are ours as well; of those that are written as people's own only where
    they came back at once.
    """
    connected, writer = catalogue.stored.connected, _PairWriter(catalogue.stored, library, progress)
    pushed, ours = writer.pushed, _still_ours(connected, library)
    if dry_run:
        return PushResult(taken=len(ours), changes=[*map(_taken, ours)])
    gone: dict[tuple[int, str], LoggedPair] = {}

    with reported(progress, "take tags back", len(ours)):
        for _ in range(MOST_UNDONE):
            if not ours or pushed.stalled:
                break
            pushed.refused, pushed.waiting, pushed.reasons = 0, 0, Counter()
            gone |= {(pair.photo_id, pair.text): pair for pair in ours}
            writer.take(ours, careful=False)
            writer.read_again()
            ours = _still_ours(connected, library)

    remaining = set(_keys([*ours, *connected.pairs(LEAVING)]))
    pushed.changes = [_taken(pair) for key, pair in gone.items() if key not in remaining]
    pushed.taken = len(pushed.changes)
    pushed.leave("it came back after each try", max(0, len(remaining) - pushed.refused - pushed.waiting))
    return pushed


def _still_ours(connected: Connected, library: RemoteLibrary) -> list[LoggedPair]:
    """Return the pairs of the log that are ours and there now, and note those of them that came back."""
    ours_alone = connected.prefixes()
    maybe = [
        pair for pair in connected.pairs(LOST, TAKEN, OFF)
        if pair.is_ours_if_there(ours_alone) or (not library.queued and pair.state != OFF)
    ]  # fmt: skip
    for some in batches(maybe, ASKED):
        existing = library.existing([*map(_pair, some)])
        connected.set_state(WRITTEN, _keys(pair for pair in some if _pair(pair)[:2] in existing))
    return connected.pairs(WRITTEN)


def _written(pair: _PlannedTag) -> TagChange:
    return TagChange(pair.remote_id, pair.name, pair.text, pair.confidence)


def _taken(pair: LoggedPair) -> TagChange:
    return TagChange(pair.remote_id, pair.name, pair.text)


def has_cutoffs(catalogue: Catalogue) -> bool:
    """Return whether the current run knows how precise its predictions are; without that nothing is written."""
    calibration = catalogue.tagger.calibration
    return calibration is not None and calibration.held_out is not None


class _FolderTrials:
    """Which parts of a library keep tags: one whose files can't be written loses them within a second.

    Of a folder that was never written to one photo is tried first, and of one that keeps none one photo a day.
    """

    def __init__(self, connected: Connected, library: RemoteLibrary) -> None:
        self._connected, self._queued = connected, library.queued
        connection = connected.get()
        self._known = {} if connection is None else dict(connection.folders)

    def writable_pairs(self, pairs: Sequence[_PlannedTag], pushed: PushResult) -> list[_PlannedTag]:
        """Return the pairs of folders that keep tags, or are to be tried; count the photos of the others."""
        keepless = {pair.photo_id for pair in pairs if self._keeps(pair.folder) is False}
        writable = [pair for pair in pairs if pair.photo_id not in keepless]
        pushed.keepless += len(keepless)
        pushed.left_alone += len(pairs) - len(writable)
        return writable

    def first(self, pairs: Sequence[_PlannedTag]) -> list[_PlannedTag]:
        """Return the pairs of one photo of each folder that is to be tried."""
        photos = {pair.folder: pair.photo_id for pair in reversed(pairs) if self._keeps(pair.folder) is None}
        return [pair for pair in pairs if photos.get(pair.folder) == pair.photo_id]

    def learn(self, written: Iterable[_PlannedTag], lost: Iterable[_PlannedTag]) -> None:
        """Note which folders kept what was written, and which lost all of it."""
        keeping_folders = {pair.folder for pair in written}
        seen = dict.fromkeys(keeping_folders, True) | {p.folder: False for p in lost if p.folder not in keeping_folders}
        self._known |= {folder: [keeps, now()] for folder, keeps in seen.items() if folder}
        self._connected.set_folders(self._known)

    def _keeps(self, folder: str) -> bool | None:
        """Return whether a folder keeps tags; None: it is to be tried."""
        if not folder or not self._queued:
            return True
        if folder not in self._known:
            return None
        keeps, at = self._known[folder]
        is_due = not keeps and datetime.now(UTC) - datetime.fromisoformat(at) > TRY_AGAIN
        return None if is_due else bool(keeps)


def _planned_tags(
    catalogue: Catalogue, parent: str | None, limits: Limits, pushed: PushResult, progress: Progress
) -> Iterator[_PlannedTag]:
    """Yield the pairs that are to be there, those of ours that are there already, too; count photos that are young."""
    stored = catalogue.stored
    texts = _TagTexts(catalogue, spelled=parent is None)
    files = stored.images.files()
    if has_cutoffs(catalogue):
        items = CatalogueSource(catalogue).items(limits, progress)
    else:  # no predictions, as nobody knows how precise they are
        current_tags, rejected = stored.tags.held(), stored.tags.rejected()
        items = (
            ExportItem(Path(path), tuple(current_tags.get(image.id, ())), (), tuple(rejected.get(image.id, ())))
            for path, image in files.items()
        )

    for some in batches(items, CHUNK):
        of_image = {files[str(item.path)].id: item for item in some if isinstance(item, ExportItem)}
        photos = stored.connected.of_images(of_image)
        ours = set(_keys(stored.connected.pairs(*ACTIVE, photo_ids=[photo.id for photo in photos.values()])))
        for image_id, photo in photos.items():
            remote_keys = set(map(tag_key, [*photo.tags, *photo.guessed]))
            given_keys = set(map(tag_key, photo.given or ()))
            marks = of_image[image_id].wanted(None, Parents())
            given_keys |= texts.above([*(photo.given or ()), *(mark.tag for mark in marks)])
            pushed.young += bool(marks) and not photo.ready and photo.folder != NOT_OURS
            for mark in marks:
                if tag_key(mark.tag) in given_keys:
                    continue  # a person gave it there, or it lies above another
                text = texts.of(mark.tag) if parent is None else f"{parent}/{texts.of(mark.tag)}"
                if (photo.id, text) in ours or (photo.ready and tag_key(text) not in remote_keys):
                    yield _PlannedTag(
                        photo.id, photo.remote_id, photo.name, text, mark.tag, mark.confidence or 1.0, photo.folder
                    )


class _TagTexts:
    """Tags as a program writes them: where tags lie under others there, those of a tree by their paths.

    If `spelled`, they are written as most people spell them there, so that no second tag is made.
    """

    def __init__(self, catalogue: Catalogue, *, spelled: bool) -> None:
        tagger, connected = catalogue.tagger, catalogue.stored.connected
        connection = connected.get()
        nested = connection is not None and connector_class(connection.kind).nested
        self._tree = tagger.tree.words if nested and tagger.tree is not None else None
        self._vocabulary = tagger.vocabulary
        self._spellings: dict[str, str] = {}
        for text, _ in connected.spellings() if spelled else ():
            self._spellings.setdefault(tag_key(clean_tag(text)), text)

    def of(self, tag: str) -> str:
        """Return a tag as it is written there."""
        if self._tree is not None and (tag in self._vocabulary or self._tree.parents(tag)):
            tag = path_text(own_names(self._tree.path(tag)))
        return self._spellings.get(tag_key(tag), tag)

    def above(self, tags: Iterable[str]) -> set[str]:
        """Return the keys of the tags above some, which a photo of these has there by itself."""
        return set() if self._tree is None else {tag_key(each) for tag in tags for each in self._tree.above(tag)}


class _PairWriter:
    """Writes pairs into a library, takes pairs out of it, reads them again, and counts in `pushed` what became of them.

    With `check`, pairs that people gave meanwhile are not written.
    """

    def __init__(
        self, stored: StoredCatalogue, library: RemoteLibrary, progress: Progress, *, check: bool = False
    ) -> None:
        self._stored, self._connected, self._library = stored, stored.connected, library
        self._progress, self._check = progress, check
        self.folders, self.pushed = _FolderTrials(stored.connected, library), PushResult()

    def write(self, pairs: Sequence[_PlannedTag]) -> None:
        """Plan some pairs, write them, and read them again."""
        pushed, connected = self.pushed, self._connected
        if pushed.stalled:
            pushed.leave(BUSY, len(pairs))
            return
        if self._check:
            existing = self._library.existing([*map(_pair, pairs)])
            pairs = [pair for pair in pairs if _pair(pair)[:2] not in existing]
        if not pairs:
            return

        with self._stored.database.transaction():
            tags = self._stored.tags.ids((pair.tag for pair in pairs), create=True)
            connected.plan((*pair.key, tags[pair.tag], pair.confidence) for pair in pairs)

        by_key = {_pair(pair)[:2]: pair for pair in pairs}
        touched = connected.touched(pair.photo_id for pair in pairs)
        sent = [_pair(pair)._replace(confidence=pair.confidence) for pair in pairs]
        outcome = write(self._library, sent, [], touched=touched)
        refused = {each.pair[:2]: each.reason for each in outcome.refused}
        open_keys = outcome.unsent | outcome.unsettled
        written = [pair for key, pair in by_key.items() if key in outcome.existing - open_keys]
        lost = [pair for key, pair in by_key.items() if key not in outcome.existing | open_keys | set(refused)]

        with self._stored.database.transaction():
            connected.set_touched(outcome.stamps)
            connected.set_state(WRITTEN, [pair.key for pair in written])
            self.folders.learn(written, lost)
            lost_again = self.folders.writable_pairs(lost, pushed)
            never = {pair.key for pair in lost} - {pair.key for pair in lost_again}
            connected.set_state(LOST, [pair.key for pair in lost if pair.key not in never])
            connected.forget([*never, *(by_key[key].key for key in outcome.unsent | set(refused))])

        pushed.written += len(written)
        pushed.changes += map(_written, written)
        pushed.refuse([*refused.values(), *(VANISHED for _ in lost_again)])
        pushed.leave_open(outcome)
        self._progress.advance(len(pairs))

    def take(self, pairs: Sequence[LoggedPair], *, careful: bool = True) -> None:
        """Take pairs of ours back, and read again which of them are gone."""
        pushed, connected = self.pushed, self._connected
        for some in batches(pairs, ASKED):
            if pushed.stalled:
                pushed.leave(BUSY, len(some))
                continue
            connected.set_state(LEAVING, _keys(some))
            touched = connected.touched(pair.photo_id for pair in some)
            outcome = write(self._library, [], [*map(_pair, some)], touched=touched, careful=careful)
            connected.set_touched(outcome.stamps)

            settled = [pair for pair in some if _pair(pair)[:2] not in outcome.unsettled]
            _settle(connected, [pair._replace(state=LEAVING) for pair in settled], outcome.existing | outcome.unsent)

            reasons = {each.pair[:2]: each.reason for each in outcome.refused}
            returned = outcome.existing - outcome.unsettled - outcome.unsent
            gone = [pair for pair in settled if _pair(pair)[:2] not in outcome.existing | outcome.unsent]
            pushed.taken += len(gone)
            pushed.changes += map(_taken, gone)
            pushed.refuse(reasons.get(key, "it came back each time that it was taken") for key in returned)
            pushed.leave_open(outcome)
            self._progress.advance(len(some))

    def read_again(self) -> None:
        """Read pairs once more that were written or taken just now: those that are as they were are sure."""
        pushed, connected, queued = self.pushed, self._connected, self._library.queued
        unsure = [pair for pair in connected.pairs(WRITTEN, TAKEN) if not pair.sure and pair.here]
        if not unsure:
            return
        existing: set[tuple[str, str]] = set()
        if queued:  # a job that began before ours may have ended after it, and have replaced the tags once more
            self._library.pause(AGAIN)
            existing = self._library.existing([*map(_pair, unsure)])
        states: dict[str | None, list[LoggedPair]] = {None: [], LOST: [], WRITTEN: []}
        for pair in unsure:
            is_there = _pair(pair)[:2] in existing if queued else pair.state == WRITTEN
            states[None if is_there == (pair.state == WRITTEN) else WRITTEN if is_there else LOST].append(pair)

        connected.set_sure(_keys(states.pop(None)))
        for state, pairs in states.items():
            connected.set_state(str(state), _keys(pairs))
        undone = {_pair(pair)[:2] for pairs in states.values() for pair in pairs}
        pushed.changes = [change for change in pushed.changes if (change.photo, change.tag) not in undone]
        pushed.taken = sum(change.confidence is None for change in pushed.changes)
        pushed.written = len(pushed.changes) - pushed.taken
        pushed.refuse(VANISHED for _ in states[LOST])


def _pair(pair: LoggedPair | _PlannedTag) -> PhotoTag:
    return PhotoTag(pair.remote_id, pair.text)


def _keys(pairs: Iterable[LoggedPair]) -> list[tuple[int, str]]:
    return [(pair.photo_id, pair.text) for pair in pairs]


def _settle(connected: Connected, pairs: Sequence[LoggedPair], existing: set[tuple[str, str]]) -> None:
    """Put pairs into the state that they were read in."""
    gone = [pair for pair in pairs if _pair(pair)[:2] not in existing]
    connected.forget(_keys(pair for pair in gone if pair.state != LEAVING))  # they never were there
    connected.set_state(WRITTEN, _keys(pair for pair in pairs if _pair(pair)[:2] in existing))
    connected.set_state(TAKEN, _keys(pair for pair in gone if pair.state == LEAVING))
