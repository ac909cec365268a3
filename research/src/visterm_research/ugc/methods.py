"""What the sampled-tagging comparison runs: each method, its model, and the settings that are tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from visterm_research.comparison.methods import RIDGE, Method
from visterm_research.comparison.search import Axis, Box, Settings, unordered

LEAST_SQUARES, AVERAGE, CORRELATED = "least-squares", "Avg WV", "Correlated WV"
TAGPROP, FASTTAG, FAST0TAG = "TagProp", "FastTag", "Fast0Tag"
FIXED, FULL = "Fixed WV", "Full cross-entropy"
SAMPLED_FAST0TAG, SAMPLED_FIXED, PROPOSED = "Sampled Fast0Tag", "Sampled Fixed WV", "Proposed"
DENSECAP = "DenseCap-Objects"

IA, ESP, COCO, GENOME = "IAPR TC-12", "ESP game", "MS COCO", "Visual Genome"
"""The paper's data, as its tables are named in the file of its figures."""

DEEP = {"epochs": 30, "patience": 8, "batch_size": 128}
"""The budget of every network: the largest number of epochs, stopped by the validation images."""

FULL_SETTINGS: Settings = {"start_low": False, "tag_learning_rate": 0.1}
SAMPLED_SETTINGS: Settings = {**FULL_SETTINGS, "negatives": 10, "power": 1.0, "alpha": 0.01}
"""The paper's draws and costs, where they are not searched: the models have other defaults."""

PAPER_HIDDEN = (4096, 8192, 2048)
"""The hidden layers of the paper's network (section 2)."""

NETWORK: Box = {"hidden": unordered([], [512], [1024, 512]), "learning_rate": Axis((0.0001, 0.0003, 0.001, 0.003))}
"""Far smaller than the paper's network (`PAPER_HIDDEN`), which takes hours a method on a processor."""

UNSAMPLED: Box = {**NETWORK, "dropout": Axis((0.2, 0.35, 0.5), high=0.9)}
SAMPLED: Box = {**NETWORK, "power": Axis((0.25, 0.5, 1.0), high=1.0), "negatives": Axis((10, 30, 100), low=1)}
"""The sampled networks choose what is drawn where the others choose the dropout; the paper draws 10 negatives."""

LOW: Box = {"start_low": unordered(False, True)}
"""Of the cross-entropies; costs of ranks are the same however low all scores are."""

MOVING: Box = {"tag_learning_rate": Axis((0.01, 0.03, 0.1, 0.3))}
"""Of the cross-entropies whose word vectors are learned."""

TAGPROP_BOX: Box = {"n_neighbors": Axis((25, 50, 100, 200), low=1), "weights": unordered("distance", "rank")}

TRIALS = 10
"""Of every network: fewer than other comparisons try, as one fit takes up to a minute."""


FIRST = {"hidden": [512], "learning_rate": 0.001}
"""What every network tries first, with the middle of the rest of its box."""


def network(label: str, model: str, fixed: Mapping[str, Any], box: Box) -> Method:
    """Return a method with a network."""
    return Method(label, model, {**fixed, **DEEP}, box, FIRST, trials=TRIALS)


METHODS = (
    Method(LEAST_SQUARES, "least_squares"),
    RIDGE,
    network(AVERAGE, "average_word_vector", {}, UNSAMPLED),
    network(CORRELATED, "correlated_word_vectors", {}, UNSAMPLED),
    Method(TAGPROP, "tagprop", {}, TAGPROP_BOX, trials=TRIALS),
    Method(FASTTAG, "fasttag"),
    network(FAST0TAG, "fast0tag", {}, UNSAMPLED),
    network(FIXED, "cross_entropy_tagger", {**FULL_SETTINGS, "fixed_vectors": True}, {**UNSAMPLED, **LOW}),
    network(FULL, "cross_entropy_tagger", FULL_SETTINGS, {**UNSAMPLED, **LOW, **MOVING}),
    network(SAMPLED_FAST0TAG, "fast0tag", {"all_pairs": False}, SAMPLED),
    network(SAMPLED_FIXED, "sampled_tagger", {**SAMPLED_SETTINGS, "fixed_vectors": True}, {**SAMPLED, **LOW}),
    network(
        PROPOSED, "sampled_tagger", SAMPLED_SETTINGS, {**SAMPLED, **LOW, **MOVING, "alpha": unordered(0.0, 0.001, 0.01)}
    ),
)
"""Table 3 in the paper's order, with the row of the table on MS COCO that it lacks in its place."""

LABELS = tuple(method.label for method in METHODS)

RANDOM_STARTS: dict[str, Settings] = {
    FULL: {"hidden": [], "learning_rate": 0.001, "dropout": 0.35, "start_low": True, "tag_learning_rate": 0.03},
    PROPOSED: {
        "hidden": [], "learning_rate": 0.0003, "power": 1.0, "negatives": 100, "start_low": True,
        "tag_learning_rate": 0.03, "alpha": 0.0,
    },
}  # fmt: skip
"""What does best on validation rows of the drawn dictionary, the same for both but for what only one has: found by
research/experiments/sampled_dictionary.py."""

RANDOM_DIM = 300


def with_random_starts(method: Method) -> Method:
    """Return the same method for made-up tags, whose vectors mean little: those that move may start at random, too.

    It then tries first what is known to do well there.
    """
    if method.label not in RANDOM_STARTS or "tag_learning_rate" not in method.box:
        return method
    box = {**method.box, "dim": unordered(None, RANDOM_DIM)}
    return replace(method, box=box, start={**RANDOM_STARTS[method.label], "dim": RANDOM_DIM})


QUICK_NETWORK = {"hidden": [24], "batch_size": 32, "epochs": 4}


def quick_method(method: Method) -> Method:
    """Return the same method for a run of a minute: a small network, few epochs, at most two settings."""
    small = method.quick()
    if "hidden" not in method.box:
        return small
    name = "power" if "power" in method.box else "dropout"
    box = {name: unordered(*method.box[name].values[:2])}
    return replace(small, fixed={**small.fixed, **QUICK_NETWORK, "learning_rate": 0.005}, box=box)
