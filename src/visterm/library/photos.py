"""The photos of a catalogue: those to be indexed, with what gives their rows, and the folders that they came from."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from visterm.core.errors import DataError, UserError
from visterm.core.remote import as_path, is_remote, real_path
from visterm.core.tables import ENCODERS
from visterm.core.types import Skipped
from visterm.core.wording import count_of
from visterm.data.contents import is_there
from visterm.data.corpus import Corpus
from visterm.features.contents import is_features
from visterm.features.training_rows import Photos, as_corpus, as_images, source_of_rows
from visterm.library.files import full_paths, is_inside
from visterm.store.catalogue import StoredCatalogue

LEADS_OUT = "a link that leads out of the folder; --follow-links takes it"

EVENTS = 1000
"""Entries of the history that are looked at, newest first."""


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
    left_out : tuple of Skipped
        Links that lead out of that folder.
    """

    items: Sequence[Any]
    names: list[str]
    tags: list[list[str]] | None
    source: Any
    sha256_of: Callable[[Any], str] | None
    root: str | None
    left_out: tuple[Skipped, ...] = ()

    def inside(self) -> Listed:
        """Return what lies in the folder that was looked through, without links that lead out of it."""
        if self.root is None or is_remote(self.root):
            return self
        outside = [
            path is not None and not is_remote(path) and not is_inside(path, self.root)
            for path in full_paths(self.items)
        ]
        if not any(outside):
            return self
        kept = [place for place, out in enumerate(outside) if not out]
        return replace(
            self,
            items=[self.items[place] for place in kept],
            names=[self.names[place] for place in kept],
            tags=None if self.tags is None else [self.tags[place] for place in kept],
            left_out=tuple(
                Skipped(os.fspath(self.items[place]), LEADS_OUT) for place, out in enumerate(outside) if out
            ),
        )


def photos_of(encoder: Any, images: Photos, tags: Any = None, folder: str | os.PathLike[str] | None = None) -> Listed:
    """List the images that are meant, and what gives their rows.

    Parameters
    ----------
    encoder : AnyEncoder
        Fitted.
    images, tags, folder
        As `Catalogue.index` takes them; so are errors.
    """
    check_has_photos(encoder)
    if folder is None and isinstance(images, str | os.PathLike) and as_path(images).is_dir():
        folder = images
    root = None if folder is None or is_features(folder) else real_path(folder)
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
    given = corpus.tags if tags is not None or corpus is images else None
    return Listed(items, names, given, source, corpus.encoded.sha256_of, root)


def check_has_photos(encoder: Any) -> None:
    """Refuse runs that know their images by number only: there is nothing to keep.

    Raises
    ------
    UserError
        If so.
    """
    if encoder.by_number:
        raise UserError(
            "A catalogue keeps photos, and this run knows its images by number only "
            f"(--encoder {ENCODERS.name_of(encoder)}). Rank tags for them with `visterm annotate RUN "
            "NAME --new-only`, or fit with an encoder that looks at pixels."
        )


def _refuse_if_all_gone(photos: Sequence[Any]) -> None:
    if photos and not any(map(is_there, photos)):
        raise DataError(
            f"None of the {count_of(len(photos), 'photo')} is where it was when its features were made (such as "
            f"{photos[0]}), and a catalogue keeps the places of its photos. If they have moved, tell the features: "
            "`visterm encode NEW_FOLDER -o FEATURES` takes over the rows of all photos that are the same there."
        )


def indexed_folders(stored: StoredCatalogue) -> list[str]:
    """Return the folders that were indexed; where none is known, the topmost that hold images."""
    indexed = [event.details.get("folder") for event in stored.history.latest(EVENTS) if event.what == "index"]
    folders = sorted({folder for folder in indexed if folder})
    if not folders:
        found = stored.database.rows(
            "SELECT DISTINCT folder FROM images WHERE state = 'here' AND path IS NOT NULL ORDER BY folder"
        )
        folders = [folder for (folder,) in found]
    return [folder for folder in folders if not any(_inside(folder, other) for other in folders)]


def stays_inside(stored: StoredCatalogue, path: str) -> bool:
    """Return whether a file of the catalogue is no link, or a link that stays inside the indexed folders.

    Paths are kept with links followed, so that one that is a link now was put there since.
    """
    if is_remote(path):
        return True
    real = os.path.realpath(path)
    return real == path or any(_inside(real, os.path.realpath(folder)) for folder in indexed_folders(stored))


def _inside(folder: str, other: str) -> bool:
    return folder != other and folder.startswith(other.rstrip("/") + "/")
