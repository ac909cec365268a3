"""Completion: the tags that begin with what was typed so far, or that have a word that does."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from typing import NamedTuple

from visterm.core.vocabulary import Vocabulary, tag_key

_LAST = "\U0010ffff"


class Completion(NamedTuple):
    """A tag that may be meant.

    Attributes
    ----------
    tag : str
    images : int
        Training images that have it; 0 of a word without any.
    """

    tag: str
    images: int


class Completions:
    """The tags of a vocabulary, ready to be found by their first letters and by those of their words.

    Parameters
    ----------
    vocabulary : Vocabulary
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._tags = vocabulary.tags
        self._counts = vocabulary.counts.tolist()
        starts = []
        for column, tag in enumerate(vocabulary.tags):
            key = tag_key(tag)
            starts.append((key, column))
            starts += [(key[at + 1 :], column) for at, letter in enumerate(key) if letter == " "]
        starts.sort()
        self._keys = [key for key, _ in starts]
        self._columns = [column for _, column in starts]

    def find(self, typed: str, k: int = 10) -> list[Completion]:
        """Return the tags that are meant: first those that begin so, then those with such a word, frequent ones first.

        Nothing typed gives the most frequent tags.
        """
        key = tag_key(typed)
        places = slice(bisect_left(self._keys, key), bisect_left(self._keys, key + _LAST))

        def rank(column: int) -> tuple[bool, int, str]:
            return not tag_key(self._tags[column]).startswith(key), -self._counts[column], self._tags[column]

        best = heapq.nsmallest(k, set(self._columns[places]), key=rank)
        return [Completion(self._tags[column], self._counts[column]) for column in best]
