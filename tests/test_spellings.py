"""Tags whose spellings are alike are found: hyphens, accents, plurals, slips of a letter or two."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from visterm.tagging.tag_groups import (
    DOUBLED,
    EXCHANGED,
    LEFT_OUT,
    PLURAL,
    SAME_LETTERS,
    TWO_SLIPS,
    alike_spellings,
    folded,
    singulars,
    slips,
)


@pytest.mark.parametrize(
    ("one", "other", "how"),
    [
        ("t-shirt", "T Shirt", SAME_LETTERS),
        ("rowing boat", "rowingboat", SAME_LETTERS),
        ("café", "cafe", SAME_LETTERS),
        ("weiß", "weiss", SAME_LETTERS),
        ("dog", "dogs", PLURAL),
        ("bus", "buses", PLURAL),
        ("butterfly", "butterflies", PLURAL),
        ("leaf", "leaves", PLURAL),
        ("knife", "knives", PLURAL),
        ("fisherman", "fishermen", PLURAL),
        ("beckham", "beckam", LEFT_OUT),
        ("dolphin", "dolphine", LEFT_OUT),
        ("tree", "tre", DOUBLED),
        ("boat", "baot", DOUBLED),
        ("clowd", "cloud", EXCHANGED),
        ("dolphin", "delphine", TWO_SLIPS),
        ("mountain", "montian", TWO_SLIPS),
    ],
)
def test_two_spellings_of_a_word_are_found(one, other, how):
    assert alike_spellings(["walrus", one, "pineapple", other]) == [(1, 3, how)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2011", "2012"),  # numbers are no slips of each other
        ("img 12", "img 13"),
        ("ox", "ax"),  # too short for a slip
        ("house", "hurt"),  # two slips, too short for that
        ("cat", "car"),  # too short for another letter
        ("sail", "tail"),  # another beginning
        ("listing", "sifting"),
        ("as", "a"),  # no plural of one letter
        ("!?", "..."),  # no letters at all
    ],
)
def test_other_words_are_not(one, other):
    assert alike_spellings([one, other]) == []


def test_no_pair_of_the_drawn_words_is_missed():
    # All pairs of words of three letters, and of words made by slips from one of eight.
    rng = np.random.default_rng(0)
    words = {"".join(rng.choice(list("abc"), 4)) for _ in range(40)}
    for _ in range(60):
        letters = list("dolphins")
        for _ in range(2):
            place = int(rng.integers(1, len(letters) - 1))
            letters[place : place + 1] = [[], ["x"], [letters[place], "y"]][rng.integers(3)]
        words.add("".join(letters))
    tags = sorted(words)
    found = {(first, second) for first, second, _ in alike_spellings(tags)}
    for i, j in combinations(range(len(tags)), 2):
        one, other = tags[i], tags[j]
        shorter = min(len(one), len(other))
        expected = one[0] == other[0] and (slips(one, other) == 1 or (slips(one, other) == 2 and shorter >= 6))
        assert ((i, j) in found) == expected, (one, other)


@pytest.mark.parametrize(
    ("one", "other", "n"),
    [
        ("", "abc", 3),
        ("abc", "abc", 0),
        ("abcd", "acbd", 1),
        ("ca", "abc", 3),
        ("kitten", "sitting", 3),
        ("ab", "ba", 1),
    ],
)
def test_slips_are_counted(one, other, n):
    # "ca" to "abc" is 3, as no letter is touched twice (it would be 2 else).
    assert slips(one, other) == slips(other, one) == n


def test_letters_and_plurals():
    assert folded("Île-de-France 2") == "iledefrance2"
    assert folded("KIRMIZI") == folded("kırmızı")
    assert singulars("glass") == set()
    assert singulars("cities") == {"citie", "citi", "city"}
