"""Find tags: by their first letters, or near another tag in the space of a model with vectors of tags."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from visterm.core.errors import UserError
from visterm.core.tables import MODELS
from visterm.core.vocabulary import Vocabulary, tag_key
from visterm.models.base import Annotator
from visterm.models.blend.kept import tag_vectors, what_to_do

_LAST = "\U0010ffff"


class Completion(NamedTuple):
    """A tag that may be meant."""

    tag: str
    images: int  # Training images that have it; 0 of a word without any


class Completions:
    """The tags of a vocabulary, ready to be found by their first letters and by those of their words."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._tags = vocabulary.tags
        self._counts = vocabulary.counts.tolist()
        starts = []
        for column, tag in enumerate(vocabulary.tags):
            starts += [(start, column) for start in _starts(tag)]
        starts.sort()
        self._keys = [key for key, _ in starts]
        self._columns = [column for _, column in starts]

    def find(self, typed: str, k: int = 10, others: Mapping[str, int] | None = None) -> list[Completion]:
        """Return the tags that are meant: first those that begin so, then those with such a word, frequent ones first.

        Nothing typed gives the most frequent tags. `others` are more tags with how many images have each.
        """
        key = tag_key(typed)
        places = slice(bisect_left(self._keys, key), bisect_left(self._keys, key + _LAST))
        found = [(self._tags[column], self._counts[column]) for column in set(self._columns[places])]
        found += [(tag, n) for tag, n in (others or {}).items() if any(s.startswith(key) for s in _starts(tag))]

        def rank(item: tuple[str, int]) -> tuple[bool, int, str]:
            return not tag_key(item[0]).startswith(key), -item[1], item[0]

        return [Completion(*item) for item in heapq.nsmallest(k, found, key=rank)]


def _starts(tag: str) -> list[str]:
    """Return the key of a tag from its beginning, and from each of its words and parts of its path on."""
    key = tag_key(tag)
    return [key, *(key[at + 1 :] for at, letter in enumerate(key) if letter in " /")]


class Neighbour(NamedTuple):
    """A tag near another one in the model's space, by cosine."""

    tag: str
    score: float


def nearest_tags(model: Annotator, vocabulary: Vocabulary, tag: str, k: int = 10) -> list[Neighbour]:
    """Find the tags nearest to one, by cosine, best first; 0 means all.

    Raises UnknownNameError if the tag is not in the vocabulary; UserError if the model scores each tag on its own and
    has no vectors of tags.
    """
    index = vocabulary.index(tag)
    V = tag_vectors(model)
    if V is None:
        raise UserError(
            f"The model '{MODELS.name_of(model)}' of this run has no vectors of tags, so tags have no neighbours. "
            f"{what_to_do(model)}"
        )
    norms = np.linalg.norm(V, axis=1)
    cosine = V @ V[index] / np.maximum(norms * norms[index], np.finfo(np.float32).tiny)
    cosine[index] = -np.inf
    k = len(vocabulary) - 1 if k == 0 else min(k, len(vocabulary) - 1)
    best = np.lexsort((np.arange(len(cosine)), -cosine))[:k]
    return [Neighbour(vocabulary.tags[i], float(cosine[i])) for i in best]
