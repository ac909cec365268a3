"""People's judgements about the words of a search: which photos have a word, and for which photos it was rejected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial, reduce
from itertools import chain, compress
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from visterm.core.queries import Query
from visterm.core.vocabulary import Vocabulary, tag_key
from visterm.data.tag_tree import TagTree

if TYPE_CHECKING:
    from visterm.store.catalogue import StoredCatalogue
    from visterm.store.tags import TagJudgements

Ids = NDArray[np.int64]

NO_IDS, NO_FLAGS = np.empty(0, np.int64), np.empty(0, np.bool_)


class ManualTags(NamedTuple):
    """People's judgements about photos for the words of a search.

    Words are numbered: tags of the run, then words outside its vocabulary that have a vector, then tags that no run has
    learned yet. All ids are ascending.
    """

    n_searched: int  # Number of words without `-`
    n_unlearned: int  # Number of words without `-` that no run has learned yet
    ids: Ids = NO_IDS  # Photos that people tagged with a word, or for which they rejected a `-word`
    leads: NDArray[np.bool_] = NO_FLAGS
    """Whether each photo is ranked before all unjudged photos: it has all the words, or an unlearned word."""
    n_unlearned_words: Ids = NO_IDS  # For each photo, the number of unlearned words that people tagged it with
    n_given: Ids = NO_IDS
    """For each photo, 0 unless people tagged it with all words; else 1 + the number of words given (not accepted)."""
    left_out: Ids = NO_IDS  # Photos for which people rejected a word, or that they tagged with a `-word`
    certain_photos: Mapping[int, Ids] = MappingProxyType({})
    """Number of a word with scores -> photos that people tagged with it, or for which they rejected a `-word`."""
    parts: Sequence[Ids] = ()
    """The photos of one word each; the same array objects until the catalogue changes."""
    positions: Ids = NO_IDS  # Position of each photo in the concatenated parts

    def subset(self, mask: NDArray[np.bool_]) -> Self:
        """Return the judgements of the photos in a mask."""
        if mask.all():
            return self
        return self._replace(
            ids=self.ids[mask], leads=self.leads[mask], n_unlearned_words=self.n_unlearned_words[mask],
            n_given=self.n_given[mask], positions=self.positions[mask],
        )  # fmt: skip

    def certain_positions(self, ids: Ids) -> dict[int, Ids]:
        """Return word number -> the positions in ascending `ids` of the photos for which the word is certain."""
        certain = {}
        for word, photos in self.certain_photos.items():
            if len(ids) < len(photos):
                certain[word] = np.flatnonzero(positions_of(ids, photos) >= 0)
            else:
                positions = positions_of(photos, ids)
                certain[word] = positions[positions >= 0]
        return certain

    def certain(self, ids: Ids, n_words: int) -> NDArray[np.bool_] | None:
        """Return which words are certain for which photos, shape (n_photos, n_words); None if no word is.

        A word is certain if people tagged the photo with it; a `-word`, if people rejected it for the photo. `ids` are
        ascending.
        """
        if not self.certain_photos:
            return None
        certain = np.zeros((len(ids), n_words), np.bool_)
        for word, positions in self.certain_positions(ids).items():
            certain[positions, word] = True
        return certain


def manual_tags(stored: StoredCatalogue, vocabulary: Vocabulary, query: Query, tree: TagTree | None) -> ManualTags:
    """Look up people's judgements of the words of a search, with one indexed query per tag.

    With a tree, a photo that people tagged with a child also has its parents, and a rejected parent rejects all its
    children, unless a person gave them.
    """
    tags, weights = query.weights.indices, query.weights.data
    words = [(vocabulary.tags[tag], weight) for tag, weight in zip(tags, weights, strict=True)]
    if query.outside is not None:
        words += zip(query.outside.words, query.outside.weights, strict=True)
    n_scored = len(words)
    words += query.not_learned.items()
    positive = [bool(weight > 0) for _, weight in words]
    judgements = []
    for number, (tag, _) in enumerate(words):
        look_up = partial(stored.judgements.of_tag, of_files=number >= n_scored)
        children = [] if tree is None else tree.below(tag)
        judgement = look_up([tag_key(name) for word in (tag, *children) for name in vocabulary.spellings(word)])
        if tree is not None:
            parents = [look_up(list(map(tag_key, vocabulary.spellings(word)))) for word in (tag, *tree.above(tag))]
            rejected = reduce(np.union1d, [parent.rejected for parent in parents])
            judgement = judgement._replace(rejected=np.setdiff1d(rejected, judgement.tagged, assume_unique=True))
        judgements.append(judgement)

    if not any(map(len, chain.from_iterable(judgements))):
        return ManualTags(sum(positive), sum(positive[n_scored:]))
    key = ("words", *words)
    merged: ManualTags | None = stored.judgements.remembered(key, judgements)
    if merged is None:
        merged = _merged_judgements(positive, judgements, n_scored)
        stored.judgements.remember(key, judgements, merged)
    return merged


def _merged_judgements(positive: Sequence[bool], judgements: Sequence[TagJudgements], n_scored: int) -> ManualTags:
    """Merge the judgements of words; `positive` words have no `-`, and the first `n_scored` words have scores."""
    pairs = list(zip(positive, judgements, strict=True))
    matching_photos = [tag.tagged if is_positive else tag.rejected for is_positive, tag in pairs]
    left_out = union(*(tag.rejected if is_positive else tag.tagged for is_positive, tag in pairs))
    certain = {word: photos for word, photos in enumerate(matching_photos[:n_scored]) if len(photos)}
    unlearned = {word: matching_photos[word] for word in range(n_scored, len(judgements)) if positive[word]}
    parts = certain | {word: photos for word, photos in unlearned.items() if len(photos)}
    all_ids = np.concatenate([NO_IDS, *parts.values()])
    ids, positions, photo_of = np.unique(all_ids, return_index=True, return_inverse=True)
    has_word, start = np.zeros((len(ids), len(judgements)), np.bool_), 0
    for word, photos in parts.items():
        has_word[photo_of[start : start + len(photos)], word] = True
        start += len(photos)

    if len(left_out) and len(ids):
        stays = positions_of(ids, left_out) < 0
        ids, positions, has_word = ids[stays], positions[stays], has_word[stays]

    n_searched, n_given = sum(positive), np.zeros(len(ids), np.int64)
    full_matches = np.flatnonzero(has_word[:, positive].sum(axis=1) == n_searched) if n_searched else NO_IDS
    n_given[full_matches] = 1
    for tag in compress(judgements, positive) if len(full_matches) else ():
        n_given[full_matches] += positions_of(ids[full_matches], tag.given) >= 0
    n_unlearned_words, n_unlearned = has_word[:, n_scored:].sum(axis=1), sum(positive[n_scored:])
    leads = (n_unlearned_words > 0) | (n_given > 0)
    return ManualTags(
        n_searched, n_unlearned, ids, leads, n_unlearned_words, n_given, left_out, certain, [*parts.values()], positions
    )


def union(*parts: Ids) -> Ids:
    """Return the ascending ids that are in any of the parts, each ascending and without duplicates."""
    filled = [part for part in parts if len(part)]
    if len(filled) < 2:
        return filled[0] if filled else NO_IDS
    ids = np.sort(np.concatenate(filled), kind="stable")  # merges the parts; `np.unique` would hash all ids
    merged: Ids = ids[np.concatenate([[True], ids[1:] != ids[:-1]])]
    return merged


def positions_of(requested: Ids, ids: Ids) -> Ids:
    """Return the positions of requested ids in ascending `ids`; -1 for missing ids."""
    if len(ids) == 0:
        return np.full(len(requested), -1, np.int64)
    if ids[-1] - ids[0] == len(ids) - 1:  # consecutive ids
        return np.where((requested >= ids[0]) & (requested <= ids[-1]), requested - ids[0], -1)
    positions = np.minimum(np.searchsorted(ids, requested), len(ids) - 1)
    return np.where(ids[positions] == requested, positions, -1)
