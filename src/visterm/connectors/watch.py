"""Watched folders: a catalogue follows what happens to the photos in its folders, until it is stopped."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from visterm.connectors.folder_changes import FolderChanges, Settling, Stop, is_on_network, mounts
from visterm.core.errors import DataError, InUseError, UserError
from visterm.core.progress import SILENT, Progress
from visterm.core.remote import is_remote, real_path
from visterm.core.wording import count_of
from visterm.core.writing import Place
from visterm.data.contents import file_state
from visterm.data.corpus import Corpus
from visterm.data.image_folders import Unsearched, find_images, is_video, readable_suffixes, suffix_of
from visterm.data.sidecars import SUFFIX as XMP
from visterm.data.tag_files import KEYWORDS, read_keyword_tags
from visterm.library.feedback import hand_over
from visterm.library.files import is_inside
from visterm.library.index import Indexed, Indexing
from visterm.library.photos import ListedPhotos, check_has_photos, check_not_connected, indexed_folders, photos_of

if TYPE_CHECKING:
    from visterm.library.catalogue import Catalogue
    from visterm.store.catalogue import StoredCatalogue

CHUNK = 64  # Photos between two commits, after which it can be ended
POLL = 30.0  # Seconds between two looks at a folder on the network
SETTLE = 2.0  # Seconds without a change after which a file counts as copied
AGAIN = 6 * 3600.0  # Seconds after which all folders are compared again, whatever was reported
LOCKED = 2.0  # Seconds until a catalogue that is in use is tried again
LEAST = 20  # Photos of a folder, from which on more than half missing at once make it doubtful that it is there

TEXTS = frozenset({".txt", ".csv", ".tsv", ".jsonl"})  # Beside the photos, where tags are read from texts


class WatchRound(NamedTuple):
    """What was done at a time."""

    folder: str  # The one that was compared as a whole; empty where only some of its files were
    done: Indexed


def folders_to_watch(stored: StoredCatalogue, folders: Sequence[Place] = ()) -> list[str]:
    """Return the folders to watch in full: those named, else those that the catalogue was indexed from.

    Raises UserError if there are none; of named ones, if one is not there or in an object store; or if the catalogue is
    connected to another program's library.
    """
    check_not_connected(stored)
    chosen = [real_path(folder) for folder in folders]
    for folder, requested in zip(chosen, folders, strict=True):
        if is_remote(folder) or not os.path.isdir(folder):
            expected = "a folder of this machine that is there"
            raise UserError(f"{requested} cannot be watched", setting="folders", value=requested, expected=expected)

    if not chosen:
        known = stored.images.files()
        chosen = [
            folder
            for folder in indexed_folders(stored)
            if not is_remote(folder) and (os.path.isdir(folder) or _n_inside(known, folder))
        ]
    if not chosen:
        raise UserError("No folder was indexed into this catalogue.", setting="folders", advice="Name some `folders`.")
    return [folder for folder in chosen if not any(is_inside(folder, other) for other in chosen)]


def tags_as_indexed(stored: StoredCatalogue) -> str | None:
    """Return "xmp" or "auto" if the latest `visterm index --tags` said so; None if it named a file."""
    sources = [run["tags"] for run in stored.history.details_of("index") if run.get("tags")]
    return sources[-1] if sources and sources[-1] in (KEYWORDS, "auto") else None


class Watching:
    """Brings a catalogue to what lies in folders, and then to each change; what it has done is on disk.

    Parameters
    ----------
    catalogue : Catalogue
    folders : sequence of str
        Those of `folders_to_watch`. One that disappears, or suddenly has less than half of its photos, is waited for:
        none of its photos is marked as gone.
    tags : str, optional
        Where tags are read with the photos: see `Catalogue.index`. With "xmp" only the photos and sidecars that changed
        are read, with other sources the whole folder.
    poll : float, optional
        Seconds between two looks at the folders, by size and date. None: the system reports changes, and only folders
        on the network are looked at, every `POLL` seconds.
    settle : float
        Seconds without a change after which a file counts as copied.
    stop : Stop
        Ends it, between two chunks of photos.
    say : callable
        Takes lines for people: what it waits for, which tags it can't read.
    progress : Progress
        Shows each photo.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        folders: Sequence[str],
        *,
        tags: str | None = None,
        poll: float | None = None,
        settle: float = SETTLE,
        stop: Stop,
        say: Callable[[str], None],
        progress: Progress = SILENT,
    ) -> None:
        check_has_photos(catalogue.tagger.encoder)
        self._catalogue, self._stored, self._folders = catalogue, catalogue.stored, list(folders)
        self._tags, self._poll, self._stop, self._say, self._progress = tags, poll, stop, say, progress
        self._photos = readable_suffixes(videos=True)
        self._suffixes = self._photos | ({XMP} if tags else set()) | (TEXTS if tags not in (None, KEYWORDS) else set())
        self._settling = Settling(settle)
        self._away: dict[str, str] = {}  # Why a folder is waited for
        self._mounted: set[str] = set()  # Mount points that were seen in the folders
        self._reports = poll is None  # Whether the system's reports can be used

    def rounds(self) -> Iterator[WatchRound]:
        """Yield what was done each time, until it is stopped: first each folder as a whole."""
        while not self._stop.is_set():
            before, until = self._watched_state(), time.monotonic() + AGAIN
            existing, mounted = [folder for folder in self._folders if os.path.isdir(folder)], mounts()
            polled = [folder for folder in existing if not self._reports or is_on_network(folder, mounted)]
            reported = [folder for folder in existing if folder not in polled]
            with closing(FolderChanges(reported, polled, self._suffixes, self._poll or POLL, self._stop)) as changes:
                yield from self.compare_folders()
                while not self._stop.is_set() and self._watched_state() == before and time.monotonic() < until:
                    self._settling.touch(changes.wait())
                    if changes.ended:  # the folders are compared as a whole, for what was not reported
                        self._reports = False
                        self._say(
                            f"The system's reports of changes broke off, as they do at names that are not UTF-8: "
                            f"{changes.ended}. Looking at the folders every {POLL:.0f} seconds from now on."
                        )
                        break
                    if settled := self._settling.settled():
                        yield from self.take_up(settled)

    def _watched_state(self) -> object:
        """Return what is different once a folder, or a drive in it, comes or goes, or the tag file changes."""
        inside = {point for point in mounts() if any(is_inside(point, folder) for folder in self._folders)}
        self._mounted |= inside
        of_tags = file_state(self._tags) if self._tags not in (None, KEYWORDS, "auto") else None
        return [_identity(folder) for folder in self._folders], inside, of_tags

    def compare_folders(self) -> Iterator[WatchRound]:
        """Compare each folder as a whole with the catalogue."""
        for folder in self._folders:
            why, before = self._why_away(folder), self._away.pop(folder, "")
            if why and why != before:
                self._say(
                    f"{folder} {why}: waiting for it, its photos stay in the catalogue. If you removed them yourself, "
                    f"run: visterm index {self._stored.folder} {folder}"
                )
            elif before and not why:
                self._say(f"{folder} is back.")

            if why:
                self._away[folder] = why
            elif (done := self._index(partial(self._list_folder, folder))) is not None:
                yield WatchRound(folder, done)

    def take_up(self, settled: Sequence[str]) -> Iterator[WatchRound]:
        """Take up files that changed, came or went."""
        photos: list[str] = []
        gone: set[str] = set()
        for path in settled:
            if os.path.isdir(path):
                try:
                    inside = find_images(path, unsearched=Unsearched(), videos=True)
                    self._settling.touch([*map(str, inside)])
                except DataError as error:
                    self._say(str(error))
            elif suffix_of(path) == XMP:
                photos += _photos_beside(path, self._photos)
            elif os.path.isfile(path):
                photos.append(path)
            else:
                gone.add(path)

        known = self._stored.images.files() if gone else {}
        lost = [path for path in known if _is_among(path, gone)]
        if not photos and not lost:
            return
        if self._tags not in (None, KEYWORDS) or any(
            _is_doubtful(_n_inside(known, folder) - _n_inside(lost, folder), _n_inside(known, folder))
            for folder in self._folders
            if lost
        ):
            yield from self.compare_folders()
        elif (done := self._index(lambda: self._list_paths(photos, gone))) is not None:
            yield WatchRound("", done)

    def _why_away(self, folder: str) -> str:
        """Return why a folder is not compared with the catalogue: its photos would be marked as gone; else nothing."""
        if not os.path.isdir(folder):
            return "is not there"
        unsearched = Unsearched()
        try:
            n_photos = len(find_images(folder, unsearched=unsearched, videos=True))
        except DataError as error:
            return f"cannot be read: {error}"
        known = [path for path in self._stored.images.files() if is_inside(path, folder)]
        n_known = len(known) - sum(any(is_inside(path, item.image) for item in unsearched.closed) for path in known)
        return f"has {n_photos:,} of {count_of(n_known, 'photo')}" if _is_doubtful(n_photos, n_known) else ""

    def _index(self, listed: Callable[[], ListedPhotos]) -> Indexed | None:
        """Index what is listed once no other process writes; None if it was stopped before."""
        waiting = False
        while not self._stop.is_set():
            try:
                with self._stored.writing():
                    self._catalogue.refresh()
                    work = Indexing(self._catalogue.tagger, self._stored)
                    done = work.run(listed(), chunk_size=CHUNK, stop=self._stop.is_set, progress=self._progress)
                    if n_moved := hand_over(self._stored):
                        self._say(f"Tags and corrections of {count_of(n_moved, 'photo')} went to copies elsewhere.")
                    return done
            except InUseError as error:
                if not waiting:
                    self._say(f"Waiting: {error}")
                waiting = True
                self._stop.wait(LOCKED)
        return None

    def _list_folder(self, folder: str) -> ListedPhotos:
        encoder = self._catalogue.tagger.encoder
        unsearched = Unsearched()
        photos: list[Path] | Corpus = find_images(folder, unsearched=unsearched, videos=True)
        if self._tags is not None and photos:
            try:
                photos = Corpus.read(folder, self._tags)
            except DataError as error:  # of a file that is being written, and where no photo has a tag yet
                self._say(f"Photos are taken without new tags for now: {error}")
        listed = photos_of(encoder, photos, None, folder)
        if not isinstance(photos, Corpus):
            listed = replace(listed, left_out=tuple(unsearched.closed))
        return replace(listed.inside(), may_be_gone=lambda path: is_inside(path, folder) and not self._is_away(path))

    def _list_paths(self, photos: Sequence[str], gone: set[str]) -> ListedPhotos:
        """List the photos at some paths; of those that are away for now, none is gone."""
        tags_of: dict[str, list[str]] = {}
        inside: list[Path] = []
        for folder in self._folders:
            these = [Path(path) for path in photos if is_inside(os.path.realpath(path), folder)]
            these = [path for path in these if os.path.isfile(path)]
            inside += these
            if self._tags == KEYWORDS:
                readable = [path for path in these if is_inside(str(path), folder) and not is_video(path)]
                keywords = read_keyword_tags(Path(folder), readable)
                tags_of |= {os.path.join(folder, row.image): row.tags for row in keywords.records}

        listed = photos_of(self._catalogue.tagger.encoder, inside)
        return replace(
            listed,
            tags=[tags_of.get(str(path)) for path in inside],
            may_be_gone=(lambda path: _is_among(path, gone) and not self._is_away(path)) if gone else None,
        )

    def _is_away(self, path: str) -> bool:
        """Return whether a photo lies in a folder that is away, or on a drive that was mounted and is not now."""
        away = [*self._away, *(self._mounted - mounts().keys())] if self._away or self._mounted else []
        return any(is_inside(path, folder) for folder in away)


