"""Rows with their ids in arrays, in memory or memory-mapped: dense ones streamed, sparse ones block by block."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from visterm.core.products import merged, top_k_products
from visterm.core.types import Matrix, Ranking
from visterm.kernels.topk import top_k
from visterm.store.any_part import AnyPart, Candidates

BLOCK_BYTES = 2**24
"""Scores held at a time, of some queries and some sparse rows."""


class Part(AnyPart):
    """Rows with ids, in memory or memory-mapped.

    Parameters
    ----------
    ids : ndarray of int64, shape (n,)
        None of the visible ones twice.
    rows : array or CSR, shape (n, width)
    hidden : ndarray of int64
        Places of rows that no search finds, ascending.
    index : Candidates, optional
        Of dense rows.
    """

    def __init__(
        self,
        ids: NDArray[np.int64],
        rows: Matrix,
        hidden: NDArray[np.int64] | None = None,
        index: Candidates | None = None,
    ) -> None:
        super().__init__(ids, hidden, index)
        self.rows = rows

    def take(self, places: NDArray[np.int64]) -> Matrix:
        """Return the rows at some places, in that order."""
        return self.rows[places]

    def products(self, Q: NDArray[np.float32], places: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
        """Return the products of rows (None: of all visible ones) with a few queries, shape (n_rows, n_queries)."""
        if places is None and len(self.hidden):
            places = self.visible
        rows = self.rows if places is None else self.rows[places]
        return np.asarray(rows @ Q.T, np.float32)

    def _best_places(self, Q: NDArray[np.float32], k: int, places: NDArray[np.int64] | None) -> Ranking:
        if k == 0:
            return Ranking(np.empty((len(Q), 0), np.int64), np.empty((len(Q), 0), np.float32))
        if not isinstance(self.rows, np.ndarray):
            return self._best_sparse(Q, k, places)
        return top_k_products(Q, self.rows, k, among=places)

    def _best_sparse(self, Q: NDArray[np.float32], k: int, places: NDArray[np.int64] | None) -> Ranking:
        step = max(1, BLOCK_BYTES // (4 * len(Q)))
        n = len(self.ids) if places is None else len(places)
        parts = []
        for start in range(0, n, step):
            if places is None:
                block = self.rows if n <= step else self.rows[start : start + step]
                numbers = np.arange(start, start + block.shape[0])
            else:
                numbers = places[start : start + step]
                block = self.rows[numbers]
            found, best = top_k(np.ascontiguousarray((block @ Q.T).T), min(k, block.shape[0]))
            parts.append(Ranking(numbers[found], best))
        return merged(parts, k)
