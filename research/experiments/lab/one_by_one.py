"""Algorithm 1 of WSABIE pair by pair, without blocks: in one thread, or in several that take no turns.

The yardstick of the block-wise kernels. With one thread it is the algorithm as the paper states it; with several,
threads read and write the same weights without locks, so no two runs give the same bytes.
"""

from __future__ import annotations

import math
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import scipy.sparse as sp
from numba import njit

from visterm.kernels.dot import ROWS_AHEAD, add_at, dot_at, prefetch_row
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
        Whether it asks memory for the rows and the lists of tags of later pairs, as the blocks do.

    Raises
    ------
    ValueError
        If the rows of features and of tags are not of one width, as with a bias.
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
        if V.shape[1] != W.shape[1]:
            raise ValueError(f"V is {V.shape[1]} wide and W {W.shape[1]}: expected one width. Train without a bias.")
        self._X = X.indptr.astype(np.int64), X.indices, X.data
        self._own = own.indptr.astype(np.int64), own.indices
        self._images = np.repeat(np.arange(own.shape[0]), np.diff(own.indptr))
        self._tags = own.indices.astype(np.int64)
        self._weights = V, W
        harmonic = np.cumsum(1 / np.arange(1, own.shape[1] + 1))
        self._rank_weights = np.concatenate([[0.0], harmonic]).astype(np.float32)
        self._settings = np.float32(rate), float(max_norm), int(max_trials), ROWS_AHEAD if ahead else 0
        self._threads = threads

    def epoch(self, number: int, n_pairs: int | None = None) -> float:
        """Visit all pairs in random order, or some of them, each thread its share; return the seconds.

        `processor` is set to the seconds of all threads together.
        """
        rng = np.random.default_rng(number)

        def part(share: np.ndarray) -> tuple[int, int]:
            found: tuple[int, int] = _visit(
                share, self._images, self._tags, *self._X, *self._own, *self._weights, self._rank_weights,
                *self._settings, number,
            )  # fmt: skip
            return found

        with ThreadPoolExecutor(self._threads) as pool:
            start, clock = time.perf_counter(), time.process_time()
            order = rng.permutation(self._tags.size)[:n_pairs]
            list(pool.map(part, np.array_split(order, self._threads)))
            self.processor = time.process_time() - clock
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
    """Take the step of each pair as soon as it is drawn.

    Returns the number of draws, and what keeps the compiler from leaving `touched` out.
    """
    n_tags, dim = W.shape
    u = np.empty(dim, np.float32)
    step = np.empty(dim, np.float32)
    n_draws = touched = 0
    for place, example in enumerate(order):
        if place + 4 * ahead < order.shape[0] and ahead > 0:
            later = order[place + 4 * ahead]
            touched ^= own_tags[own_start[images[later]]] ^ tags[later]
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
            add_at(u, 0, V, cols[e] * dim, dim, vals[e])
        candidates = n_tags - (own_start[i + 1] - own_start[i])
        true_score = dot_at(u, 0, W, y * dim, dim)
        stream = stream_of(0, epoch, example)
        for n in range(min(candidates, max_trials)):
            drawn = _drawn(own_start, own_tags, i, n_tags, stream, n)
            n_draws += 1
            if dot_at(u, 0, W, drawn * dim, dim) <= true_score - np.float32(1.0):
                continue
            factor = rate * rank_weights[candidates // (n + 1)]
            for c in range(dim):
                step[c] = factor * (W[y, c] - W[drawn, c])
            add_at(W, y * dim, u, 0, dim, factor)
            add_at(W, drawn * dim, u, 0, dim, -factor)
            _limit(W, y, max_norm)
            _limit(W, drawn, max_norm)
            for e in range(start[i], start[i + 1]):
                add_at(V, cols[e] * dim, step, 0, dim, vals[e])
                _limit(V, cols[e], max_norm)
            break
    return n_draws, touched


@njit(cache=True, nogil=True)
def _limit(matrix, row, max_norm):
    width = matrix.shape[1]
    if math.sqrt(dot_at(matrix, row * width, matrix, row * width, width)) > max_norm:
        limit_norm(matrix[row], max_norm)


@njit(cache=True, nogil=True)
def _drawn(own_start, own_tags, i, n_tags, stream, n):
    """Return draw number n of the tags that image i does not have."""
    first, last = own_start[i], own_start[i + 1]
    drawn = draw_below(stream, n, n_tags - (last - first))
    for q in range(first, last):
        if own_tags[q] <= drawn:
            drawn += 1
    return drawn
