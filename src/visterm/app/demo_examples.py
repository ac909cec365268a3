"""What the demo's report shows: searches and tags chosen by rules that were fixed before any result was known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

from visterm.core.vocabulary import Vocabulary
from visterm.data.drawn import GROUPS, NOUNS, Query
from visterm.data.drawn.things import THINGS

N_BY_LENGTH = {1: 2, 2: 4, 3: 1}
"""How many searches of one, two and three words are shown, beside one with a word that shall not be there."""
FEWEST = 5
"""A search is shown if so many pictures are right; a spelling counts if so many pictures have it."""
COMMON = 0.5
"""A word that is true of more than this share of the pictures ("sky") is no word to search by."""


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
        """Say whether a picture on which `seen` is to be seen is a right answer."""
        return all(word in seen for word in self.wanted) and not any(word in seen for word in self.unwanted)


def shown_searches(queries: Sequence[Query], seen: Sequence[Collection[str]]) -> list[Search]:
    """Choose searches that the eye can check, from the frequent to the middling, no word twice.

    Their words name things, kinds, land, water or sky (no parts, colours, hours or weather), at least one of them a
    thing; `FEWEST` pictures or more are right, and no word is true of more than the share `COMMON` of the pictures. Of
    each number of words, the choice is spread evenly over the ranks.

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
    return shown + _spread(
        [_without_the_second(search) for search in searches if len(search.wanted) == 2], 1, seen, shown
    )


def shown_tags(vocabulary: Vocabulary, n: int) -> list[str]:
    """Choose the tags that people write in most ways, each way on `FEWEST` training pictures or more.

    Parameters
    ----------
    vocabulary : Vocabulary
        With counts.
    n : int
        At most so many; ties go to the tag whose other spellings more pictures have.
    """
    ways: Counter[str] = Counter()
    images: Counter[str] = Counter()
    for tag, count in zip(vocabulary.tags, vocabulary.counts.tolist(), strict=True):
        meaning = meaning_of(tag)
        if tag.casefold() != meaning and count >= FEWEST:
            ways[meaning] += 1
            images[meaning] += count
    ranked = sorted((meaning for meaning in ways if meaning in vocabulary), key=lambda m: (-ways[m], -images[m], m))
    return ranked[:n]


def meaning_of(tag: str) -> str:
    """Give the true tag that a spelling stands for, or the tag itself."""
    return GROUPS.get(tag.casefold(), tag)


def _spread(
    searches: Sequence[Search], n: int, seen: Sequence[Collection[str]], taken: Sequence[Search]
) -> list[Search]:
    counted = [(sum(search.suits(one) for one in seen), search) for search in searches]
    ranked = [search for count, search in sorted(counted, key=lambda item: (-item[0], item[1])) if count >= FEWEST]
    chosen: list[Search] = []
    for i in range(n):
        used = {word for search in (*taken, *chosen) for word in (*search.wanted, *search.unwanted)}
        left = (search for search in ranked[i * len(ranked) // n :] if not used & {*search.wanted, *search.unwanted})
        chosen += [search for search in [next(left, None)] if search is not None]
    return chosen


def _without_the_second(search: Search) -> Search:
    """Turn two words into one that shall be there, a thing, and one that shall not."""
    first, second = sorted(search.wanted, key=lambda word: word not in THINGS)
    return Search((first,), (second,))
