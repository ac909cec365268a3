"""Watch folders, and update a catalogue after each change of photos until stopped."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from visterm.connectors.folder_changes import ChangedFiles, FolderChanges, Stop, is_on_network, mounts
from visterm.core.errors import DataError, InUseError, UserError, VistermError
from visterm.core.progress import SILENT, Progress
from visterm.core.remote import is_remote, real_path
from visterm.core.types import Place
from visterm.core.wording import count_of
from visterm.data.contents import file_state
from visterm.data.corpus import Corpus
from visterm.data.image_folders import Unsearched, find_images, image_texts, is_video, readable_suffixes, suffix_of
from visterm.data.program_stores import is_store
from visterm.data.sidecars import SUFFIX as XMP
from visterm.data.tag_files import KEYWORDS, read_keyword_tags
from visterm.library.catalogue import Catalogue
from visterm.library.feedback import copy_feedback
from visterm.library.files import is_inside
from visterm.library.index import Indexed, Indexing
from visterm.library.photos import ListedPhotos, check_has_photos, check_not_connected, indexed_folders, photos_of
from visterm.library.start import learn_first
from visterm.store.catalogue import StoredCatalogue

T = TypeVar("T")

CHUNK_PHOTOS = 64  # Photos per commit, after which watching can be stopped
POLL_SECONDS = 30.0  # Interval for polling folders on network drives
SETTLE_SECONDS = 2.0  # A file without changes for this long counts as completely copied
COMPARE_AGAIN_SECONDS = 6 * 3600.0  # Interval for comparing all folders again, regardless of reports
LOCK_RETRY_SECONDS = 2.0  # Wait this long before trying again if the catalogue is in use
MIN_PHOTOS_FOR_DOUBT = 20  # If a folder has at least this many photos and loses more than half, it may be disconnected

TAG_SUFFIXES = frozenset({".txt", ".csv", ".tsv", ".jsonl"})  # Suffixes of text files with tags


class WatchRound(NamedTuple):
    """The result of one update."""

    folder: str  # The folder if it was compared completely; empty if only some files were indexed
    done: Indexed


def folders_to_watch(stored: StoredCatalogue, folders: Sequence[Place] = ()) -> list[str]:
    """Return the absolute paths of the folders to watch: `folders`, or else the catalogue's indexed folders.

    Raises UserError if there are no folders, if one of `folders` does not exist or is in an object store, or if the
    catalogue is connected to another program's library.
    """
    check_not_connected(stored)
    watched = [real_path(folder) for folder in folders]
    for folder, requested in zip(watched, folders, strict=True):
        if is_remote(folder) or not os.path.isdir(folder):
            expected = "a folder of this machine that is there"
            raise UserError(f"{requested} cannot be watched", setting="folders", value=requested, expected=expected)

    if not watched:
        paths = stored.images.files()
        watched = [
            folder
            for folder in indexed_folders(stored)
            if not is_remote(folder) and (os.path.isdir(folder) or _count_inside(paths, folder))
        ]
    if not watched:
        raise UserError("No folder was indexed into this catalogue.", setting="folders", advice="Name some `folders`.")
    return [folder for folder in watched if not any(is_inside(folder, other) for other in watched)]


def tags_as_indexed(stored: StoredCatalogue) -> str | None:
    """Return the source of tags of the latest `visterm index --tags`; None if there was none, or it is gone.

    A tag file is about one folder: it counts only if no other folder was indexed.
    """
    sources = [run["tags"] for run in stored.history.details_of("index") if run.get("tags")]
    if not sources or sources[-1] in (KEYWORDS, "auto"):
        return sources[-1] if sources else None
    path = sources[-1].partition(":")[2] if is_store(sources[-1]) else sources[-1]
    return sources[-1] if os.path.exists(path) and len(indexed_folders(stored)) == 1 else None


class FolderWatcher:
    """Updates a catalogue from folders, and then after each change; each update is saved to disk.

    A catalogue that has learned nothing yet (`library.start`) learns the tags of its photos once they are in.

    Parameters
    ----------
    catalogue : Catalogue
    folders : sequence of str
        See `folders_to_watch`. If one disappears, or suddenly loses more than half of its photos, it is skipped until
        it is back, and none of its photos is marked as gone.
    tags : str, optional
        Source of tags, see `Catalogue.index`. With "xmp" only changed photos and sidecars are read, with other sources
        the whole folder.
    poll : float, optional
        Interval in seconds for polling all folders, by size and date. None: the system reports changes, and only
        folders on network drives are polled, every `POLL_SECONDS`.
    settle : float
        A file without changes for this many seconds counts as completely copied.
    stop : Stop
        Stops watching, between two chunks of photos.
    say : callable
        Called with messages for people, for example about missing folders and unreadable tags.
    wording : callable
        Returns the message of an error, with the reader's names of its settings.
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
        settle: float = SETTLE_SECONDS,
        stop: Stop,
        say: Callable[[str], None],
        wording: Callable[[VistermError], str] = str,
        progress: Progress = SILENT,
    ) -> None:
        check_has_photos(catalogue.tagger.encoder)
        self._catalogue, self._stored, self._folders = catalogue, catalogue.stored, list(folders)
        self._tags, self._seconds, self._stop = tags, poll or POLL_SECONDS, stop
        self._say, self._wording, self._progress = say, wording, progress
        self._photo_suffixes = readable_suffixes(videos=True)
        tag_suffixes = TAG_SUFFIXES if tags not in (None, KEYWORDS) else set()
        self._suffixes = self._photo_suffixes | ({XMP} if tags else set()) | tag_suffixes
        self._changed_files = ChangedFiles(settle)
        self._missing: dict[str, str] = {}  # Missing folder -> reason
        self._mounted: set[str] = set()  # Mount points seen in the folders so far
        self._uses_reports = poll is None  # Whether to use the system's reports

    def rounds(self) -> Iterator[WatchRound]:
        """Yield the result of each update until stopped; first compare all folders completely."""
        while not self._stop.is_set():
            state, deadline = self._watched_state(), time.monotonic() + COMPARE_AGAIN_SECONDS
            existing, fs_types = [folder for folder in self._folders if os.path.isdir(folder)], mounts()
            polled = [folder for folder in existing if not self._uses_reports or is_on_network(folder, fs_types)]
            reported = [folder for folder in existing if folder not in polled]
            with closing(FolderChanges(reported, polled, self._suffixes, self._seconds, self._stop)) as changes:
                yield from self.compare_folders()
                self._learn_first()
                while not self._stop.is_set() and self._watched_state() == state and time.monotonic() < deadline:
                    self._changed_files.touch(changes.wait())
                    if changes.end_reason:  # compare the folders completely, as reports may be missing
                        self._uses_reports = False
                        self._say(
                            f"The system's reports of changes broke off, as they do at names that are not UTF-8: "
                            f"{changes.end_reason}. Looking at the folders every {POLL_SECONDS:g} seconds from now on."
                        )
                        break
                    if settled := self._changed_files.settled():
                        yield from self.update_paths(settled)
                        self._learn_first()

    def _learn_first(self) -> None:
        """Let a catalogue learn that has learned nothing yet; watching goes on if its photos cannot be learned from."""
        try:
            message = self._when_free(lambda: learn_first(self._catalogue, self._stop.is_set, self._progress))
        except DataError as error:
            message = self._wording(error)
        if message:
            self._say(message)

    def _watched_state(self) -> object:
        """Return a value that changes if a folder, a mount point in it, or the tag file changes or disappears."""
        mount_points = {point for point in mounts() if any(is_inside(point, folder) for folder in self._folders)}
        self._mounted |= mount_points
        tag_file_state = file_state(self._tags) if self._tags not in (None, KEYWORDS, "auto") else None
        return [_identity(folder) for folder in self._folders], mount_points, tag_file_state

    def compare_folders(self) -> Iterator[WatchRound]:
        """Compare each folder completely with the catalogue, with tags from where people indexed them last."""
        self._tags = tags_as_indexed(self._stored) or self._tags
        for folder in self._folders:
            reason, old_reason = self._absence_reason(folder), self._missing.pop(folder, "")
            if reason and reason != old_reason:
                self._say(
                    f"{folder} {reason}: waiting for it, its photos stay in the catalogue. If you removed them "
                    f"yourself, run: visterm index {self._stored.folder} {folder}"
                )
            elif old_reason and not reason:
                self._say(f"{folder} is back.")

            if reason:
                self._missing[folder] = reason
            elif (done := self._index(partial(self._list_folder, folder))) is not None:
                yield WatchRound(folder, done)

    def update_paths(self, settled: Sequence[str]) -> Iterator[WatchRound]:
        """Update the catalogue for changed, new and deleted paths."""
        photos: list[str] = []
        gone_paths: set[str] = set()
        for path in settled:
            if os.path.isdir(path):
                try:
                    self._changed_files.touch([*map(str, find_images(path, unsearched=Unsearched(), videos=True))])
                except DataError as error:
                    self._say(self._wording(error))
            elif suffix_of(path) == XMP:
                photos += _photos_of_sidecar(path, self._photo_suffixes)
            elif os.path.isfile(path):
                photos.append(path)
            else:
                gone_paths.add(path)

        paths = self._stored.images.files() if gone_paths else {}
        lost_paths = [path for path in paths if _is_among(path, gone_paths)]
        if not photos and not lost_paths:
            return
        if self._tags not in (None, KEYWORDS) or any(
            _is_doubtful(_count_inside(paths, folder) - _count_inside(lost_paths, folder), _count_inside(paths, folder))
            for folder in self._folders
            if lost_paths
        ):
            yield from self.compare_folders()
        elif (done := self._index(lambda: self._list_paths(photos, gone_paths))) is not None:
            yield WatchRound("", done)

    def _absence_reason(self, folder: str) -> str:
        """Return why a folder seems to be disconnected, so that its photos must not be marked as gone; otherwise ""."""
        if not os.path.isdir(folder):
            return "is not there"
        unsearched = Unsearched()
        try:
            n_photos = len(image_texts(folder, unsearched=unsearched, videos=True))
        except DataError as error:
            return f"cannot be read: {self._wording(error)}"
        paths = [path for path in self._stored.images.files() if is_inside(path, folder)]
        n_known = len(paths) - sum(any(is_inside(path, item.image) for item in unsearched.closed) for path in paths)
        return f"has {n_photos:,} of {count_of(n_known, 'photo')}" if _is_doubtful(n_photos, n_known) else ""

    def _index(self, listed: Callable[[], ListedPhotos]) -> Indexed | None:
        """Index the listed photos when no other process is writing; return None if stopped before."""

        def index() -> Indexed:
            work = Indexing(self._catalogue.tagger, self._stored)
            done = work.run(listed(), chunk_size=CHUNK_PHOTOS, stop=self._stop.is_set, progress=self._progress)
            if n_moved := copy_feedback(self._stored):
                self._say(f"Tags and corrections of {count_of(n_moved, 'photo')} went to copies elsewhere.")
            return done

        return self._when_free(index)

    def _when_free(self, work: Callable[[], T]) -> T | None:
        """Call a function when no other process is writing, with the run in use; return None if stopped before."""
        is_waiting = False
        while not self._stop.is_set():
            try:
                with self._stored.writing():
                    self._catalogue.refresh()
                    return work()
            except InUseError as error:
                if not is_waiting:
                    self._say(f"Waiting: {error}")
                is_waiting = True
                self._stop.wait(LOCK_RETRY_SECONDS)
        return None

    def _list_folder(self, folder: str) -> ListedPhotos:
        encoder = self._catalogue.tagger.encoder
        unsearched = Unsearched()
        photos: list[str] | Corpus = image_texts(folder, unsearched=unsearched, videos=True)
        if self._tags is not None and photos:
            try:
                photos = Corpus.read(folder, self._tags)
            except DataError as error:  # the tag file is being written, or no photo has a tag yet
                self._say(f"Photos are indexed without new tags for now: {self._wording(error)}")
        listed = replace(photos_of(encoder, photos, None, folder), not_read=unsearched.not_read(videos=True))
        if isinstance(photos, Corpus):
            listed.remarks.extend(photos.remarks)
        else:
            listed = replace(listed, left_out=tuple(unsearched.closed))
        listed = listed.without_links_outside()
        return replace(listed, may_be_gone=lambda path: is_inside(path, folder) and not self._is_missing(path))

    def _list_paths(self, photos: Sequence[str], gone_paths: set[str]) -> ListedPhotos:
        """List the photos at some paths; photos in disconnected folders are not marked as gone."""
        tags_of: dict[str, list[str]] = {}
        inside: list[Path] = []
        for folder in self._folders:
            paths = [Path(path) for path in photos if is_inside(os.path.realpath(path), folder)]
            paths = [path for path in paths if os.path.isfile(path)]
            inside += paths
            if self._tags == KEYWORDS:
                readable = [path for path in paths if is_inside(str(path), folder) and not is_video(path)]
                keywords = read_keyword_tags(Path(folder), readable)
                tags_of |= {os.path.join(folder, row.image): row.tags for row in keywords.records}

        return replace(
            photos_of(self._catalogue.tagger.encoder, inside),
            tags=[tags_of.get(str(path)) for path in inside],
            may_be_gone=(
                (lambda path: _is_among(path, gone_paths) and not self._is_missing(path)) if gone_paths else None
            ),
        )

    def _is_missing(self, path: str) -> bool:
        """Return whether a photo is in a disconnected folder, or on a drive that was mounted but is not now."""
        missing = [*self._missing, *(self._mounted - mounts().keys())] if self._missing or self._mounted else []
        return any(is_inside(path, folder) for folder in missing)


