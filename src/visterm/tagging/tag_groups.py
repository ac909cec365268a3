"""Suggest tags of a run that may mean the same, by their spelling, their vectors and their images."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import combinations, groupby, pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from visterm.core.errors import DataError
from visterm.core.progress import SILENT, Progress
from visterm.core.types import Doubles, Floats, Ints, Matrix
from visterm.core.vocabulary import Vocabulary
from visterm.data.corpus import Corpus
from visterm.data.tag_rules import Alias
from visterm.features.training_rows import TRAIN_SPLIT, encode_corpus
from visterm.learning.run import Run
from visterm.models.blend import kept
from visterm.models.neighbours.knn import unit_rows

# Kinds of differences between spellings, the most certain first
DIFFERENCES = (
    "hyphens, spaces or accents", "plural", "letters doubled or swapped", "a letter left out", "a letter exchanged",
    "two letters",
)  # fmt: skip
SAME_LETTERS, PLURAL, DOUBLED, LEFT_OUT, EXCHANGED, TWO_SLIPS = DIFFERENCES

# Minimum length of the shorter word for each kind: most words of four letters differ by two letters from many others
MIN_LENGTHS = {DOUBLED: 3, LEFT_OUT: 3, EXCHANGED: 4, TWO_SLIPS: 6}

# Plural endings and the endings of the singular
_PLURALS = (("s", ""), ("es", ""), ("ies", "y"), ("ves", "f"), ("ves", "fe"), ("men", "man"))

# Letters that Unicode does not decompose, and their usual replacements
_LETTER_REPLACEMENTS = {"ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "ł": "l", "ı": "i"}
SIMILAR_IMAGES = "images alike, never together"

CERTAIN_REASONS = (SAME_LETTERS, PLURAL)  # Spellings of one word that need no other evidence
MIN_LETTERS_OF_LIKELY_SLIPS = {DOUBLED: 4, LEFT_OUT: 5}
"""Minimum length of both words for a slip to count as a misspelling unless photos contradict it: most shorter words
are one slip away from another word."""

MIN_COSINE_OF_SLIPS = {DOUBLED: 0.2, LEFT_OUT: 0.2, EXCHANGED: 0.2, TWO_SLIPS: 0.0}
"""Minimum cosine of the centred tag vectors for other slips to count; the mean over all pairs of tags is about 0."""

MIN_PROBABILITY_OF_SLIPS = {DOUBLED: 0.6, LEFT_OUT: 0.6, EXCHANGED: 0.7, TWO_SLIPS: 0.8}
"""Minimum probability that two tags have the same kind of photos; 0.5 means that the photos give no evidence."""

MIN_PROBABILITY_OF_LIKELY_SLIPS = 0.1  # Below this probability, photos contradict even a likely slip
MIN_PROBABILITY_OF_KNOWN_WORDS, MIN_PHOTOS_OF_KNOWN_WORDS = 0.5, 3
"""Minimum probability of a likely slip between two tags that each have this number of photos: bride and bridge."""

LOG_ODDS_FACTOR = 0.5
"""Factor of the log odds of photos, because their features are neither independent nor exactly normal."""

SPELLING_VARIANCE = 0.05
"""Variance between the photos of two spellings of one word, which different people write, as a share of the variance
between words. The six constants above were chosen on planted libraries (research/experiments/tag_suggestions.py)."""

N_FREQUENT_TAGS = 1_000  # Number of the most frequent tags, whose mean rows span the directions to compare images in
N_DIRECTIONS = 64

MIN_VARIANCE = 1e-12

MIN_PAIRS_TO_RAISE, MAX_FALSE_SHARE = 30, 0.2
"""With at least this many pairs of one kind of slip, the threshold is raised until at most this share of the remaining
pairs is expected to be false: a large dictionary has thousands of words that are a slip or two from another word."""

N_RANDOM_PAIRS = 20_000

MIN_COSINE = 0.3  # Minimum cosine, of images and of vectors, for tags of different spellings to mean the same
MIN_EXPECTED_SHARED = 1.0
"""Tags without a common image are only evidence if they would share at least this number of images by chance."""

BLOCK_FLOATS = 2**22

Nearness: TypeAlias = Callable[[Ints, Ints], Doubles]
"""Takes the columns of the first and of the second tag of each pair; returns how near the two tags are."""


def alike_spellings(tags: Sequence[str]) -> list[tuple[int, int, str]]:
    """Find pairs of tags with similar spellings, without comparing all pairs.

    Returns the indices of two tags, the smaller first, and the kind of difference (one of `DIFFERENCES`).

    If one letter is deleted, inserted, exchanged or swapped with the next, the two words are equal after deleting a
    letter from each word (Garbe's SymSpell); so only words that share such a remainder are compared. Both words must
    begin with the same letter, because mistakes in the first letter are rare: sail and tail are words. Tags with digits
    are only compared without hyphens and accents: 2011 is not a misspelling of 2012. Tags must differ by more than
    case. Pairs are sorted and unique, with the smallest difference.
    """
    differences: dict[tuple[int, int], str] = {}
    words = [folded(tag) for tag in tags]
    without_digits = [i for i, word in enumerate(words) if word and not any(letter.isdigit() for letter in word)]
    for pair in _pairs_sharing_keys((word, n) for n, word in enumerate(words) if word):
        differences.setdefault(pair, SAME_LETTERS)
    for i, j in _pairs_sharing_keys((form, n) for n in without_digits for form in {words[n], *singulars(words[n])}):
        if words[i] in singulars(words[j]) or words[j] in singulars(words[i]):
            differences.setdefault((i, j), PLURAL)
    by_initial: defaultdict[str, list[int]] = defaultdict(list)

    for i in without_digits:
        by_initial[words[i][0]].append(i)
    for group in by_initial.values():  # one initial at a time, because the remainders are many
        for i, j in _pairs_sharing_keys((remainder, n) for n in group for remainder in _with_deletions(words[n])):
            kind = kind_of_slip(words[i], words[j])
            if kind is not None and min(len(words[i]), len(words[j])) >= MIN_LENGTHS[kind]:
                differences.setdefault((i, j), kind)
    return [(*pair, kind) for pair, kind in sorted(differences.items())]


def folded(tag: str) -> str:
    """Return the letters and digits of a tag in lower case, without accents, hyphens and spaces."""
    text = "".join(_LETTER_REPLACEMENTS.get(letter, letter) for letter in tag.casefold())
    return "".join(letter for letter in unicodedata.normalize("NFKD", text) if letter.isalnum())


def singulars(word: str) -> set[str]:
    """Return possible singulars of a word, in English and in languages with plurals in -s."""
    endings = [pair for pair in _PLURALS if word.endswith(pair[0]) and not (pair == ("s", "") and word.endswith("ss"))]
    forms = {word.removesuffix(plural) + singular for plural, singular in endings}
    return {form for form in forms if len(form) >= 3}


def kind_of_slip(word: str, other: str) -> str | None:
    """Return the kind of difference between two words; None if they differ by more than two letters."""
    n = slips(word, other)
    if n != 1:
        return TWO_SLIPS if n == 2 else None
    if len(word) == len(other):
        return DOUBLED if sorted(word) == sorted(other) else EXCHANGED
    without_doubles = ([letter for letter, _ in groupby(text)] for text in (word, other))
    return DOUBLED if next(without_doubles) == next(without_doubles) else LEFT_OUT


def slips(word: str, other: str) -> int:
    """Count the letters to delete, insert, exchange or swap with the next letter to turn one word into another.

    No letter is changed twice (optimal string alignment).
    """
    row_before_previous: list[int] = []
    previous = list(range(len(other) + 1))
    for i, letter in enumerate(word, 1):
        row = [i]
        for j, other_letter in enumerate(other, 1):
            best = min(previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (letter != other_letter))
            if i > 1 and j > 1 and letter == other[j - 2] and word[i - 2] == other_letter:
                best = min(best, row_before_previous[j - 2] + 1)
            row.append(best)
        row_before_previous, previous = previous, row
    return previous[-1]


def _with_deletions(word: str) -> set[str]:
    """Return all forms of a word with up to two letters deleted."""
    return {
        "".join(word[start + 1 : stop] for start, stop in pairwise((-1, *deleted, len(word))))
        for n in range(3)
        for deleted in combinations(range(len(word)), n)
    }


def _pairs_sharing_keys(keys: Iterable[tuple[str, int]]) -> Iterator[tuple[int, int]]:
    """Yield the unique pairs of numbers that share a key, the smaller first."""
    numbers: defaultdict[str, set[int]] = defaultdict(set)
    for key, number in keys:
        numbers[key].add(number)
    yield from {pair: None for group in numbers.values() for pair in combinations(sorted(group), 2)}


class AliasPair(NamedTuple):
    """The columns of two tags that may mean the same, the reason, and how near they are (None: unknown)."""

    first: int
    second: int
    reason: str
    nearness: float | None


def suggest_aliases(run: Run, corpus: Corpus | None = None, *, progress: Progress = SILENT) -> list[Alias]:
    """Suggest tags that mean the same, the most certain ones first.

    With a corpus, its images are compared, too (only the split "train", if there are splits); see `alias_pairs`.
    In each group of tags, every tag except the most frequent is returned as an alias of the most frequent, with the
    reason, for people to correct. Raises DataError if there is a corpus and none of its images can be read.
    """
    V = tag_vectors(run)
    if corpus is None:
        return aliases_of(run.vocabulary, alias_pairs(run.vocabulary, V))
    corpus = corpus.select(TRAIN_SPLIT) if any(corpus.splits) else corpus
    X, Y, _ = encode_corpus(run.encoder, corpus, run.vocabulary, progress)
    if Y.shape[0] == 0:
        raise DataError("None of the images could be read, so tags cannot be compared by them.")
    ones = sp.csr_array(Y > 0, dtype=np.float64)
    return aliases_of(run.vocabulary, alias_pairs(run.vocabulary, V, ones, run.model.image_rows(X)))


def tag_vectors(run: Run) -> Floats | None:
    """Return the model's vectors of tags; None if it has no vectors, or vectors of width 1, without a direction."""
    V = kept.tag_vectors(run.model)
    return None if V is None or V.shape[1] < 2 else np.asarray(V, np.float32)


def alias_pairs(
    vocabulary: Vocabulary, V: Floats | None, Y: sp.csr_array | None = None, U: Matrix | None = None
) -> list[AliasPair]:
    """Return the pairs of tags that may mean the same: first pairs of similar spelling, then others; best first.

    If the letters alone don't decide whether a pair is a misspelling, the images decide or, without images, the vectors
    of the tags. With images, there are also pairs of different spellings: tags with similar images but without a
    common image, because people write one or the other.

    Parameters
    ----------
    vocabulary : Vocabulary
    V : ndarray or None, shape (n_tags, width)
        Vectors of the tags, if the model has any.
    Y : csr_array of float64, shape (n_images, n_tags), optional
        Ones where an image has a tag.
    U : array or CSR, shape (n_images, width), optional
        Image rows of the model; only the direction of each row counts.
    """
    tags = vocabulary.tags
    similar_spellings = alike_spellings(tags)
    first, second = (np.array([pair[side] for pair in similar_spellings], np.int64) for side in (0, 1))
    nearness: Nearness | None = None
    thresholds, counts = MIN_PROBABILITY_OF_SLIPS, np.zeros(len(tags))
    if Y is not None:
        photos = TagPhotos(Y, U)
        counts, nearness = photos.counts, photos.same_photos_probability
    elif V is not None:
        nearness, thresholds = partial(_cosines, _unit_centred(V)), MIN_COSINE_OF_SLIPS

    nearness_values = [None] * len(similar_spellings) if nearness is None else nearness(first, second).tolist()
    spelling_pairs = [AliasPair(*pair, value) for pair, value in zip(similar_spellings, nearness_values, strict=True)]
    raised_thresholds = {
        slip: _min_nearness(np.array([p.nearness for p in spelling_pairs if p.reason == slip]), len(tags), nearness)
        for slip in thresholds
        if nearness is not None
    }

    def is_believed(pair: AliasPair) -> bool:
        if pair.reason in CERTAIN_REASONS:
            return True
        min_letters = MIN_LETTERS_OF_LIKELY_SLIPS.get(pair.reason, np.inf)
        is_likely = min(len(folded(tags[tag])) for tag in pair[:2]) >= min_letters
        if pair.nearness is None:
            return is_likely
        are_known = counts[list(pair[:2])].min() >= MIN_PHOTOS_OF_KNOWN_WORDS
        likely_threshold = MIN_PROBABILITY_OF_LIKELY_SLIPS if Y is not None else -np.inf
        likely_threshold = MIN_PROBABILITY_OF_KNOWN_WORDS if are_known else likely_threshold
        threshold = likely_threshold if is_likely else thresholds[pair.reason]
        return pair.nearness >= raised_thresholds[pair.reason] and pair.nearness > threshold

    pairs = sorted(filter(is_believed, spelling_pairs), key=_best_first)
    if Y is None or V is None:
        return pairs
    return [*pairs, *_pairs_by_images(Y, U, V, _families(len(tags), pairs))]


class TagPhotos:
    """The images of each tag, and how likely two tags have the same kind of images.

    Rows are projected on the directions in which the mean rows of frequent tags differ most. In each direction, the
    means of two tags differ by chance (variance within tags / number of images) and by `SPELLING_VARIANCE`; the means
    of different words also differ by the variance between words. Both are modelled as normal, and their
    likelihoods are compared: rare tags give little evidence, frequent tags a lot. Images with both tags are left out.

    Parameters
    ----------
    Y, U
        As `alias_pairs` takes them.

    Attributes
    ----------
    counts : ndarray of float64, shape (n_tags,)
    sums : ndarray of float64, shape (n_tags, n_directions)
        Sums of the projected rows of each tag's images, minus the mean of all rows.
    """

    def __init__(self, Y: sp.csr_array, U: Matrix) -> None:
        U, self._Y = unit_rows(U), sp.csc_array(Y)
        self.counts = np.asarray(Y.sum(axis=0), np.float64)
        n = np.maximum(self.counts, 1)[:, None]
        mean = np.asarray(U.mean(axis=0), np.float64).ravel()
        frequent = np.argsort(-self.counts, kind="stable")[:N_FREQUENT_TAGS]
        means = self._Y[:, frequent].T @ U
        means = (means.toarray() if sp.issparse(means) else np.asarray(means)) / n[frequent] - mean
        basis = np.linalg.svd(means, full_matrices=False)[2][:N_DIRECTIONS].T
        self._rows = np.asarray(U @ basis, np.float64) - mean @ basis
        self.sums = np.asarray(Y.T @ self._rows)
        squares = (self.sums / n) ** 2
        squared_deviations = (Y.T @ self._rows**2).sum(axis=0) - (n * squares)[self.counts > 0].sum(axis=0)
        self._within = np.maximum(squared_deviations / max(1.0, float((n - 1).sum())), MIN_VARIANCE)
        repeated = self.counts > 1
        between = (squares - self._within / n)[repeated].mean(axis=0) if repeated.any() else np.zeros(basis.shape[1])
        self._between = np.maximum(between, MIN_VARIANCE)

    def same_photos_probability(self, first: Ints, second: Ints) -> Doubles:
        """Return the probability that two tags have the same kind of images, with a prior of 0.5.

        It is 0 if half of the rarer tag's images have both tags: people who write both mean different things.
        """
        probabilities = [np.zeros(0)]
        step = max(1, BLOCK_FLOATS // self._rows.shape[1])
        for left, right in ((first[i : i + step], second[i : i + step]) for i in range(0, len(first), step)):
            with_both = self._Y[:, left].multiply(self._Y[:, right]).tocsc()
            n_both = np.asarray(with_both.sum(axis=0), np.float64).ravel()
            sums_of_both = with_both.T @ self._rows
            is_comparable = 2 * n_both < np.minimum(self.counts[left], self.counts[right])
            n_left, n_right = (
                np.where(is_comparable, self.counts[tags] - n_both, 1)[:, None] for tags in (left, right)
            )
            gap = ((self.sums[left] - sums_of_both) / n_left - (self.sums[right] - sums_of_both) / n_right) ** 2
            same = self._within * (1 / n_left + 1 / n_right) + 2 * SPELLING_VARIANCE * self._between
            different = same + 2 * self._between
            log_odds = (np.log(different / same) - gap * (1 / same - 1 / different)).sum(axis=1) / 2 * LOG_ODDS_FACTOR
            probabilities.append(np.where(is_comparable, 1 / (1 + np.exp(-np.clip(log_odds, -500, 500))), 0.0))
        return np.concatenate(probabilities)


def aliases_of(vocabulary: Vocabulary, pairs: Sequence[AliasPair]) -> list[Alias]:
    """Join pairs to groups; in each group, return every tag except the most frequent as an alias of the most frequent.

    Spellings and plurals of one word are a family. A slip joins a family only to a family that is not joined to
    another, which avoids chains of words that are one slip apart. The reason of an alias is that of the most certain
    pair that joins it to another tag of its group.
    """
    n_tags, counts = len(vocabulary), vocabulary.counts
    family = _families(n_tags, pairs)
    n_images = np.bincount(family, counts, minlength=n_tags)
    joined_to: dict[int, int] = {}
    joined_pairs: list[AliasPair] = []
    for pair in pairs:
        rarer, other = sorted((int(family[tag]) for tag in pair[:2]), key=lambda f: (n_images[f], -f))
        if rarer != other and (rarer in joined_to or rarer in joined_to.values() or other in joined_to):
            continue
        if rarer != other:
            joined_to[rarer] = other
        joined_pairs.append(pair)

    members: defaultdict[int, list[int]] = defaultdict(list)
    for tag, number in enumerate(family.tolist()):
        members[joined_to.get(number, number)].append(tag)

    rank_of = {pair: number for number, pair in enumerate(joined_pairs)}
    pairs_of: defaultdict[int, list[AliasPair]] = defaultdict(list)
    for pair in joined_pairs:
        for tag in pair[:2]:
            pairs_of[tag].append(pair)
    aliases = []
    for group in members.values():
        best = min(group, key=lambda tag: (-counts[tag], tag))
        for tag in group:
            if tag != best:
                pair = next((pair for pair in pairs_of[tag] if best in pair[:2]), pairs_of[tag][0])
                aliases.append((rank_of[pairs_of[tag][0]], tag, best, pair))
    tags = vocabulary.tags
    return [Alias(tags[tag], tags[best], _reason(tag, best, pair, tags)) for _, tag, best, pair in sorted(aliases)]


def _families(n_tags: int, pairs: Sequence[AliasPair]) -> Ints:
    """Return the family number of each tag; a family is all spellings and plurals of one word."""
    from scipy.sparse.csgraph import connected_components  # slow to import

    certain_pairs = [pair for pair in pairs if pair.reason in CERTAIN_REASONS]
    rows, columns = ([pair[side] for pair in certain_pairs] for side in (0, 1))
    links = sp.csr_array((np.ones(len(certain_pairs)), (rows, columns)), shape=(n_tags, n_tags))
    return np.asarray(connected_components(links, directed=False)[1], np.int64)


def _best_first(pair: AliasPair) -> tuple[int, float, int, int]:
    return (*DIFFERENCES, SIMILAR_IMAGES).index(pair.reason), -(pair.nearness or 0.0), pair.first, pair.second


def _min_nearness(pair_nearness: Doubles, n_tags: int, nearness: Nearness) -> float:
    """Return the nearness above which at most `MAX_FALSE_SHARE` of the pairs of one kind of slip are false.

    False pairs are as near as random pairs of tags: half of them are below the median of random pairs, where there are
    few true pairs. So twice the number of pairs below it estimates the number of false pairs (Storey 2002), and the
    random pairs tell how many false pairs are above a given nearness.
    """
    if len(pair_nearness) < MIN_PAIRS_TO_RAISE:
        return -np.inf
    left, right = np.random.default_rng(0).integers(n_tags, size=(2, N_RANDOM_PAIRS))
    random_nearness = np.sort(nearness(left[left != right], right[left != right]))
    pair_nearness = np.sort(pair_nearness)[::-1]
    n_false = min(len(pair_nearness), 2 * int((pair_nearness <= random_nearness[len(random_nearness) // 2]).sum()))
    share_above = 1 - np.searchsorted(random_nearness, pair_nearness) / len(random_nearness)
    allowed_positions = np.flatnonzero(n_false * share_above <= MAX_FALSE_SHARE * np.arange(1, len(pair_nearness) + 1))
    return float(pair_nearness[allowed_positions[-1]]) if len(allowed_positions) else np.inf


def _pairs_by_images(Y: sp.csr_array, U: Matrix, V: Floats, family: Ints) -> list[AliasPair]:
    """Return pairs of tags that are most similar to each other and share no image, although they are expected to.

    Families are compared, because a family has more images than a single spelling. A pair is returned as the most
    frequent spellings of its two families.
    """
    tag_counts = np.asarray(Y.sum(axis=0), np.float64)
    family_of = sp.csr_array((np.ones(len(family)), (np.arange(len(family)), family)))
    weights = np.maximum(tag_counts, 1)
    vectors = _unit_centred((family_of.T @ (V * weights[:, None])) / (family_of.T @ weights)[:, None])
    Y = sp.csr_array((Y @ family_of) > 0, dtype=np.float64)
    photos = TagPhotos(Y, U)
    images, counts, shared = unit_rows(photos.sums), photos.counts, sp.csr_array(Y.T @ Y)
    min_product = MIN_EXPECTED_SHARED * Y.shape[0]
    frequent = np.flatnonzero(counts * float(counts.max(initial=0)) >= min_product)
    best = np.full(len(counts), -1)
    nearness = np.zeros(len(counts))
    step = max(1, BLOCK_FLOATS // max(len(frequent), 1))

    for chunk in (frequent[start : start + step] for start in range(0, len(frequent), step)):
        by_vectors, by_images = (rows[chunk] @ rows[frequent].T for rows in (vectors, images))
        similarity = (by_vectors + by_images) / 2
        too_rare = counts[chunk, None] * counts[None, frequent] < min_product
        share_images = shared[chunk][:, frequent].toarray() > 0
        similarity[too_rare | share_images | (np.minimum(by_vectors, by_images) < MIN_COSINE)] = -np.inf
        nearest = similarity.argmax(axis=1)
        highest = similarity[np.arange(len(chunk)), nearest]
        has_match = np.isfinite(highest)
        best[chunk[has_match]] = frequent[nearest[has_match]]
        nearness[chunk[has_match]] = highest[has_match]

    by_count = np.lexsort((np.arange(len(family)), -tag_counts))
    spellings = by_count[np.unique(family[by_count], return_index=True)[1]]
    pairs = [
        AliasPair(int(spellings[family_number]), int(spellings[other]), SIMILAR_IMAGES, float(nearness[family_number]))
        for family_number, other in enumerate(best.tolist())
        if other > family_number and best[other] == family_number
    ]
    return sorted(pairs, key=_best_first)


def _reason(tag: int, best: int, pair: AliasPair, tags: Sequence[str]) -> str:
    other = pair.first if pair.second == tag else pair.second
    nearness_text = "" if pair.nearness is None else f", {pair.nearness:.2f}"
    return f"{pair.reason}{'' if other == best else f' (as {tags[other]})'}{nearness_text}"


def _cosines(rows: Floats, first: Ints, second: Ints) -> Doubles:
    return np.asarray(np.einsum("ij,ij->i", rows[first], rows[second]), np.float64)


def _unit_centred(V: Floats | Doubles) -> Floats:
    return np.asarray(unit_rows(V - V.mean(axis=0)) if len(V) else V, np.float32)
