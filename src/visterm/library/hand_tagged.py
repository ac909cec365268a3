"""What people said of the words of a search: photos they tagged come first, and those they rejected not at all."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial, reduce
from itertools import chain, compress
from operator import is_
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.queries import Query
from visterm.core.types import Matrix, Ranking
from visterm.core.vocabulary import Vocabulary, tag_key
from visterm.data.tag_tree import TagTree
from visterm.store.current_rows import CurrentRows

if TYPE_CHECKING:
    from visterm.models.confidence.calibration import Calibration
    from visterm.store.current_rows import CurrentRows
    from visterm.store.reader import CatalogueReader, Said
    from visterm.tagging.tagger import Tagger

Ids = NDArray[np.int64]

FEW = 200
"""Rejected images up to which a search finds that many more, and drops them: quicker than a choice of all others."""

MORE_READ = 4  # A copy of all photos of the words is read where a search asks for more than one in so many of them

MOST_REMEMBERED = 64  # Searches that are remembered
MOST_PHOTOS = 20_000  # Tagged by hand, of a search that is remembered: a megabyte or two

GIVEN, ACCEPTED = "person", "accepted"  # Where all the words of a hit come from, as it stands in JSON


class HandTagged(NamedTuple):
    """What people said of photos and the words of a search."""

    ids: Ids  # photos that have one of the words by hand, or of which a `-word` was rejected; in order
    n_words: Ids  # how many of the words each of them has by hand
    n_given: Ids  # how many of these were given, and not only accepted
    n_new: Ids  # how many of these no run has learned yet
    left_out: Ids  # photos of which a person rejected a word, or that have a `-word` by hand; in order
    is_sure: NDArray[np.bool_]
    """Of which words with scores people said what the search asks for, (n, n_words); those outside of the vocabulary
    are the last."""
    sure: dict[int, Ids]
    """By the place of such a word: the photos, in order, that have it by hand, or of a `-word` those of which it was
    rejected."""
    n_searched: int  # words without a `-`
    leads: NDArray[np.bool_]
    """Which of the photos come before all that nobody tagged: those with all the words, or with a new one."""
    parts: Sequence[Ids]
    """Photos of one word each, in order: the same arrays as long as the catalogue does not change."""
    places: Ids  # Where each photo stands in the parts, put one after the other
    known: dict[str, tuple[Any, ...]]  # Their scores, once they were asked for: most searches are repeated

    def some(self, here: NDArray[np.bool_]) -> HandTagged:
        """Return what was said of some of the photos."""
        if here.all():
            return self
        return self._replace(
            ids=self.ids[here], n_words=self.n_words[here], n_given=self.n_given[here], n_new=self.n_new[here],
            is_sure=self.is_sure[here], leads=self.leads[here], places=self.places[here],
            known={},
        )  # fmt: skip

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
        if len(self.ids) == 0:
            found = Ranking(found.ids[:, : k or None], found.scores[:, : k or None])
            return found, [None] * found.ids.shape[1]
        others = np.flatnonzero(places_of(found.ids[0], self.ids) < 0)[: k or None]
        ids, ranked = found.ids[0, others], found.scores[0, others]
        first = np.flatnonzero(self.leads)
        if len(first) < len(self.ids):
            ids, ranked = np.concatenate([self.ids[~self.leads], ids]), np.concatenate([scores[~self.leads], ranked])
            order = _best((ranked, -ids), k)
            ids, ranked = ids[order], ranked[order]
        if len(first) == 0:
            return Ranking(ids[None, :], ranked[None, :].astype(np.float32)), [None] * len(ids)
        n_given = np.where(self.n_words[first] == self.n_searched, self.n_given[first] + 1, 0)
        best = _best((self.n_new[first], n_given, scores[first], own[first], -self.ids[first]), k)
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
        for word, places in self.certain_places(ids).items():
            found[places, word] = True
        return found

    def certain_places(self, ids: Ids) -> dict[int, Ids]:
        """Return where among images, which are in order, those are of which a word is certain, by its place."""
        found = {}
        for word, photos in self.sure.items():
            if len(ids) < len(photos):
                found[word] = np.flatnonzero(places_of(ids, photos) >= 0)
            else:
                places = places_of(photos, ids)
                found[word] = places[places >= 0]
        return found


Remembered: TypeAlias = "dict[Hashable, tuple[list[Said], HandTagged]]"


def hand_tagged(
    stored: CatalogueReader, vocabulary: Vocabulary, query: Query, tree: TagTree | None, remembered: Remembered
) -> HandTagged:
    """Look up what people said of the words of a search: by an index of each tag, without a scan of the catalogue.

    With a tree, a photo that was tagged with a child by hand has its parents, and one of which a parent was rejected
    has none of its children, unless a person gave it. `remembered` are the last searches: one that is repeated finds
    what it found, as long as nobody said more of its words.
    """
    words = [
        (vocabulary.tags[tag], weight) for tag, weight in zip(query.weights.indices, query.weights.data, strict=True)
    ]
    if query.outside is not None:
        words += zip(query.outside.words, query.outside.weights, strict=True)
    n_scored = len(words)
    words += query.not_learned.items()
    said = _said(stored, vocabulary, [tag for tag, _ in words[:n_scored]], tree)
    if n_scored < len(words):
        said += _said(stored, vocabulary, [tag for tag, _ in words[n_scored:]], tree, of_files=True)
    n_searched = sum(weight > 0 for _, weight in words)
    if not any(map(len, chain.from_iterable(said))):
        return nothing_said(n_scored, n_searched)
    before, found = remembered.get(tuple(words), ((), None))
    if found is not None and all(map(is_, before, said)):
        return found
    wanted = [weight > 0 for _, weight in words]
    meant = [of_word.has if positive else of_word.rejected for positive, of_word in zip(wanted, said, strict=True)]
    sure = {place: photos for place, photos in enumerate(meant[:n_scored]) if len(photos)}
    new = {place: meant[place] for place in range(n_scored, len(words)) if wanted[place] and len(meant[place])}
    out = union(
        *(of_word.rejected if positive else of_word.has for positive, of_word in zip(wanted, said, strict=True))
    )
    of_words = sure | new
    ids, places, photo_of = merged_photos(list(of_words.values()))
    there, first = np.zeros((len(ids), len(words)), np.bool_), 0
    for place, photos in of_words.items():
        there[photo_of[first : first + len(photos)], place] = True
        first += len(photos)
    if len(out) and len(ids):
        stays = places_of(ids, out) < 0
        ids, places, there = ids[stays], places[stays], there[stays]
    n_words, n_given = there[:, wanted].sum(axis=1), np.zeros(len(ids), np.int64)
    full = np.flatnonzero(n_words == n_searched)
    for of_word in compress(said, wanted) if n_searched and len(full) else ():
        n_given[full] += places_of(ids[full], of_word.given) >= 0
    n_new = there[:, n_scored:].sum(axis=1)
    leads = (n_new > 0) | (n_words == max(n_searched, 1))
    is_sure, parts = there[:, :n_scored], list(of_words.values())
    found = HandTagged(ids, n_words, n_given, n_new, out, is_sure, sure, n_searched, leads, parts, places, {})
    if len(remembered) >= MOST_REMEMBERED:
        remembered.clear()
    if len(ids) <= MOST_PHOTOS:
        remembered[tuple(words)] = said, found
    return found


def nothing_said(n_scored: int, n_searched: int) -> HandTagged:
    """Return that nobody said anything of the words of a search: of those with scores, and of those without a `-`."""
    nothing = np.empty(0, np.int64)
    no_words, no_lead = np.empty((0, n_scored), np.bool_), np.empty(0, np.bool_)
    return HandTagged(nothing, nothing, nothing, nothing, nothing, no_words, {}, n_searched, no_lead, (), nothing, {})


def _said(
    stored: CatalogueReader,
    vocabulary: Vocabulary,
    tags: Sequence[str],
    tree: TagTree | None,
    *,
    of_files: bool = False,
) -> list[Said]:
    """Return what people said of some tags, and by a tree of those above and under them; see `CatalogueReader.said`."""

    def keys(some: Sequence[str]) -> list[str]:
        return [tag_key(word) for tag in some for word in vocabulary.spellings(tag)]

    if tree is None:
        return stored.said([keys([tag]) for tag in tags], of_files=of_files)
    found = []
    for tag in tags:
        has, *lacks = stored.said(
            [keys([tag, *tree.below(tag)]), *(keys([each]) for each in (tag, *tree.above(tag)))], of_files=of_files
        )
        rejected = reduce(np.union1d, [said.rejected for said in lacks])
        found.append(has._replace(rejected=np.setdiff1d(rejected, has.has, assume_unique=True)))
    return found


def best_by_sum(rows: CurrentRows, q: Matrix, k: int, ids: Ids | None, left_out: Ids) -> Ranking:
    """Rank images (None: all) but for some by the sum of weight times score."""
    if len(left_out) == 0:
        return rows.search(q, k, among=ids)
    for n in [2 * k, k + len(left_out)][: 1 + (len(left_out) <= FEW)] if k else ():  # few are among the best, mostly
        found = rows.search(q, n, among=ids)
        kept = np.flatnonzero(places_of(found.ids[0], left_out) < 0)
        if len(kept) >= k or found.ids.shape[1] < n or n == k + len(left_out):
            return Ranking(found.ids[:, kept], found.scores[:, kept])
    return rows.search(q, k, among=without(ids, left_out, rows))


def without(ids: Ids | None, left_out: Ids, rows: CurrentRows) -> Ids:
    """Return images (None: all) but for some."""
    there = rows.ids if ids is None else ids
    return there if len(left_out) == 0 else np.setdiff1d(there, left_out, assume_unique=True)


class WordScores:
    """The scores of photos for each word of a search; words outside of the vocabulary are the last."""

    def __init__(self, rows: CurrentRows, query: Query, word_rows: Matrix) -> None:
        self._rows, self._weights, self._tags = rows, query.weights.data, query.weights.indices
        self._dense = not sp.issparse(word_rows)
        if query.outside is not None:
            dense = word_rows.toarray() if isinstance(word_rows, sp.csr_array) else word_rows
            word_rows = np.vstack([dense, query.outside.rows])
            self._weights = np.concatenate([self._weights, query.outside.weights])
        self._word_rows = word_rows

    def sums(self, hand: HandTagged) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return Σ weight · score of the photos of which people said something, (n,), and what they are ranked by.

        That is the same for those that lead. In that of others, words of which a person said what is asked for count as
        much as in the photos where they count most.
        """
        if len(hand.ids) == 0:
            return (nothing := np.empty(0, np.float32)), nothing
        rows, words, own, ranked = hand.known.get("sums", (None, None, None, None))
        if not self._dense or rows is not self._rows or not np.array_equal(words, self._word_rows):
            own, ranked = self._sums(hand)
            hand.known["sums"] = self._rows, self._word_rows, own, ranked
        return own, ranked

    def _sums(self, hand: HandTagged) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        scores = self._of(hand)
        own: NDArray[np.float32] = scores @ self._weights
        if hand.leads.all():
            return own, own
        some = list(hand.sure)
        words, weights = self._word_rows[some], self._weights[some]
        signs = np.sign(weights)
        highest = self._rows.highest(sp.diags_array(signs) @ words if sp.issparse(words) else signs[:, None] * words)
        lacking = np.maximum(np.abs(weights) * highest - scores[:, some] * weights, 0)
        counted = hand.is_sure[:, some] & ~hand.leads[:, None]
        return own, own + np.where(counted, lacking, 0).sum(axis=1)

    def _of(self, hand: HandTagged) -> NDArray[np.float32]:
        """Return the scores of the photos of which people said something, (n, n_words)."""
        rows, n_read = self._rows, sum(map(len, hand.parts))
        if not self._dense or not isinstance(rows, CurrentRows) or len(rows.frames):
            return rows.products(self._word_rows, hand.ids)
        if n_read > MORE_READ * len(hand.ids) or sp.issparse(rows.rows(rows.row_ids[:1])):
            return rows.products(self._word_rows, hand.ids)
        values = [rows.products_again(self._word_rows, part) for part in hand.parts]
        return np.concatenate(values)[hand.places]

    def chances(self, tagger: Tagger, ids: Ids, hand: HandTagged) -> NDArray[np.float64]:
        """Return the chance of each of some images, in any order, that it is what is searched for."""
        assert tagger.calibration is not None
        order = np.argsort(ids)
        in_order = ids[order]
        products = partial(self._rows.products, ids=in_order)
        odds = tagger.word_odds(products(self._word_rows), self._tags, products)
        found = np.empty(len(ids))
        found[order] = np.exp(
            tagger.calibration.log_of_odds(odds, self._weights, hand.certain(in_order, len(self._tags)))
        )
        return found


