"""The methods of the objects-and-parts comparison, and the settings that each tries."""

from __future__ import annotations

from dataclasses import replace

from visterm_research.comparison.methods import Method
from visterm_research.comparison.search import Axis, Box, Settings, unordered

WORDS, IMAGES, ANNOTATION = "words", "images", "annotation"
"""What a method is chosen by: the mean rank of the true pair of labels by images and words, by images alone; or the
mean rank of an image's label."""

MODEL = "objects_and_parts"

QUICK = {"dim": 12, "epochs": 8, "patience": 3, "learning_rate": 0.03, "max_trials": 100}

FIXED: Settings = {
    "negative_weight": 1.0, "weight": "top", "max_norm": 1.0, "epochs": 60, "patience": 6,
}  # fmt: skip
"""Columns under norm 1, as in the paper; stopped by the validation quadruplets."""

START: Settings = {
    "learning_rate": 0.01, "image_learning_rate": 0.1, "alpha": 0.3, "max_trials": 100, "dim": 50,
}  # fmt: skip

STILL = 1e-7
"""A rate at which images all but stand still: a tenth of it moves the mean rank of Corel5k's pairs by less than 1 %."""

BOX: Box = {
    "learning_rate": Axis((0.001, 0.003, 0.01, 0.03, 0.1)),
    "image_learning_rate": Axis((0.01, 0.03, 0.1, 0.3), low=STILL),
    "alpha": Axis((0.03, 0.1, 0.3, 1.0, 3.0, 10.0)),
    "max_trials": unordered(10, 100),
    "dim": Axis((25, 50, 100)),
}
"""Holds the paper's values (section 4.3.3), and larger rates, for our images are fewer."""

TRIALS = 24
"""Of each model that is trained by relations: five settings take more than two."""

SHARED_IW = Method("Shared (IW)", MODEL, {**FIXED, "shared": True}, BOX, START, WORDS, TRIALS)
UNSHARED_IW = Method("UnShared (IW)", MODEL, {**FIXED, "shared": False}, BOX, START, WORDS, TRIALS)
SHARED_I = replace(SHARED_IW, label="Shared (I)", by=IMAGES)
WITHOUT_WORDS = {**BOX, "alpha": Axis((0.0, 0.03, 0.1, 0.3, 1.0, 3.0))}
UNSHARED_I = replace(UNSHARED_IW, label="UnShared (I)", box=WITHOUT_WORDS, by=IMAGES)
"""With α = 0 it is WSABIE, as the paper has it (section 6.2)."""

SVM = Method("SVM", "svm", {"normalise": False}, {"C": Axis((0.01, 0.1, 1.0, 10.0))}, by=ANNOTATION, trials=8)
"""It learns nothing of relations, and one setting takes as long as eight of the others."""

HARMONIC = replace(
    UNSHARED_IW, label="UnShared (IW), harmonic weights (ours)", fixed={**UNSHARED_IW.fixed, "weight": "harmonic"}
)
DIRECTED = replace(
    UNSHARED_IW,
    label="UnShared (IW), directed (ours)",
    fixed={name: value for name, value in UNSHARED_IW.fixed.items() if name != "weight"} | {"directed": True},
    box={**BOX, "weight": unordered("top", "harmonic")},
)
WEAK = replace(SHARED_IW, label="Shared (IW), weak negatives (ours)", fixed={**SHARED_IW.fixed, "negative_weight": 0.1})
"""What is not known to be related is pushed apart a tenth as much."""

SUGGESTED = replace(
    UNSHARED_IW,
    label="UnShared (IW), suggested (ours)",
    fixed={**UNSHARED_IW.fixed, "suggested": 3.0},
    box={**BOX, "listed": Axis((0.3, 1.0, 3.0, 10.0))},
)
"""Listed relations, and those that siblings of the whole have, are added to what is learned of them."""

PAPER_METHODS = (SHARED_IW, UNSHARED_IW, SHARED_I, UNSHARED_I, SVM)
MORE_METHODS = (WEAK, HARMONIC, DIRECTED, SUGGESTED)

OFFSETS = {SHARED_I.label: "Shared (IO)", UNSHARED_I.label: "UnShared (IO)"}
"""Methods by images alone, and their names where learned relations have an offset (section 6.5)."""

OFFSET = 100.0
"""λ."""


def quick_method(method: Method) -> Method:
    """Return the same method for a run of a minute: a small space, few epochs, two settings."""
    small = method.quick()
    if method.by == ANNOTATION:
        return replace(small, fixed={**small.fixed, "C": 1.0}, box={})
    return replace(small, fixed={**small.fixed, **QUICK}, box={"alpha": unordered(0.3, 1.0)})
