"""Known queries: sets of one to three true words that at least one picture of the split shows together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from visterm.core.errors import UserError
from visterm.demo.drawn.colours import NAMED
from visterm.demo.drawn.relations import implied


@dataclass(frozen=True, slots=True)
class Query:
    """A query, and how many pictures of the split have all its words among their true tags.

    Attributes
    ----------
    words : tuple of str
        One to three true tags, sorted.
    split : str
    n_relevant : int
        1 or more.
    """

    words: tuple[str, ...]
    split: str
    n_relevant: int

    @property
    def text(self) -> str:
        """The query as it is typed: words with a space inside are quoted."""
        return " ".join(f'"{word}"' if " " in word else word for word in self.words)


def queries_of(
    tags: Iterable[Sequence[str]], *, split: str = "", max_words: int = 3, per_length: int = 150
) -> tuple[Query, ...]:
    """List the queries that pictures can answer.

    All single tags but colours are queries; of pairs and triples those that the most evenly spread choice of
    `per_length` takes, from the frequent to the rare. Words of which one follows from another ("oak tree", "forest
    tree") make no query; nor do colours, which are said of the thing that was painted, while a searcher may see them
    anywhere.

    Parameters
    ----------
    tags : iterable of sequences of str
        The true tags of each picture, such as ``(scene.tags for scene in scenes)``.
    split : str
        Written into the queries.
    max_words : int
        1 to 3.
    per_length : int
        At most so many queries of two words, and as many of three.

    Raises
    ------
    UserError
        If `max_words` is not 1, 2 or 3.
    """
    if max_words not in (1, 2, 3):
        raise UserError(f"max_words is {max_words!r}; expected 1, 2 or 3.")
    lists = [sorted(set(words) - NAMED.keys()) for words in tags]
    found: list[Query] = []
    for length in range(1, max_words + 1):
        counts = Counter(words for listed in lists for words in combinations(listed, length))
        ranked = sorted((-count, words) for words, count in counts.items() if not _nested(words))
        if length > 1 and len(ranked) > per_length:
            ranked = [ranked[i * len(ranked) // per_length] for i in range(per_length)]
        found += [Query(words, split, -count) for count, words in ranked]
    return tuple(found)


def _nested(words: tuple[str, ...]) -> bool:
    return any(above in words for word in words for above in implied(word))
