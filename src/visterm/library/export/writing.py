"""Writing the tags of many images, and taking them back: what cannot be written is reported, and stops nothing."""

from __future__ import annotations

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
from visterm.data.sidecars import FOUND, FULL, STEM, STEM_FOUND, sweep_temporaries
from visterm.library.export.items import ExportItem, FileChange, Parents
from visterm.library.export.targets import EmbeddedTarget, SidecarTarget, TextTarget
from visterm.library.files import is_inside
from visterm.library.photos import indexed_folders
from visterm.store.catalogue import StoredCatalogue

XMP, EMBED, TXT = SidecarTarget.name, EmbeddedTarget.name, TextTarget.name

Target: TypeAlias = SidecarTarget | EmbeddedTarget | TextTarget


@dataclass(frozen=True, slots=True)
class Profile:
    """How tags are written for one program; the fields of keywords are always the same, see `OWN_FIELDS`."""

    to: str  # "xmp" or "embed"
    naming: str = FOUND  # Of XMP files, see `Sidecars.target`
    raw: bool = False  # Whether RAW files get an XMP file, where all others are written into
    iptc: bool = False  # Whether every image gets IPTC keywords
    flat: bool | None = False
    """Whether dc:subject and IPTC have the tags above a tag, too, as the program itself writes them, or needs them.
    None: those that were given by themselves."""
    then: str = ""  # What people do in that program afterwards


PROFILES = {
    "lightroom": Profile(
        "embed", STEM, raw=True, flat=True,
        then="In Lightroom Classic, select the photos and choose Metadata > Read Metadata from Files.",
    ),
    "digikam": Profile(
        "xmp", STEM_FOUND,
        then="In digiKam, switch on 'Read from sidecar files' (Settings > Configure digiKam > Metadata > "
        "Sidecars), then read the photos' metadata again.",
    ),
    "darktable": Profile(
        "xmp", FULL, flat=True,
        then="darktable reads the files as it imports photos. Photos that it has: switch on 'look for updated XMP "
        "files on startup'; first let it write its own XMP files, as it takes a photo's edits from them, too.",
    ),
    "immich": Profile(
        "xmp",
        then="In Immich, run the jobs 'Sidecar metadata' (Discover and Sync) and then 'Extract metadata'.",
    ),
    "photoprism": Profile(
        "embed", iptc=True, flat=True,
        then="In PhotoPrism, index the folder again: photoprism index, or Library > Index.",
    ),
}  # fmt: skip
"""What other programs read: for each, where tags go, under which file name, and which setting it needs."""

TARGETS = (XMP, EMBED, TXT, *PROFILES)


class CatalogueNotes:
    """Notes in a catalogue which tags of visterm are in the files of its images, as the files say.

    So the next export catches up on what a killed export or undo could not note. `target` is where tags are written:
    "xmp", "embed" or "txt". Tags that neither the run's `vocabulary` nor the catalogue knows were not written by this
    catalogue, and are not kept.
    """

    def __init__(self, stored: StoredCatalogue, target: str, vocabulary: Vocabulary) -> None:
        self._stored, self._target, self._vocabulary = stored, target, vocabulary
        self._ids = {path: image.id for path, image in stored.images.files().items()}
        self._noted = {
            image_id: {tag_key(written.tag): written.tag for written in group}
            for image_id, group in groupby(stored.written.of_target(target), key=attrgetter("image_id"))
        }
        self._elsewhere = {
            path: {image_id for _, image_id in group}
            for path, group in groupby(stored.written.elsewhere(target), key=itemgetter(0))
        }
        self._folders = indexed_folders(stored)
        self._added: list[tuple[int, str]] = []
        self._removed: list[tuple[int, str]] = []
        self._cleared: list[str] = []

    def put(self, image: str, found: Sequence[str]) -> None:
        """Note what was found in the files of an image, in place of what was noted before."""
        if image in self._elsewhere and not found:
            self._cleared.append(image)
        image_id = self._ids.get(image)
        if image_id is None:
            return
        noted, current = self._noted.pop(image_id, {}), {tag_key(tag): tag for tag in found}
        self._added += [(image_id, current[key]) for key in sorted(current.keys() - noted.keys())]
        self._removed += [(image_id, noted[key]) for key in sorted(noted.keys() - current.keys())]
        if len(self._added) + len(self._removed) >= CHUNK:
            self.flush()

    def check_writable(self) -> None:
        """Refuse to write into files what could not be noted. Raises DiskError."""
        self._stored.database.write("DELETE FROM written_tags WHERE 0")

    def formerly(self) -> dict[Path, list[Path]]:
        """Return where photos lay before they moved away from files that tags were written into."""
        at = {image_id: path for path, image_id in self._ids.items()}
        places: dict[Path, list[Path]] = {}
        for path, ids in self._elsewhere.items():
            for image_id in ids & at.keys():
                places.setdefault(Path(at[image_id]), []).append(Path(path))
        return places

    def check_in_reach(self, image: Path) -> None:
        """Refuse to forget what was written to an image that is not there, if its files may be elsewhere.

        Raises DataError if so.
        """
        path = str(image)
        if self._noted.get(self._ids.get(path, -1)):
            raise DataError(f"{path} is not there. Index the folder that it is in now (visterm index), and undo again.")
        around = [folder for folder in self._folders if is_inside(path, folder)]
        is_near = image.parent.is_dir() or any(os.path.isdir(folder) and os.listdir(folder) for folder in around)
        if path in self._elsewhere and not is_near:
            raise DataError(f"the folder of {path} is not there. Connect its drive, and undo again.")

    def flush(self) -> None:
        """Write the notes down."""
        written = self._stored.written
        new = {tag for _, tag in self._added}
        known = set(filter(self._vocabulary.__contains__, new)) | self._stored.tags.ids(new).keys()
        written.note(self._target, [(image_id, tag) for image_id, tag in self._added if tag in known])
        written.forget(self._target, self._removed)
        written.forget_elsewhere(self._target, self._cleared)
        for noted in (self._added, self._removed, self._cleared):
            noted.clear()