def _identity(folder: str) -> tuple[int, int] | None:
    try:
        status = os.stat(folder)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _is_doubtful(n_photos: int, n_known: int) -> bool:
    """Return whether a folder has so few of its known photos that it may be disconnected."""
    return n_known > 0 and (n_photos <= 0 or (n_known >= MIN_PHOTOS_FOR_DOUBT and 2 * n_photos < n_known))


def _count_inside(paths: Iterable[str], folder: str) -> int:
    return sum(is_inside(path, folder) for path in paths)


def _is_among(path: str, gone_paths: set[str]) -> bool:
    """Return whether a path or one of its parent folders is in `gone_paths`."""
    while path not in gone_paths:
        parent = os.path.dirname(path)
        if parent == path:
            return False
        path = parent
    return True


def _photos_of_sidecar(sidecar: str, suffixes: Collection[str]) -> list[str]:
    """Return the photos that an XMP file may belong to: ``a.jpg`` for ``a.jpg.xmp``, and ``a.*`` for ``a.xmp``."""
    folder, name = os.path.split(sidecar[: -len(XMP)])
    if suffix_of(name) in suffixes:
        return [os.path.join(folder, name)]
    try:
        names = os.listdir(folder)
    except OSError:  # the folder was deleted, or cannot be listed
        return []
    return [
        os.path.join(folder, other)
        for other in names
        if os.path.splitext(other)[0] == name and suffix_of(other) in suffixes
    ]
