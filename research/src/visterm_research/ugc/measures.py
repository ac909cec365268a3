"""Five tags an image: precision, recall and F1 image by image and tag by tag, and how sure they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.metrics import evaluate
from visterm_research.comparison.claims import RESAMPLES

K = 5
BY_TAG, BY_IMAGE = "tag by tag", "image by image"
KINDS = (BY_TAG, BY_IMAGE)
"""How precision and recall are averaged: over tags, as published for IAPR TC-12 and the ESP game, or over images."""

METRICS = ("map", f"p@{K}", f"r@{K}", f"tag_p@{K}", f"tag_r@{K}", f"n_plus@{K}")
"""What is measured of every fit."""

AT_ONCE = 100
"""Resamples that are counted together."""

Floats = NDArray[np.float64]


class Five(NamedTuple):
    """Precision, recall and F1 with five tags an image, as shares."""

    precision: float
    recall: float
    f1: float


def five_metrics(model: Any, X: Any, Y: Any) -> dict[str, float]:
    """Measure a model on rows."""
    return evaluate(lambda: model.score_blocks(X), Y, METRICS)


def five_of(metrics: dict[str, float], kind: str) -> Five:
    """Return precision, recall and F1, which is that of the two means, as the paper's are."""
    prefix = "tag_" if kind == BY_TAG else ""
    precision, recall = metrics[f"{prefix}p@{K}"], metrics[f"{prefix}r@{K}"]
    return Five(precision, recall, harmonic(precision, recall))


def harmonic(precision: float, recall: float) -> float:
    """Return F1; 0 where both are 0."""
    total = precision + recall
    return 2 * precision * recall / total if total > 0 else 0.0


def resampled_fives(ids: NDArray[np.int64], Y: sp.csr_array, kind: str) -> Floats:
    """Resample the images, and give precision, recall and F1 of each resample: the same images for every method.

    Parameters
    ----------
    ids : ndarray, shape (n_images, 5)
        The tags that each image is given.
    Y : csr_array, shape (n_images, n_tags)
        Above 0: right.
    kind : str
        `BY_TAG` or `BY_IMAGE`. Tags that no image of a resample has do not count in it.

    Returns
    -------
    ndarray of float64, shape (RESAMPLES, 3)
    """
    relevant = sp.csr_array(Y > 0, dtype=np.float64)
    given = sp.csr_array(
        (np.ones(ids.size), ids.ravel(), np.arange(ids.shape[0] + 1) * ids.shape[1]), shape=relevant.shape
    )
    measure = (_tag_by_tag if kind == BY_TAG else _image_by_image)(given, relevant)
    rng = np.random.default_rng(0)
    n = ids.shape[0]
    found = [measure(rng.multinomial(n, np.full(n, 1 / n), size=AT_ONCE)) for _ in range(RESAMPLES // AT_ONCE)]
    precision, recall = np.concatenate(found, axis=1)
    total = precision + recall
    f1 = np.divide(2 * precision * recall, total, out=np.zeros_like(total), where=total > 0)
    return np.stack([precision, recall, f1], axis=1)


Measure = Callable[[NDArray[np.int64]], Floats]
"""Gives precisions and recalls, (2, n_resamples), from how often each image was drawn, (n_resamples, n_images)."""


def interval_of(resampled: Floats, estimate: float) -> tuple[float, float]:
    """Return a 95 % interval of resampled values around what was found.

    They are moved to have the mean that was found: in a resample some rare tags are on no image and do not count, which
    makes means over tags higher in all of them.
    """
    low, high = np.quantile(resampled - resampled.mean() + estimate, [0.025, 0.975])
    return float(low), float(high)


def _tag_by_tag(given: sp.csr_array, relevant: sp.csr_array) -> Measure:
    right = sp.csr_array(given.multiply(relevant))

    def measure(times: NDArray[np.int64]) -> Floats:
        hits, named, there = (np.asarray(times @ matrix) for matrix in (right, given, relevant))
        counted = there > 0
        n_tags = np.maximum(counted.sum(axis=1), 1)
        precisions = np.where(counted, hits / np.maximum(named, 1), 0)
        recalls = hits / np.maximum(there, 1)
        return np.stack([precisions.sum(axis=1) / n_tags, recalls.sum(axis=1) / n_tags])

    return measure


def _image_by_image(given: sp.csr_array, relevant: sp.csr_array) -> Measure:
    hits = np.asarray(given.multiply(relevant).sum(axis=1)).ravel()
    there = np.asarray(relevant.sum(axis=1)).ravel()
    counted = (there > 0).astype(np.float64)
    shares = np.stack([hits / K, hits / np.maximum(there, 1)])

    def measure(times: NDArray[np.int64]) -> Floats:
        return np.asarray((shares * counted) @ times.T / np.maximum(times @ counted, 1))

    return measure
