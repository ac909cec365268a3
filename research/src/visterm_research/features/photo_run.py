"""The same photos with several kinds of features: every method tested on each, and found again by both names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import DataError
from visterm.core.packing import digest_of
from visterm_research.comparison.feature_sets import FeatureSet
from visterm_research.comparison.methods import APPROX_KNN, EXACT_KNN, ONE_VS_REST, PAMIR_IA, WSABIE, Method
from visterm_research.comparison.problem import Problem
from visterm_research.comparison.run import Comparison
from visterm_research.comparison.trials import Judged
from visterm_research.papers import read_paper

paper = read_paper("objects_and_parts")

LINEAR_AUC = replace(PAMIR_IA, label="linear, AUC")
"""As the objects-and-parts paper calls it."""

METHODS = tuple(method.label for method in (WSABIE, EXACT_KNN, APPROX_KNN, LINEAR_AUC, ONE_VS_REST))
"""Of Table 1."""

LARGEST = max(paper.SIZES.values())


@dataclass
class PhotoRun:
    """What was found on some photos.

    Attributes
    ----------
    name : str
        Of the photos: "corel5k".
    comparison : Comparison
    shrink : int
        What WSABIE's large sizes are divided by, in quick runs.
    sets : list of FeatureSet
        The features that the photos were encoded to.
    problems : dict of str to Problem
        By the features' slug.
    """

    name: str
    comparison: Comparison
    shrink: int = 1
    sets: list[FeatureSet] = field(default_factory=list)
    problems: dict[str, Problem] = field(default_factory=dict)

    def encode(self, features: FeatureSet, make: Callable[[], Problem]) -> None:
        """Add the photos with one more kind of features, unless there is no time.

        Raises
        ------
        DataError
            If the features are of other test photos than the first ones.
        """
        made: Problem | None = self.comparison.while_time(f"The features {features.label} of {self.name}", make)
        if made is None:
            return
        problem = replace(made, name=f"{self.name}-{features.slug}", siblings=None)
        for other in self.problems.values():
            if digest_of([other.test.Y]) != digest_of([problem.test.Y]):
                raise DataError(
                    f"{features.label} ({features.encoder}) has rows for {problem.test.Y.shape[0]:,} test photos of "
                    f"{self.name}, and {self.sets[0].label} for {other.test.Y.shape[0]:,}, or they have other tags: "
                    "they cannot be compared. Choose an encoder that encodes all photos."
                )
        self.sets.append(features)
        self.problems[features.slug] = problem
        self.comparison.add(problem)

    def test(self, methods: Sequence[Method], sets: Sequence[FeatureSet]) -> None:
        """Choose and test methods on features, a method on all of them before the next; those without time are noted.

        WSABIE is also tested in the size that the paper has for such features, with the settings chosen at 100.
        """
        for method in methods:
            for features in sets:
                self.comparison.include(self.problems[features.slug], method)
                base = self.found(features).get(WSABIE.label)
                if method.model == WSABIE.model and base is not None:
                    size = paper.SIZES.get(features.stands_for, LARGEST) // self.shrink
                    settings = {**base.choice.settings, "dim": size}
                    large = method.with_fixed(self.label(WSABIE.label, features), **settings)
                    self.comparison.include(self.problems[features.slug], large)

    def label(self, method: str, features: FeatureSet) -> str:
        """Return the name of a method in Table 1: WSABIE's has the paper's size in it."""
        size = paper.SIZES.get(features.stands_for, LARGEST) // self.shrink
        return f"{method} [d={size}]" if method == WSABIE.label else method

    def found(self, features: FeatureSet) -> dict[str, Judged]:
        """Return the methods that were tested on some features."""
        return self.comparison.tested[self.problems[features.slug].name]

    def tested(self, method: str, features: FeatureSet) -> Judged | None:
        """Return what was found of a method of Table 1 on some features; None where it is missing."""
        if features.slug not in self.problems:
            return None
        return self.found(features).get(self.label(method, features))

    def values(self) -> dict[str, dict[str, NDArray[np.float64]]]:
        """Return the metrics image by image of everything that was tested, by "METHOD on FEATURES"."""
        return {
            named(label, features): tested.values
            for features in self.sets
            for label, tested in self.found(features).items()
        }


def named(method: str, features: FeatureSet) -> str:
    """Name a method on some features."""
    return f"{method} on {features.label}"


def paper_label(method: str, features: FeatureSet) -> str:
    """Return a method's name in Table 1, where WSABIE's has its size."""
    return f"{method} [d={paper.SIZES[features.stands_for]}]" if method == WSABIE.label else method
