"""Sources of exported tags: a catalogue, or a run with a folder of images."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from visterm.core.errors import UserError
from visterm.core.persist import folder_kind
from visterm.core.progress import SILENT, Progress, StepProgress, reported
from visterm.core.remote import as_path, is_remote
from visterm.core.types import CHUNK, Doubles, Floats, Ints, Matrix, Skipped
from visterm.core.vocabulary import tag_key
from visterm.data.image_folders import Unsearched, find_images, is_there, no_images_message
from visterm.data.sidecars import Sidecars
from visterm.library.catalogue import Catalogue
from visterm.library.export.items import ExportItem, Predicted
from visterm.library.export.writing import CatalogueNotes, not_written
from visterm.models.confidence.calibration import Calibration
from visterm.store.catalogue import StoredCatalogue
from visterm.store.filters import PREDICTED_FROM
from visterm.tagging.annotating import cutoff_of
from visterm.tagging.tagger import Tagger

MAX_SCORES = 2**22  # Maximum number of scores in memory
NO_FILE, NO_PERMISSION = "no such file", "no permission"


class Limits(NamedTuple):
    """Limits on the predictions to write."""

    k: int = 0  # Maximum number per image, highest confidence first; 0: no limit
    min_confidence: float | None = None  # Minimum confidence; 0.5 if this and `precision` are None
    precision: float | None = None  # Expected share of correct predictions, see `cutoff_of`


def open_source(source: Path, images: Path | None, *, into_files: bool = False) -> RunSource | CatalogueSource:
    """Open a catalogue, or a run with the images to tag.

    `into_files` means that tags will be written into photos or sidecar files. Raises UserError if `images` are passed
    with a catalogue or missing with a run, or if tags cannot be written into files because the photos belong to another
    program; StorageError if `source` is neither a catalogue nor a run.
    """
    if folder_kind(source) == "run":
        if images is None:
            advice = "Pass the photos to write tags to, or a catalogue (visterm index RUN IMAGES -o CATALOGUE)."
            raise UserError(f"{source} is a run, and `images` is missing.", setting="images", advice=advice)
        return RunSource(source, images)
    if images is not None:
        problem = "A catalogue has its own photos, and `images` is only for runs."
        raise UserError(problem, setting="images", value=str(images), advice="Leave `images` out.")

    catalogue = Catalogue.load(source)
    connection = catalogue.stored.connected.get()
    if into_files and connection is not None:
        raise UserError(
            f"The photos of {source} are in {connection.title} at {connection.address}; the catalogue only has "
            f"previews, and no program would read tags of previews. Write the tags to {connection.title}: visterm "
            f"sync {source}. Or export a table of them: visterm export {source} --to csv -o FILE"
        )
    return CatalogueSource(catalogue)


class RunSource:
    """A run and a folder of photos: their keywords, and the tags that the run predicts.

    `images` may also be one photo; names in tables are paths inside the folder.
    """

    def __init__(self, run: Path, images: Path) -> None:
        self.tagger = Tagger.load(run)
        if self.tagger.encoder.by_number:
            raise UserError(f"The run {run} identifies images only by number, so there are no photos to write tags to.")
        self._unsearched, self._folder = Unsearched(), images if images.is_dir() else images.parent
        self._images = find_images(images, unsearched=self._unsearched)
        if not self._images:
            raise UserError(no_images_message(images))

    def items(self, limits: Limits, progress: Progress = SILENT) -> Iterator[ExportItem | Skipped]:
        """Yield the keywords and predicted tags of each image."""
        tagger, images = self.tagger, self._images
        min_confidences = _min_confidences(tagger.calibration, limits)
        sidecars = Sidecars()
        yield from self._unsearched.closed
        with reported(progress, "read photos", len(images)):
            for start in range(0, len(images), CHUNK):
                chunk = images[start : start + CHUNK]
                X, positions, skipped = tagger.encoder.encode(chunk, progress=StepProgress(progress))
                yield from skipped
                if len(positions) == 0:
                    continue
                for position, scores in zip(positions, _scores(tagger, tagger.model.image_rows(X)), strict=True):
                    image = chunk[position]
                    try:
                        keywords = tuple(sidecars.keywords(image).people_tags)
                    except Exception as error:  # broken metadata may raise anything
                        yield not_written(image, error)
                        continue
                    predicted = _predictions(tagger, scores, limits.k, min_confidences)
                    yield ExportItem(image, keywords, predicted, name=self._name(image))

    def written(self, target: str) -> list[ExportItem]:
        """List the image files, without tags."""
        return [ExportItem(image, name=self._name(image)) for image in self._images]

    def _name(self, image: Path) -> str:
        return image.relative_to(self._folder).as_posix()

    def notes(self, target: str) -> None:
        """Return None: no catalogue records which tags were written, only the files."""


class CatalogueSource:
    """A catalogue: its photos with given, accepted and rejected tags, and predictions from stored rows."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.tagger, self._stored = catalogue.tagger, catalogue.stored

    def items(
        self, limits: Limits, progress: Progress = SILENT, *, ids: Iterable[int] | None = None
    ) -> Iterator[ExportItem | Skipped]:
        """Yield the tags of each present image, or of those with the `ids`, without decoding images."""
        tagger, stored = self.tagger, self._stored
        min_confidences = _min_confidences(tagger.calibration, limits)
        current_tags, rejected = stored.tags.held(), stored.tags.rejected()
        all_ids = stored.current_rows().ids
        if ids is not None:
            all_ids = all_ids[np.isin(all_ids, np.fromiter(ids, np.int64))]
        with reported(progress, "read photos", len(all_ids)):
            for start in range(0, len(all_ids), CHUNK):
                chunk = all_ids[start : start + CHUNK]
                images = stored.images.get_many(chunk.tolist())
                for image, scores in zip(images, _best_scores(tagger, stored, chunk), strict=True):
                    progress.advance()
                    if image.path is None or not (is_remote(image.path) or os.path.isfile(image.path)):
                        yield Skipped(image.name, NO_PERMISSION if image.path and is_there(image.path) else NO_FILE)
                        continue
                    given, denied = current_tags.get(image.id, []), rejected.get(image.id, [])
                    if tagger.tree is not None:  # also reject children of rejected tags, unless given
                        given_keys, tree = set(map(tag_key, given)), tagger.tree.words
                        denied = [tag for tag in tree.with_children(denied) if tag_key(tag) not in given_keys]
                    spellings = tagger.vocabulary.spellings
                    judged_keys = {tag_key(word) for tag in (*given, *denied) for word in spellings(tag)}
                    predicted = _predictions(tagger, scores, limits.k, min_confidences)
                    predicted = tuple(tag for tag in predicted if tag_key(tag.tag) not in judged_keys)
                    yield ExportItem(as_path(image.path), tuple(given), predicted, tuple(denied), name=image.name)

    def written(self, target: str) -> list[ExportItem]:
        """List the image files that tags may have been written to, without tags and without remote objects.

        These are the present images, and former paths of images that were moved or deleted after tags were written.
        """
        names = {image.path: image.name for image in self._stored.images.all() if image.path is not None}
        former_paths = {path: "" for path, _ in self._stored.written.former_paths(target) if path not in names}
        items = [*sorted(names.items()), *former_paths.items()]  # present files first: text files may have moved, too
        return [ExportItem(Path(path), name=name) for path, name in items if not is_remote(path)]

    def notes(self, target: str) -> CatalogueNotes:
        """Return the object that records written tags in the catalogue."""
        return CatalogueNotes(self._stored, target, self.tagger.vocabulary)


