"""The one table of what the PAMIR comparison runs: each method, its model, and the settings that are tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from visterm_research.comparison.arms import Settings


@dataclass(frozen=True)
class SearchArm:
    """One method: its features are chosen first, with the settings to start with; then its settings, on these.

    Attributes
    ----------
    label : str
        The paper's name for it, or ours.
    model : str
        As in ``visterm models``.
    fixed : mapping
        Settings that are not chosen.
    start : mapping
        Settings with which features are compared.
    grids : sequence of mapping of str to sequence
        Values to try, all combinations of each mapping.
    pictured : mapping
        Settings of a fit that is to name tags of pictures, and not to rank pictures; not chosen then.
    """

    label: str
    model: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    start: Mapping[str, Any] = field(default_factory=dict)
    grids: Sequence[Mapping[str, Sequence[Any]]] = ()
    pictured: Mapping[str, Any] = field(default_factory=dict)

    def first(self) -> Settings:
        """Return the settings with which features are compared."""
        return {**self.fixed, **self.start}

    def naming(self, *, quick: bool = False) -> list[Settings]:
        """List the settings to try where tags are named."""
        tried: list[Settings] = []
        for one in self.settings(quick=quick):
            if {**one, **self.pictured} not in tried:
                tried.append({**one, **self.pictured})
        return tried

    def settings(self, *, quick: bool = False) -> list[Settings]:
        """List the settings to try, those of the start first; in quick runs one more at most."""
        tried = [self.first()]
        for grid in self.grids:
            for values in product(*grid.values()):
                one = {**self.fixed, **dict(zip(grid, values, strict=True))}
                if one not in tried:
                    tried.append(one)
        return tried[:2] if quick else tried


CMRM = SearchArm(
    "CMRM",
    "cmrm",
    fixed={"alpha": 0.1},
    start={"length": 10.0, "beta": 0.1},
    grids=({"length": (5.0, 7.0, 14.0, 20.0), "beta": (0.1, 0.3, 0.6)}, {"length": (10.0,), "beta": (0.3, 0.6)}),
    pictured={"alpha": None},
)
"""Its alpha changes no sum of probabilities of words by which pictures are ranked."""

CMTT = SearchArm(
    "CMTT",
    "cmtt",
    start={"rank": 200, "normalize": "visterms"},
    grids=(
        {"rank": (100, 200, 400), "normalize": ("visterms", "tags")},
        {"rank": (200,), "normalize": ("visterms", "tags"), "idf": (True,)},
    ),
)
PLSA = SearchArm(
    "PLSA", "plsa", start={"aspects": 400}, grids=({"aspects": (200, 600)}, {"aspects": (400,), "fold_epochs": (10,)})
)
SVM = SearchArm("SVM", "svm", start={"C": 1.0}, grids=({"C": (None,)},), pictured={"normalise": False, "C": 1.0})
SVM_ON_DENSE = replace(SVM, grids=({"C": (0.1, 10.0)},))
"""One C for all words: features without zeros take ten times as long."""

PAMIR = SearchArm(
    "PAMIR",
    "pamir",
    fixed={"max_words": None},
    start={"aggressiveness": 0.1},
    grids=({"aggressiveness": (0.01, 0.03, 0.3, 1.0)},),
    pictured={"aggressiveness": 0.1},
)

PAPER_ARMS = (CMRM, CMTT, PLSA, SVM, PAMIR)
"""The methods of the paper, in its order."""

MORE_ARMS = (
    SearchArm("MBRM", "mbrm"),
    SearchArm("ridge", "ridge", grids=({"alpha": (0.03, 0.3, 3.0)},)),
    SearchArm("ridge over a Gaussian kernel", "kernel_ridge"),
    SearchArm("k-NN", "knn"),
    SearchArm("WSABIE", "wsabie", grids=({"learning_rate": (0.005,)},)),
    SearchArm("JEC", "jec", grids=({"n_neighbors": (20,)},)),
    SearchArm("TagProp", "tagprop"),
    SearchArm("2PKNN", "two_pass_knn"),
    SearchArm("FastTag", "fasttag"),
)
"""Methods beyond the paper, on the features that PAMIR chose."""

AUTO = SearchArm("auto", "auto")
"""Blends models by how they name tags: beside the others in annotation only."""

QUICK = {"epochs": 8, "patience": 3, "aspects": 20, "rank": 20}
"""In place of what takes long, in quick runs."""
