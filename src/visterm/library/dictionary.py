"""The dictionary of a run or a catalogue: opened, extended by words without training images, two of its tags merged."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from visterm.core.errors import UserError
from visterm.core.persist import MANIFEST, folder_kind, new_folder, write_json
from visterm.core.vocabulary import clean_tag, tag_key
from visterm.library.catalogue import Catalogue
from visterm.library.earlier_runs import naming_earlier
from visterm.store.catalogue import StoredCatalogue
from visterm.store.filters import Filter
from visterm.tagging.run_files import check_opens, open_run
from visterm.tagging.tagger import Tagger
from visterm.tagging.word_places import Added

CATALOGUE = "catalogue"


def open_dictionary(path: str | os.PathLike[str], *, n_jobs: int | None = None) -> Tagger:
    """Open a run, or the one that a catalogue has a copy of.

    Raises StorageError if neither is at `path`, or it was damaged.
    """
    if folder_kind(path) == CATALOGUE:
        stored = StoredCatalogue.open(path)
        with naming_earlier(stored):
            return open_run(Tagger, stored.run_folder, n_jobs, whole=True)
    return Tagger.load(path, n_jobs=n_jobs)


def add_to_dictionary(
    path: str | os.PathLike[str],
    words: Iterable[str],
    *,
    file: str | os.PathLike[str] | None = None,
    n_jobs: int | None = None,
) -> Added:
    """Add words to a run or a catalogue, which is afterwards what it was, or has them all.

    Catalogues that were made by a run have copies of their own, which stay as they are. `file` is where the file of
    word vectors is now; the run keeps that. Raises what `Tagger.add_words` raises.
    """
    if folder_kind(path) == CATALOGUE:
        catalogue = Catalogue.load(path, n_jobs=n_jobs)
        done = catalogue.tagger.add_words(words, file=file)
        catalogue.save(path)
        return done
    tagger = Tagger.load(path, n_jobs=n_jobs)
    done = tagger.add_words(words, file=file)
    with new_folder(path, "run", check=partial(check_opens, Tagger)) as folder:
        # All else is copied, so that nothing that a run has is lost
        shutil.copytree(path, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(MANIFEST))
        write_json(Path(folder) / "facts.json", tagger.facts)
        tagger.words.save(folder)
    return done


def merge_tags(catalogue: Catalogue, tag: str, into: str) -> int:
    """Put one tag in the place of another on all images, and return how many images had it.

    All or nothing, and noted in the history. What a tag file gives is rejected there, so that the next look at the file
    does not bring it back. Runs learn of it by the next full fit; then no image has the tag any more, and they forget
    it. Raises UserError if both are one tag, or one of them is empty.
    """
    if tag_key(tag) == tag_key(into):
        raise UserError(f"'{tag}' and '{into}' are one tag already, however it is spelled. Name two tags.")
    if not clean_tag(tag) or not clean_tag(into):
        raise UserError("A tag that is merged has a name, and so has the one that it is merged into: pass both.")
    stored = catalogue.stored
    with stored.database.transaction():
        images = stored.find(Filter(tags=(clean_tag(tag),))).tolist()
        for image_id in images:
            catalogue.give(image_id, [into])
            catalogue.take(image_id, [tag])
        stored.history.note("merge tags", tag=clean_tag(tag), into=clean_tag(into), images=len(images))
    return len(images)
