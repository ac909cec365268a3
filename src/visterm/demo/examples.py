"""What the demo's report shows: searches and tags chosen by rules that look at the truth, not at what models find."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

from visterm.core.vocabulary import Vocabulary
from visterm.demo.drawn import GROUPS, NOUNS, Query
from visterm.demo.drawn.things import THINGS

N_BY_LENGTH = {3: 1, 2: 4, 1: 2}
"""How many searches of three, two and one words are shown, beside one with a word that shall not be there."""
FEWEST = 8
"""A search is shown if so many pictures are right: they fill the row."""
COMMON = 0.3
"""Words of more than this share of the pictures ("sky") are neither searched by nor compared with others."""
FEWEST_SPELT = 3
"""A spelling counts as one from so many training pictures on."""


class Search(NamedTuple):
    """A search to show: the words that pictures shall show, and those that they shall not."""

    wanted: tuple[str, ...]
    unwanted: tuple[str, ...] = ()

    @property
    def words(self) -> list[str]:
        """The words as `Catalogue.search` takes them."""
        return [*self.wanted, *(f"-{word}" for word in self.unwanted)]

    @property
    def text(self) -> str:
        """The search as it is typed."""
        return " ".join(f'"{word}"' if " " in word else word for word in self.words)

    def suits(self, seen: Collection[str]) -> bool:
        """Return whether a picture on which `seen` is to be seen is a right answer."""
        return all(word in seen for word in self.wanted) and not any(word in seen for word in self.unwanted)


def shown_searches(queries: Sequence[Query], seen: Sequence[Collection[str]]) -> list[Search]:
    """Choose searches that the eye can check, from the frequent to the middling, no word twice.

    Their words name things, kinds, land, water or sky (no parts, colours, hours or weather), at least one of them a
    thing; `FEWEST` pictures or more are right, and no word is true of more than the share `COMMON` of the pictures. Of
    each number of words, the choice is spread evenly over the upper half of the ranks. The word that one search leaves
    out is one that is often beside the word that it asks for.

    Parameters
    ----------
    queries : sequence of Query
        What the pictures can answer.
    seen : sequence of sets of str
        What is to be seen on each picture.
    """
    common = {word for word in NOUNS if sum(word in one for one in seen) > COMMON * len(seen)}
    searches = [
        Search(query.words)
        for query in queries
        if NOUNS.issuperset(query.words) and not common & set(query.words) and THINGS.keys() & set(query.words)
    ]
    shown: list[Search] = []
    for length, n in N_BY_LENGTH.items():
        shown += _spread([search for search in searches if len(search.wanted) == length], n, seen, shown)
    shown.sort(key=lambda search: len(search.wanted))
    return shown + _one_without([search for search in searches if len(search.wanted) == 2], seen, shown)


def shown_tags(vocabulary: Vocabulary, n_images: int, n: int) -> list[str]:
    """Choose the tags that people write in most ways, each way on `FEWEST_SPELT` training pictures or more.

    Parameters
    ----------
    vocabulary : Vocabulary
        With counts.
    n_images : int
        Training pictures; tags of more than the share `COMMON` of them, in all spellings, are left out.
    n : int
        At most so many; ties go to the tag whose other spellings more pictures have.
    """
    ways: Counter[str] = Counter()
    images: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for tag, count in zip(vocabulary.tags, vocabulary.counts.tolist(), strict=True):
        meaning = meaning_of(tag)
        total[meaning] += count
        if tag.casefold() != meaning and count >= FEWEST_SPELT:
            ways[meaning] += 1
            images[meaning] += count
    found = [meaning for meaning in ways if meaning in vocabulary and total[meaning] <= COMMON * n_images]
    return sorted(found, key=lambda meaning: (-ways[meaning], -images[meaning], meaning))[:n]


def meaning_of(tag: str) -> str:
    """Return the true tag that a spelling stands for, or the tag itself."""
    return GROUPS.get(tag.casefold(), tag)


def _spread(
    searches: Sequence[Search], n: int, seen: Sequence[Collection[str]], taken: Sequence[Search]
) -> list[Search]:
    ranked = [search for search in _ranked(searches, seen) if _n_right(search, seen) >= FEWEST]
    chosen: list[Search] = []
    for i in range(n):
        left = ranked[i * len(ranked) // (2 * n) :]
        chosen += _unused(left, [*taken, *chosen])[:1]
    return chosen


def _one_without(pairs: Sequence[Search], seen: Sequence[Collection[str]], taken: Sequence[Search]) -> list[Search]:
    """Turn the pair that is seen together most often into a thing that shall be there and a word that shall not."""
    turned = []
    for pair in _unused(_ranked(pairs, seen), taken):
        wanted, unwanted = sorted(pair.wanted, key=lambda word: word not in THINGS)
        turned.append(Search((wanted,), (unwanted,)))
    return [search for search in turned if _n_right(search, seen) >= FEWEST][:1]


def _ranked(searches: Sequence[Search], seen: Sequence[Collection[str]]) -> list[Search]:
    return sorted(searches, key=lambda search: (-_n_right(search, seen), search))


def _n_right(search: Search, seen: Sequence[Collection[str]]) -> int:
    return sum(map(search.suits, seen))


def _unused(searches: Sequence[Search], taken: Sequence[Search]) -> list[Search]:
    used = {word for search in taken for word in (*search.wanted, *search.unwanted)}
    return [search for search in searches if not used.intersection(search.wanted)]
