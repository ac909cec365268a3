"""Where exported tags come from: a catalogue, or a run and a folder of images."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from visterm.core.errors import UserError
from visterm.core.persist import folder_kind
from visterm.core.progress import SILENT, Progress
from visterm.core.types import Skipped
from visterm.data.image_folders import find_images, no_images
from visterm.library.catalogue import Catalogue
from visterm.library.export.items import ExportItem
from visterm.library.export.of_catalogue import CatalogueNotes, files_of_catalogue, items_of_catalogue
from visterm.library.export.of_run import items_of_run
from visterm.library.export.writing import WrittenNotes
from visterm.tagging.tagger import Tagger


class Limits(NamedTuple):
    """Which predictions are written; see `items_of_run`."""

    k: int = 0
    min_confidence: float | None = None
    precision: float | None = None


class Source(Protocol):
    """What an export asks of where its tags come from."""

    tagger: Tagger

    def items(self, limits: Limits, progress: Progress = SILENT) -> Iterator[ExportItem | Skipped]:
        """Return what there is to write of each image."""

    def images(self) -> list[Path]:
        """List the image files."""

    def notes(self, target: str) -> WrittenNotes | None:
        """Return what remembers which tags are in files; None where the files themselves do."""


class RunSource:
    """A run, and the images that it is asked about."""

    def __init__(self, run: Path, images: Path, n_jobs: int | None) -> None:
        self.tagger = Tagger.load(run, n_jobs=n_jobs)
        if self.tagger.encoder.by_number:
            raise UserError(f"The run {run} knows images by number only, so there are no photos to write tags to.")
        self._images, self._folder = find_images(images), images if images.is_dir() else images.parent
        if not self._images:
            raise UserError(no_images(images))

    def items(self, limits: Limits, progress: Progress = SILENT) -> Iterator[ExportItem | Skipped]:
        """Return the keywords of each image, and what the run predicts."""
        return items_of_run(self.tagger, self._images, folder=self._folder, progress=progress, **limits._asdict())

    def images(self) -> list[Path]:
        """List the image files."""
        return self._images

    def notes(self, target: str) -> None:
        """Return None: the files themselves say what was written."""


class CatalogueSource:
    """A catalogue with the tags given, accepted, rejected and predicted of its images."""

    def __init__(self, catalogue: Path, n_jobs: int | None) -> None:
        opened = Catalogue.load(catalogue, n_jobs=n_jobs)
        self.tagger, self._stored = opened.tagger, opened.stored

    def items(self, limits: Limits, progress: Progress = SILENT) -> Iterator[ExportItem | Skipped]:
        """Return the tags of each image that is here."""
        return items_of_catalogue(self.tagger, self._stored, progress=progress, **limits._asdict())

    def images(self) -> list[Path]:
        """List the files of the images that are here."""
        return files_of_catalogue(self._stored)

    def notes(self, target: str) -> CatalogueNotes:
        """Return what keeps in the catalogue which tags are written where."""
        return CatalogueNotes(self._stored, target, self.tagger.vocabulary)


def open_source(source: Path, images: Path | None, n_jobs: int | None = None) -> Source:
    """Open a catalogue, or a run with the images that it is for.

    Raises
    ------
    UserError
        If there are images to a catalogue, which has its own, or none to a run.
    StorageError
        If it is neither.
    """
    if folder_kind(source) == "run":
        if images is None:
            raise UserError(
                f"{source} is a run, and IMAGES is missing: give the photos to write tags to, or a catalogue, which "
                "knows its photos (visterm index RUN IMAGES -o CATALOGUE)."
            )
        return RunSource(source, images, n_jobs)
    if images is not None:
        raise UserError(f"IMAGES is {images}, and goes with a run; a catalogue has its own photos. Leave it out.")
    return CatalogueSource(source, n_jobs)
