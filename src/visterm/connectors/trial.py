"""What a user's own server keeps: a tag on one photo of each part of the library, read again, and taken back."""

from __future__ import annotations

import time
from itertools import islice
from typing import NamedTuple

from visterm.connectors.contract import Pair, RemoteLibrary, RemotePhoto
from visterm.connectors.passes import write
from visterm.core.errors import ServiceError
from visterm.core.wording import count_of
from visterm.store.connected import NOT_OURS, PARENT

TAG = "check"
MOST_FOLDERS = 5  # External libraries that are tried
PAGES = 10  # Of photos that are looked at


class Trial(NamedTuple):
    """What a server kept."""

    lines: list[str]
    works: bool  # Whether tags are kept anywhere, and all of the trial's were taken back


def try_server(library: RemoteLibrary) -> Trial:
    """Write a tag of visterm's own to one photo of each part of a library, read it, and take it back.

    Nothing else is changed there. Raises ServiceError if the server goes away, or has no photo to try.
    """
    lines = [f"{library.check()} at {library.address}: the key has all permissions."]
    photos = [photo for page in islice(library.changes(), PAGES) for photo in page.photos]
    lines.append(f"Photos: {library.count():,}; looked at {len(photos):,} of them.")
    counts = {
        "without a preview": sum(not photo.version for photo in photos),
        "of partners, which take no tags": sum(photo.folder == NOT_OURS for photo in photos),
    }
    lines += [f"{count_of(n, 'photo')} {what}." for what, n in counts.items() if n]
    recent = library.recent().stamps if library.queued else {}
    tried = {
        photo.folder: photo for photo in reversed(photos) if photo.ready and photo.version and photo.id not in recent
    }
    if not tried:
        raise ServiceError("No photo can be tried: all are without a preview, or changed in the last five minutes.")
    tag = f"{PARENT}/{TAG}" if library.nested else f"{PARENT.capitalize()} {TAG}"
    results = [_tried(library, photo, tag, lines) for _, photo in sorted(tried.items())[:MOST_FOLDERS]]
    if library.queued:
        lines.append(f"The empty tag {tag} stays until the server's nightly job, which deletes empty tags.")
    return Trial(lines, any(kept for kept, _ in results) and all(gone for _, gone in results))


def _tried(library: RemoteLibrary, photo: RemotePhoto, tag: str, lines: list[str]) -> tuple[bool, bool]:
    """Try one photo; return whether it kept the tag, and whether the tag is gone in the end."""
    where = f"{photo.name} (external library {photo.folder[:8]})" if photo.folder else photo.name
    pair = Pair(photo.id, tag)
    began = time.monotonic()
    outcome = write(library, [pair], [], touched={}, careful=False)
    seconds, key = time.monotonic() - began, pair[:2]
    kept = key in outcome.there and key not in outcome.unsettled
    reasons = [each.reason for each in outcome.refused]
    if kept:
        lines.append(f"{where}: the tag {tag} is kept, which was sure after {seconds:.0f} s.")
    elif key in outcome.unsettled:
        lines.append(f"{where}: after {seconds:.0f} s the server still has not written the file. Is its queue paused?")
    else:
        lines.append(
            f"{where}: the tag {tag} is not kept{f' ({reasons[0]})' if reasons else ''}. If the photo's file can't be "
            "written, the server undoes tags; visterm leaves such libraries alone."
        )
    write(library, [], [pair], touched={}, careful=False)
    gone = key not in library.there([pair])
    lines.append(f"{where}: the tag was taken back." if gone else f"{where}: the tag {tag} can't be taken back.")
    return kept, gone
