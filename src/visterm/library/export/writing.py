"""Write or remove tags of many images; images that cannot be written are reported and skipped."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import TypeAlias

from visterm.core.errors import DataError, DiskError, UserError, VistermError
from visterm.core.progress import SILENT, Progress
from visterm.core.remote import is_remote
from visterm.core.types import CHUNK, Skipped
from visterm.core.vocabulary import Vocabulary, tag_key
from visterm.core.wording import one_of
from visterm.data import sidecars
from visterm.data.tag_formats.texts import MAX_TEXT_BYTES, SUFFIX, TextNote, TextNotes, sidecar, text_tags
from visterm.data.text_files import read_text
from visterm.data.xmp.keywords import GIVEN, Mark
from visterm.library.export.items import ExportItem, FileChange, Parents
from visterm.library.export.targets import EmbeddedTarget, SidecarTarget
from visterm.library.files import is_inside
from visterm.library.photos import indexed_folders
from visterm.store.catalogue import StoredCatalogue

_SEPARATORS = frozenset(";,\n\r")  # Characters that a tag in a text file cannot contain


class TextTarget:
    """Writes ``photo.txt``, or ``photo.jpg.txt`` if two images share the name, without changing existing lines."""

    name = "txt"

    def __init__(self) -> None:
        self._sidecars = sidecars.Sidecars()
        self._notes: dict[Path, TextNotes] = {}
        self._notes_of_moved: dict[Path, TextNote] = {}  # Current path of the text file -> its note

    def export(self, item: ExportItem, marks: Sequence[Mark], *, dry_run: bool) -> FileChange:
        """Write the tags of an image, and return the changes."""
        path = self._path(item.path)
        notes, old = self._notes_of(path), sidecars.content_of(path)
        note = notes.of(path, old)
        existing = set(map(tag_key, text_tags(read_text(path, limit=MAX_TEXT_BYTES)))) if old is not None else set()
        written_tags = note.tags if note else []
        noted = set(map(tag_key, written_tags))
        invalid = {mark.tag for mark in marks if _SEPARATORS & set(mark.tag) or mark.tag.startswith("-")}
        rejected = set(map(tag_key, item.rejected)) & noted & existing
        added = tuple(mark for mark in marks if tag_key(mark.tag) not in existing | noted and mark.tag not in invalid)
        left_out = tuple(mark.tag for mark in marks if mark.tag in invalid or tag_key(mark.tag) in noted - existing)
        removed = tuple(tag for tag in written_tags if tag_key(tag) in rejected)
        if (added or removed) and not dry_run:
            new = _without_tags(old or b"", rejected)
            if added:
                lines = "".join(f"{mark.tag}\n" for mark in added)
                new += (b"\n" if new and not new.endswith(b"\n") else b"") + lines.encode()
            sidecars.check_stays_inside(path)  # check before recording the change
            notes.put(_updated_note(path, note, old, new, added, rejected))
            sidecars.replace_file(path, old, new)
            notes.mark_done(path)

        written_tags = [*(tag for tag in written_tags if tag not in removed), *(mark.tag for mark in added)]
        change = FileChange(str(item.path), str(path), added, removed, left_out, tuple(written_tags))
        staying = set(map(tag_key, item.rejected)) & existing - noted
        return replace(change, staying=tuple(sidecars.union(tag for tag in item.rejected if tag_key(tag) in staying)))

    def undo(self, image: Path, *, dry_run: bool) -> FileChange:
        """Remove the tags that visterm wrote, and delete text files that it created and nobody extended."""
        path = self._path(image)
        notes, old = self._notes_of(path), sidecars.content_of(path)
        note = notes.of(path, old) or self._notes_of_moved.get(path)
        removed: list[str] = []
        if note is not None and old is not None:
            removed = note.tags
            if note.length is not None and hashlib.sha256(old).hexdigest() == note.sha256:
                new = None if note.made else old[: note.length]
            else:
                remaining = _without_tags(old, set(map(tag_key, removed)))
                new = None if note.made and not remaining.strip() else remaining
            if not dry_run:
                sidecars.replace_file(path, old, new)
        if not dry_run:
            notes.forget(path)
        return FileChange(str(image), str(path), removed=tuple(removed))

    def follow(self, image: Path, former_paths: Sequence[Path]) -> None:
        """Use the note of a text file that was moved with its image: the note is still in the image's former folder."""
        for old_path in former_paths:
            for text_file in (old_path.with_name(f"{old_path.name}{SUFFIX}"), old_path.with_suffix(SUFFIX)):
                note = None if text_file.exists() else self._notes_of(text_file).of(text_file, None)
                if note is not None:
                    self._notes_of_moved[self._path(image)] = note

    def close(self) -> None:
        """Delete the notes of folders without any written tags."""
        for notes in self._notes.values():
            notes.clean()

    def _path(self, image: Path) -> Path:
        return sidecar(image) or (
            image.with_name(f"{image.name}{SUFFIX}") if self._sidecars.shares_stem(image) else image.with_suffix(SUFFIX)
        )

    def _notes_of(self, text_file: Path) -> TextNotes:
        if text_file.parent not in self._notes:
            self._notes[text_file.parent] = TextNotes(text_file.parent)
        return self._notes[text_file.parent]


