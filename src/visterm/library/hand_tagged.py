"""What people said of the words of a search: photos they tagged come first, and those they rejected not at all."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.queries import Query
from visterm.core.types import Matrix, Ranking
from visterm.core.vocabulary import Vocabulary, tag_key
from visterm.data.tag_tree import TagTree

if TYPE_CHECKING:
    from visterm.store.searched import Said, Searched, SearchedRows

Ids = NDArray[np.int64]

GIVEN, ACCEPTED = "person", "accepted"  # Where all the words of a hit come from, as it stands in JSON


class HandTagged(NamedTuple):
    """What people said of photos and the words of a search."""

    ids: Ids  # photos that have one of the words by hand, or of which a `-word` was rejected; in order
    n_words: Ids  # how many of the words each of them has by hand
    n_given: Ids  # how many of these were given, and not only accepted
    n_new: Ids  # how many of these no run has learned yet
    left_out: Ids  # photos of which a person rejected a word, or that have a `-word` by hand; in order
    sure: dict[int, Ids]
    """By its place among the words with scores, those outside of the vocabulary last: the photos, in order, that have a
    word by hand, or of a `-word` those of which it was rejected."""
    n_searched: int  # words without a `-`

    @property
    def leads(self) -> NDArray[np.bool_]:
        """Which of the photos come before all that nobody tagged: those with all the words, or with a new one."""
        found: NDArray[np.bool_] = (self.n_new > 0) | (self.n_words == max(self.n_searched, 1))
        return found

    def some(self, here: NDArray[Any]) -> HandTagged:
        """Return what was said of some of the photos, by places or a mask."""
        return self._replace(
            ids=self.ids[here], n_words=self.n_words[here], n_given=self.n_given[here], n_new=self.n_new[here]
        )

    def among(self, ids: Ids) -> HandTagged:
        """Return what was said of those photos that are among some images, which are in order."""
        return self.some(places_of(self.ids, ids) >= 0)

    def rank(self, found: Ranking, scores: NDArray[Any], own: NDArray[Any], k: int) -> tuple[Ranking, list[str | None]]:
        """Put the photos of which people said something at their places among all that were found.

        Those that lead come first: those with most new words, then those with all words (with more of them given
        before those with fewer), by score. The others are among all others, by score.

        Parameters
        ----------
        found : Ranking
            The best of all, in one row; the photos tagged by hand need not be among them.
        scores, own : ndarray, shape (n,)
            Scores of the photos tagged by hand, and those by the model alone, by which equal ones are ranked.
        k : int
            Images that are returned, at most; 0 means all.

        Returns
        -------
        Ranking, list of str or None
            And beside each image "person" or "accepted" if it has all the words by hand, else None.
        """
        others = np.flatnonzero(places_of(found.ids[0], self.ids) < 0)[: k or None]
        ids, ranked = found.ids[0, others], found.scores[0, others]
        leads = self.leads
        if not leads.all():
            ids, ranked = np.concatenate([self.ids[~leads], ids]), np.concatenate([scores[~leads], ranked])
            order = np.lexsort((ids, -ranked))
            ids, ranked = ids[order], ranked[order]
        first = np.flatnonzero(leads)
        has_all = self.n_words[first] == self.n_searched
        n_given = np.where(has_all, self.n_given[first] + 1, 0)
        best = np.lexsort((self.ids[first], -own[first], -scores[first], -n_given, -self.n_new[first]))[: k or None]
        ids = np.concatenate([self.ids[first[best]], ids])[: k or None]
        ranked = np.concatenate([scores[first[best]], ranked])[: k or None]
        sources = [None if n == 0 else GIVEN if n > self.n_searched else ACCEPTED for n in n_given[best].tolist()]
        return (
            Ranking(ids[None, :], ranked[None, :].astype(np.float32)),
            [*sources, *[None] * (len(ids) - len(sources))],
        )

    def certain(self, ids: Ids, n_words: int) -> NDArray[np.bool_] | None:
        """Return of which words people said what is asked for, (n_images, n_words); None if of none.

        That is that an image has a word, or has a `-word` not; `ids` are in order.
        """
        if not self.sure:
            return None
        found = np.zeros((len(ids), n_words), np.bool_)
        for word, photos in self.sure.items():
            if len(ids) < len(photos):
                found[:, word] = places_of(ids, photos) >= 0
            else:
                places = places_of(photos, ids)
                found[places[places >= 0], word] = True
        return found


def hand_tagged(searched: Searched, vocabulary: Vocabulary, query: Query, tree: TagTree | None = None) -> HandTagged:
    """Look up what people said of the words of a search: by an index of each tag, without a scan of the catalogue.

    With a tree, a photo that was tagged with a child by hand has its parents, and one of which a parent was rejected
    has none of its children, unless a person gave it.
    """
    words = [
        (vocabulary.tags[tag], weight) for tag, weight in zip(query.weights.indices, query.weights.data, strict=True)
    ]
    if query.outside is not None:
        words += zip(query.outside.words, query.outside.weights, strict=True)
    n_scored = len(words)
    words += query.not_learned.items()
    said = _said(searched, vocabulary, [tag for tag, _ in words[:n_scored]], tree)
    if n_scored < len(words):
        said += _said(searched, vocabulary, [tag for tag, _ in words[n_scored:]], tree, of_files=True)
    nothing = np.empty(0, np.int64)
    left_out, given, tagged, new, sure = [nothing], [nothing], [nothing], [nothing], {}
    for place, ((_, weight), of_word) in enumerate(zip(words, said, strict=True)):
        has = union(of_word.given, of_word.accepted)
        left_out.append(of_word.rejected if weight > 0 else has)
        if weight > 0:
            given.append(of_word.given)
            tagged.append(has)
            if place >= n_scored:
                new.append(has)
        if place < n_scored and len(meant := has if weight > 0 else of_word.rejected):
            sure[place] = meant
    out, ids = union(*left_out), union(*tagged, *sure.values())
    if len(out) and len(ids):
        ids = ids[places_of(ids, out) < 0]
    n_words, n_given, n_new = (
        np.sum([places_of(ids, of_word) >= 0 for of_word in part], axis=0) for part in (tagged, given, new)
    )
    return HandTagged(ids, n_words, n_given, n_new, out, sure, sum(weight > 0 for _, weight in words))


def _said(
    searched: Searched, vocabulary: Vocabulary, tags: Sequence[str], tree: TagTree | None, *, of_files: bool = False
) -> list[Said]:
    """Return what people said of some tags, and by a tree of those above and under them; see `Searched.said`."""

    def keys(some: Sequence[str]) -> list[str]:
        return [tag_key(word) for tag in some for word in vocabulary.spellings(tag)]

    if tree is None:
        return searched.said([keys([tag]) for tag in tags], of_files=of_files)
    found = []
    for tag in tags:
        has, *lacks = searched.said(
            [keys([tag, *tree.below(tag)]), *(keys([each]) for each in (tag, *tree.above(tag)))], of_files=of_files
        )
        rejected = reduce(np.union1d, [said.rejected for said in lacks])
        has_by_hand = np.union1d(has.given, has.accepted)
        found.append(has._replace(rejected=np.setdiff1d(rejected, has_by_hand, assume_unique=True)))
    return found


def products_of(
    rows: SearchedRows, word_rows: Matrix, ids: Ids | None, hand: HandTagged
) -> tuple[Ids, NDArray[np.float32], NDArray[np.bool_] | None]:
    """Return the images that are ranked, their products with words, and which words they have for certain."""
    there = rows.ids if ids is None else ids
    products, certain = rows.products(word_rows, ids), hand.certain(there, word_rows.shape[0])
    if len(hand.left_out) == 0:
        return there, products, certain
    kept = np.ones(len(there), np.bool_)
    places = places_of(hand.left_out, there)
    kept[places[places >= 0]] = False
    return there[kept], products[kept], None if certain is None else certain[kept]


def gained(rows: SearchedRows, query: Query, word_rows: Matrix, hand: HandTagged) -> NDArray[np.float32]:
    """Return what is added to the sums of photos, (n,), for the words of which a person said what is asked for.

    Each counts as much as in the photo where it counts most.
    """
    weights, parts = query.weights.data, word_rows
    if query.outside is not None:
        dense = word_rows.toarray() if isinstance(word_rows, sp.csr_array) else word_rows
        weights, parts = np.concatenate([weights, query.outside.weights]), np.vstack([dense, query.outside.rows])
    found = np.zeros(len(hand.ids), np.float32)
    for word, photos in hand.sure.items():
        places = places_of(photos, hand.ids)
        places = places[places >= 0]
        if len(places):
            row = parts[[word]] if weights[word] > 0 else -parts[[word]]
            lacking = rows.highest(row)[0] - rows.products(row, hand.ids[places])[:, 0]
            found[places] += abs(weights[word]) * np.maximum(lacking, 0)
    return found


def union(*parts: Ids) -> Ids:
    """Return the ids that are in any of some parts, in order, where those of each are in order and unlike."""
    there = [part for part in parts if len(part)]
    return there[0] if len(there) == 1 else np.unique(np.concatenate([np.empty(0, np.int64), *there]))


def places_of(requested: Ids, ids: Ids) -> Ids:
    """Return where images are among others, which are in order; -1 of those that are not there."""
    if len(ids) == 0:
        return np.full(len(requested), -1, np.int64)
    places = np.minimum(np.searchsorted(ids, requested), len(ids) - 1)
    return np.where(ids[places] == requested, places, -1)
