"""The features of the PAMIR comparison: visterms by block and codebook size, as in the paper and with our weights."""

from __future__ import annotations

from typing import Any

from visterm_research.comparison.feature_sets import PAPER_PARAMS, FeatureSet

LONG_SIDE = 192
"""Pixels of Corel5k's pictures here; the paper's have 384, so its blocks are twice ours."""

SIDES = (16, 24, 32, 48, 64, 96, 128)
"""Half of the paper's (Table III): the same shares of a picture."""

CODEBOOK = 10_000
ONE, THREE = (1.0,), (0.5, 1.0, 2.0)
SMALL: dict[str, Any] = {"colours": 12, "sample_blocks": 2000}


def blocks(side: int, codebook: int = CODEBOOK, *, scales: tuple[float, ...] = ONE, paper: bool = False) -> FeatureSet:
    """Return visterms of blocks with a side in pixels.

    Parameters
    ----------
    scales : tuple of float
        Blocks are also cut at these multiples of `side`, with a share of the codebook each.
    paper : bool
        Blocks described and words weighed as in the paper, or with our defaults. Blocks overlap by half either way.
    """
    params: dict[str, Any] = {"block": side / LONG_SIDE, "scales": scales, "codebook": codebook}
    sides = "+".join(f"{side * scale:g}" for scale in scales)
    label = f"{sides} px, {codebook:,}{' (as in the paper)' if paper else ''}"
    slug = f"{'paper-' if paper else ''}{sides}-{codebook}"
    if paper:
        params |= PAPER_PARAMS
    return FeatureSet(label, slug, "visterms", params, small={**params, **SMALL, "codebook": min(codebook, 120)})


BY_BLOCK = tuple(blocks(side) for side in SIDES)
"""Table III with our weights."""

PAPER_BY_BLOCK = tuple(blocks(side, paper=True) for side in SIDES)
"""Table III as in the paper."""

BY_CODEBOOK = (blocks(24, 20_000), blocks(32, 3000), blocks(64, 2000))
SEVERAL_SCALES = tuple(blocks(side, scales=THREE) for side in (24, 32, 48))

TRIED = (*BY_BLOCK, *BY_CODEBOOK, *SEVERAL_SCALES)
"""What every model chooses from."""

QUICK_TRIED = (blocks(32), blocks(64, 2000))
QUICK_PAPER = (blocks(32, paper=True),)
