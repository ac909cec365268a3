"""The dictionary of a run or a catalogue: opened, extended by words, two tags merged; how many photos have each tag."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from visterm.core.errors import StorageError, UserError
from visterm.core.persist import MANIFEST, folder_kind, new_folder, write_json
from visterm.core.vocabulary import clean_tag, tag_key
from visterm.learning.run import check_opens
from visterm.learning.word_places import Added
from visterm.library.catalogue import Catalogue
from visterm.library.earlier_runs import naming_earlier
from visterm.store.catalogue import StoredCatalogue
from visterm.store.filters import Filter
from visterm.tagging.tagger import Tagger

CATALOGUE = "catalogue"


def open_dictionary(path: str | os.PathLike[str]) -> Tagger:
    """Open a run, or the one that a catalogue has a copy of.

    Raises StorageError if neither is at `path`, or it was damaged.
    """
    if folder_kind(path) == CATALOGUE:
        stored = StoredCatalogue.open(path)
        try:
            return Tagger.open(stored.run_folder, None, whole=True)
        except StorageError as error:
            raise naming_earlier(stored, error) from error
    return Tagger.load(path)


def add_to_dictionary(
    path: str | os.PathLike[str], words: Iterable[str], *, file: str | os.PathLike[str] | None = None
) -> Added:
    """Add words to a run or a catalogue, which is afterwards what it was, or has them all.

    Catalogues that were made by a run have copies of their own, which stay as they are. `file` is where the file of
    word vectors is now; the run keeps that. Raises what `Tagger.add_words` raises.
    """
    if folder_kind(path) == CATALOGUE:
        catalogue = Catalogue.load(path)
        done = catalogue.tagger.add_words(words, file=file)
        catalogue.save(path)
        return done
    tagger = Tagger.load(path)
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
        problem = f"'{tag}' and '{into}' are one tag already, however it is spelled."
        raise UserError(problem, setting="into", value=into, advice="Name two tags.")
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


class TreeTag(NamedTuple):
    """A tag on a level of the tree."""

    tag: str
    images: int  # Photos that have it or a tag under it, each once
    below: int  # Tags right under it


def tree_level(catalogue: Catalogue, under: str = "", among: Filter | None = None) -> list[TreeTag]:
    """Return the tags right under a tag, or on top if `under` is empty; all are on top if they have no tree.

    With a filter these are the tags of photos that pass, else all that photos have or the run knows. Those that have
    tags under them come first, then those of most photos.
    """
    photos = catalogue.stored.database.keep(
        ("photos of tags", catalogue.tagger.fingerprint, among), lambda: photos_of_tags(catalogue, among)
    )
    tree = catalogue.tree
    if tree is None:
        level_tags = [] if under else [TreeTag(tag, n, 0) for tag, n in photos.items()]
    else:
        counts = {tag_key(tag): n for tag, n in photos.items()}
        level = tree.children(under) if under else [tag for tag in photos if not tree.parents(tag)]
        level_tags = [
            TreeTag(tag, counts[tag_key(tag)], sum(tag_key(child) in counts for child in tree.children(tag)))
            for tag in level
            if tag_key(tag) in counts
        ]
    return sorted(level_tags, key=lambda each: (each.below == 0, -each.images, tag_key(each.tag)))


def photos_of_tags(catalogue: Catalogue, among: Filter | None = None) -> dict[str, int]:
    """Count the photos that have each tag, given or accepted, or a tag under it in the tree.

    With a filter only photos that pass count, and tags without such a photo are left out; else the tags of the run are
    there, too. Spellings and aliases of a tag are one.
    """
    vocabulary, tree = catalogue.tagger.vocabulary, catalogue.tree
    current_tags = catalogue.stored.tags.held(catalogue.ids(among) if among else None)
    numbers = {tag: i for i, tag in enumerate(dict.fromkeys(tag for tags in current_tags.values() for tag in tags))}
    shown: dict[str, str] = {}  # Tags that are counted, by their keys
    columns: dict[str, int] = {}
    pairs = []
    for number, tag in enumerate([*numbers, *(() if among else vocabulary.tags)]):
        known = vocabulary.get(tag)
        name = tag if known is None else vocabulary.tags[known]
        for each in (name, *(tree.above(name) if tree else ())):
            shown.setdefault(tag_key(each), each)
            pairs.append((number, columns.setdefault(tag_key(each), len(columns))))

    if not pairs:
        return {}
    lengths = np.array([len(tags) for tags in current_tags.values()], np.int64)
    each = (numbers[tag] for tags in current_tags.values() for tag in tags)
    tags_of_photos = np.fromiter(each, np.int64, lengths.sum())
    starts = np.concatenate([[0], np.cumsum(lengths)])

    rows, counted_as = np.array(pairs, np.int64).T
    n_tags = int(rows.max()) + 1
    ones = np.ones(len(tags_of_photos), np.int32)
    has = sp.csr_array((ones, tags_of_photos, starts), shape=(len(current_tags), n_tags))
    above = sp.csr_array((np.ones(len(pairs), np.int32), (rows, counted_as)), shape=(n_tags, len(columns)))
    counts = np.bincount((has @ above).indices, minlength=len(columns))
    return {shown[key]: int(counts[column]) for key, column in columns.items()}
