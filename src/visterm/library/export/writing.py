"""Writing the tags of many images, and taking them back: what cannot be written is reported, and stops nothing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from visterm.core.errors import DataError, DiskError, StorageError, UserError
from visterm.core.progress import SILENT, Progress
from visterm.core.remote import is_remote
from visterm.core.types import CHUNK, Skipped
from visterm.core.vocabulary import Vocabulary, tag_key
from visterm.core.wording import one_of
from visterm.data.sidecars import sweep_temporaries
from visterm.library.export.items import Change, ExportItem, Parents
from visterm.library.export.profiles import RawApartTarget, profile_of, target_for
from visterm.library.export.text_target import TextTarget
from visterm.library.export.xmp_targets import EmbeddedTarget, SidecarTarget
from visterm.store.catalogue import StoredCatalogue

XMP, EMBED, TXT = SidecarTarget.name, EmbeddedTarget.name, TextTarget.name
TARGETS = (XMP, EMBED, TXT)

Target: TypeAlias = SidecarTarget | EmbeddedTarget | RawApartTarget | TextTarget

IN_STORE = "in an object store, where no tags are written: export a table (--to csv)"


class CatalogueNotes:
    """Notes in a catalogue which tags of visterm are in the files of its images, as the files say.

    So the next export catches up on what a killed export or undo could not note. `target` is where tags are written:
    "xmp", "embed" or "txt". Tags that neither the run's `vocabulary` nor the catalogue knows were not written by this
    catalogue, and are not kept.
    """

    def __init__(self, stored: StoredCatalogue, target: str, vocabulary: Vocabulary) -> None:
        self._stored, self._target, self._vocabulary = stored, target, vocabulary
        self._ids = {path: image.id for path, image in stored.images.files().items()}
        self._noted: defaultdict[int, set[str]] = defaultdict(set)
        for written in stored.tags.written(target):
            self._noted[written.image_id].add(written.tag)
        self._added: list[tuple[int, str]] = []
        self._removed: list[tuple[int, str]] = []

    def put(self, image: str, found: Sequence[str]) -> None:
        """Note what was found in the files of an image, in place of what was noted before."""
        image_id = self._ids.get(image)
        if image_id is None:
            return
        noted = self._noted.pop(image_id, set())
        self._added += [(image_id, tag) for tag in sorted(set(found) - noted)]
        self._removed += [(image_id, tag) for tag in sorted(noted - set(found))]
        if len(self._added) + len(self._removed) >= CHUNK:
            self.flush()

    def flush(self) -> None:
        """Write the notes down."""
        tags = self._stored.tags
        new = {tag for _, tag in self._added}
        known = new.intersection(self._vocabulary.tags) | tags.ids(new).keys()
        if kept := [(image_id, tag) for image_id, tag in self._added if tag in known]:
            tags.note_written(self._target, kept)
        if self._removed:
            tags.forget_written(self._target, self._removed)
        self._added.clear()
        self._removed.clear()


def make_target(
    name: str | None = None, *, program: str | None = None, keep_originals: bool = True, follow_links: bool = False
) -> Target:
    """Return the target "xmp", "embed" or "txt", or that of a `program` of `PROFILES`.

    With `keep_originals`, "embed" keeps a backup of each image beside it. With `follow_links`, links are written
    through that lead out of a photo's folder. Raises UserError if there is no such target, or it is not the one of the
    `program`; MissingExtraError if it takes a program that is not installed.
    """
    if program is not None:
        profile = profile_of(program, to=name, keep_originals=keep_originals)
        return target_for(profile, keep_originals=keep_originals, follow_links=follow_links)
    if name == XMP:
        return SidecarTarget(follow_links=follow_links)
    if name == EMBED:
        return EmbeddedTarget(keep_originals=keep_originals, follow_links=follow_links)
    if name == TXT:
        return TextTarget(follow_links=follow_links)
    raise UserError(f"'{name}' is not a place for the tags of each photo; expected {one_of(TARGETS)}.")


def export_tags(
    items: Iterable[ExportItem],
    target: Target,
    *,
    run: str | None = None,
    parents: Parents | None = None,
    dry_run: bool = False,
    progress: Progress = SILENT,
    notes: CatalogueNotes | None = None,
) -> Iterator[Change | Skipped]:
    """Write tags to their images, one after another; tags are only added, and no person's is ever changed.

    Yields one `Change` or `Skipped` for each image that has changes, or that cannot be written. `target` (see
    `make_target`) is closed at the end. `run` is the fingerprint of the run that predicted, noted beside each
    prediction; `parents` are the tags above others, for XMP: texts have the tags alone. A `dry_run` changes nothing,
    and yields what would be changed.
    `notes` are kept of what the files hold, those that are not changed too; not in a dry run.
    """
    above = Parents() if parents is None or isinstance(target, TextTarget) else parents

    def write(item: ExportItem) -> Change | None:
        wanted = item.wanted(run, above)
        names = {tag_key(name): name for name in map(above.own_name, item.rejected)}
        rejected = tuple(name for key, name in names.items() if key not in {tag_key(mark.tag) for mark in wanted})
        return target.export(replace(item, rejected=rejected), wanted, dry_run=dry_run)

    return _each("export photos", items, write, target, progress, notes, dry_run=dry_run)


def undo_tags(
    items: Iterable[ExportItem],
    target: Target,
    *,
    dry_run: bool = False,
    progress: Progress = SILENT,
    notes: CatalogueNotes | None = None,
) -> Iterator[Change | Skipped]:
    """Take back all that visterm wrote to some images; parameters and results are those of `export_tags`."""

    def take_back(item: ExportItem) -> Change | None:
        return target.undo(item.path, dry_run=dry_run)

    return _each("undo", items, take_back, target, progress, notes, dry_run=dry_run)


def not_written(image: Path, error: Exception) -> Skipped:
    """Return an image that is not written, with a reason that is the same for many: it names the file's kind only."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    for ending, what in ((".xmp", "XMP"), (".txt", "text")):
        for path in (f"{image}{ending}", str(image.with_suffix(ending))):
            reason = reason.replace(path, f"its {what} file")
    return Skipped(str(image), f"not written because {reason.replace(str(image), 'the photo')}")


def _each(
    task: str,
    items: Iterable[ExportItem],
    write: Callable[[ExportItem], Change | None],
    target: Target,
    progress: Progress,
    notes: CatalogueNotes | None,
    *,
    dry_run: bool,
) -> Iterator[Change | Skipped]:
    """Yield the changes of each image, named as the item is, and images that cannot be written."""
    progress.start(task)
    swept: set[Path] = set()
    try:
        for item in items:
            progress.advance()
            image = item.path
            if is_remote(image):
                yield Skipped(str(image), IN_STORE)
                continue
            if image.parent not in swept and not dry_run:
                swept.add(image.parent)
                sweep_temporaries(image.parent)
            try:
                change = write(item)
            except DiskError:  # it would be the same with all the others
                raise
            except (DataError, StorageError, OSError) as error:
                yield not_written(image, error)
            else:
                if notes is not None and not dry_run:
                    notes.put(str(image), change.found if change is not None else ())
                if change is not None and change.is_one:
                    yield replace(change, image=item.name or change.image)
    finally:
        if notes is not None and not dry_run:
            notes.flush()
        target.close()
        progress.finish()
