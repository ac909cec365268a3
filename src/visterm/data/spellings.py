"""Tags that may be one word written in two ways: hyphens and accents, plurals, misspellings; by their letters alone."""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, groupby, pairwise

# In what spellings may differ, the surest first
HOW = (
    "hyphens, spaces or accents", "plural", "letters doubled or swapped", "a letter left out", "a letter exchanged",
    "two letters",
)  # fmt: skip
SAME_LETTERS, PLURAL, DOUBLED, LEFT_OUT, EXCHANGED, TWO_SLIPS = HOW

# Letters of the shorter word from which on such slips are looked for: most words of four are two from many
SHORTEST = {DOUBLED: 3, LEFT_OUT: 3, EXCHANGED: 4, TWO_SLIPS: 6}

# Endings of plurals, and what stands there in the singular
_PLURALS = (("s", ""), ("es", ""), ("ies", "y"), ("ves", "f"), ("ves", "fe"), ("men", "man"))

# Letters that have no accent by Unicode, and what they are written as where keyboards lack them
_LETTERS = {"ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "ł": "l"}


def alike_spellings(tags: Sequence[str]) -> list[tuple[int, int, str]]:
    """Find pairs of tags whose spellings are alike, without comparing all with all.

    Returns the numbers of two tags, the smaller first, and in what their spellings differ (one of `HOW`).

    Two words a slip apart, a letter left out, put in, exchanged or two turned round, are equal when a letter is left
    out of both (Garbe's SymSpell); so only words that share such a remainder are compared. Both must begin with the
    same letter, because few slips are in the first: sail and tail are words. Tags with digits in them are compared by
    hyphens and accents only: 2011 is no slip of 2012. No two tags are equal but for case. Pairs are sorted; each is
    there once, with the smallest difference.
    """
    differences: dict[tuple[int, int], str] = {}
    words = [folded(tag) for tag in tags]
    worded = [i for i, word in enumerate(words) if word and not any(letter.isdigit() for letter in word)]
    for pair in _sharing((word, n) for n, word in enumerate(words) if word):
        differences.setdefault(pair, SAME_LETTERS)
    for i, j in _sharing((form, n) for n in worded for form in {words[n], *singulars(words[n])}):
        if words[i] in singulars(words[j]) or words[j] in singulars(words[i]):
            differences.setdefault((i, j), PLURAL)
    beginning: defaultdict[str, list[int]] = defaultdict(list)

    for i in worded:
        beginning[words[i][0]].append(i)
    for same in beginning.values():  # one letter after the other, because the remainders are many
        for i, j in _sharing((remainder, n) for n in same for remainder in _shortened(words[n])):
            how = kind_of_slip(words[i], words[j])
            if how is not None and min(len(words[i]), len(words[j])) >= SHORTEST[how]:
                differences.setdefault((i, j), how)
    return [(*pair, how) for pair, how in sorted(differences.items())]


def folded(tag: str) -> str:
    """Return the letters and digits of a tag: small, without accents, hyphens and spaces."""
    text = "".join(_LETTERS.get(letter, letter) for letter in tag.casefold())
    return "".join(letter for letter in unicodedata.normalize("NFKD", text) if letter.isalnum())


def singulars(word: str) -> set[str]:
    """Return what a word may be the plural of, in English and in languages with plurals in -s."""
    endings = [each for each in _PLURALS if word.endswith(each[0]) and not (each == ("s", "") and word.endswith("ss"))]
    forms = {word.removesuffix(plural) + singular for plural, singular in endings}
    return {form for form in forms if len(form) >= 3}


def kind_of_slip(one: str, other: str) -> str | None:
    """Return the slip that makes one word of another; None if it takes more than two."""
    n = slips(one, other)
    if n != 1:
        return TWO_SLIPS if n == 2 else None
    if len(one) == len(other):
        return DOUBLED if sorted(one) == sorted(other) else EXCHANGED
    return DOUBLED if _without_doubles(one) == _without_doubles(other) else LEFT_OUT


def slips(one: str, other: str) -> int:
    """Count the letters to leave out, put in, exchange, or turn round with the next, from one word to another.

    No letter is touched twice (optimal string alignment).
    """
    second_last: list[int] = []
    last = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        row = [i]
        for j, against in enumerate(other, 1):
            best = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (letter != against))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == against:
                best = min(best, second_last[j - 2] + 1)
            row.append(best)
        second_last, last = last, row
    return last[-1]


def _without_doubles(word: str) -> str:
    return "".join(letter for letter, _ in groupby(word))


def _shortened(word: str) -> set[str]:
    """Return a word with up to two of its letters left out."""
    return {
        "".join(word[start + 1 : stop] for start, stop in pairwise((-1, *out, len(word))))
        for n in range(3)
        for out in combinations(range(len(word)), n)
    }


def _sharing(keys: Iterable[tuple[str, int]]) -> Iterator[tuple[int, int]]:
    """Yield the pairs of numbers that share a key, each once, the smaller first."""
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for key, number in keys:
        numbers[key].append(number)
    seen: set[tuple[int, int]] = set()
    for sharing in numbers.values():
        for pair in combinations(sorted(set(sharing)), 2):
            if pair not in seen:
                seen.add(pair)
                yield pair
