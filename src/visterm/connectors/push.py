"""Predictions into another program's library: planned, written, read again; and taken back, never a person's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from visterm.connectors.contract import Pair, Refused, RemoteLibrary, connector_class
from visterm.core.progress import SILENT, Progress, reported
from visterm.core.types import CHUNK, Skipped
from visterm.core.vocabulary import clean_tag, tag_key
from visterm.data.tag_tree import own_names, path_text
from visterm.library.export.items import ExportItem, Parents
from visterm.library.export.sources import CatalogueSource, Limits
from visterm.store.connected import LEAVING, OFF, OURS, PLANNED, TAKEN, WRITTEN, Connected, LoggedPair

if TYPE_CHECKING:
    from visterm.library.catalogue import Catalogue

ASKED = 5000  # Pairs that are planned, written and read again at once
SHOWN = 3  # Reasons for which pairs were refused that are kept


class Change(NamedTuple):
    """A pair that is written or taken back."""

    photo: str  # As the program names it
    name: str  # Of its file there
    tag: str  # As it stands there
    confidence: float | None = None  # Of one that is written; None: it is taken back

    def as_dict(self) -> dict[str, Any]:
        """Return it as it stands in JSON."""
        told = {"photo": self.photo, "name": self.name, "tag": self.tag}
        if self.confidence is None:
            return told | {"change": "taken"}
        return told | {"change": "written", "confidence": round(self.confidence, 4)}


@dataclass(slots=True)
class Pushed:
    """What was written there; of a dry run what would be."""

    wanted: int = 0  # Pairs that are to be there
    written: int = 0  # Pairs that are there now, read again
    taken: int = 0  # Pairs of ours that are not there any more
    refused: int = 0
    """Pairs that the server did not take, or did not keep; they are tried again the next time."""
    reasons: Counter[str] = field(default_factory=Counter)
    changes: list[Change] = field(default_factory=list)  # All pairs that were written or taken

    def as_dict(self) -> dict[str, Any]:
        """Return it as it stands in JSON."""
        return {"written": self.written, "taken": self.taken, "refused": self.refused}

    def note_refused(self, refused: Iterable[Refused], n: int) -> None:
        """Count pairs that the server did not take."""
        self.refused += n
        self.reasons.update(item.reason for item in refused)


class _Wanted(NamedTuple):
    """A pair that is to be there."""

    photo_id: int
    remote_id: str
    name: str
    text: str
    tag: str
    confidence: float


def recover(connected: Connected, library: RemoteLibrary) -> None:
    """Find out what became of the pairs that a kill, or a server that went away, left in the middle.

    They were planned when they were not there: those that are there now are ours.
    """
    open_pairs = connected.pairs(PLANNED, LEAVING)
    for some in _parts(open_pairs):
        there = library.there([Pair(pair.remote_id, pair.text) for pair in some])
        _settle(connected, some, there)


def push(
    catalogue: Catalogue,
    library: RemoteLibrary,
    *,
    parent: str | None,
    precision: float,
    k: int = 0,
    dry_run: bool = False,
    progress: Progress = SILENT,
) -> Pushed:
    """Write the predictions that are sure enough, and take back those of ours that are not any more.

    Tags that people gave or accepted in the catalogue are written, too. A pair that they gave in the other program is
    not; what they took off or rejected is not, and is taken back if it was ours. Without confidences no prediction is
    written, and none is taken back. `parent` is the tag under which all of ours lie; None: they are written as people's
    own. A photo gets at most `k` predictions, the surest; 0: all that are sure enough.
    """
    connected = catalogue.stored.connected
    ours = {(pair.photo_id, pair.text): pair for pair in connected.pairs(*OURS, OFF)}
    limits = Limits(k, precision=precision)
    wanted = {(pair.photo_id, pair.text): pair for pair in _wanted(catalogue, parent, limits, progress)}
    leaving = [pair for key, pair in ours.items() if pair.state == WRITTEN and pair.here and key not in wanted]
    if not has_cutoffs(catalogue):
        leaving = _known_to_people(catalogue, leaving)
    fresh = sorted((pair for key, pair in wanted.items() if key not in ours), key=lambda p: (p.text, p.photo_id))
    if dry_run:
        changes = [*map(_taken, leaving), *map(_written, fresh)]
        return Pushed(len(wanted), written=len(fresh), taken=len(leaving), changes=changes)
    found = Pushed(wanted=len(wanted))
    with reported(progress, "write tags", len(leaving) + len(fresh)):
        _take(connected, library, leaving, found, progress)
        for some in _parts(fresh):
            _write(catalogue, library, some, found, progress, check=parent is None)
    return found


def take_all(
    catalogue: Catalogue, library: RemoteLibrary, *, dry_run: bool = False, progress: Progress = SILENT
) -> Pushed:
    """Take back all pairs that the log says are ours, and no other."""
    connected, found = catalogue.stored.connected, Pushed()
    ours = connected.pairs(WRITTEN)
    if dry_run:
        return Pushed(taken=len(ours), changes=[*map(_taken, ours)])
    with reported(progress, "take tags back", len(ours)):
        _take(connected, library, ours, found, progress)
    return found


def _written(pair: _Wanted) -> Change:
    return Change(pair.remote_id, pair.name, pair.text, pair.confidence)


def _taken(pair: LoggedPair) -> Change:
    return Change(pair.remote_id, pair.name, pair.text)


def has_cutoffs(catalogue: Catalogue) -> bool:
    """Return whether the current run knows how precise its predictions are; without that nothing is written."""
    calibration = catalogue.tagger.calibration
    return calibration is not None and calibration.held_out is not None


def _known_to_people(catalogue: Catalogue, pairs: Sequence[LoggedPair]) -> list[LoggedPair]:
    """Return pairs of which people have said yes or no themselves."""
    images = {pair.image_id for pair in pairs if pair.image_id is not None}
    tags = catalogue.stored.tags
    said = [(image_id, tag) for found in (tags.held(images), tags.rejected(images)) for image_id in found
            for tag in found[image_id]]  # fmt: skip
    known = {(image_id, tag_key(tag)) for image_id, tag in said}
    return [pair for pair in pairs if (pair.image_id, tag_key(pair.tag)) in known]


def _wanted(catalogue: Catalogue, parent: str | None, limits: Limits, progress: Progress) -> Iterator[_Wanted]:
    """Yield the pairs that are to be there: those of ours that are there already, too."""
    stored = catalogue.stored
    spellings = {} if parent is not None else _spellings(stored.connected)
    texts = _Texts(catalogue, spellings)
    ids = {path: state.id for path, state in stored.images.files().items()}
    for some in _parts(_items(catalogue, limits, progress), CHUNK):
        of_image = {ids[str(item.path)]: item for item in some if isinstance(item, ExportItem)}
        photos = stored.connected.of_images(of_image)
        ours = {
            (pair.photo_id, pair.text)
            for pair in stored.connected.pairs(*OURS, photo_ids=[photo.id for photo in photos.values()])
        }
        for image_id, photo in photos.items():
            there = set(map(tag_key, [*photo.tags, *photo.guessed]))
            given = set(map(tag_key, photo.given or ()))
            marks = of_image[image_id].wanted(None, Parents())
            given |= texts.above([*(photo.given or ()), *(mark.tag for mark in marks)])
            for mark in marks:
                if tag_key(mark.tag) in given:
                    continue  # a person gave it there, or it lies above another
                text = texts.of(mark.tag) if parent is None else f"{parent}/{texts.of(mark.tag)}"
                if (photo.id, text) in ours or (photo.ready and tag_key(text) not in there):
                    yield _Wanted(photo.id, photo.remote_id, photo.name, text, mark.tag, mark.confidence or 1.0)


class _Texts:
    """Tags as a program writes them: where tags lie under others there, those of a tree by their paths."""

    def __init__(self, catalogue: Catalogue, spellings: Mapping[str, str]) -> None:
        tagger, connection = catalogue.tagger, catalogue.stored.connected.get()
        nested = connection is not None and connector_class(connection.kind).nested
        self._tree = tagger.tree.words if nested and tagger.tree is not None else None
        self._vocabulary, self._spellings = tagger.vocabulary, spellings

    def of(self, tag: str) -> str:
        """Return a tag as it is written there, as people spell it where they have it."""
        if self._tree is not None and (tag in self._vocabulary or self._tree.parents(tag)):
            tag = path_text(own_names(self._tree.path(tag)))
        return self._spellings.get(tag_key(tag), tag)

    def above(self, tags: Iterable[str]) -> set[str]:
        """Return the keys of the tags above some, which a photo of these has there by itself."""
        return set() if self._tree is None else {tag_key(each) for tag in tags for each in self._tree.above(tag)}


def _items(catalogue: Catalogue, limits: Limits, progress: Progress) -> Iterator[ExportItem | Skipped]:
    """Yield the tags of each image; predictions only where the run knows how precise they are."""
    if has_cutoffs(catalogue):
        yield from CatalogueSource(catalogue).items(limits, progress)
        return
    stored = catalogue.stored
    held, rejected = stored.tags.held(), stored.tags.rejected()
    for path, image in stored.images.files().items():
        yield ExportItem(Path(path), tuple(held.get(image.id, ())), (), tuple(rejected.get(image.id, ())))


def _spellings(connected: Connected) -> dict[str, str]:
    """Return tags as people write them there, the most frequent spelling of each, so that no second one is made."""
    found: dict[str, str] = {}
    for text, _ in connected.spellings():
        found.setdefault(tag_key(clean_tag(text)), text)
    return found


def _write(
    catalogue: Catalogue,
    library: RemoteLibrary,
    pairs: Sequence[_Wanted],
    found: Pushed,
    progress: Progress,
    *,
    check: bool,
) -> None:
    """Plan some pairs, write them, and read them again; with `check`, leave out those that people gave meanwhile."""
    stored = catalogue.stored
    if check:
        there = library.there([Pair(pair.remote_id, pair.text) for pair in pairs])
        pairs = [pair for pair in pairs if (pair.remote_id, pair.text) not in there]
    if not pairs:
        return
    with stored.database.transaction():
        tags = stored.tags.ids((pair.tag for pair in pairs), create=True)
        stored.connected.plan((pair.photo_id, pair.text, tags[pair.tag], pair.confidence) for pair in pairs)
    asked = [Pair(pair.remote_id, pair.text, pair.confidence) for pair in pairs]
    refused = library.add(asked)
    there = library.there(asked)
    written = [pair for pair in pairs if (pair.remote_id, pair.text) in there]
    stored.connected.set_state(WRITTEN, [(pair.photo_id, pair.text) for pair in written])
    found.written += len(written)
    found.changes += map(_written, written)
    found.note_refused(refused, len(pairs) - len(written))
    progress.advance(len(pairs))


def _take(
    connected: Connected, library: RemoteLibrary, pairs: Sequence[LoggedPair], found: Pushed, progress: Progress
) -> None:
    """Take pairs of ours back, and read again which of them are gone."""
    for some in _parts(pairs):
        connected.set_state(LEAVING, [(pair.photo_id, pair.text) for pair in some])
        asked = [Pair(pair.remote_id, pair.text) for pair in some]
        refused = library.take(asked)
        left = library.there(asked)
        _settle(connected, [pair._replace(state=LEAVING) for pair in some], left)
        gone = [pair for pair in some if (pair.remote_id, pair.text) not in left]
        found.taken += len(gone)
        found.changes += map(_taken, gone)
        found.note_refused(refused, len(some) - len(gone))
        progress.advance(len(some))


def _settle(connected: Connected, pairs: Sequence[LoggedPair], there: set[tuple[str, str]]) -> None:
    """Put pairs into the state that they were found in."""
    by_state: dict[str, list[tuple[int, str]]] = {WRITTEN: [], TAKEN: [], PLANNED: []}
    for pair in pairs:
        is_there = (pair.remote_id, pair.text) in there
        state = WRITTEN if is_there else TAKEN if pair.state == LEAVING else PLANNED
        by_state[state].append((pair.photo_id, pair.text))
    connected.forget(by_state.pop(PLANNED))  # it never was there
    for state, keys in by_state.items():
        connected.set_state(state, keys)


def _parts(entries: Iterable[Any], n: int = ASKED) -> Iterator[list[Any]]:
    part: list[Any] = []
    for entry in entries:
        part.append(entry)
        if len(part) == n:
            yield part
            part = []
    if part:
        yield part
