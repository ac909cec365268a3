"""One division of pictures with features and queries, to fit, choose and measure models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from visterm.core.packing import digest_of, key_of
from visterm.core.progress import Progress
from visterm.core.queries import inverse_frequencies, log_probabilities, part_signs, weigh_words
from visterm.core.types import Matrix
from visterm.data import Queries
from visterm.metrics import measure_queries, rank_queries
from visterm.models import Annotator
from visterm_research.comparison.feature_sets import FeatureSet
from visterm_research.comparison.methods import Method
from visterm_research.comparison.problem import Rows, mean_nonzeros
from visterm_research.comparison.records import Record
from visterm_research.comparison.search import Settings
from visterm_research.comparison.sources import Source, check_encoded
from visterm_research.comparison.trials import FORMAT, Choice, Trials, fit_rows
from visterm_research.pamir.images import Pictures

N_SHOWN_PICTURES = 5
"""Number of best pictures of a query to keep, for Figures 4 and 5."""

PRODUCT = "product "
"""Prefix of measures for words that are combined by the product of their probabilities, if a model has them."""

LEARNED = ("epochs", "alpha", "beta", "C", "bandwidth", "mu", "n_neighbors", "power")
"""Settings that a model may choose in its fit."""

BY_QUERY = "by_query"
"""Key of a record for the average precision of each validation query."""

MAX_OPEN_FEATURES, MAX_KERNEL_ROWS = 2, 3
"""Maximum number of kinds of features, and of rows of kernels, in memory at a time."""


@dataclass(frozen=True)
class SearchRows:
    """One division with one kind of features; queries are weighted by the idf of the training captions.

    Attributes
    ----------
    pictures : Pictures
    features : FeatureSet
    number : int
        Number of the division.
    X, X_test : matrices
        Features of the development and the test pictures.
    """

    pictures: Pictures
    features: FeatureSet
    number: int
    X: Matrix
    X_test: Matrix

    measure: ClassVar[str] = "avgp"
    criteria: ClassVar[Sequence[str]] = ("avgp",)

    @property
    def name(self) -> str:
        """Name of the folders of results."""
        return f"{self.pictures.name}-{self.features.slug}"

    @cached_property
    def train(self) -> Rows:
        """Training pictures."""
        rows = self.pictures.divisions[self.number].train
        return Rows(self.X[rows], self.pictures.captions[rows])

    @cached_property
    def valid(self) -> Rows:
        """Validation pictures."""
        rows = self.pictures.divisions[self.number].valid
        return Rows(self.X[rows], self.pictures.captions[rows])

    @cached_property
    def valid_queries(self) -> Queries:
        """Weighted queries that the validation captions answer."""
        return self._weighted(self.pictures.queries_of(self.valid.Y))

    @cached_property
    def test_queries(self) -> Queries:
        """Weighted queries that the test captions answer."""
        return self._weighted(self.pictures.test_queries)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of everything that a fit and the choice of settings depend on."""
        queries = self.valid_queries
        return digest_of([self.train.X, self.train.Y, self.valid.X, self.valid.Y, queries.words, queries.relevant])

    @cached_property
    def test_fingerprint(self) -> str:
        """Hash of everything that the final measurement depends on."""
        return digest_of([self.X_test, self.test_queries.words, self.test_queries.relevant])

    def _weighted(self, queries: Queries) -> Queries:
        captions = self.train.Y
        idf = inverse_frequencies(np.bincount(captions.indices, minlength=captions.shape[1]), captions.shape[0])
        return Queries(weigh_words(queries.words, idf), queries.relevant)

    def about(self, method: Method, settings: Settings) -> Record:
        """Return the part of a record that is for people."""
        return {"of": {"model": method.model, **settings}}

    def shared(self) -> dict[str, Any]:
        """Return an empty dict: models only have their settings."""
        return {}

    def fit(self, model: Any, progress: Progress) -> tuple[Any, Record]:
        """Fit a model, with early stopping on the validation pictures."""
        return fit_rows(model, self.train, self.valid, progress)

    def validate(self, model: Any, fit: Record, trials: Trials) -> Record:
        """Measure AvgP over the validation queries, and record the settings that the model chose in its fit."""
        measured = validation_avgp(model, self.valid.X, self.valid_queries)
        return {**measured, "seconds": fit["seconds"], "learned": learned_settings(model)}

    def score(self, measured: Any, _criterion: str) -> float:
        """Return the AvgP."""
        return float(measured)

    def test_key(self, trials: Trials, choice: Choice) -> str:
        """Return a key of a measurement: its fit, the test pictures and queries, and the shown queries."""
        settings, shown = choice.settings, list(self.pictures.shown)
        return key_of(
            FORMAT, self.fingerprint, self.test_fingerprint, choice.method.model, settings, trials.seed, shown
        )

    def judge(self, model: Any, choice: Choice, trials: Trials) -> tuple[Record, dict[str, Any]]:
        """Measure ``AvgP``, ``BEP`` and ``P10`` of each test query; ``top`` has the best pictures of shown queries.

        If the model gives probabilities, there are also measures with the prefix `PRODUCT`.
        """
        S = all_scores(model, self.X_test)
        queries = self.test_queries
        values: dict[str, Any] = measure_queries(rank_queries(S, queries.words, queries.relevant))
        if getattr(model, "probabilities", False):
            product_ranks = rank_queries(log_probabilities(S), part_signs(queries.words), queries.relevant)
            values |= {f"{PRODUCT}{name}": array for name, array in measure_queries(product_ranks).items()}
        means = {name: float(np.nanmean(array)) for name, array in values.items()}
        scores = np.asarray(queries.words[list(self.pictures.shown)] @ S.T)
        values["top"] = np.argsort(-scores, axis=1, kind="stable")[:, :N_SHOWN_PICTURES].astype(np.float64)
        seconds = choice.record["seconds"]
        return {"model": choice.method.model, "settings": choice.settings, "seconds": seconds, "means": means}, values


