"""The same photos with several kinds of features: every method tested on each, and found again by both names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.digests import digest_of
from visterm.core.errors import DataError
from visterm_research.comparison.arms import WSABIE, Arm
from visterm_research.comparison.feature_sets import FeatureSet
from visterm_research.comparison.problem import Problem
from visterm_research.comparison.run import Comparison, TestedArms
from visterm_research.comparison.trials import Tested
from visterm_research.papers import objects_and_parts as paper

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
                    "they cannot be compared. Give an encoder that encodes all photos."
                )
        self.sets.append(features)
        self.problems[features.slug] = problem
        self.comparison.add(problem)

    def test(self, arms: Sequence[Arm], sets: Sequence[FeatureSet]) -> None:
        """Choose and test methods on features, a method on all of them before the next; those without time are noted.

        WSABIE is also tested in the size that the paper has for such features, with the settings chosen at 100.
        """
        for arm in arms:
            for features in sets:
                self.comparison.include(self.problems[features.slug], arm)
                base = self.found(features).get(WSABIE.label)
                if arm.model == WSABIE.model and base is not None:
                    size = paper.SIZES.get(features.stands_for, LARGEST) // self.shrink
                    settings = {**base.chosen.settings, "dim": size}
                    large = arm.with_fixed(self.label(WSABIE.label, features), **settings)
                    self.comparison.include(self.problems[features.slug], large)

    def label(self, method: str, features: FeatureSet) -> str:
        """Return the name of a method in Table 1: WSABIE's has the paper's size in it."""
        if method != WSABIE.label:
            return method
        return f"{method} [d={paper.SIZES.get(features.stands_for, LARGEST) // self.shrink}]"

    def found(self, features: FeatureSet) -> TestedArms:
        """Return the methods that were tested on some features."""
        return self.comparison.tested[self.problems[features.slug].name]

    def tested(self, method: str, features: FeatureSet) -> Tested | None:
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

    def forget(self, trials: Any) -> None:
        """Let go of the fitted models."""
        for problem in self.problems.values():
            trials.forget(problem)


def named(method: str, features: FeatureSet) -> str:
    """Name a method on some features."""
    return f"{method} on {features.label}"
