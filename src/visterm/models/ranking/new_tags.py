"""Rows for tags that a trained model does not know yet, learned against the scores of those that it knows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.sparse as sp

from visterm.core.threads import Team
from visterm.core.types import Matrix
from visterm.kernels.rows import Rows, dense_rows, sparse_rows
from visterm.kernels.topk import top_k
from visterm.models.ranking.feature_steps import Floats
from visterm.models.ranking.separate_training import SeparateTraining

BAR_RANK = 3
"""A new tag counts as given to an image where it beats the image's third best old tag: photos have about three tags."""

PASSES = 20
AGGRESSIVENESS = 0.1
"""Longest step, in units of one over the mean squared length of an image row: ten steps move a score by about one."""

N_NEGATIVES = 3
BLOCK_BYTES = 2**25


def learn_new_tags(U: Matrix, V: Floats, own: sp.csr_array, rng: np.random.Generator, team: Team) -> Floats:
    """Learn the rows of new tags for image rows that stay as they are.

    For each image the score of its third best old tag is the bar. A new tag has to score 1 above the bar on its own
    images, and 1 below it on images drawn among the others, by passive-aggressive steps (the mean of the rows after
    each pass is kept).

    Parameters
    ----------
    U : array or CSR of float32, shape (n_images, width)
        Image rows.
    V : ndarray of float32, shape (n_tags, width)
        Rows of the old tags.
    own : csr_array, shape (n_images, n_new)
        Stored entries say which images have the new tags.
    rng : Generator
    team : Team

    Returns
    -------
    ndarray of float32, shape (n_new, width)
    """
    rows = image_rows(U)
    training = SeparateTraining(
        rows,
        own,
        weights := np.zeros((own.shape[1], V.shape[1]), np.float32),
        offsets=_bars(U, V),
        n_negatives=N_NEGATIVES,
        max_norm=math.inf,
        rng=rng,
        team=team,
    )
    square = float(training.squares.mean()) or 1.0
    mean = np.zeros_like(weights)
    for done in range(1, PASSES + 1):
        training.run_epoch(AGGRESSIVENESS / square)
        mean += (weights - mean) / np.float32(done)
    return mean


def image_rows(U: Matrix) -> Rows:
    """View image rows, dense or CSR, as kernels take them."""
    csr: Any = U
    rows: Rows = sparse_rows(csr.data, csr.indices, csr.indptr) if sp.issparse(U) else dense_rows(U)
    return rows


def _bars(U: Matrix, V: Floats) -> Floats:
    """Return each image the score of its tag on place `BAR_RANK` (or its last)."""
    k = min(BAR_RANK, len(V))
    step = max(1, BLOCK_BYTES // (4 * len(V)))
    parts = [
        top_k(np.ascontiguousarray(U[start : start + step] @ V.T, np.float32), k)[1][:, -1]
        for start in range(0, U.shape[0], step)
    ]
    return np.concatenate(parts) if parts else np.empty(0, np.float32)
