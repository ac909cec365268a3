"""The methods of the objects-and-parts comparison, and the settings to try for each."""

from __future__ import annotations

from dataclasses import replace

from visterm_research.comparison.methods import Method
from visterm_research.comparison.search import Axis, Box, Settings, unordered

WORDS, IMAGES, ANNOTATION = "words", "images", "annotation"
"""Criteria for the settings of a method: the mean rank of the true pair of labels by images and words, or by images
alone; or the mean rank of an image's label."""

MODEL = "objects_and_parts"

QUICK = {"dim": 12, "epochs": 8, "patience": 3, "learning_rate": 0.03, "max_trials": 100}

FIXED: Settings = {
    "negative_weight": 1.0, "weight": "top", "max_norm": 1.0, "epochs": 60, "patience": 6,
}  # fmt: skip
"""The norm of columns is at most 1, as in the paper; the validation quadruplets stop the training."""

START: Settings = {
    "learning_rate": 0.01, "image_learning_rate": 0.1, "alpha": 0.3, "max_trials": 100, "dim": 50,
}  # fmt: skip

MIN_IMAGE_RATE = 1e-7
"""Minimum rate of images, which hardly move with it: a tenth of it changes mean ranks on Corel5k by less than 1 %."""

BOX: Box = {
    "learning_rate": Axis((0.001, 0.003, 0.01, 0.03, 0.1)),
    "image_learning_rate": Axis((0.01, 0.03, 0.1, 0.3), low=MIN_IMAGE_RATE),
    "alpha": Axis((0.03, 0.1, 0.3, 1.0, 3.0, 10.0)),
    "max_trials": unordered(10, 100),
    "dim": Axis((25, 50, 100)),
}
"""The paper's values (section 4.3.3), and larger rates, because we have fewer images."""

TRIALS = 24
"""Number of trials of each model that learns relations: it has five settings, which need more trials than two."""

SHARED_IW = Method("Shared (IW)", MODEL, {**FIXED, "shared": True}, BOX, START, WORDS, TRIALS)
UNSHARED_IW = Method("UnShared (IW)", MODEL, {**FIXED, "shared": False}, BOX, START, WORDS, TRIALS)
SHARED_I = replace(SHARED_IW, label="Shared (I)", by=IMAGES)
WITHOUT_WORDS = {**BOX, "alpha": Axis((0.0, 0.03, 0.1, 0.3, 1.0, 3.0))}
UNSHARED_I = replace(UNSHARED_IW, label="UnShared (I)", box=WITHOUT_WORDS, by=IMAGES)
"""With α = 0 it is WSABIE, as in the paper (section 6.2)."""

SVM = Method("SVM", "svm", {"normalise": False}, {"C": Axis((0.01, 0.1, 1.0, 10.0))}, by=ANNOTATION, trials=8)
"""It does not learn relations, and one trial takes as long as eight trials of the other methods."""

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
"""Tags that are not known to be related are pushed apart with a tenth of the weight."""

SUGGESTED = replace(
    UNSHARED_IW,
    label="UnShared (IW), suggested (ours)",
    fixed={**UNSHARED_IW.fixed, "suggested": 3.0},
    box={**BOX, "listed": Axis((0.3, 1.0, 3.0, 10.0))},
)
"""Known relations, and relations of siblings of the whole, are added to the learned scores."""

PAPER_METHODS = (SHARED_IW, UNSHARED_IW, SHARED_I, UNSHARED_I, SVM)
MORE_METHODS = (WEAK, HARMONIC, DIRECTED, SUGGESTED)

OFFSETS = {SHARED_I.label: "Shared (IO)", UNSHARED_I.label: "UnShared (IO)"}
"""Methods by images alone, and their names if learned relations have an offset (section 6.5)."""

OFFSET = 100.0
"""λ of the paper."""


def quick_method(method: Method) -> Method:
    """Return the same method for a run of a minute: a small space, few epochs, two trials."""
    small = method.quick()
    if method.by == ANNOTATION:
        return replace(small, fixed={**small.fixed, "C": 1.0}, box={})
    return replace(small, fixed={**small.fixed, **QUICK}, box={"alpha": unordered(0.3, 1.0)})
