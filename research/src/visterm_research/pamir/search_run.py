"""The state of the PAMIR comparison: features and settings chosen for each method, then judged on every division."""

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
"""The axis of the kinds of features, by their slugs."""

FINALISTS = 4
"""Kinds of features that are searched together with the settings: the best with the settings to start with."""


@dataclass(frozen=True)
class SearchChoice(Choice):
    """What was chosen for a method on the validation queries of the first division.

    Attributes
    ----------
    features : FeatureSet
    by_features : dict of str to dict
        Records with the settings to start with, by the features' slug.
    """

    features: FeatureSet
    by_features: dict[str, Record] = field(repr=False)


@dataclass(frozen=True)
class Found:
    """What was found of a method on the test queries.

    Attributes
    ----------
    choice : SearchChoice
    judged : list of Judged
        On each division for which there was time.
    values : dict of str to ndarray, shape (n_queries,)
        Measures query by query, the mean over the divisions.
    """

    choice: SearchChoice
    judged: list[Judged]
    values: dict[str, Floats] = field(repr=False)


@dataclass
class SearchRun:
    """What was found on some pictures.

    Attributes
    ----------
    pictures : Pictures
    comparison : Comparison
    encoded : Encoded
    title : str
        What tables call it: the name of the pictures, with that of the features where they are not chosen.
    choices : dict of str to SearchChoice
        By the method's label.
    found : dict of str to Found
    tests : dict
        Wilcoxon's tests that were made, by pair of methods, measure and kind of queries.
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
        """What tables call it."""
        return self.title or self.pictures.name

    def rows(self, features: FeatureSet, number: int = 0) -> SearchRows:
        """Return a division with some features."""
        return self.encoded.rows(self.pictures, features, number)

    def takes(self, method: Method, features: FeatureSet) -> bool:
        """Return whether a method takes such features: those that count visterms take none below 0."""
        counts = issubclass(MODELS.load(method.model), CountingAnnotator)
        return not counts or float(self.rows(features).X.min()) >= 0

    def compare_features(self, method: Method, sets: Sequence[FeatureSet]) -> dict[str, Record]:
        """Fit a method with the settings to start with on each kind of features; those without time are noted."""
        found: dict[str, Record] = {}
        for features in sets:
            record = self.comparison.while_time(
                f"{method.label} on {features.label} of {self.name}",
                partial(self._validated, method, features, method.settings()[0]),
            )
            if record is not None:
                found[features.slug] = record
        return found

    def choose(self, method: Method, sets: Sequence[FeatureSet]) -> None:
        """Choose features and settings together by AvgP over the validation queries, among the best few features."""
        by_features = self.compare_features(method, sets)
        known = [features for features in sets if _avgp(by_features.get(features.slug)) is not None]
        if not known:
            return
        known.sort(key=lambda features: -by_features[features.slug]["avgp"])
        finalists = {features.slug: features for features in known[:FINALISTS]}
        tried: list[tuple[Settings, Record]] = []

        def fit(one: Settings) -> list[float]:
            settings = {name: value for name, value in one.items() if name != FEATURES}
            record = self.comparison.while_time(
                f"settings of {method.label} on {self.name}",
                partial(self._validated, method, finalists[one[FEATURES]], settings),
            )
            if _avgp(record) is None:
                return [-np.inf]
            tried.append((one, record))
            return [record["avgp"]]

        box = {FEATURES: unordered(*finalists), **method.box}
        start = {FEATURES: known[0].slug, **(method.start or {})}
        together = replace(method, box=box, start=start)
        points = together.settings(self.comparison.trials.seed)
        points[1:] = sorted(points[1:], key=lambda one: list(finalists).index(one[FEATURES]))  # opens each kind once
        widened = search(box, points, fit, trials=method.trials)
        if not tried:
            return
        chosen, record = max(tried, key=lambda one: one[1]["avgp"])
        best = finalists[chosen[FEATURES]]
        for features in sets:
            if features != best:
                self.comparison.trials.forget(f"{self.pictures.name}-{features.slug}")
        settings = {name: value for name, value in chosen.items() if name != FEATURES}
        self.choices[method.label] = SearchChoice(
            method, "avgp", settings, record, tried, best, by_features, widened=tuple(widened)
        )

    def judge(self, label: str) -> None:
        """Judge a chosen method on the test queries, once for every division."""
        choice = self.choices.get(label)
        if choice is None:
            return
        judged = []
        for number in range(len(self.pictures.divisions)):
            one = self.comparison.while_time(
                f"{label} on division {number + 1} of {self.name}", partial(self._judged, choice, number)
            )
            if one is not None:
                judged.append(one)
        self.comparison.trials.forget(f"{self.pictures.name}-{choice.features.slug}")
        if judged:
            names = [name for name in judged[0].values if name != "top"]
            values = {name: np.mean([one.values[name] for one in judged], axis=0) for name in names}
            self.found[label] = Found(choice, judged, values)

    def columns(self, labels: Sequence[str]) -> dict[str, dict[str, Floats]]:
        """Return the measures query by query of methods that were judged, in this order.

        Those with probabilities have another line, "LABEL, product".
        """
        found: dict[str, dict[str, Floats]] = {}
        for label in labels:
            if label in self.found:
                values = self.found[label].values
                found[label] = {name: array for name, array in values.items() if not name.startswith(PRODUCT)}
                product = {
                    name.removeprefix(PRODUCT): array for name, array in values.items() if name.startswith(PRODUCT)
                }
                if product:
                    found[f"{label}, product"] = product
        return found

    def _validated(self, method: Method, features: FeatureSet, settings: Settings) -> Record:
        return self.comparison.trials.validate(self.rows(features), method, settings)

    def _judged(self, choice: SearchChoice, number: int) -> Judged:
        return self.comparison.trials.judge(self.rows(choice.features, number), choice)


def _avgp(record: Record | None) -> float | None:
    return None if record is None else record["avgp"]
