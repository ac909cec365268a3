"""What the sampled-tagging comparison runs: each method, its model, and the settings that are tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from visterm_research.comparison.arms import RIDGE, Arm, Settings
from visterm_research.papers.ugc import (
    AVERAGE,
    CORRELATED,
    FAST0TAG,
    FASTTAG,
    FIXED,
    FULL,
    LEAST_SQUARES,
    PROPOSED,
    SAMPLED_FAST0TAG,
    SAMPLED_FIXED,
    TAGPROP,
)

DEEP = {"epochs": 30, "patience": 8, "batch_size": 128}
"""The budget of every network: at most so many epochs, stopped by the validation images."""

LARGE, RATES = [1024, 512], (0.001, 0.0003)
NETWORKS: dict[str, Sequence[Any]] = {"hidden": ([512], LARGE), "learning_rate": RATES}
"""Far smaller than the paper's 4096, 8192 and 2048, which take hours a method on a processor."""

UNSAMPLED: dict[str, Sequence[Any]] = {**NETWORKS, "dropout": (0.5, 0.2)}
SAMPLED: dict[str, Sequence[Any]] = {**NETWORKS, "power": (1.0, 0.25)}
"""The sampled networks choose the power of the tag distribution where the others choose the dropout."""


class NetworkArm(Arm):
    """A method with a network: six settings each."""

    def settings(self) -> list[Settings]:
        """List the settings to try: the large network, which takes twice as long, with the first learning rate only."""
        return [one for one in super().settings() if one["hidden"] != LARGE or one["learning_rate"] == RATES[0]]


UGC_ARMS = (
    replace(RIDGE, label=LEAST_SQUARES),
    NetworkArm(AVERAGE, "average_word_vector", DEEP, UNSAMPLED),
    NetworkArm(CORRELATED, "correlated_word_vectors", DEEP, UNSAMPLED),
    Arm(TAGPROP, "tagprop", {}, {"n_neighbors": (200, 50), "weights": ("distance", "rank")}),
    Arm(FASTTAG, "fasttag"),
    NetworkArm(FAST0TAG, "fast0tag", DEEP, UNSAMPLED),
    NetworkArm(FIXED, "cross_entropy_tagger", {"fixed_vectors": True, **DEEP}, UNSAMPLED),
    NetworkArm(FULL, "cross_entropy_tagger", DEEP, UNSAMPLED),
    NetworkArm(SAMPLED_FAST0TAG, "fast0tag", {"all_pairs": False, **DEEP}, SAMPLED),
    NetworkArm(SAMPLED_FIXED, "sampled_tagger", {"fixed_vectors": True, **DEEP}, SAMPLED),
    NetworkArm(PROPOSED, "sampled_tagger", DEEP, SAMPLED),
)
"""Table 3 and the table on MS COCO, in the paper's order."""

QUICK_NETWORK = {"hidden": [24], "batch_size": 32, "epochs": 4}


def quick_arm(arm: Arm) -> Arm:
    """Return the same method for a run of a minute: a small network, few epochs, at most two settings."""
    small = arm.quick()
    if "hidden" not in arm.grid:
        return small
    grid = {name: arm.grid[name] for name in ("power", "dropout") if name in arm.grid}
    return replace(small, fixed={**small.fixed, **QUICK_NETWORK, "learning_rate": 0.005}, grid=grid)
