"""How many photos have each tag or one under it, and the tags of a library's tree level by level."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.sparse as sp

from visterm.core.vocabulary import tag_key

if TYPE_CHECKING:
    from visterm.library.catalogue import Catalogue
    from visterm.store.filters import Filter


class TagPhotos(NamedTuple):
    """A tag on a level of the tree."""

    tag: str
    images: int  # Photos that have it or a tag under it, each once
    below: int  # Tags right under it


def tree_level(catalogue: Catalogue, under: str = "", among: Filter | None = None) -> list[TagPhotos]:
    """Return the tags right under a tag, or on top if `under` is empty; all are on top if they have no tree.

    With a filter these are the tags of photos that pass, else all that photos have or the run knows. Those that have
    tags under them come first, then those of most photos.
    """
    run = catalogue.tagger.fingerprint
    photos = catalogue.stored.database.keep(("photos of tags", run, among), lambda: photos_of_tags(catalogue, among))
    tree = catalogue.tree
    if tree is None:
        found = [] if under else [TagPhotos(tag, n, 0) for tag, n in photos.items()]
    else:
        there = {tag_key(tag): n for tag, n in photos.items()}
        level = tree.children(under) if under else [tag for tag in photos if not tree.parents(tag)]
        found = [
            TagPhotos(tag, there[tag_key(tag)], sum(tag_key(child) in there for child in tree.children(tag)))
            for tag in level
            if tag_key(tag) in there
        ]
    return sorted(found, key=lambda each: (each.below == 0, -each.images, tag_key(each.tag)))


def photos_of_tags(catalogue: Catalogue, among: Filter | None = None) -> dict[str, int]:
    """Count the photos that have each tag, given or accepted, or a tag under it in the tree.

    With a filter only photos that pass count, and tags without such a photo are left out; else the tags of the run are
    there, too. Spellings and aliases of a tag are one.
    """
    vocabulary, tree = catalogue.tagger.vocabulary, catalogue.tree
    held = catalogue.stored.tags.held(catalogue.ids(among) if among else None)
    numbers = {tag: i for i, tag in enumerate(dict.fromkeys(tag for tags in held.values() for tag in tags))}
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
    lengths = np.array([len(tags) for tags in held.values()], np.int64)
    tags_of_photos = np.fromiter((numbers[tag] for tags in held.values() for tag in tags), np.int64, lengths.sum())
    starts = np.concatenate([[0], np.cumsum(lengths)])
    rows, counted_as = np.array(pairs, np.int64).T
    n_tags = int(rows.max()) + 1
    has = sp.csr_array((np.ones(len(tags_of_photos), np.int32), tags_of_photos, starts), shape=(len(held), n_tags))
    above = sp.csr_array((np.ones(len(pairs), np.int32), (rows, counted_as)), shape=(n_tags, len(columns)))
    counts = np.bincount((has @ above).indices, minlength=len(columns))
    return {shown[key]: int(counts[column]) for key, column in columns.items()}
