"""Tags of a run that may mean the same, by their spelling, their vectors and their images: suggestions to correct."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from visterm.core.errors import DataError
from visterm.core.progress import SILENT, Progress
from visterm.core.vocabulary import Vocabulary
from visterm.data.corpus import Corpus
from visterm.data.relation_files import Alias
from visterm.data.spellings import DOUBLED, EXCHANGED, HOW, LEFT_OUT, TWO_SLIPS, alike_spellings, folded
from visterm.features.training_rows import LEARNED, encode_corpus
from visterm.models.blend import stacked
from visterm.tagging.run import Run

NEVER_TOGETHER = "images alike, never together"

SURE_FROM = {DOUBLED: 4, LEFT_OUT: 5}
"""Letters from which on such a slip needs no other evidence; most words of three are a slip from others."""

NEARNESS = {DOUBLED: 0.2, LEFT_OUT: 0.2, EXCHANGED: 0.2, TWO_SLIPS: 0.0}
"""Cosine that tags must have for other slips to count: of what their images have in common or, without images, of their
vectors; both of centred rows, so that 0 is that of any two tags. Chosen on a drawn library, as the two below."""

TESTED = (DOUBLED, LEFT_OUT, EXCHANGED, TWO_SLIPS)
MANY, FALSE_SHARE = 30, 0.2
"""From this many pairs of one of these kinds on, the cosine is raised until at most this share of those left is
expected to be of other words: a large dictionary has thousands of words that are a slip or two from another word."""

RANDOM_PAIRS = 20_000

ALIKE = 0.3
"""Least cosine, of images and of vectors, at which tags of other spellings may mean the same."""

EXPECTED = 1.0
"""Images that two tags must be expected to share by their frequencies before it says something that they share none."""

BLOCK_FLOATS = 2**22


class Evidence(NamedTuple):
    """What of the tags is compared, beside their letters.

    Attributes
    ----------
    counts : ndarray of int64, shape (n_tags,)
    vectors : array or None, shape (n_tags, width)
        Tag rows of the model, centred and of unit length; None of a model without.
    images : array or None, shape (n_tags, width)
        Mean image row of each tag, likewise; None where no images were given.
    together : csr_array or None, shape (n_tags, n_tags)
        Images that have both tags.
    n_images : int
    """

    counts: NDArray[np.int64]
    vectors: NDArray[np.float32] | None = None
    images: NDArray[np.float32] | None = None
    together: sp.csr_array | None = None
    n_images: int = 0


class Pair(NamedTuple):
    """Two tags that may mean the same, why, and how near they are (None: nothing to tell it by)."""

    first: int
    second: int
    how: str
    nearness: float | None


def suggest_aliases(tagger: Run, corpus: Corpus | None = None, *, progress: Progress = SILENT) -> list[Alias]:
    """Suggest which tags mean the same, surest reasons first.

    Parameters
    ----------
    tagger : Run
    corpus : Corpus, optional
        Images with their tags, of which those of the split "train" are looked at if there are splits. With them tags
        are also compared by their images; and tags of other spellings are found, that are on images alike, and of
        which no image has both, though by their frequencies some should: people write one or the other.
    progress : Progress

    Returns
    -------
    list of Alias
        Each tag of a group but the most frequent one, with that one and the reason. Whoever reads them takes out what
        is wrong.

    Raises
    ------
    DataError
        If images are given and none can be read.
    """
    V = tag_vectors(tagger)
    if corpus is None:
        evidence = Evidence(tagger.vocabulary.counts, None if V is None else _directions(V))
        return aliases_of(tagger.vocabulary, pairs_by_spelling(tagger.vocabulary.tags, evidence))
    corpus = corpus.select(LEARNED) if any(corpus.splits) else corpus
    X, Y, _ = encode_corpus(tagger.encoder, corpus, tagger.vocabulary, progress)
    if Y.shape[0] == 0:
        raise DataError("None of the images could be read, so tags cannot be compared by them.")
    U = tagger.model.image_rows(X)
    Y = sp.csr_array(Y > 0, dtype=np.float64)
    pairs = pairs_by_spelling(tagger.vocabulary.tags, evidence_of(Y, U, V))
    return aliases_of(tagger.vocabulary, [*pairs, *pairs_by_images(Y, U, V, pairs)])


def tag_vectors(tagger: Run) -> NDArray[np.float32] | None:
    """Return the vectors that a model has of tags; None where it has none, or numbers only, without a direction."""
    V = stacked.tag_vectors(tagger.model)
    if V is None or V.shape[1] < 2:
        return None
    return np.asarray(V, np.float32)


def evidence_of(Y: sp.csr_array, U: Any, V: NDArray[np.float32] | None) -> Evidence:
    """Compare tags by their images.

    Parameters
    ----------
    Y : csr_array of float64, shape (n_images, n_tags)
        Ones.
    U : array or CSR, shape (n_images, width)
        Image rows of the model; each counts by its direction.
    V : ndarray or None, shape (n_tags, width)
    """
    counts = np.asarray(Y.sum(axis=0), np.int64)
    if sp.issparse(U):
        U = sp.csr_array(U)
        U = sp.diags_array(1 / np.maximum(np.sqrt(U.power(2).sum(axis=1)), np.finfo(np.float32).tiny)) @ U
    else:
        U = _unit(U)
    sums = Y.T @ U  # centred only now, so that sparse rows stay sparse
    sums = (sums.toarray() if sp.issparse(sums) else sums) - np.outer(counts, U.mean(axis=0))
    images = _unit(np.asarray(sums, np.float32))
    return Evidence(counts, None if V is None else _directions(V), images, sp.csr_array(Y.T @ Y), Y.shape[0])


def pairs_by_spelling(tags: Sequence[str], evidence: Evidence) -> list[Pair]:
    """Return the pairs of tags that may be one word written in two ways, the surest first."""
    spelled = [
        Pair(alike.first, alike.second, alike.how, _nearness(alike.first, alike.second, evidence))
        for alike in alike_spellings(tags)
    ]
    least = {how: _least_nearness([pair for pair in spelled if pair.how == how], evidence) for how in TESTED}
    return sorted((pair for pair in spelled if _believed(pair, tags, least)), key=_surest_first)


def pairs_by_images(Y: sp.csr_array, U: Any, V: NDArray[np.float32] | None, known: Sequence[Pair]) -> list[Pair]:
    """Find pairs of tags of other spellings on images alike, that no image has both of, though some should.

    Spellings of one word, as far as `known` says, are looked at together: they have more images, and are on photos
    with more other words, than each alone. A pair is of the most frequent spellings of both.

    Parameters
    ----------
    Y, U, V
        As in `evidence_of`.
    known : sequence of Pair
    """
    if V is None:
        return []
    group = np.unique(_grouped(Y.shape[1], known), return_inverse=True)[1]
    counts = np.asarray(Y.sum(axis=0), np.float64)
    joins = sp.csr_array((np.ones(len(group)), (np.arange(len(group)), group)))
    weights = np.maximum(counts, 1)
    V_groups = (joins.T @ (V * weights[:, None])) / (joins.T @ weights)[:, None]
    found = _never_together(evidence_of(sp.csr_array((Y @ joins) > 0, dtype=np.float64), U, V_groups))
    by_count = np.lexsort((np.arange(len(group)), -counts))
    best = by_count[np.unique(group[by_count], return_index=True)[1]]
    pairs = [pair._replace(first=int(best[pair.first]), second=int(best[pair.second])) for pair in found]
    return sorted(pairs, key=_surest_first)


def aliases_of(vocabulary: Vocabulary, pairs: Sequence[Pair]) -> list[Alias]:
    """Join pairs to groups, and give each tag of a group but the most frequent as an alias of that one.

    The reason is that of the surest pair that joins a tag to another of its group.
    """
    reasons: defaultdict[int, list[Pair]] = defaultdict(list)
    for pair in pairs:
        for tag in pair[:2]:
            reasons[tag].append(pair)
    found: list[tuple[int, int, str]] = []
    for members in _members(_grouped(len(vocabulary), pairs)):
        best, *others = sorted(members, key=lambda tag: (-vocabulary.counts[tag], tag))
        found += [(tag, best, _reason(tag, best, reasons[tag], vocabulary.tags)) for tag in others]
    order = {pair: number for number, pair in enumerate(pairs)}
    found.sort(key=lambda item: (order[reasons[item[0]][0]], item[0]))
    return [Alias(vocabulary.tags[tag], vocabulary.tags[best], reason) for tag, best, reason in found]


def _grouped(n_tags: int, pairs: Sequence[Pair]) -> NDArray[np.int64]:
    """Return each tag the number of its group: tags that pairs join, over any number of steps."""
    rows, columns = ([pair[side] for pair in pairs] for side in (0, 1))
    links = sp.csr_array((np.ones(len(pairs)), (rows, columns)), shape=(n_tags, n_tags))
    groups: NDArray[np.int64] = connected_components(links, directed=False)[1].astype(np.int64)
    return groups


def _surest_first(pair: Pair) -> tuple[int, float, int, int]:
    order = (*HOW, NEVER_TOGETHER)
    return order.index(pair.how), -(pair.nearness or 0.0), pair.first, pair.second


def _least_nearness(pairs: Sequence[Pair], evidence: Evidence) -> float:
    """Return the cosine from which on few of many pairs of alike spelling are of other words.

    Other words are as near as any two tags: half of them below the median of random pairs, where few spellings of one
    word are. So twice the number there estimates how many there are in all (Storey 2002), and the random pairs say how
    many of them are above a cosine.
    """
    rows = _compared(evidence)
    if rows is None or len(pairs) < MANY:
        return -np.inf
    rng = np.random.default_rng(0)
    one, other = rng.integers(len(rows), size=(2, RANDOM_PAIRS))
    random = np.sort(np.einsum("ij,ij->i", rows[one[one != other]], rows[other[one != other]]))
    near = np.sort([-(pair.nearness or 0.0) for pair in pairs])
    n_others = min(len(pairs), 2 * int((-near <= random[len(random) // 2]).sum()))
    above = 1 - np.searchsorted(random, -near) / len(random)
    few = np.flatnonzero(n_others * above <= FALSE_SHARE * np.arange(1, len(near) + 1))
    return float(-near[few[-1]]) if len(few) else np.inf


def _believed(pair: Pair, tags: Sequence[str], least: Mapping[str, float]) -> bool:
    """Return whether spellings are alike enough, or the tags near enough besides."""
    if pair.how not in NEARNESS:
        return True
    if pair.nearness is not None and pair.nearness < least.get(pair.how, -np.inf):
        return False
    letters = min(len(folded(tags[tag])) for tag in pair[:2])
    if pair.how in SURE_FROM and letters >= SURE_FROM[pair.how]:
        return True
    return pair.nearness is not None and pair.nearness > NEARNESS[pair.how]


def _compared(evidence: Evidence) -> NDArray[np.float32] | None:
    return evidence.vectors if evidence.images is None else evidence.images


def _nearness(first: int, second: int, evidence: Evidence) -> float | None:
    rows = _compared(evidence)
    return None if rows is None else float(rows[first] @ rows[second])


def _never_together(evidence: Evidence) -> list[Pair]:
    """Find the tags that are each other's likest among those that no image has both of, though some should."""
    if evidence.images is None or evidence.vectors is None or evidence.together is None:
        return []
    counts = evidence.counts
    least = EXPECTED * evidence.n_images
    often = np.flatnonzero(counts * float(counts.max(initial=0)) >= least)
    best = np.full(len(counts), -1)
    nearness = np.zeros(len(counts))
    for start in range(0, len(often), max(1, BLOCK_FLOATS // max(len(often), 1))):
        some = often[start : start + max(1, BLOCK_FLOATS // max(len(often), 1))]
        by_vectors = evidence.vectors[some] @ evidence.vectors[often].T
        by_images = evidence.images[some] @ evidence.images[often].T
        likeness = (by_vectors + by_images) / 2
        few = counts[some, None] * counts[None, often].astype(np.float64) < least
        together = evidence.together[some][:, often].toarray() > 0
        likeness[few | together | (np.minimum(by_vectors, by_images) < ALIKE)] = -np.inf
        nearest = likeness.argmax(axis=1)
        found = np.isfinite(likeness[np.arange(len(some)), nearest])
        best[some[found]] = often[nearest[found]]
        nearness[some[found]] = likeness[found, nearest[found]]
    return [
        Pair(tag, int(best[tag]), NEVER_TOGETHER, float(nearness[tag]))
        for tag in range(len(counts))
        if best[tag] > tag and best[best[tag]] == tag
    ]


def _reason(tag: int, best: int, pairs: Sequence[Pair], tags: Sequence[str]) -> str:
    pair = next((pair for pair in pairs if best in pair[:2]), pairs[0])
    other = pair.first if pair.second == tag else pair.second
    near = "" if pair.nearness is None else f", {pair.nearness:.2f}"
    return f"{pair.how}{'' if other == best else f' (as {tags[other]})'}{near}"


def _members(group: NDArray[Any]) -> list[list[int]]:
    members: defaultdict[int, list[int]] = defaultdict(list)
    for tag, number in enumerate(group.tolist()):
        members[number].append(tag)
    return [tags for tags in members.values() if len(tags) > 1]


def _directions(V: NDArray[Any]) -> NDArray[np.float32]:
    return _unit(V - V.mean(axis=0))


def _unit(rows: NDArray[Any]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, np.finfo(np.float32).tiny), np.float32)