def _without_tags(content: bytes, keys: set[str]) -> bytes:
    return b"".join(line for line in content.splitlines(keepends=True) if tag_key(line.decode("utf-8-sig")) not in keys)


def _updated_note(
    path: Path, note: TextNote | None, old: bytes | None, new: bytes, added: Sequence[Mark], rejected: set[str]
) -> TextNote:
    given = [mark.tag for mark in added if mark.source == GIVEN]
    predicted = [mark.tag for mark in added if mark.source != GIVEN]
    sha256 = hashlib.sha256(new).hexdigest()
    if note is None:
        return TextNote(path.name, given, predicted, old is None, len(old or b""), sha256)
    given = [*(tag for tag in note.given if tag_key(tag) not in rejected), *given]
    predicted = [*(tag for tag in note.predicted if tag_key(tag) not in rejected), *predicted]
    is_unchanged = old is not None and hashlib.sha256(old).hexdigest() == note.sha256
    return TextNote(path.name, given, predicted, note.made, note.length if is_unchanged else None, sha256)


XMP, EMBED, TXT = SidecarTarget.name, EmbeddedTarget.name, TextTarget.name

Target: TypeAlias = SidecarTarget | EmbeddedTarget | TextTarget


@dataclass(frozen=True, slots=True)
class Profile:
    """How to write tags for one program; keywords are always in the same fields, see `OWN_FIELDS`."""

    to: str  # "xmp" or "embed"
    naming: str = sidecars.FOUND  # Names of XMP files, see `Sidecars.target`
    raw: bool = False  # Whether RAW files get an XMP file instead of embedded tags
    iptc: bool = False  # Whether every image gets IPTC keywords
    flat: bool | None = False
    """Whether dc:subject and IPTC also get all parents of tags, as the program itself writes or needs it. None: only
    parents that were given as tags."""
    next_step: str = ""  # What users have to do in that program afterwards


PROFILES = {
    "lightroom": Profile(
        "embed", sidecars.STEM, raw=True, flat=True,
        next_step="In Lightroom Classic, select the photos and choose Metadata > Read Metadata from Files.",
    ),
    "digikam": Profile(
        "xmp", sidecars.STEM_FOUND,
        next_step="In digiKam, switch on 'Read from sidecar files' (Settings > Configure digiKam > Metadata > "
        "Sidecars), then read the photos' metadata again.",
    ),
    "darktable": Profile(
        "xmp", sidecars.FULL, flat=True,
        next_step="darktable reads the files when it imports photos. For imported photos, switch on 'look for updated "
        "XMP files on startup'; first let it write its own XMP files, because it also reads a photo's edits from them.",
    ),
    "immich": Profile(
        "xmp",
        next_step="In Immich, run the jobs 'Sidecar metadata' (Discover and Sync) and then 'Extract metadata'.",
    ),
    "photoprism": Profile(
        "embed", iptc=True, flat=True,
        next_step="In PhotoPrism, index the folder again: photoprism index, or Library > Index.",
    ),
}  # fmt: skip
"""Name of a program -> how to write tags for it."""

TARGETS = (XMP, EMBED, TXT, *PROFILES)


def writes_into_photos(to: str) -> bool:
    """Return whether a target changes the photos themselves."""
    return (PROFILES[to].to if to in PROFILES else to) == EMBED


