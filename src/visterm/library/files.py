"""Compare files with a catalogue: unchanged, changed, moved, gone or new; reads as few files as possible."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import TypeAlias

import numpy as np

from visterm.core.remote import is_remote, start_of_paths
from visterm.core.threads import Team, resolve_jobs
from visterm.data.contents import content_hash, file_states
from visterm.data.image_folders import is_there
from visterm.store.catalogue import StoredCatalogue
from visterm.store.images import FRAME, LISTED, ImageFile, ImageState, as_list

FILES_PER_COMMIT = 512


@dataclass(slots=True)
class ComparedFiles:
    """Result of comparing listed files, by position in the list, with images of the catalogue, by id."""

    new: list[int] = field(default_factory=list)  # Positions of new files
    changed: dict[int, int] = field(default_factory=dict)  # Position -> image with this path, but other content
    moved: dict[int, int] = field(default_factory=dict)  # Position -> image that moved to this path
    kept: dict[int, int] = field(default_factory=dict)  # Position -> unchanged image
    gone: list[int] = field(default_factory=list)  # Ids of images that are gone
    renamed: list[int] = field(default_factory=list)  # Positions of known files that have another name here


FileState: TypeAlias = tuple[int, int]  # Size in bytes, and time of the last change
Candidate: TypeAlias = tuple[int, int, ImageState]  # Possibly moved image: rank, id and state


def compare(
    stored: StoredCatalogue,
    paths: Sequence[str | None],
    names: Sequence[str],
    *,
    may_be_gone: Callable[[str], bool] | None = None,
    n_jobs: int | None = None,
) -> ComparedFiles:
    """Compare files with the images of a catalogue: by path, size and date first, by content if these differ.

    A file with its old size but a new date is read; if its content is the same, the new date is stored. A file counts
    as moved if it has the content of an image whose file no longer exists or was changed; only files of the same size
    as such an image are read.

    `paths` are `full_paths`: None is an array, which is always new. Images whose file no longer exists are gone if
    `may_be_gone` returns True for their path; by default no image is gone. The caller must have the writer lock of
    `stored`.
    """
    files = _ListedFiles(stored, paths, Team(resolve_jobs(n_jobs)))
    result, images = files.result, files.images
    lost_ids = files.compare_states(names, may_be_gone)
    unknown_positions = [i for i in sorted(files.states) if i not in images]
    redated_positions = [i for i in sorted(images) if (files.states[i] or (-1, 0))[0] == images[i].n_bytes]
    changed_positions = sorted(images.keys() - redated_positions)

    with files.team:
        changed_positions += files.store_new_dates(redated_positions)
        positions = [*unknown_positions, *changed_positions]
        files.find_moved(positions, files.candidates_by_size(positions, lost_ids))

    result.new += [i for i in unknown_positions if i not in result.moved]
    moved_ids = set(result.moved.values())
    for i in changed_positions:
        image_id = images[i].id
        if i not in result.moved and image_id not in moved_ids:
            result.changed[i] = image_id
        elif i not in result.moved:
            result.new.append(i)
        elif image_id not in moved_ids:
            result.gone.append(image_id)  # another image has its path, and its content was not found

    result.gone += [image_id for image_id in lost_ids if image_id not in moved_ids]
    result.new.sort()
    return result


@dataclass(slots=True)
class _ListedFiles:
    """Listed files, and what the catalogue knows about those that differ: memory is needed for these only."""

    stored: StoredCatalogue
    paths: Sequence[str | None]
    team: Team
    result: ComparedFiles = field(default_factory=ComparedFiles)
    positions: dict[str, int] = field(default_factory=dict)  # Path -> its first position: others are links to it
    states: dict[int, FileState | None] = field(default_factory=dict)  # Of files that differ, by position
    images: dict[int, ImageState] = field(default_factory=dict)  # Of known files that differ, by position
    digests: dict[int, str | None] = field(default_factory=dict)

    def hashes(self, positions: Sequence[int]) -> list[str | None]:
        """Return the content hashes of files, each computed once."""
        unread = [i for i in positions if i not in self.digests]
        contents = self.team.run(lambda n: content_hash(str(self.paths[unread[n]])), len(unread))
        self.digests.update(zip(unread, contents, strict=True))
        return [self.digests[i] for i in positions]

    def compare_states(self, names: Sequence[str], may_be_gone: Callable[[str], bool] | None) -> list[int]:
        """Compare the sizes and dates of known files, and return the ids of lost images.

        Arrays and unchanged files are added to `result`. Files that still exist but are not listed are not lost.
        """
        lost_ids = []
        for i, path in enumerate(self.paths):
            if path is None:
                self.result.new.append(i)
            else:
                self.positions.setdefault(path, i)
        is_known = np.zeros(len(self.paths), np.bool_)
        columns = ", ".join(ImageState._fields)
        statement = f"SELECT {columns} FROM images WHERE state = 'here' AND path IS NOT NULL"
        for images in (list(map(ImageState._make, batch)) for batch in self.stored.database.batches(statement)):
            listed = [(self.positions[image.path], image) for image in images if image.path in self.positions]
            for (i, image), state in zip(listed, file_states([image.path for _, image in listed]), strict=True):
                is_known[i] = True
                if image.name != names[i]:
                    self.result.renamed.append(i)
                if state == (image.n_bytes, image.mtime_ns):
                    self.result.kept[i] = image.id
                else:
                    self.states[i], self.images[i] = state, image
            if may_be_gone is not None:
                unlisted = (image for image in images if image.path not in self.positions and may_be_gone(image.path))
                lost_ids += [image.id for image in unlisted if not is_there(image.path)]

        hidden = {image.path: (image.n_bytes, image.mtime_ns) for image in self.stored.images.hidden()}
        unknown = {path: i for path, i in self.positions.items() if not is_known[i]}
        for (path, i), state in zip(unknown.items(), file_states(list(unknown)), strict=True):
            if state is None or hidden.get(path) != state:  # else it is an unchanged file that a person hid
                self.states[i] = state
        return lost_ids

    def store_new_dates(self, redated_positions: Sequence[int]) -> list[int]:
        """Store the new dates of files with unchanged content, and return the positions of the other files."""
        changed_positions = []
        for start in range(0, len(redated_positions), FILES_PER_COMMIT):
            chunk = redated_positions[start : start + FILES_PER_COMMIT]
            dates = []
            for i, digest in zip(chunk, self.hashes(chunk), strict=True):
                image, state = self.images[i], self.states[i]
                if digest == image.sha256 and state is not None:
                    self.result.kept[i] = image.id
                    dates.append((state[1], image.id))
                else:
                    changed_positions.append(i)
            self.stored.database.write_many("UPDATE images SET mtime_ns = ? WHERE id = ?", dates)
        return changed_positions

    def candidates_by_size(self, positions: Sequence[int], lost_ids: Sequence[int]) -> dict[int, list[Candidate]]:
        """Return the images that the files at `positions` may be, by file size.

        In this order: images lost in this comparison, images that were gone already, images outside the listed files,
        and images whose file has other content now.
        """
        by_size: defaultdict[int, list[Candidate]] = defaultdict(list)
        sizes = {state[0] for state in map(self.states.get, positions) if state is not None}
        if not sizes:
            return {}
        lost_set, replaced_paths = set(lost_ids), {self.paths[i] for i in positions if i in self.images}
        statement = (
            f"SELECT state, {', '.join(ImageState._fields)} FROM images "
            f"WHERE state != '{FRAME}' AND path IS NOT NULL AND n_bytes {LISTED} ORDER BY id"
        )
        for state, *values in chain.from_iterable(self.stored.database.batches(statement, (as_list(sizes),))):
            image = ImageState(*values)
            rank = 1 if state == "gone" else 0 if image.id in lost_set else 3 if image.path in replaced_paths else 2
            if rank != 2 or image.path not in self.positions:
                by_size[image.n_bytes].append((rank, image.id, image))
        return {size: sorted(candidates) for size, candidates in by_size.items()}

    def find_moved(self, positions: Sequence[int], by_size: dict[int, list[Candidate]]) -> None:
        """Find images with the content of files at other paths, and add them to `result` as moved."""
        moved_ids: set[int] = set()
        positions_to_read = []
        for i in positions:
            size, date = self.states[i] or (-1, 0)
            candidates = by_size.get(size, [])
            for rank, image_id, image in candidates:
                # The file is back unchanged, for example on a disk that was disconnected
                is_back = rank == 1 and (image.path, image.mtime_ns) == (self.paths[i], date)
                if is_back and image_id not in moved_ids:
                    self.result.moved[i] = image_id
                    moved_ids.add(image_id)
                    break
            else:
                if candidates:
                    positions_to_read.append(i)

        for i, digest in zip(positions_to_read, self.hashes(positions_to_read), strict=True):
            for rank, image_id, image in by_size[(self.states[i] or (-1, 0))[0]]:
                if image_id in moved_ids or image.sha256 != digest:
                    continue
                if rank == 2 and is_there(image.path):  # the file is a copy: the original still exists
                    continue
                self.result.moved[i] = image_id
                moved_ids.add(image_id)
                break


def full_paths(items: Sequence[ImageFile], *, follow_files: bool = True) -> list[str | None]:
    """Return absolute paths with links resolved, and the addresses of remote objects; None for arrays.

    Without `follow_files`, only links to folders are resolved.
    """
    real_folder = cache(lambda folder: os.path.realpath(os.path.abspath(folder)))  # many files share a folder

    def full(item: str) -> str:
        if is_remote(item):
            return str(item)
        folder, name = os.path.split(item)
        if name in ("", os.curdir, os.pardir):
            folder, name = os.path.split(os.path.abspath(item))
        path = str(os.path.join(real_folder(folder), name))
        if follow_files and os.path.islink(path):
            return os.path.realpath(path)
        return item if path == item else path  # an equal text would take memory twice

    return [None if isinstance(item, np.ndarray) else full(os.fspath(item)) for item in items]


def is_inside(path: str, root: str) -> bool:
    """Return whether an absolute path is inside a folder."""
    return path.startswith(start_of_paths(root))
