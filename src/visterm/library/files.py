"""What became of files since a catalogue saw them: unchanged, changed, moved, gone or new, read as rarely as may be."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from visterm.core.remote import is_remote, start_of_paths
from visterm.core.threads import Team, resolve_jobs
from visterm.data.contents import content_hash, file_states, is_there
from visterm.store.catalogue import StoredCatalogue
from visterm.store.images import FileState

CHUNK = 512  # Files hashed between two commits


@dataclass(slots=True)
class ComparedFiles:
    """What became of some files, by their places among those listed, and of images of the catalogue, by id."""

    new: list[int] = field(default_factory=list)  # Places
    changed: dict[int, int] = field(default_factory=dict)  # Place, and the image that had another content there
    moved: dict[int, int] = field(default_factory=dict)  # Place, and the image whose content is found there now
    kept: dict[int, int] = field(default_factory=dict)
    """Place and image, unchanged; of several names of one file, all but one."""
    gone: list[int] = field(default_factory=list)  # Images


Candidate: TypeAlias = tuple[int, int, str, FileState]  # An image that may have moved: its rank, id, path and state


def compare(
    stored: StoredCatalogue,
    items: Sequence[Any],
    *,
    may_be_gone: Callable[[str], bool] | None = None,
    n_jobs: int | None = None,
) -> ComparedFiles:
    """Compare files with what the catalogue knows: by path, size and date first, by content where these differ.

    A file of the old size and another date is read, and its new date is kept if it has the old content. To be seen as
    moved, a file must have the content of an image whose file is not there any more, or has another content now; only
    files of a size that such an image has are read.

    Items are paths, or arrays, which are always new. Images whose file is not there any more are gone where
    `may_be_gone` returns True for its path; without it nothing is gone. `stored` is held for writing.
    """
    found = ComparedFiles()
    there = stored.images.files()
    hidden = {image.path: (image.n_bytes, image.mtime_ns) for image in stored.images.hidden()}
    paths = full_paths(items)
    stats = file_states(paths)

    fresh, differ, touched = [], [], []
    first: dict[str, int] = {}
    for place, (path, status) in enumerate(zip(paths, stats, strict=True)):
        if path is None:
            found.new.append(place)
            continue
        if path in first:  # a link to a file that is listed, too
            continue
        first[path] = place
        known = there.get(path)
        if known is None and status is not None and hidden.get(path) == status:
            continue  # a person hid it, and it is as it was
        if known is None:
            fresh.append(place)
        elif status == (known.n_bytes, known.mtime_ns):
            found.kept[place] = known.id
        elif status is not None and status[0] == known.n_bytes:
            touched.append(place)
        else:
            differ.append(place)

    read: dict[int, str | None] = {}
    with Team(resolve_jobs(n_jobs)) as team:

        def hashes(places: Sequence[int]) -> list[str | None]:
            """Hash the contents of files, each once."""
            new = [place for place in places if place not in read]
            read.update(zip(new, team.run(lambda i: content_hash(str(paths[new[i]])), len(new)), strict=True))
            return [read[place] for place in places]

        differ += _see_touched(stored, touched, paths, stats, there, hashes, found)
        lost = [  # one that only was not listed is there
            state.id
            for path, state in there.items()
            if may_be_gone is not None and path not in first and may_be_gone(path) and not is_there(path)
        ]
        known_elsewhere = _may_have_moved(stored, there, lost, [str(paths[place]) for place in differ], set(first))
        _find_moved([*fresh, *differ], paths, stats, known_elsewhere, hashes, found)

    found.new += [place for place in fresh if place not in found.moved]
    claimed = set(found.moved.values())
    for place in differ:
        image_id = there[str(paths[place])].id
        if place not in found.moved and image_id not in claimed:
            found.changed[place] = image_id
        elif place not in found.moved:
            found.new.append(place)
        elif image_id not in claimed:
            found.gone.append(image_id)  # another image lies in its place, and it is nowhere

    found.gone += [image_id for image_id in lost if image_id not in claimed]
    found.new.sort()
    return found


def full_paths(items: Sequence[Any], *, follow_files: bool = True) -> list[str | None]:
    """Return files in full, links followed, and objects by their addresses; None for arrays.

    Without `follow_files`, only links to folders are followed.
    """
    real_path = cache(os.path.realpath)  # of the folders, which are few

    def full(item: Any) -> str:
        if is_remote(item):
            return str(item)
        folder, name = os.path.split(os.path.abspath(item))
        path = str(os.path.join(real_path(folder), name))
        return os.path.realpath(path) if follow_files and os.path.islink(path) else path

    return [None if isinstance(item, np.ndarray) else full(os.fspath(item)) for item in items]


def is_inside(path: str, root: str) -> bool:
    """Return whether a path in full lies in a folder."""
    return path.startswith(start_of_paths(root))


def _see_touched(
    stored: StoredCatalogue,
    touched: Sequence[int],
    paths: Sequence[str | None],
    stats: Sequence[tuple[int, int] | None],
    there: dict[str, FileState],
    hashes: Callable[[Sequence[int]], list[str | None]],
    found: ComparedFiles,
) -> list[int]:
    """Keep the dates of files whose content is the old one, and give the others."""
    differ = []
    for start in range(0, len(touched), CHUNK):
        chunk = touched[start : start + CHUNK]
        dates = []
        for place, digest in zip(chunk, hashes(chunk), strict=True):
            known, status = there[str(paths[place])], stats[place]
            if digest == known.sha256 and status is not None:
                found.kept[place] = known.id
                dates.append((status[1], known.id))
            else:
                differ.append(place)
        stored.database.write_many("UPDATE images SET mtime_ns = ? WHERE id = ?", dates)
    return differ


def _may_have_moved(
    stored: StoredCatalogue, there: dict[str, FileState], lost: Sequence[int], differ: Sequence[str], listed: set[str]
) -> dict[int, list[Candidate]]:
    """Return images that may have moved, by size: first those just lost, then those gone, elsewhere or replaced."""
    gone, replaced = set(lost), set(differ)
    known = [
        (0 if state.id in gone else 3 if path in replaced else 2, state.id, path, state)
        for path, state in there.items()
        if state.id in gone or path in replaced or path not in listed
    ]
    for image_id, path, *state in stored.database.rows(
        "SELECT id, path, n_bytes, mtime_ns, sha256 FROM images WHERE state = 'gone' AND path IS NOT NULL"
    ):
        known.append((1, image_id, path, FileState(image_id, *state)))

    by_size: defaultdict[int, list[Candidate]] = defaultdict(list)
    for candidate in sorted(known):
        by_size[candidate[-1].n_bytes].append(candidate)
    return by_size


def _find_moved(
    places: Sequence[int],
    paths: Sequence[str | None],
    stats: Sequence[tuple[int, int] | None],
    by_size: dict[int, list[Candidate]],
    hashes: Callable[[Sequence[int]], list[str | None]],
    found: ComparedFiles,
) -> None:
    """Find images whose content files have, and note in `found` where these lie."""
    claimed: set[int] = set()
    to_read = []
    for place in places:
        status = stats[place]
        known = by_size.get(status[0], []) if status is not None else []
        for rank, image_id, path, state in known:  # back where it was, as it was: a disk that was not there, say
            as_it_was = rank == 1 and (path, state.mtime_ns) == (paths[place], (status or (0, 0))[1])
            if as_it_was and image_id not in claimed:
                found.moved[place] = image_id
                claimed.add(image_id)
                break
        else:
            if known:
                to_read.append(place)

    for place, digest in zip(to_read, hashes(to_read), strict=True):
        for rank, image_id, path, state in by_size[(stats[place] or (0, 0))[0]]:
            if image_id in claimed or state.sha256 != digest:
                continue
            if rank == 2 and is_there(path):  # a copy: both are there
                continue
            found.moved[place] = image_id
            claimed.add(image_id)
            break