class CatalogueNotes:
    """Keeps a catalogue's records of the tags that visterm wrote into the files of its images.

    If an export or undo is killed, the next one completes the records. `target` is the kind of file: "xmp", "embed" or
    "txt". Tags that neither the run's `vocabulary` nor the catalogue knows were written by another catalogue, and are
    not recorded.
    """

    def __init__(self, stored: StoredCatalogue, target: str, vocabulary: Vocabulary) -> None:
        self._stored, self._target, self._vocabulary = stored, target, vocabulary
        self._ids = stored.images.files()
        self._recorded = {
            image_id: {tag_key(written.tag): written.tag for written in group}
            for image_id, group in groupby(stored.written.of_target(target), key=attrgetter("image_id"))
        }
        self._image_ids_elsewhere = {
            path: {image_id for _, image_id in group}
            for path, group in groupby(stored.written.former_paths(target), key=itemgetter(0))
        }
        self._folders = indexed_folders(stored)
        self._added_tags: list[tuple[int, str]] = []
        self._removed_tags: list[tuple[int, str]] = []
        self._cleared_paths: list[str] = []

    def put(self, image: str, file_tags: Sequence[str]) -> None:
        """Record the tags found in the files of an image, replacing earlier records."""
        if image in self._image_ids_elsewhere and not file_tags:
            self._cleared_paths.append(image)
        image_id = self._ids.get(image)
        if image_id is None:
            return
        previous, current = self._recorded.pop(image_id, {}), {tag_key(tag): tag for tag in file_tags}
        self._added_tags += [(image_id, current[key]) for key in sorted(current.keys() - previous.keys())]
        self._removed_tags += [(image_id, previous[key]) for key in sorted(previous.keys() - current.keys())]
        if len(self._added_tags) + len(self._removed_tags) >= CHUNK:
            self.flush()

    def check_writable(self) -> None:
        """Raise DiskError if the catalogue is read-only, so that written tags could not be recorded."""
        self._stored.database.write("DELETE FROM written_tags WHERE 0")

    def former_paths(self) -> dict[Path, list[Path]]:
        """Return the former paths of moved photos whose files had tags written: current path -> former paths."""
        path_of = {image_id: path for path, image_id in self._ids.items()}
        paths: dict[Path, list[Path]] = {}
        for former_path, ids in self._image_ids_elsewhere.items():
            for image_id in ids & path_of.keys():
                paths.setdefault(Path(path_of[image_id]), []).append(Path(former_path))
        return paths

    def check_files_reachable(self, image: Path) -> None:
        """Raise DataError if a missing image's files may be on a disconnected drive or in a folder to be indexed.

        In that case, visterm's tags cannot be removed from them.
        """
        path = str(image)
        if self._recorded.get(self._ids.get(path, -1)):
            raise DataError(f"{path} does not exist. Index the folder that has it now (visterm index), and undo again.")
        parents = [folder for folder in self._folders if is_inside(path, folder)]
        is_connected = image.parent.is_dir() or any(os.path.isdir(folder) and os.listdir(folder) for folder in parents)
        if path in self._image_ids_elsewhere and not is_connected:
            raise DataError(f"the folder of {path} does not exist. Connect its drive, and undo again.")

    def flush(self) -> None:
        """Save the records."""
        written = self._stored.written
        tags = {tag for _, tag in self._added_tags}
        known_tags = set(filter(self._vocabulary.__contains__, tags)) | self._stored.tags.ids(tags).keys()
        written.note(self._target, [(image_id, tag) for image_id, tag in self._added_tags if tag in known_tags])
        written.forget(self._target, self._removed_tags)
        written.forget_former_paths(self._target, self._cleared_paths)
        for records in (self._added_tags, self._removed_tags, self._cleared_paths):
            records.clear()


def make_target(name: str, *, keep_originals: bool = True) -> Target:
    """Return the target "xmp", "embed" or "txt", or the target for a program of `PROFILES`.

    With `keep_originals`, "embed" makes a backup of each image. Raises UserError if the target is invalid;
    MissingExtraError if it needs a program that is not installed.
    """
    if name == TXT:
        return TextTarget()
    profile = Profile(name, flat=None) if name in (XMP, EMBED) else PROFILES.get(name)
    if profile is None:
        problem = f"Tags of photos cannot be written to '{name}'."
        raise UserError(problem, setting="to", value=name, expected=one_of(TARGETS))

    for_program = name in PROFILES
    if for_program and not keep_originals and profile.to != EMBED:
        problem = f"`overwrite` is for tags inside photos, and {name} does not change photos."
        raise UserError(problem, setting="overwrite", value=True, advice="Leave `overwrite` out.")

    target = SidecarTarget(naming=profile.naming, always=for_program, flat=profile.flat)
    if profile.to == XMP:
        return target
    return EmbeddedTarget(
        keep_originals=keep_originals, iptc=profile.iptc, flat=profile.flat,
        raw_sidecars=target if profile.raw else None,
    )  # fmt: skip


