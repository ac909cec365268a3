"""Finding tags that may be two spellings of one word (hyphens, accents, plurals, misspellings), by their letters."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, groupby, pairwise

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
_LETTER_REPLACEMENTS = {"ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "ł": "l"}


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