def make_target(name: str, *, keep_originals: bool = True, follow_links: bool = False) -> Target:
    """Return the target "xmp", "embed" or "txt", or that of a program of `PROFILES`.

    With `keep_originals`, "embed" keeps a backup of each image beside it. With `follow_links`, links are written
    through that lead out of a photo's folder. Raises UserError if there is no such target; MissingExtraError if it
    takes a program that is not installed.
    """
    if name == TXT:
        return TextTarget(follow_links=follow_links)
    profile = Profile(name, flat=None) if name in (XMP, EMBED) else PROFILES.get(name)
    if profile is None:
        problem = f"'{name}' is not a place for the tags of each photo."
        raise UserError(problem, setting="to", value=name, expected=one_of(TARGETS))
    for_program = name in PROFILES
    if for_program and not keep_originals and profile.to != EMBED:
        problem = f"`overwrite` is for tags inside of photos, and {name} leaves photos as they are."
        raise UserError(problem, setting="overwrite", value=True, advice="Leave `overwrite` out.")

    beside = SidecarTarget(naming=profile.naming, always=for_program, flat=profile.flat, follow_links=follow_links)
    if profile.to == XMP:
        return beside
    return EmbeddedTarget(
        keep_originals=keep_originals, iptc=profile.iptc, flat=profile.flat, beside=beside if profile.raw else None,
        follow_links=follow_links,
    )  # fmt: skip


def export_tags(
    items: Iterable[ExportItem],
    target: Target,
    *,
    run: str | None = None,
    parents: Parents | None = None,
    dry_run: bool = False,
    progress: Progress = SILENT,
    notes: CatalogueNotes | None = None,
) -> Iterator[FileChange | Skipped]:
    """Write tags to their images, one after another; tags are only added, and no person's is ever changed.

    Yields one `FileChange` or `Skipped` for each image that has changes, or that cannot be written. `target` (see
    `make_target`) is closed at the end. `run` is the fingerprint of the run that predicted, noted beside each
    prediction; `parents` are the tags above others, for XMP: texts have the tags alone. A `dry_run` changes nothing,
    and yields what would be changed.
    `notes` are kept of what the files hold, those that are not changed too; not in a dry run.
    """
    above = Parents() if parents is None or isinstance(target, TextTarget) else parents

    def write(item: ExportItem) -> FileChange:
        wanted = item.wanted(run, above)
        names = {tag_key(name): name for name in map(above.own_name, item.rejected)}
        rejected = tuple(name for key, name in names.items() if key not in {tag_key(mark.tag) for mark in wanted})
        return target.export(replace(item, rejected=rejected), wanted, dry_run=dry_run)

    return _each("export photos", items, write, target, progress, None if dry_run else notes, dry_run=dry_run)


def undo_tags(
    items: Iterable[ExportItem],
    target: Target,
    *,
    dry_run: bool = False,
    progress: Progress = SILENT,
    notes: CatalogueNotes | None = None,
) -> Iterator[FileChange | Skipped]:
    """Take back all that visterm wrote to some images; parameters and results are those of `export_tags`."""
    formerly = {} if notes is None else notes.formerly()

    def take_back(item: ExportItem) -> FileChange:
        if isinstance(target, TextTarget) and item.path in formerly:
            target.follow(item.path, formerly[item.path])
        if notes is not None and not item.path.exists() and not target.undo(item.path, dry_run=True).is_one:
            notes.check_in_reach(item.path)
        return target.undo(item.path, dry_run=dry_run)

    return _each("undo", items, take_back, target, progress, None if dry_run else notes, dry_run=dry_run)


def not_written(image: Path, error: Exception) -> Skipped:
    """Return an image that is not written, with a reason that is the same for many: it names the file's kind only."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    if not isinstance(error, VistermError | OSError):
        reason = f"its metadata cannot be understood ({type(error).__name__}: {error})"
    for ending, what in ((".xmp", "XMP"), (".txt", "text")):
        for path in (f"{image}{ending}", str(image.with_suffix(ending))):
            reason = reason.replace(path, f"its {what} file")
    return Skipped(str(image), f"not written because {reason.replace(str(image), 'the photo')}")


def _each(
    task: str,
    items: Iterable[ExportItem],
    write: Callable[[ExportItem], FileChange],
    target: Target,
    progress: Progress,
    notes: CatalogueNotes | None,
    *,
    dry_run: bool,
) -> Iterator[FileChange | Skipped]:
    """Yield the changes of each image, named as the item is, and images that cannot be written."""
    if notes is not None:
        notes.check_writable()

    progress.start(task)
    swept: set[Path] = set()
    try:
        for item in items:
            progress.advance()
            image = item.path
            if is_remote(image):
                yield Skipped(str(image), "in an object store, where no tags are written: export a table")
                continue
            if image.parent not in swept and not dry_run:
                swept.add(image.parent)
                sweep_temporaries(image.parent)
            try:
                change = write(item)
            except (DiskError, UserError):  # it would be the same with all the others
                raise
            except Exception as error:  # whatever odd metadata lead to: no photo stops the others
                yield not_written(image, error)
                continue
            if notes is not None:
                notes.put(str(image), change.found)
            if change.is_one:
                yield replace(change, image=item.name or change.image)
    finally:
        if notes is not None:
            notes.flush()
        target.close()
        progress.finish()
