"""Drawn data of the sizes of the sampled tagging paper's Table 1: what an epoch costs depends on them alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

TAGS_AN_IMAGE = 5
"""Of drawn images: P of the paper, and about what people give a photo."""


class Shape(NamedTuple):
    """One size of the table.

    Attributes
    ----------
    name : str
        The paper's data of this size.
    n_tags : int
    n_images : int
        Of an epoch that is told; fewer are timed.
    """

    name: str
    n_tags: int
    n_images: int


SHAPES = (
    Shape("IAPR TC-12", 291, 17_665),
    Shape("NUS-WIDE", 925, 102_709),
    Shape("Visual Genome", 13_980, 100_000),
    Shape("YFCC100M", 432_213, 100_000),
)
"""The paper says how many images the first two have; for the others an epoch of 100,000 is told."""

QUICK_SHAPES = (Shape("IAPR TC-12", 29, 1766), Shape("YFCC100M", 2000, 1000))


def drawn_tags(n_images: int, n_tags: int, *, seed: int = 0) -> sp.csr_array:
    """Draw five tags an image, the tag of rank r in proportion to 1/r (Zipf), and each tag once if there is room.

    Returns
    -------
    csr_array of float32, shape (n_images, n_tags)
        Values are 1; an image that drew a tag twice has fewer than five.
    """
    rng = np.random.default_rng(seed)
    n = n_images * TAGS_AN_IMAGE
    tags = np.minimum(np.exp(rng.random(n) * np.log(n_tags + 1)).astype(np.int64), n_tags) - 1
    once = min(n_tags, n // 2)
    tags[rng.choice(n, once, replace=False)] = rng.permutation(n_tags)[:once]
    rows = np.repeat(np.arange(n_images), TAGS_AN_IMAGE)
    Y = sp.csr_array(sp.coo_array((np.ones(n, np.float32), (rows, tags)), shape=(n_images, n_tags)))
    Y.data[:] = 1
    return Y


def drawn_features(n_images: int, width: int, *, seed: int = 0) -> NDArray[np.float32]:
    """Draw features: normal, as many as an encoder gives."""
    return np.random.default_rng(seed).standard_normal((n_images, width), np.float32)
