"""Learn rows for new tags: each tag is trained separately on its images and on others, in parallel over the tags."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from visterm.core.threads import Team
from visterm.core.types import Matrix
from visterm.kernels.passive_aggressive import separate_tags
from visterm.kernels.rows import Rows, dense_rows, row_squares, sparse_rows
from visterm.kernels.topk import top_k
from visterm.models.epochs import EpochSums, Floats
from visterm.models.ranking.training import Training

MAX_SHARES = 64  # Maximum number of parts of the tags, to balance the load of threads with frequent tags
BAR_RANK = 3  # A new tag must beat an image's third best old tag, as photos have about three tags
N_PASSES = 20
AGGRESSIVENESS = 0.1  # Maximum step, in units of 1 / mean squared length of an image row
N_NEGATIVES = 3
BLOCK_BYTES = 2**25


class SeparateTraining(Training):
    """The state of one training of a linear scorer per tag, by passive-aggressive steps.

    `rows` are the image rows, and `squares`, (n_images,), their squared lengths. Stored entries of the canonical
    `positives`, (n_images, n_tags), are the tags of images. `tag_rows`, (n_tags, width), are changed in place.
    `offsets`, (n_images,), are the minimum scores of an image's tags. For each image with a tag, `n_negatives` images
    without the tag are visited.
    """

    def __init__(
        self,
        rows: Rows,
        positives: sp.csr_array,
        tag_rows: Floats,
        *,
        offsets: Floats,
        n_negatives: int,
        rng: np.random.Generator,
        team: Team,
    ) -> None:
        self._rows, self._W, self._offsets, self._team = rows, tag_rows, offsets, team
        self._n_negatives = n_negatives
        images_by_tag = sp.csr_array(positives.T)
        images_by_tag.sort_indices()
        self._start, self._tag_images = images_by_tag.indptr.astype(np.int64), images_by_tag.indices
        self.squares = np.empty(positives.shape[0], np.float32)
        row_squares(rows, self.squares)
        self._sums = np.empty((positives.shape[1], 3))
        self._bounds = np.linspace(0, positives.shape[1], min(MAX_SHARES, positives.shape[1]) + 1).astype(np.int64)
        self._seed = int(rng.integers(2**62))
        self._epoch = 0

    def run_epoch(self, rate: float) -> EpochSums:
        """Visit each image of each tag once, with its negatives; `rate` is the maximum step."""

        def train_part(number: int) -> None:
            separate_tags(
                self._bounds[number], self._bounds[number + 1], self._start, self._tag_images, self._rows, self.squares,
                self._offsets, self._n_negatives, rate, self._seed, self._epoch, self._W, self._sums,
            )  # fmt: skip

        self._team.run(train_part, len(self._bounds) - 1)
        self._epoch += 1
        loss, examples, steps = (float(value) for value in self._sums.sum(axis=0))
        examples = max(1.0, examples)
        return EpochSums(loss / examples, 1.0, steps / examples)


def learn_new_tags(U: Matrix, V: Floats, positives: sp.csr_array, rng: np.random.Generator, team: Team) -> Floats:
    """Learn the rows of new tags, (n_new, width), for fixed image rows `U`.

    The bar of an image is the score of its third best old tag (rows `V`). By passive-aggressive steps, a new tag learns
    to score 1 above the bar on its images, the stored entries of `positives` (n_images, n_new), and 1 below the bar on
    random other images. Returns the mean of the rows after each pass.
    """
    rows = image_rows(U)
    weights = np.zeros((positives.shape[1], V.shape[1]), np.float32)
    training = SeparateTraining(
        rows, positives, weights, offsets=_bars(U, V), n_negatives=N_NEGATIVES, rng=rng, team=team
    )
    square = float(training.squares.mean()) or 1.0
    mean = np.zeros_like(weights)
    for n_passes in range(1, N_PASSES + 1):
        training.run_epoch(AGGRESSIVENESS / square)
        mean += (weights - mean) / np.float32(n_passes)
    return mean


def image_rows(U: Matrix) -> Rows:
    """Return a view of image rows, dense or CSR, in the form for kernels."""
    csr: Any = U
    rows: Rows = sparse_rows(csr.data, csr.indices, csr.indptr) if sp.issparse(U) else dense_rows(U)
    return rows


def _bars(U: Matrix, V: Floats) -> Floats:
    """Return for each image the score of its tag on rank `BAR_RANK`, or of its last tag."""
    k = min(BAR_RANK, len(V))
    step = max(1, BLOCK_BYTES // (4 * len(V)))
    parts = [
        top_k(np.ascontiguousarray(U[start : start + step] @ V.T, np.float32), k)[1][:, -1]
        for start in range(0, U.shape[0], step)
    ]
    return np.concatenate(parts) if parts else np.empty(0, np.float32)