def ranked_places(
    calibration: Calibration, products: NDArray[np.float32], query: Query, hand: HandTagged, ids: Ids, k: int
) -> Ids:
    """Return the places of all images that may be among the k most likely ones, and of those tagged by hand."""
    certain = hand.certain_places(ids)
    kept = calibration.contenders(products, query.weights.indices, query.weights.data, k + len(hand.left_out), certain)
    return union(kept, places_of(hand.ids, ids))


def _best(keys: Sequence[NDArray[Any]], k: int) -> Ids:
    """Return the places of the k largest (0: all), in order: by the first key, of equal ones by the next, and so on."""
    sure: list[Ids] = []
    tied, left = np.arange(len(keys[0])), k or len(keys[0])
    for key in keys:
        if len(tied) <= left:
            break
        values = key[tied]
        least = np.partition(values, len(tied) - left)[len(tied) - left]
        sure.append(tied[values > least])
        left -= len(sure[-1])
        tied = tied[values == least]
    some = np.concatenate([*sure, tied]) if sure else tied
    return some[np.lexsort([-key[some] for key in reversed(keys)])][: k or None]


def union(*parts: Ids) -> Ids:
    """Return the ids that are in any of some parts, in order, where those of each are in order and unlike."""
    there = [part for part in parts if len(part)]
    if len(there) < 2:
        return there[0] if there else np.empty(0, np.int64)
    ids = np.sort(np.concatenate(there), kind="stable")  # which merges; `np.unique` would hash them
    found: Ids = ids[np.concatenate([[True], ids[1:] != ids[:-1]])]
    return found