def _identity(folder: str) -> tuple[int, int] | None:
    try:
        status = os.stat(folder)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _is_doubtful(n_photos: int, n_known: int) -> bool:
    """Return whether a folder has so few of the photos that the catalogue knows that it may not be there at all."""
    return n_known > 0 and (n_photos <= 0 or (n_known >= LEAST and 2 * n_photos < n_known))


def _n_inside(paths: Iterable[str], folder: str) -> int:
    return sum(is_inside(path, folder) for path in paths)


def _is_among(path: str, gone: set[str]) -> bool:
    """Return whether a path, or a folder around it, is among some."""
    while path not in gone:
        parent = os.path.dirname(path)
        if parent == path:
            return False
        path = parent
    return True


def _photos_beside(sidecar: str, suffixes: Collection[str]) -> list[str]:
    """Return the photos that an XMP file may tell of: ``a.jpg`` of ``a.jpg.xmp``, and ``a.*`` of ``a.xmp``."""
    folder, name = os.path.split(sidecar[: -len(XMP)])
    if suffix_of(name) in suffixes:
        return [os.path.join(folder, name)]
    try:
        names = os.listdir(folder)
    except OSError:  # which is gone, or may not be listed
        return []
    return [
        os.path.join(folder, other)
        for other in names
        if os.path.splitext(other)[0] == name and suffix_of(other) in suffixes
    ]
