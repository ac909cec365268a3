"""The methods of the PAMIR comparison, the settings to try, and the visterms to choose from.

Each kind of features is tried with the start settings of a method; the best few kinds are then searched together with
the settings.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from visterm_research.comparison.feature_sets import PAPER_PARAMS, FeatureSet
from visterm_research.comparison.methods import ALPHAS, STEPS, WSABIE_PARAMS, Method
from visterm_research.comparison.search import Axis, Settings, unordered

CMRM = Method(
    "CMRM",
    "cmrm",
    fixed={"alpha": 0.1},
    box={"length": Axis((3.5, 5.0, 7.0, 10.0, 14.0, 20.0)), "beta": Axis((0.03, 0.1, 0.3, 0.6, 0.9), high=1.0)},
    start={"length": 10.0, "beta": 0.1},
)
"""Its alpha is fixed because it does not change the order of pictures by sums of probabilities of words."""

CMTT = Method(
    "CMTT",
    "cmtt",
    box={
        "rank": Axis((50, 100, 200, 400), low=1),
        "normalize": unordered("visterms", "tags"),
        "idf": unordered(False, True),
    },
    start={"rank": 200, "normalize": "visterms", "idf": False},
)
PLSA = Method(
    "PLSA",
    "plsa",
    box={"aspects": Axis((100, 200, 400, 600), low=1), "fold_epochs": Axis((3, 5, 10), low=1)},
    start={"aspects": 400, "fold_epochs": 5},
)
SVM = Method("SVM", "svm", box={"C": unordered(1.0, None)}, start={"C": 1.0})
"""None means a C for each word, as in the paper."""

SVM_ON_DENSE = replace(SVM, box={"C": Axis((0.1, 0.3, 1.0, 3.0, 10.0))}, trials=6)
"""One C for all words: features without zeros take ten times as long."""

PAMIR = Method(
    "PAMIR",
    "pamir",
    fixed={"max_words": None},
    box={"aggressiveness": Axis((0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0))},
    start={"aggressiveness": 0.1},
)

PAPER_METHODS = (CMRM, CMTT, PLSA, SVM, PAMIR)
"""The methods of the paper, in its order."""

MORE_METHODS = (
    Method("MBRM", "mbrm"),
    Method("ridge", "ridge", box=ALPHAS),
    Method("ridge over a Gaussian kernel", "kernel_ridge"),
    Method("k-NN", "knn"),
    Method("WSABIE", "wsabie", fixed=WSABIE_PARAMS, box=STEPS),
    Method("JEC", "jec", box={"n_neighbors": Axis((5, 10, 20, 40), low=1)}),
    Method("TagProp", "tagprop"),
    Method("2PKNN", "two_pass_knn"),
    Method("FastTag", "fasttag"),
)
"""Methods beyond the paper, on the features that PAMIR chose."""

AUTO = Method("auto", "auto")
"""Blends models by their annotations, so it is only compared in annotation."""

NAMING: dict[str, Settings] = {
    CMRM.label: {"alpha": None},
    SVM.label: {"normalise": False, "C": 1.0},
    PAMIR.label: {"aggressiveness": 0.1},
}
"""Settings, by method, of a fit for annotation and not for search; they are then not searched."""

QUICK = {"epochs": 8, "patience": 3, "aspects": 20, "rank": 20}
"""Settings of quick runs, which replace those that take long."""


def naming(method: Method) -> Method:
    """Return a method with its settings for annotation."""
    return method.with_fixed(method.label, **NAMING.get(method.label, {}))


def quick_method(method: Method) -> Method:
    """Return the same method with two trials of settings, for a run of a minute."""
    small = {name: value for name, value in QUICK.items() if name in method.box}
    box = {name: unordered(*axis.values) for name, axis in method.box.items() if name not in small}
    start = {name: value for name, value in (method.start or {}).items() if name not in small}
    return replace(method, fixed={**method.fixed, **small}, box=box, start=start or None, trials=2)


LONG_SIDE = 192
"""Longer side in pixels of our pictures of Corel5k; the paper's have 384, so its blocks have twice the side of ours."""

SIDES = (16, 24, 32, 48, 64, 96, 128)
"""Sides of blocks in pixels: half of the paper's (Table III), which are the same shares of a picture."""

CODEBOOK, QUICK_CODEBOOK = 10_000, 120
ONE, THREE = (1.0,), (0.5, 1.0, 2.0)
SMALL: dict[str, Any] = {"colours": 12, "sample_blocks": 2000}


def blocks(side: int, codebook: int = CODEBOOK, *, scales: tuple[float, ...] = ONE, paper: bool = False) -> FeatureSet:
    """Return the visterms of blocks with the given side in pixels.

    Parameters
    ----------
    scales : tuple of float
        Blocks have the sides `side` times each scale; each scale has a share of the codebook.
    paper : bool
        Whether to describe blocks and weight words as in the paper, or with our defaults. Blocks overlap by half.
    """
    params: dict[str, Any] = {"block": side / LONG_SIDE, "scales": scales, "codebook": codebook}
    sides = "+".join(f"{side * scale:g}" for scale in scales)
    label = f"{sides} px, {codebook:,}{' (as in the paper)' if paper else ''}"
    slug = f"{'paper-' if paper else ''}{sides}-{codebook}"
    if paper:
        params |= PAPER_PARAMS
    small = {**params, **SMALL, "codebook": min(codebook, QUICK_CODEBOOK)}
    return FeatureSet(label, slug, "visterms", params, small=small)


BY_BLOCK = tuple(blocks(side) for side in SIDES)
"""Table III with our weights."""

PAPER_BY_BLOCK = tuple(blocks(side, paper=True) for side in SIDES)
"""Table III as in the paper."""

BY_CODEBOOK = (blocks(24, 20_000), blocks(32, 3000), blocks(64, 2000))
SEVERAL_SCALES = tuple(blocks(side, scales=THREE) for side in (24, 32, 48))

TRIED = (*BY_BLOCK, *BY_CODEBOOK, *SEVERAL_SCALES)
"""The features that every model chooses from."""

QUICK_TRIED = (blocks(32, QUICK_CODEBOOK), blocks(64, QUICK_CODEBOOK))
QUICK_PAPER = (blocks(32, QUICK_CODEBOOK, paper=True),)