def merged_photos(parts: Sequence[Ids]) -> tuple[Ids, Ids, Ids]:
    """Return the ids in any of some parts (each in order), in order; where in the parts each is; and back.

    The last are the places of all ids of the parts, one part after the other, among those that were returned first.
    """
    if len(parts) < 2:
        ids = parts[0] if parts else np.empty(0, np.int64)
        return ids, (every := np.arange(len(ids))), every
    together = np.concatenate(parts)
    order = np.argsort(together, kind="stable")  # which merges
    ids = together[order]
    first = np.empty(len(ids), np.bool_)
    first[0], first[1:] = True, ids[1:] != ids[:-1]
    back = np.empty(len(ids), np.int64)
    back[order] = np.cumsum(first) - 1
    return ids[first], order[first], back


def places_of(requested: Ids, ids: Ids) -> Ids:
    """Return where images are among others, which are in order; -1 of those that are not there."""
    if len(ids) == 0:
        return np.full(len(requested), -1, np.int64)
    if ids[-1] - ids[0] == len(ids) - 1:  # one after the other
        return np.where((requested >= ids[0]) & (requested <= ids[-1]), requested - ids[0], -1)
    places = np.minimum(np.searchsorted(ids, requested), len(ids) - 1)
    return np.where(ids[places] == requested, places, -1)
