"""Metrics of a model on rows, image by image; tags that it was told of an image are left out of its ranking."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.metrics import average_precisions, measure
from visterm_research.comparison.problem import Rows

CURVE = tuple(range(1, 11))
"""The k of the precision curves (WSABIE, Figure 1)."""

METRICS = ("map", "auc", "r@1", "r@5", "r@10", *(f"p@{k}" for k in CURVE))
SIBLING_METRICS = tuple(f"psib@{k}" for k in CURVE)


def validation_map(model: Any, rows: Rows) -> float:
    """Return MAP over images: what every setting is chosen by."""
    return float(np.nanmean(average_precisions(model.score_blocks(rows.X), rows.Y, exclude=rows.known)))


def judge(model: Any, rows: Rows, siblings: sp.csr_array | None) -> dict[str, NDArray[np.float64]]:
    """Return all metrics image by image; those of siblings where it is known which tags are.

    Returns
    -------
    dict of str to ndarray of float64, shape (n_images,)
        NaN where an image has no right tag.
    """
    metrics = METRICS if siblings is None else (*METRICS, *SIBLING_METRICS)
    return measure(lambda: model.score_blocks(rows.X), rows.Y, metrics, exclude=rows.known, siblings=siblings)
