"""Pictures to search by several words: their division, the words of queries, and queries made from captions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import DataError
from visterm.core.vocabulary import Vocabulary
from visterm.data import MAX_SUBSETS, Corpus, Queries, queries_of_tags, relevant_images
from visterm.evaluation import MIN_COUNT
from visterm.metrics import kinds_of_queries
from visterm_research.comparison.image_problems import read_corel
from visterm_research.comparison.sources import Source
from visterm_research.scenes import draw_library, read_drawn_library

HELD_OUT = 1 / 9
"""Share of the development pictures for validation: 500 of 4,500, as in the paper (V-A)."""


@dataclass(frozen=True)
class Division:
    """A division of the development pictures into training pictures, and validation pictures that choose settings.

    Attributes
    ----------
    train, valid : ndarray of int64
        Rows of the development pictures, sorted.
    """

    train: NDArray[np.int64]
    valid: NDArray[np.int64]


@dataclass(frozen=True)
class Pictures:
    """Pictures with captions, divided as in section V-A.

    Attributes
    ----------
    name : str
        A short name for folders, such as "corel5k".
    development, test : Corpus
    words : Vocabulary
        Words of queries: those of two or more test pictures.
    divisions : tuple of Division
        The first division chooses settings; figures are means over all divisions.
    max_words : int or None
        Maximum number of words of a query.
    max_subsets : int
        Maximum number of sets of two or more words, counted picture by picture; more sets are sampled.
    shown : tuple of int
        Test queries whose best pictures are kept, for Figures 4 and 5.
    """

    name: str
    development: Corpus
    test: Corpus
    words: Vocabulary
    divisions: tuple[Division, ...]
    max_words: int | None
    max_subsets: int = MAX_SUBSETS
    shown: tuple[int, ...] = ()

    @cached_property
    def captions(self) -> sp.csr_array:
        """Words of the development pictures."""
        return self.words.encode(self.development.tags)

    @cached_property
    def test_queries(self) -> Queries:
        """Every set of words that a test picture has."""
        return self.queries_of(self.words.encode(self.test.tags))

    @cached_property
    def kinds(self) -> dict[str, NDArray[np.bool_]]:
        """Kinds of test queries; ``test only`` are those that no development picture answers."""
        queries = self.test_queries
        is_answered = np.diff(relevant_images(queries.words, self.captions).indptr) > 0
        return kinds_of_queries(queries.n_words, queries.n_relevant, is_answered)

    def queries_of(self, captions: sp.csr_array) -> Queries:
        """Make the queries that these captions answer."""
        return queries_of_tags(captions, max_words=self.max_words, max_subsets=self.max_subsets)


def corel_pictures(folder: Path, *, n_divisions: int, seed: int) -> Pictures:
    """Read Corel5k, with `n_divisions` random divisions of its 4,500 development pictures into 4,000 and 500."""
    corpus = read_corel(folder)
    development, test = corpus.select("train"), corpus.select("test")
    divisions = tuple(_random_division(len(development), seed + i) for i in range(n_divisions))
    return Pictures("corel5k", development, test, words_of(test), divisions, None)


def drawn_pictures(source: Source, n_pictures: int, *, max_words: int | None, max_subsets: int) -> Pictures:
    """Draw a library, or read a drawn one, with its true tags as captions and its splits as division."""
    library = read_drawn_library(source.drawn("scenes", draw_library, n_pictures))
    corpus = Corpus.read(library.images, library.true_tags_file)
    rows = [i for i, split in enumerate(corpus.splits) if split != "test"]
    development, test = corpus.subset(rows), corpus.select("test")
    is_valid = np.array([split == "valid" for split in development.splits])
    division = Division(np.flatnonzero(~is_valid), np.flatnonzero(is_valid))
    return Pictures("drawn", development, test, words_of(test), (division,), max_words, max_subsets)


def words_of(test: Corpus) -> Vocabulary:
    """Return the words of queries: those that two or more test pictures have, which are 179 in Corel5k (V-A).

    Raises
    ------
    DataError
        If there are no such words.
    """
    words = Vocabulary.from_lists(test.tags, min_count=MIN_COUNT)
    if len(words) == 0:
        raise DataError(
            f"No word is in the captions of {MIN_COUNT} or more of the {len(test)} test pictures, so there are no "
            "queries. Check the split and the tags of the data."
        )
    return words


def _random_division(n_pictures: int, seed: int) -> Division:
    order = np.random.default_rng(seed).permutation(n_pictures)
    n_valid = max(1, round(HELD_OUT * n_pictures))
    return Division(np.sort(order[n_valid:]), np.sort(order[:n_valid]))
