"""The state of the PAMIR comparison: the chosen features and settings of each method, and its results by division."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from visterm.metrics import SignedRanks
from visterm.models import MODELS
from visterm_research.comparison.feature_sets import FeatureSet
from visterm_research.comparison.methods import Method
from visterm_research.comparison.records import Record
from visterm_research.comparison.run import Comparison
from visterm_research.comparison.search import Settings, search, unordered
from visterm_research.comparison.trials import Choice, Judged
from visterm_research.models.generative.counts import CountingAnnotator
from visterm_research.pamir.images import Pictures
from visterm_research.pamir.rows import PRODUCT, Encoded, SearchRows

Floats = NDArray[np.float64]

FEATURES = "features"
"""The name of the axis for the kinds of features; its values are their slugs."""

N_FINALISTS = 4
"""Number of kinds of features, best with the start settings, that are searched together with the settings."""


@dataclass(frozen=True)
class SearchChoice(Choice):
    """The choice for a method on the validation queries of the first division.

    Attributes
    ----------
    features : FeatureSet
    by_features : dict of str to dict
        Records with the start settings, by the slug of the features.
    """

    features: FeatureSet
    by_features: dict[str, Record] = field(repr=False)


@dataclass(frozen=True)
class Found:
    """The results of a method on the test queries.

    Attributes
    ----------
    choice : SearchChoice
    judged : list of Judged
        Results on each division for which there was time.
    values : dict of str to ndarray, shape (n_queries,)
        Measures of each query, as means over the divisions.
    """

    choice: SearchChoice
    judged: list[Judged]
    values: dict[str, Floats] = field(repr=False)


@dataclass
class SearchRun:
    """The choices and results on one set of pictures.

    Attributes
    ----------
    pictures : Pictures
    comparison : Comparison
    encoded : Encoded
    title : str
        The name in tables: that of the pictures, with that of the features if they are not chosen.
    choices : dict of str to SearchChoice
        The choice for each method, by its label.
    found : dict of str to Found
        The results of each method, by its label.
    tests : dict
        Finished tests of Wilcoxon, by pair of methods, measure and kind of queries.
    """

    pictures: Pictures
    comparison: Comparison
    encoded: Encoded
    title: str = ""
    choices: dict[str, SearchChoice] = field(default_factory=dict)
    found: dict[str, Found] = field(default_factory=dict)
    tests: dict[tuple[tuple[str, str], str, str], SignedRanks] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name in tables."""
        return self.title or self.pictures.name

    def rows(self, features: FeatureSet, number: int = 0) -> SearchRows:
        """Return a division with the given features."""
        return self.encoded.rows(self.pictures, features, number)

    def takes(self, method: Method, features: FeatureSet) -> bool:
        """Return whether a method can use the features: methods that count visterms need features of 0 or more."""
        counts = issubclass(MODELS.load(method.model), CountingAnnotator)
        return not counts or float(self.rows(features).X.min()) >= 0

    def compare_features(self, method: Method, sets: Sequence[FeatureSet]) -> dict[str, Record]:
        """Fit a method with its start settings on each kind of features for which there is time; return the records."""
        records: dict[str, Record] = {}
        for features in sets:
            record = self.comparison.while_time(
                f"{method.label} on {features.label} of {self.name}",
                partial(self._validation_record, method, features, method.settings()[0]),
            )
            if record is not None:
                records[features.slug] = record
        return records

    def choose(self, method: Method, sets: Sequence[FeatureSet]) -> None:
        """Choose features and settings together by AvgP over the validation queries, among the best few features."""
        by_features = self.compare_features(method, sets)
        usable = [features for features in sets if _avgp(by_features.get(features.slug)) is not None]
        if not usable:
            return
        usable.sort(key=lambda features: -by_features[features.slug]["avgp"])
        finalists = {features.slug: features for features in usable[:N_FINALISTS]}
        tried: list[tuple[Settings, Record]] = []

        def fit(point: Settings) -> list[float]:
            settings = {name: value for name, value in point.items() if name != FEATURES}
            record = self.comparison.while_time(
                f"settings of {method.label} on {self.name}",
                partial(self._validation_record, method, finalists[point[FEATURES]], settings),
            )
            if _avgp(record) is None:
                return [-np.inf]
            tried.append((point, record))
            return [record["avgp"]]

        box = {FEATURES: unordered(*finalists), **method.box}
        start = {FEATURES: usable[0].slug, **(method.start or {})}
        joint_method = replace(method, box=box, start=start)
        points = joint_method.settings(self.comparison.trials.seed)
        points[1:] = sorted(
            points[1:], key=lambda point: list(finalists).index(point[FEATURES])
        )  # opens each kind once
        widened = search(box, points, fit, trials=method.trials)
        if not tried:
            return
        best_point, record = max(tried, key=lambda point: point[1]["avgp"])
        best = finalists[best_point[FEATURES]]
        for features in sets:
            if features != best:
                self.comparison.trials.forget(f"{self.pictures.name}-{features.slug}")
        settings = {name: value for name, value in best_point.items() if name != FEATURES}
        self.choices[method.label] = SearchChoice(
            method, "avgp", settings, record, tried, best, by_features, widened=tuple(widened)
        )

    def judge(self, label: str) -> None:
        """Measure a method with its chosen settings on the test queries, once for every division."""
        choice = self.choices.get(label)
        if choice is None:
            return
        results = []
        for number in range(len(self.pictures.divisions)):
            result = self.comparison.while_time(
                f"{label} on division {number + 1} of {self.name}", partial(self._test_result, choice, number)
            )
            if result is not None:
                results.append(result)
        self.comparison.trials.forget(f"{self.pictures.name}-{choice.features.slug}")
        if results:
            names = [name for name in results[0].values if name != "top"]
            values = {name: np.mean([result.values[name] for result in results], axis=0) for name in names}
            self.found[label] = Found(choice, results, values)

    def columns(self, labels: Sequence[str]) -> dict[str, dict[str, Floats]]:
        """Return the measures of each query for methods with results, in the order of `labels`.

        Methods with probabilities have another entry, "LABEL, product".
        """
        columns: dict[str, dict[str, Floats]] = {}
        for label in labels:
            if label in self.found:
                values = self.found[label].values
                columns[label] = {name: array for name, array in values.items() if not name.startswith(PRODUCT)}
                product = {
                    name.removeprefix(PRODUCT): array for name, array in values.items() if name.startswith(PRODUCT)
                }
                if product:
                    columns[f"{label}, product"] = product
        return columns

    def _validation_record(self, method: Method, features: FeatureSet, settings: Settings) -> Record:
        return self.comparison.trials.validate(self.rows(features), method, settings)

    def _test_result(self, choice: SearchChoice, number: int) -> Judged:
        look = self.name, f"{choice.method.label}, division {number + 1}"
        return self.comparison.trials.judge(self.rows(choice.features, number), choice, look)


def _avgp(record: Record | None) -> float | None:
    return None if record is None else record["avgp"]
