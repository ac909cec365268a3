"""Indexing: a catalogue is brought to what lies in a folder, chunk by chunk, so that a kill loses nothing committed."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from visterm.app.features.kind import is_features
from visterm.app.rows import Photos, as_corpus, as_images, source_of_rows
from visterm.core.errors import DataError, UserError
from visterm.core.progress import SILENT, Progress, Steps
from visterm.core.tables import ENCODERS
from visterm.core.types import Matrix, Skipped
from visterm.core.wording import count_of
from visterm.data.corpus import Corpus
from visterm.store.records import read_records

if TYPE_CHECKING:
    from visterm.app.tagger import Tagger
    from visterm.store.catalogue import StoredCatalogue

CHANGED = "changed since its features were made"


@dataclass(frozen=True, slots=True)
class Indexed:
    """What became of the images, each counted once.

    Attributes
    ----------
    new : int
        Taken in.
    changed : int
        Files with another content than before: encoded anew; id, tags and feedback stay.
    moved : int
        Files of a content that lay elsewhere, where it no longer lies, or was gone: nothing is encoded.
    gone : int
        Files that are no longer in the folder; they are not found any more, but all that is known of them stays.
    kept : int
        Unchanged.
    skipped : list of Skipped
        Files that could not be read, with reasons; those that were there before stay as they were.
    encoded : int
        Images that were decoded and encoded.
    rows : int
        Images that had no row of the run yet and were given one, from stored features where these are of its encoder.
    cancelled : bool
        Whether it was asked to stop (`Jobs.cancel`); what is counted is committed.
    """

    new: int = 0
    changed: int = 0
    moved: int = 0
    gone: int = 0
    kept: int = 0
    skipped: list[Skipped] = field(default_factory=list)
    encoded: int = 0
    rows: int = 0
    cancelled: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Give the counts as they stand in JSON; of the skipped files, how many."""
        return asdict(self) | {"skipped": len(self.skipped)}


@dataclass(frozen=True, slots=True)
class Listed:
    """Images to be indexed, side by side with their names and tags.

    Attributes
    ----------
    items : sequence of paths or uint8 arrays
    names : list of str
    tags : list of lists of str or None
        None where nothing is said of tags: those that are there stay.
    source : encoder or features
        What gives their rows.
    sha256_of : callable or None
        Of features: the content that the row of an image was made of.
    root : str or None
        The folder that was looked through, in full; None of single images.
    """

    items: Sequence[Any]
    names: list[str]
    tags: list[list[str]] | None
    source: Any
    sha256_of: Callable[[Any], str] | None
    root: str | None


def photos_of(encoder: Any, images: Photos, tags: Any) -> Listed:
    """List the images that are meant, and what gives their rows; errors are those of `Catalogue.index`."""
    if encoder.by_number:
        raise UserError(
            "A catalogue keeps photos, and this run knows its images by number only "
            f"(--encoder {ENCODERS.name_of(encoder)}). Rank tags for them with `visterm annotate RUN "
            "NAME --new-only`, or fit with an encoder that looks at pixels."
        )
    root = os.path.realpath(images) if isinstance(images, str | os.PathLike) and os.path.isdir(images) else None
    if tags is None and not isinstance(images, Corpus) and not is_features(images):
        names, items = as_images(images)
        encoder.refuse_unknown(items, only_if_all=True)
        return Listed(items, names, None, encoder, None, root)
    corpus = as_corpus(images, tags)
    source = source_of_rows(encoder, corpus)
    names, items = as_images(corpus if tags is not None or corpus is images else corpus.images)
    if corpus.encoded is None:
        encoder.refuse_unknown(items, only_if_all=True)
        return Listed(items, names, corpus.tags, source, None, root)
    _refuse_if_all_gone(items)
    return Listed(items, names, corpus.tags, source, corpus.encoded.sha256_of, None)


class Indexing:
    """Brings a catalogue to what lies in a folder.

    Parameters
    ----------
    tagger : Tagger
        The run that makes the rows.
    stored : StoredCatalogue
    """

    def __init__(self, tagger: Tagger, stored: StoredCatalogue) -> None:
        self._tagger, self._stored = tagger, stored

    def run(
        self, photos: Listed, *, gone: bool, chunk_size: int, job_id: int | None, progress: Progress = SILENT
    ) -> Indexed:
        """Do it; see `Catalogue.index`."""
        there = self._stored.images.files()
        fresh = [
            i
            for i, item in enumerate(photos.items)
            if isinstance(item, np.ndarray) or os.path.realpath(item) not in there
        ]
        progress.start("index", len(fresh))
        skipped: list[Skipped] = []
        try:
            for start in range(0, len(fresh), chunk_size):
                skipped += self._add_chunk(photos, fresh[start : start + chunk_size], Steps(progress))
        finally:
            progress.finish()
        return Indexed(new=len(fresh) - len(skipped), kept=len(photos.items) - len(fresh), skipped=skipped)

    def _add_chunk(self, photos: Listed, chunk: list[int], steps: Steps) -> list[Skipped]:
        items = [photos.items[i] for i in chunk]
        names = [photos.names[i] for i in chunk]
        given = [[] if photos.tags is None else photos.tags[i] for i in chunk]
        X, kept, skipped = photos.source.encode(items, progress=steps)
        skipped = list(skipped)
        rows, records = [], []
        read = read_records([items[i] for i in kept], [names[i] for i in kept], [given[i] for i in kept])
        for row, (i, record) in enumerate(zip(kept, read, strict=True)):
            if isinstance(record, Skipped):
                skipped.append(record)
            elif photos.sha256_of is not None and record.sha256 != photos.sha256_of(items[i]):
                skipped.append(Skipped(str(items[i]), CHANGED))
            else:
                rows.append(row)
                records.append(record)
        if records:
            U: Matrix = self._tagger.model.image_rows(X if len(rows) == len(kept) else X[rows])
            self._stored.add(records, U)
        self._stored.skipped.add(skipped)
        return skipped


def _refuse_if_all_gone(photos: Sequence[Any]) -> None:
    if photos and not any(map(os.path.exists, photos)):
        raise DataError(
            f"None of the {count_of(len(photos), 'photo')} is where it was when its features were made (such as "
            f"{photos[0]}), and a catalogue keeps the places of its photos. If they have moved, tell the features: "
            "`visterm encode NEW_FOLDER -o FEATURES` takes over the rows of all photos that are the same there."
        )
