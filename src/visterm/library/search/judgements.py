"""What people said of the words of a search: which photos they tagged with them, and of which they rejected them."""

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

NOBODY, NONE = np.empty(0, np.int64), np.empty(0, np.bool_)


class ManualTags(NamedTuple):
    """What people said of photos and the words of a search.

    Words are numbered: the tags of the run, then those outside of its vocabulary that have a place among them, then
    tags that no run has learned yet. Ids are in order.
    """

    n_searched: int  # Words without a `-`
    n_unlearned: int  # How many of these no run has learned yet
    ids: Ids = NOBODY  # Photos that have one of the words by hand, or of which a `-word` was rejected
    leads: NDArray[np.bool_] = NONE
    """Which of the photos come before all that nobody tagged: those with all the words, or with a new one."""
    n_new: Ids = NOBODY  # How many words that no run has learned each of them has by hand
    n_given: Ids = NOBODY
    """0 of a photo that has not all the words by hand; else 1, and 1 more for each word that was given, not accepted"""
    left_out: Ids = NOBODY  # Photos of which a person rejected a word, or that have a `-word` by hand
    certain_photos: Mapping[int, Ids] = MappingProxyType({})
    """By the number of a word with scores: the photos that have it by hand, or of a `-word` those without it by hand"""
    parts: Sequence[Ids] = ()
    """Photos of one word each: the same arrays as long as the catalogue does not change."""
    positions: Ids = NOBODY  # Where each photo is in the parts, put one after the other

    def some(self, which: NDArray[np.bool_]) -> Self:
        """Return what was said of some of the photos."""
        if which.all():
            return self
        return self._replace(
            ids=self.ids[which], leads=self.leads[which], n_new=self.n_new[which], n_given=self.n_given[which],
            positions=self.positions[which],
        )  # fmt: skip

    def certain_positions(self, ids: Ids) -> dict[int, Ids]:
        """Return where among photos, which are in order, those are of which a word is certain, by its number."""
        certain = {}
        for word, photos in self.certain_photos.items():
            if len(ids) < len(photos):
                certain[word] = np.flatnonzero(positions_of(ids, photos) >= 0)
            else:
                positions = positions_of(photos, ids)
                certain[word] = positions[positions >= 0]
        return certain

    def certain(self, ids: Ids, n_words: int) -> NDArray[np.bool_] | None:
        """Return of which words people said what is asked for, shape (n_photos, n_words); None if of none.

        That is that a photo has a word, or has a `-word` not; `ids` are in order.
        """
        if not self.certain_photos:
            return None
        certain = np.zeros((len(ids), n_words), np.bool_)
        for word, positions in self.certain_positions(ids).items():
            certain[positions, word] = True
        return certain


def manual_tags(stored: StoredCatalogue, vocabulary: Vocabulary, query: Query, tree: TagTree | None) -> ManualTags:
    """Look up what people said of the words of a search: by an index of each tag, without a scan of the catalogue.

    With a tree, a photo that was tagged with a child by hand has its parents, and one of which a parent was rejected
    has none of its children, unless a person gave it.
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
        below = [] if tree is None else tree.below(tag)
        of_word = look_up([tag_key(name) for each in (tag, *below) for name in vocabulary.spellings(each)])
        if tree is not None:
            over = [look_up(list(map(tag_key, vocabulary.spellings(each)))) for each in (tag, *tree.above(tag))]
            rejected = reduce(np.union1d, [each.rejected for each in over])
            of_word = of_word._replace(rejected=np.setdiff1d(rejected, of_word.has, assume_unique=True))
        judgements.append(of_word)

    if not any(map(len, chain.from_iterable(judgements))):
        return ManualTags(sum(positive), sum(positive[n_scored:]))
    key = ("words", *words)
    judged: ManualTags | None = stored.judgements.remembered(key, judgements)
    if judged is None:
        judged = _merged_judgements(positive, judgements, n_scored)
        stored.judgements.remember(key, judgements, judged)
    return judged


def _merged_judgements(positive: Sequence[bool], judgements: Sequence[TagJudgements], n_scored: int) -> ManualTags:
    """Put judgements of words together: those that are `positive` have no `-`, the first `n_scored` have scores."""
    both = list(zip(positive, judgements, strict=True))
    meant = [tag.has if is_positive else tag.rejected for is_positive, tag in both]
    left_out = union(*(tag.rejected if is_positive else tag.has for is_positive, tag in both))
    certain = {word: photos for word, photos in enumerate(meant[:n_scored]) if len(photos)}
    new = {word: meant[word] for word in range(n_scored, len(judgements)) if positive[word] and len(meant[word])}
    parts = certain | new
    ids, positions, photo_of = merged_photos(list(parts.values()))
    has, first = np.zeros((len(ids), len(judgements)), np.bool_), 0
    for word, photos in parts.items():
        has[photo_of[first : first + len(photos)], word] = True
        first += len(photos)
    if len(left_out) and len(ids):
        stays = positions_of(ids, left_out) < 0
        ids, positions, has = ids[stays], positions[stays], has[stays]

    n_searched, n_given = sum(positive), np.zeros(len(ids), np.int64)
    full = np.flatnonzero(has[:, positive].sum(axis=1) == n_searched) if n_searched else NOBODY
    n_given[full] = 1
    for tag in compress(judgements, positive) if len(full) else ():
        n_given[full] += positions_of(ids[full], tag.given) >= 0
    n_new, n_unlearned = has[:, n_scored:].sum(axis=1), sum(positive[n_scored:])
    leads = (n_new > 0) | (n_given > 0)
    return ManualTags(
        n_searched, n_unlearned, ids, leads, n_new, n_given, left_out, certain, list(parts.values()), positions
    )


def union(*parts: Ids) -> Ids:
    """Return the ids that are in any of some parts, in order, where those of each are in order and unlike."""
    filled = [part for part in parts if len(part)]
    if len(filled) < 2:
        return filled[0] if filled else NOBODY
    ids = np.sort(np.concatenate(filled), kind="stable")  # which merges; `np.unique` would hash them
    merged: Ids = ids[np.concatenate([[True], ids[1:] != ids[:-1]])]
    return merged


def merged_photos(parts: Sequence[Ids]) -> tuple[Ids, Ids, Ids]:
    """Return the ids in any of some parts (each in order), in order; where in the parts each is; and back.

    The last are the positions of all ids of the parts, one part after the other, among those that were returned first.
    """
    if len(parts) < 2:
        ids = parts[0] if parts else NOBODY
        return ids, (every := np.arange(len(ids))), every
    together = np.concatenate(parts)
    order = np.argsort(together, kind="stable")  # which merges
    ids = together[order]
    first = np.empty(len(ids), np.bool_)
    first[0], first[1:] = True, ids[1:] != ids[:-1]
    back = np.empty(len(ids), np.int64)
    back[order] = np.cumsum(first) - 1
    return ids[first], order[first], back


def positions_of(requested: Ids, ids: Ids) -> Ids:
    """Return where photos are among others, which are in order; -1 of those that are not there."""
    if len(ids) == 0:
        return np.full(len(requested), -1, np.int64)
    if ids[-1] - ids[0] == len(ids) - 1:  # one after the other
        return np.where((requested >= ids[0]) & (requested <= ids[-1]), requested - ids[0], -1)
    positions = np.minimum(np.searchsorted(ids, requested), len(ids) - 1)
    return np.where(ids[positions] == requested, positions, -1)