def _min_confidences(calibration: Calibration | None, limits: Limits) -> Doubles | None:
    """Return the minimum confidence per tag; None if only `k` limits the predictions."""
    min_confidence = limits.min_confidence
    if min_confidence is None and limits.precision is None:
        if calibration is None and limits.k > 0:
            return None
        if calibration is None:
            problem = "Exports write confident tags only, and this run has no confidences."
            advice = "Fit the run again with at least 20 tagged photos, or set `k` to 3 to write the three best tags."
            raise UserError(problem, setting="k", value=limits.k, advice=advice)
        min_confidence = PREDICTED_FROM
    return cutoff_of(calibration, precision=limits.precision, min_confidence=min_confidence)


def _best_scores(tagger: Tagger, stored: StoredCatalogue, ids: Ints) -> Iterator[Floats]:
    """Yield the scores of all tags for each image; a video gets the best scores of its frames."""
    rows = stored.current_rows()
    frames = rows.frames_of(ids)
    best_of_video: dict[int, Floats] = {}
    if len(frames):
        for video_id, scores in zip(frames[:, 1].tolist(), _scores(tagger, rows.rows(frames[:, 0])), strict=True):
            best_of_video[video_id] = np.maximum(scores, best_of_video.get(video_id, scores))
    for image_id, scores in zip(ids.tolist(), _scores(tagger, rows.rows(ids)), strict=True):
        yield np.maximum(scores, best_of_video.get(image_id, scores))


def _scores(tagger: Tagger, U: Matrix) -> Iterator[Floats]:
    n_tags = len(tagger.vocabulary)
    columns = tagger.model.query_rows(sp.eye_array(n_tags, format="csr", dtype=np.float32)).T
    step = max(1, MAX_SCORES // max(n_tags, 1))
    for start in range(0, U.shape[0], step):
        scores: Any = U[start : start + step] @ columns
        yield from np.asarray(scores.toarray() if sp.issparse(scores) else scores, np.float32)


def _predictions(tagger: Tagger, scores: Floats, k: int, min_confidences: Doubles | None) -> tuple[Predicted, ...]:
    confidences = tagger.confidences(scores)
    if confidences is None or min_confidences is None:
        scores = scores if tagger.tree is None else tagger.tree.raised(scores)
        best_tags = np.lexsort((np.arange(len(scores)), -scores))[:k]
        return tuple(Predicted(tagger.vocabulary.tags[tag]) for tag in best_tags)
    best_tags = np.lexsort((np.arange(len(confidences)), -confidences))
    best_tags = best_tags[(confidences >= min_confidences)[best_tags]][: k or None]
    return tuple(Predicted(tagger.vocabulary.tags[tag], float(confidences[tag])) for tag in best_tags)
