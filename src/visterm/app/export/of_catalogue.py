"""What a catalogue has to write of its images: tags given and accepted, and predictions from the rows that it keeps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from visterm.app.export.changes import Change
from visterm.app.export.items import ExportItem
from visterm.app.export.of_run import least_confidences, predictions, scores_of
from visterm.app.tagger import CHUNK, Tagger
from visterm.core.progress import SILENT, Progress
from visterm.core.remote import as_path, is_remote
from visterm.core.types import Skipped
from visterm.store.catalogue import StoredCatalogue

GONE = "no such file"


def items_of_catalogue(
    tagger: Tagger,
    stored: StoredCatalogue,
    *,
    k: int = 0,
    min_confidence: float | None = None,
    precision: float | None = None,
    progress: Progress = SILENT,
) -> Iterator[ExportItem | Skipped]:
    """Give what there is to write of each image that is here; no image is decoded.

    Parameters
    ----------
    tagger : Tagger
        The catalogue's current run.
    stored : StoredCatalogue
    k, min_confidence, precision, progress
        As `items_of_run` takes them.

    Raises
    ------
    UserError
        See `least_confidences`.
    """
    least = least_confidences(tagger.calibration, k, min_confidence, precision)
    held, rejected = stored.tags.held(), stored.tags.rejected()
    ids = stored.searchable()
    progress.start("export", len(ids))
    try:
        for start in range(0, len(ids), CHUNK):
            some = ids[start : start + CHUNK]
            images = stored.images.get_many(some.tolist())
            for image, scores in zip(images, scores_of(tagger, stored.rows(some)), strict=True):
                progress.advance()
                if image.path is None or not (is_remote(image.path) or Path(image.path).is_file()):
                    yield Skipped(image.name, GONE)
                    continue
                yield ExportItem(
                    as_path(image.path),
                    tuple(held.get(image.id, ())),
                    predictions(tagger, scores, k, least),
                    tuple(rejected.get(image.id, ())),
                    name=image.path,
                )
    finally:
        progress.finish()


def files_of_catalogue(stored: StoredCatalogue) -> list[Path]:
    """List the files of the images that are here; objects have none."""
    return sorted(Path(path) for path in stored.images.files() if not is_remote(path))


def noted(changes: Iterable[Change | Skipped], stored: StoredCatalogue, target: str) -> Iterator[Change | Skipped]:
    """Pass on changes that were made, and keep in the catalogue which tags are written where now."""
    files = stored.images.files()
    added: list[tuple[int, str]] = []
    removed: list[tuple[int, str]] = []
    try:
        for change in changes:
            if isinstance(change, Change) and change.image in files:
                image_id = files[change.image].id
                added += [(image_id, mark.tag) for mark in change.added]
                removed += [(image_id, tag) for tag in change.removed]
            if len(added) + len(removed) >= CHUNK:
                _note(stored, target, added, removed)
            yield change
    finally:
        _note(stored, target, added, removed)


def _note(stored: StoredCatalogue, target: str, added: list[tuple[int, str]], removed: list[tuple[int, str]]) -> None:
    if added:
        stored.tags.note_written(target, added)
    if removed:
        stored.tags.forget_written(target, removed)
    added.clear()
    removed.clear()
