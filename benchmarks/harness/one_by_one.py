"""Algorithm 1 of WSABIE pair by pair, without blocks: in one thread, or in several that take no turns.

The yardstick of the block-wise kernels. With one thread it is the algorithm as the paper states it; with several,
threads read and write the same weights without locks, so no two runs give the same bytes.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import scipy.sparse as sp
from numba import njit

from visterm.kernels.dot import dot
from visterm.kernels.prefetch import AHEAD, prefetch_row
from visterm.kernels.random import draw_below, stream_of
from visterm.kernels.row_moves import limit_norm


class OneByOne:
    """The state of one training, as that of the package but for the blocks.

    Parameters
    ----------
    X, own : csr_array
        Features (float32) and tags of the images; canonical.
    V, W : ndarray of float32
        Rows of features and of tags; changed in place.
    rate, max_norm, max_trials
        As in `Wsabie`, for features that are taken as they are.
    threads : int
    ahead : bool
        Whether it asks memory for the rows of later pairs, as the blocks do.
    """

    def __init__(
        self,
        X: sp.csr_array,
        own: sp.csr_array,
        V: np.ndarray,
        W: np.ndarray,
        *,
        rate: float,
        max_norm: float,
        max_trials: int,
        threads: int,
        ahead: bool = False,
    ) -> None:
        self._X = X.indptr.astype(np.int64), X.indices, X.data
        self._own = own.indptr.astype(np.int64), own.indices
        self._images = np.repeat(np.arange(own.shape[0]), np.diff(own.indptr))
        self._tags = own.indices.astype(np.int64)
        self._weights = V, W
        harmonic = np.cumsum(1 / np.arange(1, own.shape[1] + 1))
        self._rank_weights = np.concatenate([[0.0], harmonic]).astype(np.float32)
        self._settings = np.float32(rate), float(max_norm), int(max_trials), AHEAD if ahead else 0
        self._threads = threads

    def epoch(self, number: int, n_pairs: int | None = None) -> float:
        """Visit all pairs in random order (or some of them), each thread its share, and give the seconds."""
        rng = np.random.default_rng(number)

        def part(share: np.ndarray) -> int:
            found: int = _visit(
                share, self._images, self._tags, *self._X, *self._own, *self._weights, self._rank_weights,
                *self._settings, number,
            )  # fmt: skip
            return found

        with ThreadPoolExecutor(self._threads) as pool:
            start = time.perf_counter()
            order = rng.permutation(self._tags.size)[:n_pairs]
            list(pool.map(part, np.array_split(order, self._threads)))
            return time.perf_counter() - start


@njit(cache=True, nogil=True)
def _visit(
    order,
    images,
    tags,
    start,
    cols,
    vals,
    own_start,
    own_tags,
    V,
    W,
    rank_weights,
    rate,
    max_norm,
    max_trials,
    ahead,
    epoch,
):
    """Take the step of each pair as soon as it is drawn; give the number of draws."""
    n_tags, dim = W.shape
    u = np.empty(dim, np.float32)
    step = np.empty(dim, np.float32)
    n_draws = 0
    for place, example in enumerate(order):
        if place + ahead < order.shape[0] and ahead > 0:
            later = order[place + ahead]
            i = images[later]
            for e in range(start[i], min(start[i + 1], start[i] + ahead)):
                prefetch_row(V, cols[e])
            prefetch_row(W, tags[later])
            prefetch_row(W, _drawn(own_start, own_tags, i, n_tags, stream_of(0, epoch, later), 0))
        i, y = images[example], tags[example]
        u[:] = 0.0
        for e in range(start[i], start[i + 1]):
            row, value = V[cols[e]], vals[e]
            for c in range(dim):
                u[c] += value * row[c]
        candidates = n_tags - (own_start[i + 1] - own_start[i])
        true_score = dot(u, W[y])
        stream = stream_of(0, epoch, example)
        for n in range(min(candidates, max_trials)):
            drawn = _drawn(own_start, own_tags, i, n_tags, stream, n)
            n_draws += 1
            if dot(u, W[drawn]) <= true_score - np.float32(1.0):
                continue
            factor = rate * rank_weights[candidates // (n + 1)]
            for c in range(dim):
                step[c] = factor * (W[y, c] - W[drawn, c])
                W[y, c] += factor * u[c]
                W[drawn, c] -= factor * u[c]
            limit_norm(W[y], max_norm)
            limit_norm(W[drawn], max_norm)
            for e in range(start[i], start[i + 1]):
                row, value = V[cols[e]], vals[e]
                for c in range(dim):
                    row[c] += value * step[c]
                limit_norm(row, max_norm)
            break
    return n_draws


@njit(cache=True, nogil=True)
def _drawn(own_start, own_tags, i, n_tags, stream, n):
    """Return draw number n of the tags that image i does not have."""
    first, last = own_start[i], own_start[i + 1]
    drawn = draw_below(stream, n, n_tags - (last - first))
    for q in range(first, last):
        if own_tags[q] <= drawn:
            drawn += 1
    return drawn
