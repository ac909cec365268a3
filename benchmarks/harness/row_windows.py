"""Rows in memory as one of several workers learns from them: its share, a window an epoch."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

import numpy as np
import scipy.sparse as sp

from visterm.core.types import Matrix
from visterm.models.ranking.base import positive_tags


class RowWindows:
    """A share of some images, drawn by a seed: what `fit_stream` learns from where features need no stream.

    Parameters
    ----------
    X : array or CSR, shape (n_images, n_features)
        All images, of all workers.
    Y : csr_array, shape (n_images, n_tags)
    rank, n_workers : int
        Which share, of how many.
    seed : int
        The same for all workers.
    """

    def __init__(self, X: Matrix, Y: sp.csr_array, rank: int = 0, n_workers: int = 1, seed: int = 0) -> None:
        values: Any = X.data if sp.issparse(X) else X
        self.n_features, self.n_tags = X.shape[1], Y.shape[1]
        self.n_pairs = int(positive_tags(Y).nnz)
        self.mean_length = math.sqrt(float(np.square(values, dtype=np.float64).sum()) / max(1, X.shape[0]))
        mine = np.sort(np.random.default_rng(seed).permutation(X.shape[0])[rank::n_workers])
        self._rows = X[mine], sp.csr_array(Y[mine])

    def n_windows(self, epoch: int) -> int:
        """Return 1: all rows are there at once."""
        return 1

    def epoch(self, epoch: int, first: int = 0) -> Generator[tuple[Matrix, sp.csr_array]]:
        """Yield the one window, unless it was seen."""
        if first == 0:
            yield self._rows
