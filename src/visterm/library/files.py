"""What became of files since a catalogue saw them: unchanged, changed, moved, gone or new, read as rarely as may be."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from visterm.core.remote import is_remote, start_of_paths
from visterm.core.threads import Team, resolve_jobs
from visterm.data.contents import content_hash, file_states, is_there
from visterm.store.catalogue import StoredCatalogue
from visterm.store.images import FileState

CHUNK = 512  # Files hashed between two commits


class Move(NamedTuple):
    """An image of the catalogue that lies at the path of one of the files now."""

    place: int
    image_id: int


@dataclass(slots=True)
class Comparison:
    """What became of some files, by their places among those listed, and of images of the catalogue, by id."""

    new: list[int] = field(default_factory=list)  # Places
    changed: dict[int, int] = field(default_factory=dict)  # Place, and the image that had another content there
    moved: list[Move] = field(default_factory=list)  # Images whose content is found elsewhere, or again
    kept: dict[int, int] = field(default_factory=dict)
    """Place and image, unchanged; of several names of one file, all but one."""
    gone: list[int] = field(default_factory=list)  # Images


class _Known(NamedTuple):
    """An image of the catalogue that may have moved."""

    image_id: int
    path: str
    state: FileState
    rank: int


def compare(
    stored: StoredCatalogue,
    items: Sequence[Any],
    *,
    may_be_gone: Callable[[str], bool] | None = None,
    n_jobs: int | None = None,
) -> Comparison:
    """Compare files with what the catalogue knows: by path, size and date first, by content where these differ.

    A file of the old size and another date is read, and its new date is kept if it has the old content. To be seen as
    moved, a file must have the content of an image whose file is not there any more, or has another content now; only
    files of a size that such an image has are read.

    Items are paths, or arrays, which are always new. Images whose file is not there any more are gone where
    `may_be_gone` returns True for its path; without it nothing is gone. `stored` is held for writing.
    """
    found = Comparison()
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
    with Team(resolve_jobs(n_jobs)) as team:
        hashes = _Hashes(team, paths)
        differ += _see_touched(stored, touched, paths, stats, there, hashes, found)
        lost = [] if may_be_gone is None else _lost(there, first, may_be_gone)
        known_elsewhere = _may_have_moved(stored, there, lost, [str(paths[place]) for place in differ], set(first))
        taken = _find_moved([*fresh, *differ], paths, stats, known_elsewhere, hashes, found)
    for place in fresh:
        if place not in taken:
            found.new.append(place)
    claimed = {move.image_id for move in found.moved}
    for place in differ:
        image_id = there[str(paths[place])].id
        if place not in taken and image_id not in claimed:
            found.changed[place] = image_id
        elif place not in taken:
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
    folders: dict[str, str] = {}

    def full(item: Any) -> str:
        if is_remote(item):
            return str(item)
        folder, name = os.path.split(os.path.abspath(item))
        if folder not in folders:
            folders[folder] = os.path.realpath(folder)
        path = os.path.join(folders[folder], name)
        return os.path.realpath(path) if follow_files and os.path.islink(path) else path

    return [None if isinstance(item, np.ndarray) else full(os.fspath(item)) for item in items]


def is_inside(path: str, root: str) -> bool:
    """Return whether a path in full lies in a folder."""
    return path.startswith(start_of_paths(root))


class _Hashes:
    """Content hashes of files, each read once."""

    def __init__(self, team: Team, paths: Sequence[str | None]) -> None:
        self._team, self._paths = team, paths
        self._known: dict[int, str | None] = {}

    def of(self, places: Sequence[int]) -> list[str | None]:
        new = [place for place in places if place not in self._known]
        read = self._team.run(lambda i: content_hash(str(self._paths[new[i]])), len(new))
        self._known.update(zip(new, read, strict=True))
        return [self._known[place] for place in places]


def _see_touched(
    stored: StoredCatalogue,
    touched: Sequence[int],
    paths: Sequence[str | None],
    stats: Sequence[tuple[int, int] | None],
    there: dict[str, FileState],
    hashes: _Hashes,
    found: Comparison,
) -> list[int]:
    """Keep the dates of files whose content is the old one, and give the others."""
    differ = []
    for start in range(0, len(touched), CHUNK):
        chunk = touched[start : start + CHUNK]
        dates = []
        for place, digest in zip(chunk, hashes.of(chunk), strict=True):
            known, status = there[str(paths[place])], stats[place]
            if digest == known.sha256 and status is not None:
                found.kept[place] = known.id
                dates.append((status[1], known.id))
            else:
                differ.append(place)
        stored.database.write_many("UPDATE images SET mtime_ns = ? WHERE id = ?", dates)
    return differ


def _lost(there: dict[str, FileState], listed: dict[str, int], may_be_gone: Callable[[str], bool]) -> list[int]:
    """Return the images whose files are not there any more; one that only was not listed is."""
    return [
        state.id for path, state in there.items() if path not in listed and may_be_gone(path) and not is_there(path)
    ]


def _may_have_moved(
    stored: StoredCatalogue, there: dict[str, FileState], lost: Sequence[int], differ: Sequence[str], listed: set[str]
) -> dict[int, list[_Known]]:
    """Return images that may have moved, by size: first those just lost, then those gone, elsewhere or replaced."""
    gone, replaced = set(lost), set(differ)
    known = []
    for path, state in there.items():
        if state.id in gone:
            known.append(_Known(state.id, path, state, 0))
        elif path in replaced:
            known.append(_Known(state.id, path, state, 3))
        elif path not in listed:
            known.append(_Known(state.id, path, state, 2))
    for image_id, path, *state in stored.database.rows(
        "SELECT id, path, n_bytes, mtime_ns, sha256 FROM images WHERE state = 'gone' AND path IS NOT NULL"
    ):
        known.append(_Known(image_id, path, FileState(image_id, *state), 1))
    by_size: defaultdict[int, list[_Known]] = defaultdict(list)
    for image in sorted(known, key=lambda image: (image.rank, image.image_id)):
        by_size[image.state.n_bytes].append(image)
    return by_size


def _find_moved(
    places: Sequence[int],
    paths: Sequence[str | None],
    stats: Sequence[tuple[int, int] | None],
    by_size: dict[int, list[_Known]],
    hashes: _Hashes,
    found: Comparison,
) -> set[int]:
    """Find images whose content files have, and give the places of these."""
    taken: set[int] = set()
    claimed: set[int] = set()

    def claim(place: int, image: _Known) -> None:
        taken.add(place)
        claimed.add(image.image_id)
        found.moved.append(Move(place, image.image_id))

    read = []
    for place in places:
        status = stats[place]
        known = by_size.get(status[0], []) if status is not None else []
        for image in known:  # back where it was, as it was: a disk that was not there, say
            as_it_was = image.rank == 1 and (image.path, image.state.mtime_ns) == (paths[place], (status or (0, 0))[1])
            if as_it_was and image.image_id not in claimed:
                claim(place, image)
                break
        else:
            if known:
                read.append(place)
    for place, digest in zip(read, hashes.of(read), strict=True):
        size = (stats[place] or (0, 0))[0]
        for image in by_size[size]:
            if image.image_id in claimed or image.state.sha256 != digest:
                continue
            if image.rank == 2 and is_there(image.path):  # a copy: both are there
                continue
            claim(place, image)
            break
    return taken
