"""Tags of a run that may mean the same, by their spelling, their vectors and their images: suggestions to correct."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import DataError
from visterm.core.progress import SILENT, Progress
from visterm.core.types import Matrix
from visterm.core.vocabulary import Vocabulary
from visterm.data.corpus import Corpus
from visterm.data.spellings import (
    DOUBLED,
    EXCHANGED,
    HOW,
    LEFT_OUT,
    PLURAL,
    SAME_LETTERS,
    TWO_SLIPS,
    alike_spellings,
    folded,
)
from visterm.data.tag_rules import Alias
from visterm.features.training_rows import LEARNED, encode_corpus
from visterm.learning.run import Run
from visterm.models.blend import kept

NEVER_TOGETHER = "images alike, never together"

SURE = (SAME_LETTERS, PLURAL)  # Spellings of one word that need no other evidence
SURE_FROM = {DOUBLED: 4, LEFT_OUT: 5}
"""Letters from which on such a slip is believed unless photos speak against it; most shorter words are a slip from
others."""

LEAST_COSINE = {DOUBLED: 0.2, LEFT_OUT: 0.2, EXCHANGED: 0.2, TWO_SLIPS: 0.0}
"""Cosine that the centred vectors of tags must have for other slips to count; 0 is that of any two tags."""

LEAST_CHANCE = {DOUBLED: 0.6, LEFT_OUT: 0.6, EXCHANGED: 0.7, TWO_SLIPS: 0.8}
"""The same of the chance that two tags are of the same kind of photos, which is 0.5 where the photos say nothing."""

OTHER_PHOTOS = 0.1  # Chance below which photos speak against a slip that the letters alone make likely
TRUST = 0.5
"""Factor of the logarithm of the odds that photos give: their features are neither independent nor quite normal."""

DRIFT = 0.05
"""Share of the variance between words by which the photos of two spellings of one word may differ: other people write
them. All six were chosen on planted libraries (research/experiments/tag_suggestions.py)."""

FREQUENT, DIRECTIONS = 1_000, 64
"""Tags whose mean rows choose the directions in which images are compared, and how many there are of these."""

TINY = 1e-12

MANY, FALSE_SHARE = 30, 0.2
"""From this many pairs with one kind of slip on, the least nearness is raised until at most this share of those left is
expected to be of other words: a large dictionary has thousands of words that are a slip or two from another word."""

RANDOM_PAIRS = 20_000

ALIKE = 0.3  # Least cosine, of images and of vectors, at which tags of other spellings may mean the same
EXPECTED = 1.0
"""Images that two tags must be expected to share by their frequencies before it says something that they share none."""

BLOCK_FLOATS = 2**22

Nearness: TypeAlias = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]]
"""Takes the numbers of two tags a pair, and returns how near they are."""


class AliasPair(NamedTuple):
    """Two tags that may mean the same, why, and how near they are (None: nothing to tell it by)."""

    first: int
    second: int
    how: str
    nearness: float | None


def suggest_aliases(tagger: Run, corpus: Corpus | None = None, *, progress: Progress = SILENT) -> list[Alias]:
    """Suggest which tags mean the same, surest reasons first.

    With a corpus, its images are looked at, of which those of the split "train" are used if there are splits; see
    `alias_pairs`. Returns each tag of a group but the most frequent one, with that one and the reason, for people to
    correct. Raises DataError if images are given and none can be read.
    """
    V = tag_vectors(tagger)
    if corpus is None:
        return aliases_of(tagger.vocabulary, alias_pairs(tagger.vocabulary, V))
    corpus = corpus.select(LEARNED) if any(corpus.splits) else corpus
    X, Y, _ = encode_corpus(tagger.encoder, corpus, tagger.vocabulary, progress)
    if Y.shape[0] == 0:
        raise DataError("None of the images could be read, so tags cannot be compared by them.")
    ones = sp.csr_array(Y > 0, dtype=np.float64)
    return aliases_of(tagger.vocabulary, alias_pairs(tagger.vocabulary, V, ones, tagger.model.image_rows(X)))


def tag_vectors(tagger: Run) -> NDArray[np.float32] | None:
    """Return the vectors that a model has of tags; None where it has none, or numbers only, without a direction."""
    V = kept.tag_vectors(tagger.model)
    return None if V is None or V.shape[1] < 2 else np.asarray(V, np.float32)


def alias_pairs(
    vocabulary: Vocabulary, V: NDArray[np.float32] | None, Y: sp.csr_array | None = None, U: Matrix | None = None
) -> list[AliasPair]:
    """Return the pairs of tags that may mean the same: first those of alike spelling, then others; the surest first.

    Without images, slips that the letters leave open are judged by the vectors of the tags. With images, they are
    judged by those, and words whose images differ are no misspellings of each other. Images also show tags of other
    spellings, on images alike, that no image has both of: people write one or the other.

    Parameters
    ----------
    vocabulary : Vocabulary
    V : ndarray or None, shape (n_tags, width)
        Vectors of the tags, if the model has any.
    Y : csr_array of float64, shape (n_images, n_tags), optional
        Ones where an image has a tag.
    U : array or CSR, shape (n_images, width), optional
        Image rows of the model; each counts by its direction.
    """
    tags = vocabulary.tags
    alike = alike_spellings(tags)
    first, second = (np.array([pair[side] for pair in alike], np.int64) for side in (0, 1))
    nearness: Nearness | None = None
    least = LEAST_CHANCE
    if Y is not None:
        photos = TagPhotos(Y, U)
        nearness = photos.chances
    elif V is not None:
        directions = _unit_centred(V)
        nearness, least = partial(_cosines, directions), LEAST_COSINE
    near = [None] * len(alike) if nearness is None else nearness(first, second).tolist()
    spelled = [AliasPair(*pair, value) for pair, value in zip(alike, near, strict=True)]
    raised = {
        how: _least_nearness(np.array([pair.nearness for pair in spelled if pair.how == how]), len(tags), nearness)
        for how in least
        if nearness is not None
    }

    def is_believed(pair: AliasPair) -> bool:
        if pair.how in SURE:
            return True
        is_likely = min(len(folded(tags[tag])) for tag in pair[:2]) >= SURE_FROM.get(pair.how, np.inf)
        if pair.nearness is None:
            return is_likely
        enough = least[pair.how] if not is_likely else OTHER_PHOTOS if Y is not None else -np.inf
        return pair.nearness >= raised[pair.how] and pair.nearness > enough

    pairs = sorted(filter(is_believed, spelled), key=_surest_first)
    if Y is None or V is None:
        return pairs
    return [*pairs, *_never_together(Y, U, V, _families(len(tags), pairs))]


class TagPhotos:
    """The images of each tag, and how likely those of two tags are of one kind.

    Rows are projected on the directions in which the mean rows of frequent tags differ most. In each direction, the
    means of two tags differ by chance, with the variance within tags over the numbers of images, and by `DRIFT`; those
    of different words differ by the variance between words as well. Both differences are normal, so that their
    likelihoods can be compared: rare tags say little, and frequent ones a lot. Images with both tags are left out.

    Parameters
    ----------
    Y, U
        As `alias_pairs` takes them.

    Attributes
    ----------
    counts : ndarray of float64, shape (n_tags,)
    sums : ndarray of float64, shape (n_tags, n_directions)
        Projected rows of each tag's images, less their mean, summed.
    """

    def __init__(self, Y: sp.csr_array, U: Matrix) -> None:
        U, self._Y = unit_rows(U), sp.csc_array(Y)
        self.counts = np.asarray(Y.sum(axis=0), np.float64)
        n = np.maximum(self.counts, 1)[:, None]
        mean = np.asarray(U.mean(axis=0), np.float64).ravel()
        top = np.argsort(-self.counts, kind="stable")[:FREQUENT]
        means = self._Y[:, top].T @ U
        means = (means.toarray() if sp.issparse(means) else np.asarray(means)) / n[top] - mean
        basis = np.linalg.svd(means, full_matrices=False)[2][:DIRECTIONS].T
        self._rows = np.asarray(U @ basis, np.float64) - mean @ basis
        self.sums = np.asarray(Y.T @ self._rows)
        squares = (self.sums / n) ** 2
        spread = (Y.T @ self._rows**2).sum(axis=0) - (n * squares)[self.counts > 0].sum(axis=0)
        self._within = np.maximum(spread / max(1.0, float((n - 1).sum())), TINY)
        often = self.counts > 1
        between = (squares - self._within / n)[often].mean(axis=0) if often.any() else np.zeros(basis.shape[1])
        self._between = np.maximum(between, TINY)

    def chances(self, first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the chance that two tags are of one kind of images, where both were as likely before.

        It is 0 for tags that half of the images of the rarer one have both of: people who write both mean both.
        """
        chances = [np.zeros(0)]
        step = max(1, BLOCK_FLOATS // self._rows.shape[1])
        for one, other in ((first[i : i + step], second[i : i + step]) for i in range(0, len(first), step)):
            both = self._Y[:, one].multiply(self._Y[:, other]).tocsc()
            n_both = np.asarray(both.sum(axis=0), np.float64).ravel()
            shared = both.T @ self._rows
            apart = 2 * n_both < np.minimum(self.counts[one], self.counts[other])
            n_one, n_other = (np.where(apart, self.counts[tags] - n_both, 1)[:, None] for tags in (one, other))
            gap = ((self.sums[one] - shared) / n_one - (self.sums[other] - shared) / n_other) ** 2
            same = self._within * (1 / n_one + 1 / n_other) + 2 * DRIFT * self._between
            different = same + 2 * self._between
            odds = (np.log(different / same) - gap * (1 / same - 1 / different)).sum(axis=1) / 2 * TRUST
            chances.append(np.where(apart, 1 / (1 + np.exp(-np.clip(odds, -500, 500))), 0.0))
        return np.concatenate(chances)


def aliases_of(vocabulary: Vocabulary, pairs: Sequence[AliasPair]) -> list[Alias]:
    """Join pairs to groups, and return each tag of a group but the most frequent as an alias of that one.

    Other spellings and plurals of a word make a family. Slips join two families at most, so that words that are a slip
    apart make no chain: in a group, all are a slip from the same family. The reason is that of the surest pair that
    joins a tag to another of its group.
    """
    n_tags, counts = len(vocabulary), vocabulary.counts
    family = _families(n_tags, pairs)
    n_images = np.bincount(family, counts, minlength=n_tags)
    into: dict[int, int] = {}
    joined: list[AliasPair] = []
    for pair in pairs:
        rarer, other = sorted((int(family[tag]) for tag in pair[:2]), key=lambda f: (n_images[f], -f))
        if rarer != other and (rarer in into or rarer in into.values() or other in into):
            continue
        if rarer != other:
            into[rarer] = other
        joined.append(pair)
    members: defaultdict[int, list[int]] = defaultdict(list)
    for tag, number in enumerate(family.tolist()):
        members[into.get(number, number)].append(tag)

    order = {pair: number for number, pair in enumerate(joined)}
    pairs_of: defaultdict[int, list[AliasPair]] = defaultdict(list)
    for pair in joined:
        for tag in pair[:2]:
            pairs_of[tag].append(pair)
    joins = []
    for group in members.values():
        best = min(group, key=lambda tag: (-counts[tag], tag))
        for tag in group:
            if tag != best:
                pair = next((pair for pair in pairs_of[tag] if best in pair[:2]), pairs_of[tag][0])
                joins.append((order[pairs_of[tag][0]], tag, best, pair))
    tags = vocabulary.tags
    return [Alias(tags[tag], tags[best], _reason(tag, best, pair, tags)) for _, tag, best, pair in sorted(joins)]


def unit_rows(U: Matrix) -> Matrix:
    """Return rows divided by their lengths, sparse ones as CSR."""
    if not sp.issparse(U):
        return _unit(U)
    U = sp.csr_array(U)
    return sp.diags_array(1 / np.maximum(np.sqrt(U.power(2).sum(axis=1)), np.finfo(np.float32).tiny)) @ U


def _families(n_tags: int, pairs: Sequence[AliasPair]) -> NDArray[np.int64]:
    """Return the number of the family of each tag: tags that are spellings or plurals of one word."""
    from scipy.sparse.csgraph import connected_components  # takes long to import

    sure = [pair for pair in pairs if pair.how in SURE]
    rows, columns = ([pair[side] for pair in sure] for side in (0, 1))
    links = sp.csr_array((np.ones(len(sure)), (rows, columns)), shape=(n_tags, n_tags))
    return np.asarray(connected_components(links, directed=False)[1], np.int64)


def _surest_first(pair: AliasPair) -> tuple[int, float, int, int]:
    return (*HOW, NEVER_TOGETHER).index(pair.how), -(pair.nearness or 0.0), pair.first, pair.second


def _least_nearness(near: NDArray[np.float64], n_tags: int, nearness: Nearness) -> float:
    """Return the nearness from which on few of many pairs with one kind of slip are of other words.

    Other words are as near as any two tags: half of them below the median of random pairs, where few spellings of one
    word are. So twice the number there estimates how many there are in all (Storey 2002), and the random pairs say how
    many of them are above a nearness.
    """
    if len(near) < MANY:
        return -np.inf
    one, other = np.random.default_rng(0).integers(n_tags, size=(2, RANDOM_PAIRS))
    random = np.sort(nearness(one[one != other], other[one != other]))
    near = np.sort(near)[::-1]
    n_others = min(len(near), 2 * int((near <= random[len(random) // 2]).sum()))
    above = 1 - np.searchsorted(random, near) / len(random)
    few = np.flatnonzero(n_others * above <= FALSE_SHARE * np.arange(1, len(near) + 1))
    return float(near[few[-1]]) if len(few) else np.inf


def _never_together(Y: sp.csr_array, U: Matrix, V: NDArray[np.float32], family: NDArray[np.int64]) -> list[AliasPair]:
    """Return the tags that are each other's likest among those that no image has both of, though some should.

    Families are compared as one: they have more images, and are on photos with more other words, than each spelling
    alone. A pair is of the most frequent spellings of both.
    """
    each = np.asarray(Y.sum(axis=0), np.float64)
    joins = sp.csr_array((np.ones(len(family)), (np.arange(len(family)), family)))
    weights = np.maximum(each, 1)
    vectors = _unit_centred((joins.T @ (V * weights[:, None])) / (joins.T @ weights)[:, None])
    Y = sp.csr_array((Y @ joins) > 0, dtype=np.float64)
    photos = TagPhotos(Y, U)
    images, counts, shared = _unit(photos.sums), photos.counts, sp.csr_array(Y.T @ Y)
    least = EXPECTED * Y.shape[0]
    often = np.flatnonzero(counts * float(counts.max(initial=0)) >= least)
    best = np.full(len(counts), -1)
    nearness = np.zeros(len(counts))
    step = max(1, BLOCK_FLOATS // max(len(often), 1))

    for some in (often[start : start + step] for start in range(0, len(often), step)):
        by_vectors, by_images = (rows[some] @ rows[often].T for rows in (vectors, images))
        likeness = (by_vectors + by_images) / 2
        few = counts[some, None] * counts[None, often] < least
        together = shared[some][:, often].toarray() > 0
        likeness[few | together | (np.minimum(by_vectors, by_images) < ALIKE)] = -np.inf
        nearest = likeness.argmax(axis=1)
        highest = likeness[np.arange(len(some)), nearest]
        likely = np.isfinite(highest)
        best[some[likely]] = often[nearest[likely]]
        nearness[some[likely]] = highest[likely]

    by_count = np.lexsort((np.arange(len(family)), -each))
    called = by_count[np.unique(family[by_count], return_index=True)[1]]
    pairs = [
        AliasPair(int(called[one]), int(called[other]), NEVER_TOGETHER, float(nearness[one]))
        for one, other in enumerate(best.tolist())
        if other > one and best[other] == one
    ]
    return sorted(pairs, key=_surest_first)


def _reason(tag: int, best: int, pair: AliasPair, tags: Sequence[str]) -> str:
    other = pair.first if pair.second == tag else pair.second
    near = "" if pair.nearness is None else f", {pair.nearness:.2f}"
    return f"{pair.how}{'' if other == best else f' (as {tags[other]})'}{near}"


def _cosines(rows: NDArray[np.float32], first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.asarray(np.einsum("ij,ij->i", rows[first], rows[second]), np.float64)


def _unit_centred(V: NDArray[np.float32] | NDArray[np.float64]) -> NDArray[np.float32]:
    return _unit(V - V.mean(axis=0))


def _unit(rows: NDArray[np.float32] | NDArray[np.float64]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, np.finfo(np.float32).tiny), np.float32)
