"""Features, captions and weighed queries of one division of pictures: what a model is fitted, chosen and judged on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from visterm.core.digests import digest_of, key_of
from visterm.core.errors import DataError
from visterm.core.progress import Progress
from visterm.core.query_weights import inverse_frequencies, weigh_words
from visterm.core.types import Matrix
from visterm.data.tag_queries import Queries
from visterm_research.comparison.encoded_rows import encoded_rows
from visterm_research.comparison.feature_sets import FeatureSet
from visterm_research.comparison.problem import Rows
from visterm_research.pamir.images import Pictures

MOST_OPEN = 2
"""Kinds of features held in memory at a time."""


@dataclass(frozen=True)
class SearchRows:
    """One division with one kind of features; queries are weighed by the idf of the training captions.

    Attributes
    ----------
    pictures : Pictures
    features : FeatureSet
    number : int
        Of the division.
    X, X_test : matrices
        Features of the development and the test pictures.
    """

    pictures: Pictures
    features: FeatureSet
    number: int
    X: Matrix
    X_test: Matrix

    @cached_property
    def train(self) -> Rows:
        """Training pictures."""
        chosen = self.pictures.divisions[self.number].train
        return Rows(self.X[chosen], self.pictures.captions[chosen])

    @cached_property
    def valid(self) -> Rows:
        """Validation pictures."""
        chosen = self.pictures.divisions[self.number].valid
        return Rows(self.X[chosen], self.pictures.captions[chosen])

    @cached_property
    def valid_queries(self) -> Queries:
        """Queries that the validation captions answer, weighed."""
        return self._weighed(self.pictures.queries_of(self.valid.Y))

    @cached_property
    def test_queries(self) -> Queries:
        """Queries that the test captions answer, weighed."""
        return self._weighed(self.pictures.test_queries)

    @cached_property
    def fingerprint(self) -> str:
        """Name what a fit and its choice depend on."""
        queries = self.valid_queries
        return digest_of([self.train.X, self.train.Y, self.valid.X, self.valid.Y, queries.words, queries.relevant])

    @cached_property
    def test_fingerprint(self) -> str:
        """Name what the final judgement depends on."""
        return digest_of([self.X_test, self.test_queries.words, self.test_queries.relevant])

    def _weighed(self, queries: Queries) -> Queries:
        captions = self.train.Y
        idf = inverse_frequencies(np.bincount(captions.indices, minlength=captions.shape[1]), captions.shape[0])
        return Queries(weigh_words(queries.words, idf), queries.relevant)


class Encoded:
    """Features of pictures, encoded once and opened when they are needed.

    The encoder learns from all development pictures, without their captions, so that one encoding serves every
    division; the test pictures have no part in it.

    Parameters
    ----------
    cache : Path
    seed : int
    n_jobs : int, optional
    before_work : callable
        Called before pictures are encoded; what it raises ends the work.
    progress : Progress
    quick : bool
        Small codebooks.
    """

    def __init__(
        self,
        cache: Path,
        *,
        seed: int,
        n_jobs: int | None,
        before_work: Callable[[], None],
        progress: Progress,
        quick: bool = False,
    ) -> None:
        self._cache, self._seed, self._n_jobs = cache, seed, n_jobs
        self._before_work, self._progress, self._quick = before_work, progress, quick
        self._open: dict[str, SearchRows] = {}
        self._last: tuple[str, Any] | None = None

    def rows(self, pictures: Pictures, features: FeatureSet, number: int) -> SearchRows:
        """Return a division with some features.

        Raises
        ------
        DataError
            If not all pictures could be encoded: figures would not be comparable.
        """
        name = key_of(pictures.name, features.slug, number)
        if name not in self._open:
            X, X_test = self._matrices(pictures, features, number)
            self._open = dict(list(self._open.items())[1 - MOST_OPEN :])
            self._open[name] = SearchRows(pictures, features, number, X, X_test)
        return self._open[name]

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return what was made last under a name, or make it: rows that are wanted several times in turn."""
        if self._last is None or self._last[0] != name:
            self._last = name, make()
        return self._last[1]

    def _matrices(self, pictures: Pictures, features: FeatureSet, number: int) -> tuple[Any, Any]:
        for opened in self._open.values():
            if opened.pictures is pictures and opened.features == features:
                return opened.X, opened.X_test
        parts = [pictures.development, pictures.test]
        made = features.quick() if self._quick else features
        encoded = encoded_rows(
            parts, pictures.words, self._cache, made.encoder, made.params, self._seed, self._n_jobs,
            self._before_work, self._progress,
        )  # fmt: skip
        for part, rows in zip(parts, encoded, strict=True):
            if rows.X.shape[0] != len(part):
                raise DataError(
                    f"{features.label} ({features.encoder}) has rows for {rows.X.shape[0]:,} of {len(part):,} pictures "
                    f"of {pictures.name}. Give an encoder that encodes all of them, and pictures that can be read."
                )
        return encoded[0].X, encoded[1].X


def blocks_of(rows: SearchRows) -> float:
    """Return the mean number of features of a development picture that are not zero."""
    X: Any = rows.X
    stored = int(X.nnz) if sp.issparse(X) else int(np.count_nonzero(X))
    return stored / max(1, int(X.shape[0]))
