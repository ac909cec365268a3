"""Epochs in which each tag is trained for itself, its images against others: in parallel over the tags."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.threads import Team
from visterm.kernels.passive_aggressive import separate_in_turn
from visterm.kernels.rows import Rows, row_squares
from visterm.models.ranking.feature_steps import Floats
from visterm.models.ranking.pair_training import EpochSums

SHARES = 64
"""Parts that the tags fall into, so that a thread with frequent tags does not hold up the others."""


class SeparateTraining:
    """The state of one training of a linear scorer a tag, by passive-aggressive steps.

    Parameters
    ----------
    rows : Rows
        Image rows.
    own : csr_array, shape (n_images, n_tags)
        Stored entries are the tags that images have; canonical.
    tag_rows : ndarray of float32, shape (n_tags, width)
        Changed in place.
    offsets : ndarray of float32, shape (n_images,)
        The score from which on a tag counts as given.
    n_negatives : int
        Images without the tag that follow each image with it.
    max_norm : float
        Longest row; may be infinite.
    rng : Generator
    team : Team

    Attributes
    ----------
    squares : ndarray of float32, shape (n_images,)
        Squared lengths of the image rows.
    """

    def __init__(
        self,
        rows: Rows,
        own: sp.csr_array,
        tag_rows: Floats,
        *,
        offsets: Floats,
        n_negatives: int,
        max_norm: float,
        rng: np.random.Generator,
        team: Team,
    ) -> None:
        self._rows, self._W, self._offsets, self._team = rows, tag_rows, offsets, team
        self._n_negatives, self._max_norm = n_negatives, max_norm
        by_tag = sp.csr_array(own.T)
        by_tag.sort_indices()
        self._start, self._members = by_tag.indptr.astype(np.int64), by_tag.indices
        self.squares = np.empty(own.shape[0], np.float32)
        row_squares(rows, self.squares)
        self._sums = np.empty((own.shape[1], 3))
        self._bounds = np.linspace(0, own.shape[1], min(SHARES, own.shape[1]) + 1).astype(np.int64)
        self._seed = int(rng.integers(2**62))
        self._epoch = 0

    def run_epoch(self, rate: float) -> EpochSums:
        """Visit every pair once, with others beside it; `rate` is the longest step."""

        def part(number: int) -> None:
            separate_in_turn(
                self._bounds[number], self._bounds[number + 1], self._start, self._members, self._rows, self.squares,
                self._offsets, self._n_negatives, rate, self._max_norm, self._seed, self._epoch, self._W, self._sums,
            )  # fmt: skip

        self._team.run(part, len(self._bounds) - 1)
        self._epoch += 1
        loss, examples, steps = (float(value) for value in self._sums.sum(axis=0))
        examples = max(1.0, examples)
        return EpochSums(loss / examples, 1.0, steps / examples)

    def carried(self) -> dict[str, NDArray[Any]]:
        """Return what training on other rows shall go on with: nothing but the weights."""
        return {}

    def go_on(self, carried: dict[str, NDArray[Any]]) -> None:
        """Take over nothing."""
