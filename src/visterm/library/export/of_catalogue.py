"""What a catalogue has to write of its images: tags given and accepted, and predictions from the rows that it keeps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from visterm.core.progress import SILENT, Progress
from visterm.core.remote import as_path, is_remote
from visterm.core.types import Skipped
from visterm.core.vocabulary import Vocabulary
from visterm.library.export.items import ExportItem
from visterm.library.export.of_run import least_confidences, predictions, scores_of
from visterm.store.catalogue import StoredCatalogue
from visterm.tagging.tagger import CHUNK, Tagger

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
    """Yield what there is to write of each image that is here; no image is decoded.

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


class CatalogueNotes:
    """Keeps in a catalogue which tags are in the files of its images: what the files say is what counts.

    So notes that a killed export could not keep are kept by the next one, and those that a killed undo left go.

    Parameters
    ----------
    stored : StoredCatalogue
    target : str
        Where tags are written: "xmp", "embed" or "txt".
    vocabulary : Vocabulary
        Of the run. Tags that neither it nor the catalogue knows were not written by this catalogue, and are not kept.
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
        """Take what was found in the files of an image, in place of what was noted of it."""
        image_id = self._ids.get(image)
        if image_id is None:
            return
        noted = self._noted.pop(image_id, set())
        self._added += [(image_id, tag) for tag in sorted(set(found) - noted)]
        self._removed += [(image_id, tag) for tag in sorted(noted - set(found))]
        if len(self._added) + len(self._removed) >= CHUNK:
            self.flush()

    def flush(self) -> None:
        """Write down what was taken."""
        tags = self._stored.tags
        new = {tag for _, tag in self._added}
        known = new.intersection(self._vocabulary.tags) | tags.ids(new).keys()
        if kept := [(image_id, tag) for image_id, tag in self._added if tag in known]:
            tags.note_written(self._target, kept)
        if self._removed:
            tags.forget_written(self._target, self._removed)
        self._added.clear()
        self._removed.clear()
