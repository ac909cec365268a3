"""Write predictions into another program's library, verify them, and remove them again; never change people's tags."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from visterm.connectors.contract import PhotoTag, RemoteLibrary, batches, connector_class
from visterm.connectors.passes import BUSY_REASON, CHANGED_REASON, WriteResult, write
from visterm.core.progress import SILENT, Progress, reported
from visterm.core.types import CHUNK
from visterm.core.vocabulary import clean_tag, tag_key
from visterm.core.wording import count_of
from visterm.data.tag_tree import own_names, path_text
from visterm.library.catalogue import Catalogue
from visterm.library.export.items import ExportItem, Parents
from visterm.library.export.sources import CatalogueSource, Limits
from visterm.store.catalogue import StoredCatalogue
from visterm.store.connected import ACTIVE, LEAVING, LOST, NOT_OURS, OFF, PLANNED, TAKEN, WRITTEN, Connected, LoggedPair
from visterm.store.database import now

PAIRS_PER_BATCH = 5000  # Number of pairs that are planned, written and verified at a time
RECHECK_SECONDS = 10.0  # Wait after the last job before pairs are verified again
MAX_UNDO_TRIES = 5  # Maximum number of times that reappearing pairs are removed
RETRY_AFTER = timedelta(days=1)  # Time after which a folder that kept no tags is tried again with one photo
LOST_REASON = "the server accepted it, and lost it when it read the photo's file again; tried again in the next round"


class TagChange(NamedTuple):
    """A pair that is written or removed."""

    photo: str  # The program's id
    name: str  # File name in the program
    tag: str  # In the program's spelling
    confidence: float | None = None  # Of a written pair; None: the pair is removed

    def as_dict(self) -> dict[str, object]:
        """Return the data as JSON data."""
        facts: dict[str, object] = {"photo": self.photo, "name": self.name, "tag": self.tag}
        if self.confidence is None:
            return facts | {"change": "taken"}
        return facts | {"change": "written", "confidence": round(self.confidence, 4)}


@dataclass(slots=True)
class PushResult:
    """The result of writing tags; in a dry run, what would be written."""

    wanted: int = 0  # Number of pairs that the program should have
    written: int = 0  # Number of written and verified pairs
    taken: int = 0  # Number of removed pairs
    refused: int = 0  # Pairs that the server refused or lost; tried again next time
    waiting: int = 0  # Pairs left for the next round
    reasons: Counter[str] = field(default_factory=Counter)  # Reason for refusing or waiting -> number of pairs
    young: int = 0  # Recently added photos, which get tags in a later round
    unwritable_photos: int = 0  # Number of photos whose files the program cannot write, so that it loses their tags
    left_alone: int = 0  # Number of tags not written to such photos
    stalled: bool = False  # Whether the server's jobs don't end: nothing more is sent
    changes: list[TagChange] = field(default_factory=list)  # All pairs that were written or removed

    def as_dict(self) -> dict[str, object]:
        """Return the data as JSON data."""
        return {"written": self.written, "taken": self.taken, "refused": self.refused, "waiting": self.waiting}

    def summary(self, title: str, *, dry_run: bool) -> str:
        """Return a sentence with the counts, and the number of written tags that are expected to be right."""
        right = sum(change.confidence or 0.0 for change in self.changes)
        about = f", about {right:,.0f} right" if self.written else ""
        write, take = ("Would write", "take back") if dry_run else ("Wrote", "took back")
        end = "; nothing was changed there" if dry_run else ""
        return f"{write} {count_of(self.written, 'tag')}{about}, and {take} {self.taken:,} in {title}{end}."

    def refuse(self, reasons: Iterable[str]) -> None:
        """Count pairs that the server refused or lost."""
        counts = Counter(reasons)
        self.refused += counts.total()
        self.reasons += counts

    def postpone(self, reason: str, n: int) -> None:
        """Count pairs that are left for the next round."""
        self.waiting += n
        self.reasons += Counter({reason: n})

    def postpone_open(self, outcome: WriteResult) -> None:
        """Count the pairs whose result is still unknown."""
        self.stalled = outcome.stalled
        self.postpone(CHANGED_REASON, 0 if outcome.stalled else len(outcome.unsent))
        self.postpone(BUSY_REASON, len(outcome.unsettled) + (len(outcome.unsent) if outcome.stalled else 0))


def recover(connected: Connected, library: RemoteLibrary) -> None:
    """Resolve pairs whose writing or removal was interrupted.

    Pairs are only planned if they don't exist, so planned pairs that exist now were written by visterm.
    """
    open_pairs = connected.pairs(PLANNED, LEAVING)
    if open_pairs and library.queued:
        photos, stamps = {pair.remote_id for pair in open_pairs}, library.recent().stamps
        connected.set_touched({photo: stamps[photo] for photo in photos.intersection(stamps)})
    for batch in batches(open_pairs, PAIRS_PER_BATCH):
        existing = library.existing([*map(_pair, batch)])
        gone = [pair for pair in batch if pair.remote_key not in existing]
        connected.forget(pair for pair in gone if pair.state != LEAVING)  # they were never written
        connected.set_state(WRITTEN, [pair for pair in batch if pair.remote_key in existing])
        connected.set_state(TAKEN, [pair for pair in gone if pair.state == LEAVING])


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
    """Write predictions with a high confidence, and remove written predictions whose confidence became too low.

    Tags that people gave or accepted in the catalogue are written, too, unless they gave them in the other program.
    Tags that people removed or rejected are not written, and removed if visterm wrote them. Without confidences, no
    predictions are written or removed. `parent` is the parent of all written tags; None: they look like people's tags.
    `k` is the maximum number of predictions per photo, those with the highest confidence first; 0: no limit.
    """
    log = {pair.key: pair for pair in catalogue.stored.connected.pairs(*ACTIVE, OFF)}

    writer = _PairWriter(catalogue.stored, library, progress, check=parent is None)
    folders, pushed, limits = writer.folders, writer.pushed, Limits(k, precision=precision)
    planned = {pair.key: pair for pair in _planned_tags(catalogue, parent, limits, pushed, progress)}
    pushed.wanted = len(planned)
    to_remove = [pair for key, pair in log.items() if pair.state == WRITTEN and pair.here and key not in planned]
    if not has_cutoffs(catalogue):  # remove only tags that people have judged
        images, tags = {pair.image_id for pair in to_remove if pair.image_id is not None}, catalogue.stored.tags
        judged = [*tags.held(images).items(), *tags.rejected(images).items()]
        judged_keys = {(image_id, tag_key(tag)) for image_id, names in judged for tag in names}
        to_remove = [pair for pair in to_remove if (pair.image_id, tag_key(pair.tag)) in judged_keys]

    new_pairs = sorted((pair for key, pair in planned.items() if key not in log), key=lambda p: (p.text, p.photo_id))
    new_pairs = folders.writable_pairs(new_pairs, pushed)
    if dry_run:
        pushed.written, pushed.taken = len(new_pairs), len(to_remove)
        pushed.changes = [*map(_change, [*to_remove, *new_pairs])]
        return pushed

    with reported(progress, "write tags", len(to_remove) + len(new_pairs)):
        writer.remove(to_remove)
        if trial_pairs := folders.trial_pairs(new_pairs):
            writer.write(trial_pairs)
            trial_keys = {pair.key for pair in trial_pairs}
            new_pairs = folders.writable_pairs([pair for pair in new_pairs if pair.key not in trial_keys], pushed)
        for batch in batches(new_pairs, PAIRS_PER_BATCH):
            writer.write(batch)
        writer.verify_again()
    return pushed


def remove_all(catalogue: Catalogue, library: RemoteLibrary, *, dry_run: bool, progress: Progress) -> PushResult:
    """Remove all logged pairs that visterm wrote, and no others, until none is left or the server refuses the rest.

    This includes pairs that reappeared after removal; pairs without a parent tag only if they reappeared immediately.
    """
    connected, writer = catalogue.stored.connected, _PairWriter(catalogue.stored, library, progress, check=False)
    pushed, remaining = writer.pushed, _existing_pairs(connected, library)
    if dry_run:
        return PushResult(taken=len(remaining), changes=[*map(_change, remaining)])
    gone: dict[tuple[int, str], LoggedPair] = {}

    with reported(progress, "take tags back", len(remaining)):
        for _ in range(MAX_UNDO_TRIES):
            if not remaining or pushed.stalled:
                break
            pushed.refused, pushed.waiting, pushed.reasons = 0, 0, Counter()
            gone |= {pair.key: pair for pair in remaining}
            writer.remove(remaining, careful=False)
            writer.verify_again()
            remaining = _existing_pairs(connected, library)

    remaining_keys = {pair.key for pair in [*remaining, *connected.pairs(LEAVING)]}
    pushed.changes = [_change(pair) for key, pair in gone.items() if key not in remaining_keys]
    pushed.taken = len(pushed.changes)
    pushed.postpone("it came back after each try", max(0, len(remaining_keys) - pushed.refused - pushed.waiting))
    return pushed


def _existing_pairs(connected: Connected, library: RemoteLibrary) -> list[LoggedPair]:
    """Return logged pairs that visterm wrote and that exist now, after recording reappeared pairs."""
    prefixes = connected.prefixes()
    candidates = [
        pair for pair in connected.pairs(LOST, TAKEN, OFF)
        if pair.is_ours_if_present(prefixes) or (not library.queued and pair.state != OFF)
    ]  # fmt: skip
    for batch in batches(candidates, PAIRS_PER_BATCH):
        existing = library.existing([*map(_pair, batch)])
        connected.set_state(WRITTEN, [pair for pair in batch if pair.remote_key in existing])
    return connected.pairs(WRITTEN)


def _change(pair: LoggedPair) -> TagChange:
    """Return the writing of a planned pair, or the removal of another."""
    return TagChange(pair.remote_id, pair.name, pair.text, pair.confidence if pair.state == PLANNED else None)


def has_cutoffs(catalogue: Catalogue) -> bool:
    """Return whether the current run has precision estimates; without them, no predictions are written."""
    calibration = catalogue.tagger.calibration
    return calibration is not None and calibration.held_out is not None


class _FolderTrials:
    """Tracks which folders of a library keep tags: if files are read-only, tags are lost within a second.

    New folders are tested with one photo first, and folders that keep no tags with one photo per day.
    """

    def __init__(self, connected: Connected, library: RemoteLibrary) -> None:
        self._connected, self._queued = connected, library.queued
        connection = connected.get()
        self._known = {} if connection is None else dict(connection.folders)

    def writable_pairs(self, pairs: Sequence[LoggedPair], pushed: PushResult) -> list[LoggedPair]:
        """Return the pairs in folders that keep tags or are to be tested; count the photos of other folders."""
        unwritable_ids = {pair.photo_id for pair in pairs if self._keeps(pair.folder) is False}
        writable = [pair for pair in pairs if pair.photo_id not in unwritable_ids]
        pushed.unwritable_photos += len(unwritable_ids)
        pushed.left_alone += len(pairs) - len(writable)
        return writable

    def trial_pairs(self, pairs: Sequence[LoggedPair]) -> list[LoggedPair]:
        """Return the pairs of one photo per folder that is to be tested."""
        photos = {pair.folder: pair.photo_id for pair in reversed(pairs) if self._keeps(pair.folder) is None}
        return [pair for pair in pairs if photos.get(pair.folder) == pair.photo_id]

    def record(self, written: Iterable[LoggedPair], lost: Iterable[LoggedPair]) -> None:
        """Record which folders kept written tags, and which lost all of them."""
        keeping_folders = {pair.folder for pair in written}
        keeps_of = dict.fromkeys(keeping_folders, True)
        keeps_of |= {pair.folder: False for pair in lost if pair.folder not in keeping_folders}
        self._known |= {folder: [keeps, now()] for folder, keeps in keeps_of.items() if folder}
        self._connected.update(folders=self._known)

    def _keeps(self, folder: str) -> bool | None:
        """Return whether a folder keeps tags; None: it is to be tested."""
        if not folder or not self._queued:
            return True
        if folder not in self._known:
            return None
        keeps, at = self._known[folder]
        is_due = not keeps and datetime.now(UTC) - datetime.fromisoformat(at) > RETRY_AFTER
        return None if is_due else bool(keeps)


def _planned_tags(
    catalogue: Catalogue, parent: str | None, limits: Limits, pushed: PushResult, progress: Progress
) -> Iterator[LoggedPair]:
    """Yield the pairs that the program should have, including written pairs; count recently added photos."""
    stored = catalogue.stored
    texts = _TagTexts(catalogue, spelled=parent is None)
    files = stored.images.files()
    if has_cutoffs(catalogue):
        items = CatalogueSource(catalogue).items(limits, progress)
    else:  # no predictions, because their precision is unknown
        current_tags, rejected = stored.tags.held(), stored.tags.rejected()
        items = (
            ExportItem(Path(path), tuple(current_tags.get(image_id, ())), (), tuple(rejected.get(image_id, ())))
            for path, image_id in files.items()
        )

    for batch in batches(items, CHUNK):
        item_of = {files[str(item.path)]: item for item in batch if isinstance(item, ExportItem)}
        photos = stored.connected.of_images(item_of)
        logged = stored.connected.pairs(*ACTIVE, photo_ids=[photo.id for photo in photos.values()])
        logged_keys = {pair.key for pair in logged}
        for image_id, photo in photos.items():
            remote_keys = set(map(tag_key, [*photo.tags, *photo.guessed]))
            given_keys = set(map(tag_key, photo.given or ()))
            marks = item_of[image_id].marks_to_write(None, Parents())
            given_keys |= texts.parent_keys([*(photo.given or ()), *(mark.tag for mark in marks)])
            pushed.young += bool(marks) and not photo.ready and photo.folder != NOT_OURS
            for mark in marks:
                if tag_key(mark.tag) in given_keys:
                    continue  # a person gave the tag in the program, or it is a parent of another tag
                text = texts.of(mark.tag) if parent is None else f"{parent}/{texts.of(mark.tag)}"
                if (photo.id, text) in logged_keys or (photo.ready and tag_key(text) not in remote_keys):
                    confidence = mark.confidence or 1.0
                    yield LoggedPair(
                        photo.id, photo.remote_id, photo.name, image_id, text, mark.tag, confidence, photo.folder
                    )


class _TagTexts:
    """Converts tags to a program's spelling: tags of a tree to paths, if the program has child tags.

    If `spelled`, the most frequent spelling in the program is used, to avoid duplicate tags.
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
        """Return a tag in the program's spelling."""
        if self._tree is not None and (tag in self._vocabulary or self._tree.parents(tag)):
            tag = path_text(own_names(self._tree.path(tag)))
        return self._spellings.get(tag_key(tag), tag)

    def parent_keys(self, tags: Iterable[str]) -> set[str]:
        """Return the keys of all parents of tags, which a photo with these tags has implicitly."""
        return set() if self._tree is None else {tag_key(parent) for tag in tags for parent in self._tree.above(tag)}


