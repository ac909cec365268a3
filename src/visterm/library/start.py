"""The catalogue of a folder of photos from its first minute: before anything is learned, and the first learning.

It begins with a run that knows no tag, so that photos can be shown as they come in. Once all are in, the tags of their
files are learned. Without any tag, the run gets the words of the encoder's network.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from platformdirs import user_data_path

from visterm.core.errors import UserError
from visterm.core.persist import check_target, folder_kind
from visterm.core.progress import SILENT, Progress
from visterm.core.remote import real_path
from visterm.core.vocabulary import Vocabulary
from visterm.core.wording import count_of
from visterm.data.image_folders import images_in
from visterm.data.word_vectors import WordVectors
from visterm.encoders.effnet_lite import NETWORK, class_weights, class_words
from visterm.encoders.network import NetworkEncoder
from visterm.features.training_rows import TrainingRows
from visterm.learning.fit_request import FitRequest
from visterm.learning.fitting import learn_rows
from visterm.learning.learned import Learned
from visterm.learning.start_words import StartWords
from visterm.learning.word_places import ENCODER
from visterm.library.catalogue import Catalogue
from visterm.library.encoded_features import CatalogueFeatures
from visterm.library.files import is_inside
from visterm.library.learn import learn
from visterm.library.learned import NO_TAGS, START, outcome_text
from visterm.library.photos import check_not_connected, indexed_folders
from visterm.models.linear.text_ridge import TextRidge
from visterm.store.catalogue import StoredCatalogue
from visterm.tagging.tagger import Tagger

MAX_SAMPLE = 100  # Photos from which a network's encoder learns the mean of its rows: they delay the first page
MAX_WORD_ROWS = 2000  # Photos that say how rows are distributed, for the words of a network
MANY_PHOTOS = 1000  # From here on, the default model takes longer than people like to wait for their first search
MAX_NAME_LENGTH = 80  # Letters of a photo folder's name in the name of its catalogue


def catalogue_of(photos: str | os.PathLike[str]) -> Path:
    """Return the folder of the catalogue of a folder of photos, among the user's data.

    Its name is that of the photo folder, and a hash of its whole path, as different folders may have the same name.
    """
    folder = real_path(photos)
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()[:8]
    name = os.path.basename(folder)[:MAX_NAME_LENGTH] or "photos"
    return user_data_path("visterm", appauthor=False) / "catalogues" / f"{name}-{digest}"


def open_or_start(
    photos: str | os.PathLike[str], out: str | os.PathLike[str], request: FitRequest, progress: Progress = SILENT
) -> bool:
    """Make the catalogue of a folder of photos, unless it was made before; return whether it is new.

    `request` has the encoder, and possibly threads. The catalogue is empty at first: `FolderWatcher` fills it, and lets
    it learn by `learn_first`. It is created as a whole, so that after a kill it is there or not. Raises DataError if
    there are no photos, or none is readable; UserError if `out` is inside the folder, or is the catalogue of other
    photos; StorageError if `out` is something else.
    """
    folder = real_path(photos)
    if is_inside(real_path(out), folder):
        problem, advice = f"The catalogue {out} would be among the photos.", "Name a folder outside."
        raise UserError(problem, setting="out", value=out, advice=advice)
    check_target(out, "catalogue")
    if folder_kind(out) == "catalogue":
        stored = StoredCatalogue.open(out)
        check_not_connected(stored)
        folders = indexed_folders(stored)
        stored.close()
        if folder not in folders:
            problem = f"{out} is a catalogue of {', '.join(folders) or 'no folder'}, not of {folder}."
            advice = f"Name another catalogue, or add these photos to it: visterm index {out} {photos}"
            raise UserError(problem, setting="out", value=out, advice=advice)
        return False

    images = images_in(folder)
    encoder = Tagger.of(request).encoder
    step = -(-len(images) // MAX_SAMPLE) if isinstance(encoder, NetworkEncoder) else 1
    sample = images[::step]
    encoder.fit(sample, skip_unreadable=True, progress=progress)
    width = encoder.width
    assert width is not None
    run = Learned(encoder=encoder, model=TextRidge.without_tags(width))
    tagger = Tagger.of_parts(run.changed(facts={**run.counts(0, width, held_out=0, tags_given=0), START: True}))

    catalogue = Catalogue(tagger)
    catalogue.stored.history.note("index", folder=folder, tags="auto")
    _note_start(catalogue.stored)
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    catalogue.save(out)
    catalogue = Catalogue.load(out, run=tagger)  # the encoder has the network's outputs for the first photos
    catalogue.index(sample[:MAX_SAMPLE], folder=folder, progress=progress)
    catalogue.stored.close()
    return True


def learn_quickly(catalogue: Catalogue, stop: Callable[[], bool], progress: Progress = SILENT) -> bool:
    """Learn the tags of many photos by ridge regression, as `learn_first` does first; return whether it was stopped.

    Searches use it until the default model has learned, which takes far longer. Raises the errors of `Catalogue.learn`.
    """
    if len(catalogue.tagger.vocabulary) > 0 or len(catalogue) < MANY_PHOTOS:
        return False
    outcome = learn(catalogue.tagger, catalogue.stored, quick=True, stop=stop, progress=progress)
    catalogue.refresh()
    return outcome.cancelled


def learn_first(catalogue: Catalogue, stop: Callable[[], bool], progress: Progress = SILENT) -> str:
    """Learn the tags of a catalogue that has learned nothing yet; return a sentence for people, "" if that is done.

    Without any tag, the run gets the words of its network, if it knows some. Raises the errors of `Catalogue.learn`.
    """
    tagger, stored = catalogue.tagger, catalogue.stored
    if START not in tagger.facts:
        return ""
    if stored.tags.come_from_files():
        if learn_quickly(catalogue, stop, progress):  # who stops one model does not want the other one, either
            return ""
        outcome = catalogue.learn(stop=stop, progress=progress)
        return "" if outcome.cancelled else f"Learned {outcome_text(outcome, stored.run_folder)}"
    if stored.runs.current().facts.get(START) == NO_TAGS or not len(catalogue):
        return ""
    run = _with_words(catalogue, tagger)
    if run is not None:
        catalogue.use(run, progress=progress)
    _note_start(stored, NO_TAGS)
    words = "" if run is None else f" Until then, searches know {count_of(len(run.vocabulary), 'word')} of the network."
    return f"No photo has a tag yet. On the page, choose photos that show the same, give them a tag, and learn.{words}"


def _note_start(stored: StoredCatalogue, value: object = True) -> None:
    """Mark the current run as one with which a catalogue begins: people do not go back to it."""
    run = stored.runs.current()
    stored.runs.add(run.fingerprint, run.encoder_fingerprint, facts={START: value})


def _with_words(catalogue: Catalogue, start: Tagger) -> Tagger | None:
    """Return a run that searches by the words of the encoder's network; None if the network knows no words."""
    encoder, names = start.encoder, class_words()
    vectors: object = ENCODER if encoder.reads_texts else None
    if getattr(encoder, "network", None) == NETWORK and (weights := class_weights()) is not None:
        vectors = WordVectors(names, weights)
    if vectors is None:
        return None

    vocabulary = Vocabulary(names)
    words = StartWords.read(TextRidge(), vectors, vocabulary, encoder)
    ids = catalogue.stored.current_rows().ids[:MAX_WORD_ROWS]
    _, X = CatalogueFeatures(catalogue.stored, encoder.fingerprint).rows(ids.tolist())
    Y = sp.csr_array((X.shape[0], len(vocabulary)), dtype=np.float32)
    learned = learn_rows(Learned(encoder=encoder, model=TextRidge()), TrainingRows(vocabulary, X, Y, None, []), words)
    return Tagger.of_parts(learned.changed(facts={**learned.facts, "images": 0, START: True}))
