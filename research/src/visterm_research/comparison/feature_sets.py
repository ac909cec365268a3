"""The features of the objects-and-parts paper: bags of visterms, an ensemble with kernel PCA, and a chain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from visterm_research.papers import read_paper

paper = read_paper("objects_and_parts")


@dataclass(frozen=True)
class FeatureSet:
    """One kind of features, and the encoder that makes them.

    Attributes
    ----------
    label : str
        What the report calls it.
    slug : str
        In the names of problems: "corel5k-SLUG".
    encoder : str
        As ``visterm fit --encoder`` takes it.
    params : mapping
        The encoder's settings.
    stands_for : str
        The paper's features that these are; empty where they are not in the paper.
    small : mapping, optional
        Settings for a run of a minute; None: as they are.
    """

    label: str
    slug: str
    encoder: str
    params: Mapping[str, Any] = field(default_factory=dict)
    stands_for: str = ""
    small: Mapping[str, Any] | None = None

    def quick(self) -> FeatureSet:
        """Return the same features for a run of a minute: few colours, words and components."""
        return self if self.small is None else replace(self, params=self.small)

    @property
    def settings(self) -> str:
        """Describe how the encoder is made, in one line; a file by its name, wherever it is."""
        kind, _, argument = self.encoder.partition(":")
        encoder = f"{kind}:{Path(argument).name}" if argument else kind
        set_to = ", ".join(f"{name}={value}" for name, value in self.params.items())
        return f"{encoder} ({set_to})" if set_to else encoder


PAPER_BLOCKS: dict[str, Any] = {
    "colour_space": "rgb",
    "colours": 50,
    "texture_weight": 1.0,
    "root": False,
    "overlap": 0.5,
}
"""Blocks as in the PAMIR paper: the histograms of RGB colours and of texture side by side as they are (section IV-B),
50 colours, and blocks that overlap by half (V-B)."""

PAPER_WORDS: dict[str, Any] = {"neighbours": 1, "root_terms": False}
"""Visterms as in the PAMIR paper: a block counts for its nearest word, and words weigh tf · idf, in rows of length 1
(section IV-C)."""

PAPER_PARAMS: dict[str, Any] = {**PAPER_BLOCKS, **PAPER_WORDS, "shared_words": True, "levels": 1}
"""Both, and one codebook for blocks of all sizes, as in the WSABIE paper (section 6.2), whose visterms the
objects-and-parts paper takes."""

PAPER_SIZES: dict[str, Any] = {"codebook": 10_000, "block": 1 / 6, "scales": (0.5, 1.0, 2.0)}
"""Words as in the papers. Blocks are "at various scales", which no paper names: the one that PAMIR chose (64 of 384
pixels), and half and twice as large ones."""

SMALL_VISTERMS = {"colours": 16, "codebook": 120, "sample_blocks": 3000}
SMALL_HISTOGRAMS = {
    "colours": 12, "textons": 8, "orientations": 2, "sigmas": (1.0,), "levels": 2, "sample_pixels": 2000,
}  # fmt: skip
SMALL_KERNEL_PCA = {"encoder": ("histograms", SMALL_HISTOGRAMS), "dim": 40, "landmarks": 100}

PAPER_VISTERMS = FeatureSet(
    "paper visterms",
    "paper-visterms",
    "visterms",
    {**PAPER_PARAMS, **PAPER_SIZES},
    stands_for=paper.VISTERMS,
    small={**PAPER_PARAMS, **PAPER_SIZES, **SMALL_VISTERMS},
)
OUR_VISTERMS = FeatureSet("our visterms", "visterms", "visterms", stands_for=paper.VISTERMS, small=SMALL_VISTERMS)
ENSEMBLE = FeatureSet(
    paper.ENSEMBLE, "ensemble", "kernel_pca:histograms", stands_for=paper.ENSEMBLE, small=SMALL_KERNEL_PCA
)
CHAIN = FeatureSet(
    "our visterms + ensemble+KPCA",
    "chain",
    "chain:visterms+kernel_pca:histograms",
    small={"encoders": (("visterms", SMALL_VISTERMS), ("kernel_pca", SMALL_KERNEL_PCA))},
)

FEATURE_SETS = (PAPER_VISTERMS, OUR_VISTERMS, ENSEMBLE, CHAIN)


def with_extra(encoder: str | None) -> list[FeatureSet]:
    """List the paper's features, and those of one more encoder where one is named."""
    if encoder is None:
        return list(FEATURE_SETS)
    return [*FEATURE_SETS, FeatureSet(f"{encoder.partition(':')[0]} (not in the paper)", "extra", encoder)]
