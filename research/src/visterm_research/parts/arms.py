"""The methods of the objects-and-parts comparison, and the settings that each tries, one stage after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from visterm_research.comparison.arms import Settings
from visterm_research.papers import objects_and_parts as paper

WORDS, IMAGES, ANNOTATION = "words", "images", "annotation"
"""What a method is chosen by: the mean rank of the true pair of labels by images and words, by images alone; or the
mean rank of an image's label."""

Stage = Sequence[Settings]
"""Settings that are tried in place of the best so far."""


@dataclass(frozen=True)
class PartArm:
    """One method.

    Attributes
    ----------
    label : str
        The paper's name, or ours.
    start : mapping
        The settings to start with.
    stages : sequence of stages
        Each begins with the best settings of the one before.
    by : str
        `WORDS`, `IMAGES` or `ANNOTATION`.
    model : str
        As in ``visterm models``.
    """

    label: str
    start: Mapping[str, Any]
    stages: Sequence[Stage] = field(default_factory=tuple)
    by: str = WORDS
    model: str = "objects_and_parts"

    @property
    def words(self) -> bool:
        """Whether it scores pairs with words."""
        return self.by == WORDS

    @property
    def pairs(self) -> bool:
        """Whether it labels pairs; machines of single tags do not."""
        return self.by != ANNOTATION

    def quick(self) -> PartArm:
        """Return the same method for a run of a minute: a small space, few epochs, a setting or two a stage."""
        if not self.pairs:
            return replace(self, stages=())
        stages = [[change for change in stage if "dim" not in change][:1] for stage in self.stages[:2]]
        return replace(self, start={**self.start, **QUICK}, stages=stages)


QUICK = {"dim": 12, "epochs": 8, "patience": 3, "learning_rate": 0.03}

START: Settings = {
    "dim": 50,
    "alpha": 0.3,
    "negative_weight": 1.0,
    "max_trials": 100,
    "weight": "top",
    "learning_rate": 0.01,
    "image_learning_rate": 0.1,
    "max_norm": 1.0,
    "epochs": 60,
    "patience": 6,
}
"""Columns under norm 1, as in the paper; stopped by the validation quadruplets."""

RATES: Stage = [
    {"learning_rate": 0.001, "image_learning_rate": 0.1},
    {"learning_rate": 0.01, "image_learning_rate": 0.01},
    {"learning_rate": 0.03, "image_learning_rate": 0.1},
    {"learning_rate": 0.001, "image_learning_rate": 0.01},
]
"""The paper's (section 4.3.3), and a larger one, for our images are fewer."""

ALPHAS: Stage = [{"alpha": alpha} for alpha in (1.0, 0.1, 3.0, 0.03)]
NO_ALPHA: Stage = [*ALPHAS, {"alpha": 0.0}]
TRIALS: Stage = [{"max_trials": 10}]
DIMS: Stage = [{"dim": 100}]
WEIGHTS: Stage = [{"weight": "harmonic"}]
STAGES = (RATES, ALPHAS, TRIALS, DIMS)

SHARED_IW = PartArm(paper.SHARED_IW, {**START, "shared": True}, STAGES)
UNSHARED_IW = PartArm(paper.UNSHARED_IW, {**START, "shared": False}, STAGES)
SHARED_I = replace(SHARED_IW, label=paper.SHARED_I, by=IMAGES)
UNSHARED_I = PartArm(paper.UNSHARED_I, UNSHARED_IW.start, (RATES, NO_ALPHA, TRIALS, DIMS), IMAGES)
"""With α = 0 it is WSABIE, as the paper has it (section 6.2)."""

SVM = PartArm(paper.SVM, {"normalise": False, "C": 1.0}, ([{"C": 0.1}],), ANNOTATION, "svm")

HARMONIC = PartArm("UnShared (IW), harmonic weights (ours)", {**START, "shared": False, "weight": "harmonic"}, STAGES)
DIRECTED = PartArm("UnShared (IW), directed (ours)", {**START, "shared": False, "directed": True}, (*STAGES, WEIGHTS))

WEAK = PartArm("Shared (IW), weak negatives (ours)", {**START, "shared": True, "negative_weight": 0.1}, STAGES)
"""What is not known to be related is pushed apart a tenth as much."""

PAPER_ARMS = (SHARED_IW, UNSHARED_IW, SHARED_I, UNSHARED_I, SVM)
MORE_ARMS = (WEAK, HARMONIC, DIRECTED)

OFFSETS = {paper.SHARED_I: paper.SHARED_IO, paper.UNSHARED_I: paper.UNSHARED_IO}
"""Methods by images alone, and their names where learned relations have an offset (section 6.5)."""

OFFSET = 100.0
"""λ."""