class _PairWriter:
    """Writes, removes and verifies pairs of a library, and counts the results in `pushed`.

    With `check`, pairs that people added in the meantime are not written.
    """

    def __init__(self, stored: StoredCatalogue, library: RemoteLibrary, progress: Progress, *, check: bool) -> None:
        self._stored, self._connected, self._library = stored, stored.connected, library
        self._progress, self._check = progress, check
        self.folders, self.pushed = _FolderTrials(stored.connected, library), PushResult()

    def write(self, pairs: Sequence[LoggedPair]) -> None:
        pushed, connected = self.pushed, self._connected
        if pushed.stalled:
            pushed.postpone(BUSY_REASON, len(pairs))
            return
        if self._check:
            existing = self._library.existing([*map(_pair, pairs)])
            pairs = [pair for pair in pairs if pair.remote_key not in existing]
        if not pairs:
            return

        with self._stored.database.transaction():
            connected.plan(pairs, self._stored.tags.ids((pair.tag for pair in pairs), create=True))

        by_key = {pair.remote_key: pair for pair in pairs}
        outcome = write(self._library, [*map(_pair, pairs)], touched=connected.touched(pair.photo_id for pair in pairs))
        open_keys = outcome.unsent | outcome.unsettled
        written = [pair for key, pair in by_key.items() if key in outcome.existing - open_keys]
        lost = [pair for key, pair in by_key.items() if key not in outcome.existing | open_keys | {*outcome.refused}]

        with self._stored.database.transaction():
            connected.set_touched(outcome.stamps)
            connected.set_state(WRITTEN, written)
            self.folders.record(written, lost)
            lost_again = self.folders.writable_pairs(lost, pushed)
            connected.set_state(LOST, lost_again)
            abandoned = set(lost).difference(lost_again)
            connected.forget([*abandoned, *(by_key[key] for key in outcome.unsent | outcome.refused.keys())])

        pushed.written += len(written)
        pushed.changes += map(_change, written)
        pushed.refuse([*outcome.refused.values(), *(LOST_REASON for _ in lost_again)])
        pushed.postpone_open(outcome)
        self._progress.advance(len(pairs))

    def remove(self, pairs: Sequence[LoggedPair], *, careful: bool = True) -> None:
        """Remove pairs that visterm wrote, and verify the removal."""
        pushed, connected = self.pushed, self._connected
        for batch in batches(pairs, PAIRS_PER_BATCH):
            if pushed.stalled:
                pushed.postpone(BUSY_REASON, len(batch))
                continue
            connected.set_state(LEAVING, batch)
            touched = connected.touched(pair.photo_id for pair in batch)
            outcome = write(self._library, [*map(_pair, batch)], remove=True, touched=touched, careful=careful)
            connected.set_touched(outcome.stamps)

            remaining = outcome.existing | outcome.unsent
            settled = [pair for pair in batch if pair.remote_key not in outcome.unsettled]
            gone = [pair for pair in settled if pair.remote_key not in remaining]
            connected.set_state(WRITTEN, [pair for pair in settled if pair.remote_key in remaining])
            connected.set_state(TAKEN, gone)

            returned = outcome.existing - outcome.unsettled - outcome.unsent
            pushed.taken += len(gone)
            pushed.changes += map(_change, gone)
            pushed.refuse(outcome.refused.get(key, "it came back each time that it was taken") for key in returned)
            pushed.postpone_open(outcome)
            self._progress.advance(len(batch))

    def verify_again(self) -> None:
        """Verify recently written or removed pairs once more, and record which states are confirmed."""
        pushed, connected = self.pushed, self._connected
        unconfirmed = [pair for pair in connected.pairs(WRITTEN, TAKEN) if not pair.sure and pair.here]
        if not unconfirmed:
            return
        changed: list[LoggedPair] = []
        if self._library.queued:  # an older job may have ended after ours and replaced the tags again
            self._library.pause(RECHECK_SECONDS)
            existing = self._library.existing([*map(_pair, unconfirmed)])
            changed = [pair for pair in unconfirmed if (pair.remote_key in existing) != (pair.state == WRITTEN)]

        lost = [pair for pair in changed if pair.state == WRITTEN]
        connected.set_sure(set(unconfirmed).difference(changed))
        connected.set_state(LOST, lost)
        connected.set_state(WRITTEN, [pair for pair in changed if pair.state == TAKEN])
        changed_keys = {pair.remote_key for pair in changed}
        pushed.changes = [change for change in pushed.changes if (change.photo, change.tag) not in changed_keys]
        pushed.taken = sum(change.confidence is None for change in pushed.changes)
        pushed.written = len(pushed.changes) - pushed.taken
        pushed.refuse(LOST_REASON for _ in lost)


def _pair(pair: LoggedPair) -> PhotoTag:
    return PhotoTag(pair.remote_id, pair.text, pair.confidence)
