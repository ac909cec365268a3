"""The parts that a ranking model is put together from, as numbers that a kernel can take."""

from __future__ import annotations

from enum import IntEnum


class Loss(IntEnum):
    """What a pair (true tag y, other tag ȳ) costs, by the gap f_y - f_ȳ."""

    HINGE = 0
    """``|1 - gap|₊``: nothing from a gap of 1 on."""
    LOGISTIC = 1
    """``log(1 + exp(-gap))``: less and less, never nothing."""


class Negatives(IntEnum):
    """Which other tags ȳ a true tag is compared with."""

    UNTIL_VIOLATION = 0
    """Draw uniformly until one is within the margin (WARP)."""
    POOL = 1
    """The same law; many images are scored at once against one pool of drawn tags."""
    UNIFORM = 2
    """One draw (AUC)."""
    ADAPTIVE = 3
    """One draw from tags that are likely to score high for the image (VSE-ens)."""
    ALL = 4
    """All tags within the margin, none drawn (OWPC)."""


class Step(IntEnum):
    """How a gradient becomes a step."""

    SGD = 0
    """Times the learning rate."""
    ADAGRAD = 1
    """Times the learning rate over the root of one plus the mean squares that the row has seen."""
