"""Compare files with a catalogue: unchanged, changed, moved, gone or new; reads as few files as possible."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TypeAlias

import numpy as np

from visterm.core.remote import is_remote, start_of_paths
from visterm.core.threads import Team, resolve_jobs
from visterm.data.contents import content_hash, file_states
from visterm.data.image_folders import is_there
from visterm.store.catalogue import StoredCatalogue
from visterm.store.images import ImageFile, ImageState

FILES_PER_COMMIT = 512


@dataclass(slots=True)
class ComparedFiles:
    """Result of comparing listed files, by position in the list, with images of the catalogue, by id."""

    new: list[int] = field(default_factory=list)  # Positions of new files
    changed: dict[int, int] = field(default_factory=dict)  # Position -> image with this path, but other content
    moved: dict[int, int] = field(default_factory=dict)  # Position -> image that moved to this path
    kept: dict[int, int] = field(default_factory=dict)  # Position -> unchanged image
    gone: list[int] = field(default_factory=list)  # Ids of images that are gone


FileState: TypeAlias = tuple[int, int]  # Size in bytes, and time of the last change
Candidate: TypeAlias = tuple[int, int, str, ImageState]  # Possibly moved image: rank, id, path and state


def compare(
    stored: StoredCatalogue,
    items: Sequence[ImageFile],
    *,
    may_be_gone: Callable[[str], bool] | None = None,
    n_jobs: int | None = None,
) -> ComparedFiles:
    """Compare files with the images of a catalogue: by path, size and date first, by content if these differ.

    A file with its old size but a new date is read; if its content is the same, the new date is stored. A file counts
    as moved if it has the content of an image whose file no longer exists or was changed; only files of the same size
    as such an image are read.

    `items` are paths, or arrays, which are always new. Images whose file no longer exists are gone if `may_be_gone`
    returns True for their path; by default no image is gone. The caller must have the writer lock of `stored`.
    """
    paths = full_paths(items)
    files = _ListedFiles(stored, paths, file_states(paths), stored.images.files(), Team(resolve_jobs(n_jobs)))
    images_by_path, result = files.images_by_path, files.result
    unknown_positions, redated_positions, changed_positions = files.compare_states()
    listed_paths = set(filter(None, paths))

    with files.team:
        changed_positions += files.store_new_dates(redated_positions)
        lost_ids = [  # files that still exist but were not listed are not lost
            state.id
            for path, state in images_by_path.items()
            if may_be_gone is not None and path not in listed_paths and may_be_gone(path) and not is_there(path)
        ]
        candidates = files.candidates_by_size(lost_ids, [str(paths[i]) for i in changed_positions], listed_paths)
        files.find_moved([*unknown_positions, *changed_positions], candidates)

    result.new += [i for i in unknown_positions if i not in result.moved]
    moved_ids = set(result.moved.values())
    for i in changed_positions:
        image_id = images_by_path[str(paths[i])].id
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
    """Listed files, and the files that the catalogue knows."""

    stored: StoredCatalogue
    paths: Sequence[str | None]
    states: Sequence[FileState | None]
    images_by_path: dict[str, ImageState]
    team: Team
    result: ComparedFiles = field(default_factory=ComparedFiles)
    digests: dict[int, str | None] = field(default_factory=dict)

    def hashes(self, positions: Sequence[int]) -> list[str | None]:
        """Return the content hashes of files, each computed once."""
        unread = [i for i in positions if i not in self.digests]
        contents = self.team.run(lambda n: content_hash(str(self.paths[unread[n]])), len(unread))
        self.digests.update(zip(unread, contents, strict=True))
        return [self.digests[i] for i in positions]

    def compare_states(self) -> tuple[list[int], list[int], list[int]]:
        """Return positions of unknown files, of known files with a new date, and of known files with a new size.

        Arrays and unchanged files are added to `result`.
        """
        hidden = {image.path: (image.n_bytes, image.mtime_ns) for image in self.stored.images.hidden()}
        unknown_positions, redated_positions, resized_positions = [], [], []
        seen_paths: set[str] = set()
        for i, (path, state) in enumerate(zip(self.paths, self.states, strict=True)):
            if path is None:
                self.result.new.append(i)
                continue
            if path in seen_paths:  # another link to a listed file
                continue
            seen_paths.add(path)
            image = self.images_by_path.get(path)
            if image is None:
                if state is None or hidden.get(path) != state:  # else it is an unchanged file that a person hid
                    unknown_positions.append(i)
            elif state == (image.n_bytes, image.mtime_ns):
                self.result.kept[i] = image.id
            elif state is not None and state[0] == image.n_bytes:
                redated_positions.append(i)
            else:
                resized_positions.append(i)
        return unknown_positions, redated_positions, resized_positions

    def store_new_dates(self, redated_positions: Sequence[int]) -> list[int]:
        """Store the new dates of files with unchanged content, and return the positions of the other files."""
        changed_positions = []
        for start in range(0, len(redated_positions), FILES_PER_COMMIT):
            chunk = redated_positions[start : start + FILES_PER_COMMIT]
            dates = []
            for i, digest in zip(chunk, self.hashes(chunk), strict=True):
                image, state = self.images_by_path[str(self.paths[i])], self.states[i]
                if digest == image.sha256 and state is not None:
                    self.result.kept[i] = image.id
                    dates.append((state[1], image.id))
                else:
                    changed_positions.append(i)
            self.stored.database.write_many("UPDATE images SET mtime_ns = ? WHERE id = ?", dates)
        return changed_positions

    def candidates_by_size(
        self, lost_ids: Sequence[int], changed_paths: Sequence[str], listed_paths: set[str]
    ) -> dict[int, list[Candidate]]:
        """Return the images that may have moved, by file size.

        In this order: images lost in this comparison, images that were gone already, images outside the listed files,
        and images whose file has other content now.
        """
        lost_set, replaced_paths = set(lost_ids), set(changed_paths)
        candidates = [
            (0 if state.id in lost_set else 3 if path in replaced_paths else 2, state.id, path, state)
            for path, state in self.images_by_path.items()
            if state.id in lost_set or path in replaced_paths or path not in listed_paths
        ]
        statement = "SELECT id, path, n_bytes, mtime_ns, sha256 FROM images WHERE state = 'gone' AND path IS NOT NULL"
        for image_id, path, *state in self.stored.database.rows(statement):
            candidates.append((1, image_id, path, ImageState(image_id, *state)))

        by_size: defaultdict[int, list[Candidate]] = defaultdict(list)
        for candidate in sorted(candidates):
            by_size[candidate[-1].n_bytes].append(candidate)
        return by_size

    def find_moved(self, positions: Sequence[int], by_size: dict[int, list[Candidate]]) -> None:
        """Find images with the content of files at other paths, and add them to `result` as moved."""
        moved_ids: set[int] = set()
        positions_to_read = []
        for i in positions:
            size, date = self.states[i] or (-1, 0)
            candidates = by_size.get(size, [])
            for rank, image_id, path, image in candidates:
                # The file is back unchanged, for example on a disk that was disconnected
                is_back = rank == 1 and (path, image.mtime_ns) == (self.paths[i], date)
                if is_back and image_id not in moved_ids:
                    self.result.moved[i] = image_id
                    moved_ids.add(image_id)
                    break
            else:
                if candidates:
                    positions_to_read.append(i)

        for i, digest in zip(positions_to_read, self.hashes(positions_to_read), strict=True):
            for rank, image_id, path, image in by_size[(self.states[i] or (-1, 0))[0]]:
                if image_id in moved_ids or image.sha256 != digest:
                    continue
                if rank == 2 and is_there(path):  # the file is a copy: the original still exists
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
