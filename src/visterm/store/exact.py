"""Exact search: every row is compared with the query, block by block, in memory or memory-mapped."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.errors import DataError
from visterm.core.products import top_k_products
from visterm.core.types import Matrix, Ranking
from visterm.kernels.topk import top_k
from visterm.store.base import Store

BLOCK_BYTES = 2**24
"""Scores held at a time, of some queries and some sparse rows."""

QUERY_BLOCK = 64


class ExactStore(Store):
    """Keeps rows as they come, dense or CSR, and compares each with the query.

    Only the best are kept, of dense rows as they are scored and of sparse ones block by block. Rows in a memory map are
    read from there, search after search.
    """

    def __init__(self) -> None:
        self._segments: list[tuple[NDArray[np.int64], Matrix]] = []
        self._length = 0
        self._width: int | None = None

    def __len__(self) -> int:
        return self._length

    @property
    def width(self) -> int | None:
        """Columns of the rows; None before the first `add`."""
        return self._width

    def _add(self, ids: NDArray[np.int64], U: Matrix) -> None:
        for there, _ in self._segments:
            twice = np.intersect1d(ids, there, assume_unique=True)
            if twice.size:
                raise DataError(f"The id {twice[0]} is in the store already ({twice.size} of the ids given are).")
        if (np.diff(ids) < 0).any():  # rows in the order of their ids: equal scores then fall to the smaller id
            order = np.argsort(ids)
            ids, U = ids[order], U[order]
        self._segments.append((ids, U))
        self._length += len(ids)
        self._width = U.shape[1]

    def _search(self, Q: Matrix, k: int) -> Ranking:
        found = Ranking(np.empty((Q.shape[0], k), np.int64), np.empty((Q.shape[0], k), np.float32))
        if k:
            for start in range(0, Q.shape[0], QUERY_BLOCK):
                queries = slice(start, start + QUERY_BLOCK)
                block = Q[queries]
                dense = block.toarray() if isinstance(block, sp.csr_array) else block
                found.ids[queries], found.scores[queries] = self._best(dense, k)
        return found

    def _best(self, q: NDArray[np.float32], k: int) -> Ranking:
        """Find the best of a few queries: the best of each block hold the best of all."""
        step = max(1, BLOCK_BYTES // (4 * q.shape[0]))
        parts: list[Ranking] = []
        for ids, U in self._segments:
            if isinstance(U, np.ndarray):
                places, best = top_k_products(q, U, min(k, len(ids)))
                parts.append(Ranking(ids[places], best))
                continue
            for start in range(0, len(ids), step):
                block = U if len(ids) <= step else U[start : start + step]
                places, best = top_k(np.ascontiguousarray((block @ q.T).T), min(k, block.shape[0]))
                parts.append(Ranking(ids[start : start + step][places], best))
        if len(parts) == 1:
            return parts[0]
        ids_found = np.concatenate([part.ids for part in parts], axis=1)
        scores_found = np.concatenate([part.scores for part in parts], axis=1)
        order = np.lexsort((ids_found, -scores_found), axis=1)[:, :k]
        return Ranking(np.take_along_axis(ids_found, order, 1), np.take_along_axis(scores_found, order, 1))