def export_tags(
    items: Iterable[ExportItem],
    target: Target,
    *,
    run: str | None = None,
    parents: Parents | None = None,
    dry_run: bool = False,
    notes: CatalogueNotes | None = None,
    take_off: bool = False,
) -> Iterator[FileChange | Skipped]:
    """Write tags to images one by one; people's tags are never changed, unless `take_off` removes rejected ones.

    Yields a `FileChange` for each image with changes, and a `Skipped` for each image that cannot be written. `target`
    (see `make_target`) is closed at the end. `run` is the fingerprint of the run, written with each prediction;
    `parents` are the parents of tags, for XMP only. A `dry_run` changes nothing, and yields the changes it would make.
    `notes` record the tags in all files, including unchanged files, except in a dry run.
    """
    tag_parents = Parents() if parents is None or isinstance(target, TextTarget) else parents

    def write(item: ExportItem) -> FileChange:
        marks = item.marks_to_write(run, tag_parents)
        names = {tag_key(name): name for name in map(tag_parents.own_name, item.rejected)}
        rejected = tuple(name for key, name in names.items() if key not in {tag_key(mark.tag) for mark in marks})
        return target.export(replace(item, rejected=rejected, takes_off=take_off), marks, dry_run=dry_run)

    return _write_all("export photos", items, write, target, SILENT, None if dry_run else notes, dry_run=dry_run)


def undo_tags(
    items: Iterable[ExportItem],
    target: Target,
    *,
    dry_run: bool = False,
    progress: Progress = SILENT,
    notes: CatalogueNotes | None = None,
) -> Iterator[FileChange | Skipped]:
    """Remove all tags that visterm wrote to images; parameters and results as in `export_tags`."""
    former_paths = {} if notes is None else notes.former_paths()

    def remove_tags(item: ExportItem) -> FileChange:
        if isinstance(target, TextTarget) and item.path in former_paths:
            target.follow(item.path, former_paths[item.path])
        if notes is not None and not item.path.exists() and not target.undo(item.path, dry_run=True).has_changes:
            notes.check_files_reachable(item.path)
        return target.undo(item.path, dry_run=dry_run)

    return _write_all("undo", items, remove_tags, target, progress, None if dry_run else notes, dry_run=dry_run)


def not_written(image: Path, error: Exception) -> Skipped:
    """Return an image as skipped, with a reason that does not contain its path, to count equal reasons."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    if not isinstance(error, VistermError | OSError):
        reason = f"its metadata cannot be understood ({type(error).__name__}: {error})"
    for suffix, kind in ((".xmp", "XMP"), (".txt", "text")):
        for path in (f"{image}{suffix}", str(image.with_suffix(suffix))):
            reason = reason.replace(path, f"its {kind} file")
    return Skipped(str(image), f"not written because {reason.replace(str(image), 'the photo')}")


def _write_all(
    task: str,
    items: Iterable[ExportItem],
    write: Callable[[ExportItem], FileChange],
    target: Target,
    progress: Progress,
    notes: CatalogueNotes | None,
    *,
    dry_run: bool,
) -> Iterator[FileChange | Skipped]:
    """Write each item, and yield the changes under the item's name, and the images that cannot be written."""
    if notes is not None:
        notes.check_writable()

    progress.start(task)
    swept_folders: set[Path] = set()
    try:
        for item in items:
            progress.advance()
            image = item.path
            if is_remote(image):
                yield Skipped(str(image), "in an object store, where no tags are written: export a table")
                continue
            if image.parent not in swept_folders and not dry_run:
                swept_folders.add(image.parent)
                sidecars.sweep_temporaries(image.parent)
            try:
                change = write(item)
            except (DiskError, UserError):  # all other images would fail, too
                raise
            except Exception as error:  # broken metadata may raise anything; continue with the other photos
                yield not_written(image, error)
                continue
            if notes is not None:
                notes.put(str(image), change.visterm_tags)
            if change.has_changes:
                yield replace(change, image=item.name or change.image)
    finally:
        if notes is not None:
            notes.flush()
        target.close()
        progress.finish()
