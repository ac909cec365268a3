"""What people said of the words of a search: photos they tagged come first, and those they rejected not at all."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from visterm.core.queries import Query
from visterm.core.types import Ranking
from visterm.core.vocabulary import Vocabulary, tag_key
from visterm.data.tag_tree import TreeColumns

if TYPE_CHECKING:
    from visterm.store.searched import Said, Searched

Ids = NDArray[np.int64]

GIVEN, ACCEPTED = "person", "accepted"  # Where all the words of a hit come from, as it stands in JSON


class HandTagged(NamedTuple):
    """What people said of photos and the words of a search."""

    ids: Ids  # photos that a person tagged with one of the words, in order
    n_words: Ids  # how many of the words each of them has by hand
    n_given: Ids  # how many of these were given, and not only accepted
    left_out: Ids  # photos of which a person rejected a word, or that have a `-word` by hand; in order
    of_tags: dict[int, Ids]  # the photos that have a word by hand, by its place among the words with weights
    n_searched: int  # words without a `-`

    def among(self, ids: Ids) -> HandTagged:
        """Return those that are among some images, which are in order."""
        here = _places(ids, self.ids) >= 0
        return self._replace(ids=self.ids[here], n_words=self.n_words[here], n_given=self.n_given[here])

    def first(self, found: Ranking, scores: NDArray[Any], k: int) -> tuple[Ranking, list[str | None]]:
        """Put photos that were tagged by hand before others, those with most of the words first, then by score.

        `found` has the best of all, in one row; `scores`, (n,), are those of the photos tagged by hand, which need not
        be among the best. At most k are returned; 0 means all. Beside them "person" or "accepted" for photos that have
        all the words by hand, None for others.
        """
        order = np.lexsort((self.ids, -scores, -self.n_given, -self.n_words))
        others = np.flatnonzero(_places(self.ids, found.ids[0]) < 0)
        ids = np.concatenate([self.ids[order], found.ids[0, others]])[: k or None]
        ranked = np.concatenate([scores[order], found.scores[0, others]])[: k or None]
        sources = [
            None if words < self.n_searched else GIVEN if given == self.n_searched else ACCEPTED
            for words, given in zip(self.n_words[order].tolist(), self.n_given[order].tolist(), strict=True)
        ]
        sources = [*sources, *[None] * len(others)][: k or None]
        return Ranking(ids[None, :], ranked[None, :].astype(np.float32)), sources

    def certain(self, ids: Ids, n_words: int) -> NDArray[np.bool_] | None:
        """Return which of the words with weights images have by hand, shape (n_images, n_words); None if no image."""
        if not self.of_tags:
            return None
        found = np.zeros((len(ids), n_words), np.bool_)
        for word, tagged in self.of_tags.items():
            found[:, word] = _places(tagged, ids) >= 0
        return found


def hand_tagged(
    searched: Searched, vocabulary: Vocabulary, query: Query, tree: TreeColumns | None = None
) -> HandTagged:
    """Look up what people said of the words of a search: by an index of each tag, without a scan of the catalogue.

    With a tree, a photo that was tagged with a child by hand has its parents, and one of which a parent was rejected
    has none of its children, unless a person gave it.
    """
    words = [
        (place, vocabulary.tags[tag], weight > 0)
        for place, (tag, weight) in enumerate(zip(query.weights.indices, query.weights.data, strict=True))
    ]
    if query.outside is not None:
        words += [(-1, *word) for word in zip(query.outside.words, query.outside.weights > 0, strict=True)]
    words += [(-1, tag, sign > 0) for tag, sign in query.not_learned.items()]
    said = _said(searched, vocabulary, [tag for _, tag, _ in words], tree)
    nothing = np.empty(0, np.int64)
    n_searched = sum(bool(searched_for) for *_, searched_for in words)
    if not any(map(len, chain.from_iterable(said))):
        return HandTagged(nothing, nothing, nothing, nothing, {}, n_searched)
    given, tagged, left_out, of_tags = [nothing], [nothing], [nothing], {}
    for (place, _, searched_for), of_word in zip(words, said, strict=True):
        has = np.union1d(of_word.given, of_word.accepted)
        left_out.append(of_word.rejected if searched_for else has)
        if searched_for and len(has):
            given.append(of_word.given)
            tagged.append(has)
            if place >= 0:
                of_tags[place] = has
    out = reduce(np.union1d, left_out)
    ids, n_words = np.unique(np.concatenate(tagged), return_counts=True)
    n_given = np.bincount(_places(ids, np.concatenate(given)), minlength=len(ids))
    here = _places(out, ids) < 0
    return HandTagged(ids[here], n_words[here], n_given[here], out, of_tags, n_searched)


def _said(searched: Searched, vocabulary: Vocabulary, tags: Sequence[str], tree: TreeColumns | None) -> Sequence[Said]:
    """Return what people said of some tags, and by a tree of those above and under them."""

    def keys(some: Sequence[str]) -> list[str]:
        return [tag_key(word) for tag in some for word in vocabulary.spellings(tag)]

    if tree is None:
        return searched.said([keys([tag]) for tag in tags])
    found = []
    for tag in tags:
        has, *lacks = searched.said(
            [keys([tag, *tree.words.below(tag)]), *(keys([each]) for each in (tag, *tree.words.above(tag)))]
        )
        rejected = reduce(np.union1d, [said.rejected for said in lacks])
        has_by_hand = np.union1d(has.given, has.accepted)
        found.append(has._replace(rejected=np.setdiff1d(rejected, has_by_hand, assume_unique=True)))
    return found


def _places(ids: Ids, requested: Ids) -> Ids:
    """Return where images are among others, which are in order; -1 of those that are not there."""
    if len(ids) == 0:
        return np.full(len(requested), -1, np.int64)
    places = np.minimum(np.searchsorted(ids, requested), len(ids) - 1)
    return np.where(ids[places] == requested, places, -1)
