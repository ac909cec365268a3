"""The methods of the objects-and-parts comparison, and the settings that each tries, one stage after another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from visterm_research.comparison.methods import Method, Settings

WORDS, IMAGES, ANNOTATION = "words", "images", "annotation"
"""What a method is chosen by: the mean rank of the true pair of labels by images and words, by images alone; or the
mean rank of an image's label."""

MODEL = "objects_and_parts"

Stage = Sequence[Settings]
"""Settings that are tried in place of the best so far."""

QUICK = {"dim": 12, "epochs": 8, "patience": 3, "learning_rate": 0.03}

START: Settings = {
    "dim": 50, "alpha": 0.3, "negative_weight": 1.0, "max_trials": 100, "weight": "top", "learning_rate": 0.01,
    "image_learning_rate": 0.1, "max_norm": 1.0, "epochs": 60, "patience": 6,
}  # fmt: skip
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

SHARED_IW = Method("Shared (IW)", MODEL, {**START, "shared": True}, stages=STAGES, by=WORDS)
UNSHARED_IW = Method("UnShared (IW)", MODEL, {**START, "shared": False}, stages=STAGES, by=WORDS)
SHARED_I = replace(SHARED_IW, label="Shared (I)", by=IMAGES)
UNSHARED_I = replace(UNSHARED_IW, label="UnShared (I)", stages=(RATES, NO_ALPHA, TRIALS, DIMS), by=IMAGES)
"""With α = 0 it is WSABIE, as the paper has it (section 6.2)."""

SVM = Method("SVM", "svm", {"normalise": False, "C": 1.0}, stages=([{"C": 0.1}],), by=ANNOTATION)

HARMONIC = replace(
    UNSHARED_IW, label="UnShared (IW), harmonic weights (ours)", fixed={**UNSHARED_IW.fixed, "weight": "harmonic"}
)
DIRECTED = replace(
    UNSHARED_IW,
    label="UnShared (IW), directed (ours)",
    fixed={**UNSHARED_IW.fixed, "directed": True},
    stages=(*STAGES, WEIGHTS),
)
WEAK = replace(SHARED_IW, label="Shared (IW), weak negatives (ours)", fixed={**SHARED_IW.fixed, "negative_weight": 0.1})
"""What is not known to be related is pushed apart a tenth as much."""

PAPER_METHODS = (SHARED_IW, UNSHARED_IW, SHARED_I, UNSHARED_I, SVM)
MORE_METHODS = (WEAK, HARMONIC, DIRECTED)

OFFSETS = {SHARED_I.label: "Shared (IO)", UNSHARED_I.label: "UnShared (IO)"}
"""Methods by images alone, and their names where learned relations have an offset (section 6.5)."""

OFFSET = 100.0
"""λ."""


def quick_method(method: Method) -> Method:
    """Return the same method for a run of a minute: a small space, few epochs, a setting or two a stage."""
    if method.by == ANNOTATION:
        return replace(method, stages=())
    stages = [[change for change in stage if "dim" not in change][:1] for stage in method.stages[:2]]
    return replace(method, fixed={**method.fixed, **QUICK}, stages=stages)
