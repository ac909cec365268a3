"""The dictionary of a run or a catalogue: open it, add words, merge two tags, and count the photos of each tag."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from visterm.core.errors import UserError
from visterm.core.persist import MANIFEST, folder_kind, new_folder, write_json
from visterm.core.vocabulary import clean_tag, tag_key
from visterm.data.tag_rules import Alias
from visterm.learning.run import check_opens
from visterm.learning.word_places import Added
from visterm.library.catalogue import Catalogue
from visterm.library.feedback import TagCount
from visterm.library.runs import go_back_advice
from visterm.store.catalogue import StoredCatalogue
from visterm.store.filters import Filter
from visterm.tagging.tag_groups import alias_pairs, aliases_of
from visterm.tagging.tagger import Tagger

MAX_COMPARED_PHOTOS = 20_000


def open_dictionary(path: str | os.PathLike[str]) -> Tagger:
    """Open a run, or the current run of a catalogue.

    Raises StorageError if `path` is not a run or a catalogue, or is damaged.
    """
    if folder_kind(path) == "catalogue":
        stored = StoredCatalogue.open(path)
        with go_back_advice(stored):
            return Tagger.open(stored.run_folder, None, whole=True)
    return Tagger.load(path)


def add_to_dictionary(
    path: str | os.PathLike[str], words: Iterable[str], *, file: str | os.PathLike[str] | None = None
) -> Added:
    """Add words to the dictionary of a run or a catalogue: all of them, or none if there is an error.

    A catalogue has its own copy of a run, which does not change when the run does. `file` is the new path of the word
    vector file, which the run stores. Raises the errors of `Tagger.add_words`.
    """
    if folder_kind(path) == "catalogue":
        catalogue = Catalogue.load(path)
        added = catalogue.tagger.add_words(words, file=file)
        catalogue.save(path)
        return added
    tagger = Tagger.load(path)
    added = tagger.add_words(words, file=file)
    with new_folder(path, "run", check=partial(check_opens, Tagger)) as folder:
        # Copy everything else unchanged
        shutil.copytree(path, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(MANIFEST))
        write_json(Path(folder) / "facts.json", tagger.facts)
        tagger.words.save(folder)
    return added


def suggest_merges(catalogue: Catalogue) -> list[Alias]:
    """Suggest tags to merge: tags of photos with similar spellings, unless their photos show different things.

    At most `MAX_COMPARED_PHOTOS` photos with tags are compared, by their rows of the current run.
    """
    vocabulary, rows, tags = catalogue.tagger.vocabulary, catalogue.stored.current_rows(), catalogue.stored.tags.held()
    ids = np.intersect1d(rows.ids, list(tags))
    ids = ids[:: -(-len(ids) // MAX_COMPARED_PHOTOS) or 1]
    if len(ids) == 0:
        return []
    Y = sp.csr_array(vocabulary.encode(tags[image_id] for image_id in ids.tolist()), dtype=np.float64)
    used_tags = {vocabulary.tags[column] for column in np.unique(Y.indices)}
    pairs = alias_pairs(vocabulary, None, Y, rows.rows(ids))
    return [alias for alias in aliases_of(vocabulary, pairs) if alias.alias in used_tags]


def merge_tags(catalogue: Catalogue, tag: str, into: str) -> int:
    """Replace a tag by another on all images, and return the number of changed images.

    This is one transaction and one entry of the history. If a tag file gives the old tag, it is rejected, so that
    reading the file again does not restore it. Runs forget the old tag with the next full fit. Raises UserError if both
    names are the same tag, or one of them is empty.
    """
    if tag_key(tag) == tag_key(into):
        problem = f"'{tag}' and '{into}' are spellings of the same tag."
        raise UserError(problem, setting="into", value=into, advice="Name two tags.")
    if not clean_tag(tag) or not clean_tag(into):
        raise UserError("The name of a tag to merge is empty. Pass two tags.")
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
    images: int  # Number of photos with this tag or a tag below it
    below: int  # Number of tags directly below this tag


def tree_level(catalogue: Catalogue, under: str = "", among: Filter | None = None) -> list[TreeTag]:
    """Return the tags directly below a tag, or the top level if `under` is empty; all tags if there is no tree.

    With a filter, these are the tags of photos that pass, else all tags of photos and of the run. Tags with children
    come first, then tags with the most photos.
    """
    photos, tree = photos_of_tags(catalogue, among), catalogue.tree
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
    return sorted(level_tags, key=lambda item: (item.below == 0, -item.images, tag_key(item.tag)))


def tag_counts(catalogue: Catalogue) -> list[TagCount]:
    """Return the counts of the tags; they are counted again only after changes.

    With a tree, a photo that has a tag also has the tags above it, as in the tree and in searches.
    """
    counts = catalogue.stored.database.keep(("counts", catalogue.tagger.fingerprint), catalogue.tags)
    if catalogue.tree is None:
        return counts
    photos = photos_of_tags(catalogue)
    by_tag = {tag: TagCount(tag, 0, 0, 0, 0, 0, None, learned=False) for tag in photos}
    by_tag |= {count.tag: count for count in counts}
    return [replace(count, images=photos.get(tag, count.images)) for tag, count in sorted(by_tag.items())]


def photos_of_tags(catalogue: Catalogue, among: Filter | None = None) -> dict[str, int]:
    """Count the photos per tag: those that have the tag, given or accepted, or a tag below it in the tree.

    With a filter, only photos that pass are counted, and tags without such a photo are left out; without a filter, the
    result includes all tags of the run. Spellings and aliases count as the same tag.
    """
    key = ("photos of tags", catalogue.tagger.fingerprint, among)
    return catalogue.stored.database.keep(key, lambda: _count_photos_of_tags(catalogue, among))


def _count_photos_of_tags(catalogue: Catalogue, among: Filter | None) -> dict[str, int]:
    vocabulary, tree = catalogue.tagger.vocabulary, catalogue.tree
    current_tags = catalogue.stored.tags.held(catalogue.ids(among) if among else None)
    numbers = {tag: i for i, tag in enumerate(dict.fromkeys(tag for tags in current_tags.values() for tag in tags))}
    tag_of_key: dict[str, str] = {}
    columns: dict[str, int] = {}
    pairs = []
    for number, tag in enumerate([*numbers, *(() if among else vocabulary.tags)]):
        vocabulary_index = vocabulary.get(tag)
        name = tag if vocabulary_index is None else vocabulary.tags[vocabulary_index]
        for counted_tag in (name, *(tree.above(name) if tree else ())):
            tag_of_key.setdefault(tag_key(counted_tag), counted_tag)
            pairs.append((number, columns.setdefault(tag_key(counted_tag), len(columns))))

    if not pairs:
        return {}
    lengths = np.array([len(tags) for tags in current_tags.values()], np.int64)
    tag_numbers = (numbers[tag] for tags in current_tags.values() for tag in tags)
    photo_tags = np.fromiter(tag_numbers, np.int64, lengths.sum())
    starts = np.concatenate([[0], np.cumsum(lengths)])

    tag_rows, counted_as = np.array(pairs, np.int64).T
    n_tags = int(tag_rows.max()) + 1
    ones = np.ones(len(photo_tags), np.int32)
    has_tag = sp.csr_array((ones, photo_tags, starts), shape=(len(current_tags), n_tags))
    counts_as = sp.csr_array((np.ones(len(pairs), np.int32), (tag_rows, counted_as)), shape=(n_tags, len(columns)))
    counts = np.bincount((has_tag @ counts_as).indices, minlength=len(columns))
    return {tag_of_key[key]: int(counts[column]) for key, column in columns.items()}