class Encoded:
    """Features of pictures, which are encoded once, and opened when they are needed.

    The encoder learns from all development pictures, without their captions and without the test pictures, so all
    divisions use the same encoding.

    Parameters
    ----------
    source : Source
        The source of the features; in quick runs, codebooks are small.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._open: dict[str, SearchRows] = {}
        self._made: dict[str, Any] = {}

    def rows(self, pictures: Pictures, features: FeatureSet, number: int) -> SearchRows:
        """Return a division with the given features.

        Raises
        ------
        DataError
            If not all pictures could be encoded: figures would not be comparable.
        """
        name = key_of(pictures.name, features.slug, number)
        if name not in self._open:
            X, X_test = self._matrices(pictures, features)
            self._open = dict(list(self._open.items())[1 - MAX_OPEN_FEATURES :])
            self._open[name] = SearchRows(pictures, features, number, X, X_test)
        return self._open[name]

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return the result of `make`, which is cached under a name; only the last few results are kept."""
        if name not in self._made:
            self._made = dict(list(self._made.items())[1 - MAX_KERNEL_ROWS :])
            self._made[name] = make()
        return self._made[name]

    def _matrices(self, pictures: Pictures, features: FeatureSet) -> tuple[Any, Any]:
        for search_rows in self._open.values():
            if search_rows.pictures is pictures and search_rows.features == features:
                return search_rows.X, search_rows.X_test
        parts = [pictures.development, pictures.test]
        used_features = features.quick() if self._source.quick else features
        encoded = self._source.encode(parts, pictures.words, used_features.encoder, used_features.params)
        check_encoded(encoded, parts, f"{features.label} ({features.encoder})", "pictures", f" of {pictures.name}")
        return encoded[0].X, encoded[1].X


def validation_avgp(model: Annotator, X: Matrix, queries: Queries) -> Record:
    """Return the average precision of a model over weighted queries: ``avgp``, the mean, and ``by_query``."""
    precisions = measure_queries(rank_queries(all_scores(model, X), queries.words, queries.relevant))["AvgP"]
    return {"avgp": float(np.nanmean(precisions)), BY_QUERY: precisions.tolist()}


def values_of(record: Record) -> NDArray[np.float64]:
    """Return the average precision of each validation query; NaN if it is not defined."""
    return np.array(record[BY_QUERY], np.float64)


def learned_settings(model: Any) -> dict[str, float]:
    """Return the settings that a model chose in its fit; for settings with a value per tag, the median."""
    values = {name: getattr(model, f"{name}_", None) for name in LEARNED}
    values["epochs"] = getattr(model, "n_epochs_", None)
    return {name: float(np.median(value)) for name, value in values.items() if value is not None}


def all_scores(model: Annotator, X: Matrix) -> NDArray[np.float32]:
    """Return the scores of all words for pictures, shape (n_pictures, n_words)."""
    return np.concatenate([block for _, block in model.score_blocks(X)])


def blocks_of(rows: SearchRows) -> float:
    """Return the mean number of features of a development picture that are not zero."""
    return mean_nonzeros(rows.X)
