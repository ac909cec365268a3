"""Create a catalogue of another program's library, resumable if killed; and test which tags its server keeps."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path

from visterm.connectors.contract import PhotoTag, RemoteLibrary
from visterm.connectors.passes import write
from visterm.connectors.pull import PREVIEWS, PeopleTagFilter, PullResult, fetch_previews, preview_file, read_changes
from visterm.connectors.sync import PushSettings, pull
from visterm.core.errors import DataError, ServiceError, StorageError
from visterm.core.persist import check_target, folder_kind
from visterm.core.progress import SILENT, Progress, Say, silent
from visterm.core.vocabulary import Vocabulary
from visterm.core.wording import count_of
from visterm.data.tag_tree import PATHS
from visterm.learning.fit_request import FitRequest
from visterm.learning.fitting import check_request
from visterm.library.catalogue import Catalogue
from visterm.store.catalogue import WriterLock
from visterm.store.connected import NOT_OURS, PARENT, Connected, ProgramConnection, RemotePhoto
from visterm.store.database import Database, now
from visterm.tagging.tagger import Tagger

CATALOGUE, DATABASE, LOCK = "catalogue", "library.sqlite", "writer.lock"
"""Names in the working folder next to the catalogue: the unfinished catalogue, the photos read so far, and the lock."""
TEST_TAG = "check"
MAX_FOLDERS = 5  # Maximum number of external libraries to test
MAX_PAGES = 10  # Maximum number of pages in which to look for test photos


def connect(
    out: Path,
    library: RemoteLibrary,
    *,
    key_file: Path | None,
    run: Tagger | None,
    request: FitRequest,
    say: Say = silent,
    progress: Progress = SILENT,
) -> tuple[Catalogue, PullResult]:
    """Create a catalogue of a library, or continue an unfinished one; return it, and the result of the first pull.

    First all previews are downloaded, then, without `run`, a run is fitted on people's tags as described by `request`,
    then all photos are indexed. Until then the downloads are in a folder next to `out`, and are reused if the process
    is killed. Raises StorageError if `out` exists and is not a catalogue of this library; DataError if no photo has a
    tag and there are no words; ServiceError if the server is unreachable.
    """
    check_target(out, "catalogue")
    if run is None and folder_kind(out) != "catalogue":
        check_request(Tagger.of(request), request)
    key = None if key_file is None else os.path.abspath(key_file)
    connection = ProgramConnection(library.kind, library.address, key, PushSettings().changed(library.kind)._asdict())
    work = out.absolute().with_name(f".{out.absolute().name}.connect")
    if folder_kind(out) != "catalogue":
        _create(out, work, connection, library, run, request, say, progress)
    elif work.is_dir():
        shutil.rmtree(work)

    catalogue = Catalogue.load(out, n_jobs=request.n_jobs)
    _check_same(out, catalogue.stored.connected.get(), connection)
    with catalogue.stored.writing():
        catalogue.stored.connected.update(key_file=key)
        pulled = pull(catalogue, library, progress)
        catalogue.stored.connected.update(synced=now())
        catalogue.stored.history.note("connect", kind=library.kind, address=library.address, photos=len(catalogue))
    return catalogue, pulled


def _create(
    out: Path,
    work: Path,
    connection: ProgramConnection,
    library: RemoteLibrary,
    run: Tagger | None,
    request: FitRequest,
    say: Say,
    progress: Progress,
) -> None:
    """Create the catalogue with previews and the photos read from the program, but without rows."""
    work.mkdir(parents=True, exist_ok=True)
    with WriterLock(work / LOCK).acquire():
        unfinished = work / CATALOGUE
        if (work / PREVIEWS).is_dir() or folder_kind(unfinished) != "catalogue":
            (work / PREVIEWS).mkdir(exist_ok=True)
            if not (work / DATABASE).exists():  # create it atomically
                new_file = work / f"new.{DATABASE}"
                for leftover in work.glob(f"{new_file.name}*"):
                    leftover.unlink()
                Database(new_file, new=True).close()
                os.rename(new_file, work / DATABASE)
            database = Database(work / DATABASE)
            connected = Connected(database)
            stored_connection = connected.get()
            if stored_connection is None:
                connected.put(connection)
            else:
                _check_same(work, stored_connection, connection)
            read_changes(connected, library, progress)
            fetch_previews(connected, library, work, progress)
            catalogue = Catalogue(run or _fit_tagger(connected, work, library, request, say, progress))
            catalogue.stored.connected.take_over(connected)
            catalogue.save(unfinished)
            database.close()
            os.rename(work / PREVIEWS, unfinished / PREVIEWS)
        if out.is_dir():  # an empty folder, which Windows cannot replace
            out.rmdir()
        os.rename(unfinished, out)
    shutil.rmtree(work)


def _fit_tagger(
    connected: Connected, work: Path, library: RemoteLibrary, request: FitRequest, say: Say, progress: Progress
) -> Tagger:
    """Fit a run on the photos that people tagged, or on all photos if the request has words."""
    people_filter = PeopleTagFilter(connected, Counter(), Vocabulary([]), None)
    images: list[str] = []
    tags: list[list[str]] = []

    for photos in connected.with_preview():
        for photo in photos:
            photo_tags = people_filter.of(photo.id, photo.tags)
            if photo_tags or request.words:
                images.append(str(preview_file(work, photo.id)))
                tags.append(photo_tags)

    if not images:
        raise DataError(
            f"{count_of(connected.count(), 'photo')} of {library.title} were read, and none has a tag to learn from.",
            advice="Tag some there, or start from `words` or a `run`. What was fetched is used again.",
        )
    request = replace(request, images=images, tags=tags)
    if library.nested and request.tree is None and any("/" in tag for photo_tags in tags for tag in photo_tags):
        request = replace(request, tree=PATHS)
    return Tagger.of(request).fit_request(request, say=say, progress=progress)


def _check_same(folder: Path, stored: ProgramConnection | None, connection: ProgramConnection) -> None:
    """Raise StorageError for a catalogue of files, or of another library."""
    if stored is None:
        problem = f"{folder} is a catalogue of files, and is not connected to {connection.address}."
    elif stored[:2] != connection[:2]:
        requested = f"{connection.kind} at {connection.address}"
        problem = f"{folder} belongs to {stored.kind} at {stored.address}, not to {requested}."
    else:
        return
    raise StorageError(problem, setting="out", value=folder, advice="Name another catalogue as `out`.")


def try_server(library: RemoteLibrary) -> tuple[list[str], bool]:
    """Write a test tag to one photo of each part of a library, read it, and remove it again.

    Returns lines of text on the results, and whether the test succeeded: at least one tag was kept, and all test tags
    were removed. Raises ServiceError if the server is unreachable, or has no suitable photo.
    """
    lines = [f"{library.check()} at {library.address}: the key has all permissions."]
    photos = [photo for page in islice(library.changes(), MAX_PAGES) for photo in page.photos]
    lines.append(f"Photos: {library.count():,}; looked at {len(photos):,} of them.")
    counts = {
        "without a preview": sum(not photo.version for photo in photos),
        "of partners, which take no tags": sum(photo.folder == NOT_OURS for photo in photos),
    }
    lines += [f"{count_of(n, 'photo')} {label}." for label, n in counts.items() if n]
    recent = library.recent().stamps if library.queued else {}
    test_photos = {
        photo.folder: photo for photo in reversed(photos) if photo.ready and photo.version and photo.id not in recent
    }
    if not test_photos:
        raise ServiceError("No photo can be tried: all are without a preview, or changed in the last five minutes.")
    tag = f"{PARENT}/{TEST_TAG}" if library.nested else f"{PARENT.capitalize()} {TEST_TAG}"
    results = [_try_photo(library, photo, tag, lines) for _, photo in sorted(test_photos.items())[:MAX_FOLDERS]]
    if library.queued:
        lines.append(f"The empty tag {tag} stays until the server's nightly job, which deletes empty tags.")
    return lines, any(is_kept for is_kept, _ in results) and all(is_gone for _, is_gone in results)


def _try_photo(library: RemoteLibrary, photo: RemotePhoto, tag: str, lines: list[str]) -> tuple[bool, bool]:
    """Test one photo; return whether it kept the tag, and whether the tag was removed again."""
    label = f"{photo.name} (external library {photo.folder[:8]})" if photo.folder else photo.name
    pair = PhotoTag(photo.id, tag)
    start = time.monotonic()
    outcome = write(library, [pair], touched={}, careful=False)
    seconds, key = time.monotonic() - start, pair[:2]
    is_kept = key in outcome.existing and key not in outcome.unsettled
    reasons = [*outcome.refused.values()]

    if is_kept:
        lines.append(f"{label}: the tag {tag} is kept, which was sure after {seconds:.0f} s.")
    elif key in outcome.unsettled:
        lines.append(f"{label}: after {seconds:.0f} s the server still has not written the file. Is its queue paused?")
    else:
        lines.append(
            f"{label}: the tag {tag} is not kept{f' ({reasons[0]})' if reasons else ''}. If the photo's file can't be "
            "written, the server undoes tags; visterm leaves such libraries alone."
        )

    write(library, [pair], remove=True, touched={}, careful=False)
    is_gone = key not in library.existing([pair])
    lines.append(f"{label}: the tag was taken back." if is_gone else f"{label}: the tag {tag} can't be taken back.")
    return is_kept, is_gone
