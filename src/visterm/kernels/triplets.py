"""Passive-aggressive steps on triplets: a query, an image relevant to it, and one that is not (PAMIR)."""

from __future__ import annotations

import numpy as np
from numba import njit

from visterm.kernels.lanes import dot
from visterm.kernels.own import absent
from visterm.kernels.random import draw_below, stream_of
from visterm.kernels.rows import add_row, row_length, row_of

DRAWS = 3
"""Draws of a step: the query, the relevant image, the other."""


@njit(cache=True, nogil=True)
def draw_triplet(stream, step, r_start, r_images, n_images):
    """Draw a query, then an image relevant to it, then one that is not, each uniformly.

    Parameters
    ----------
    stream : uint64
        From `stream_of`.
    step : int
        Which triplet, 0 or more.
    r_start : ndarray of int64, shape (n_queries + 1,)
    r_images : ndarray of int32 or int64
        ``r_images[r_start[q]:r_start[q + 1]]`` are the images relevant to query q, sorted: some, but not all.
    n_images : int

    Returns
    -------
    tuple of int
        Query, relevant image, other image.
    """
    query = draw_below(stream, DRAWS * step, r_start.shape[0] - 1)
    first, last = r_start[query], r_start[query + 1]
    plus = np.int64(r_images[first + draw_below(stream, DRAWS * step + 1, last - first)])
    minus = absent(r_images, first, last, draw_below(stream, DRAWS * step + 2, n_images - (last - first)))
    return query, plus, np.int64(minus)


@njit(cache=True, nogil=True)
def rank_triplets(
    n_steps, q_start, q_words, q_weights, r_start, r_images, rows, n_images, aggressiveness, seed, epoch, W, scratch
):
    """Draw triplets (q, p+, p-) and make q score p+ above p- by 1, one after the other (PAMIR, Eq. 10).

    With ``v = γ(q, p+) - γ(q, p-)``, whose part of word t is ``q_t (p+ - p-)``, and the loss
    ``l = |1 - w · v|₊``, the step is ``w += τ v``, ``τ = min(aggressiveness, l / |v|²)``. Only the rows of the query's
    words are touched. Images that are alike to the last number cannot be told apart, and make no step.

    Parameters
    ----------
    n_steps : int
        Triplets.
    q_start : ndarray of int64, shape (n_queries + 1,)
    q_words : ndarray of int32 or int64
        ``q_words[q_start[q]:q_start[q + 1]]`` are the words of query q, below n_words, no word twice.
    q_weights : ndarray of float32
        Their weights.
    r_start, r_images
        As for `draw_triplet`; images below n_images.
    rows : Rows
        Image rows, of the width of W.
    n_images : int
    aggressiveness : float
        Longest step τ.
    seed, epoch : int
    W : ndarray of float32, shape (n_words, width)
        Changed.
    scratch : ndarray of float32, shape (width,)
        Overwritten.

    Returns
    -------
    total : float
        Sum of the losses.
    n_moved : int
        Triplets that made a step.
    """
    width = W.shape[1]
    stream = stream_of(seed, epoch, 0)
    total = 0.0
    n_moved = 0
    if r_start.shape[0] < 2:
        return total, n_moved
    for step in range(n_steps):
        query, plus, minus = draw_triplet(stream, step, r_start, r_images, n_images)
        first, last = q_start[query], q_start[query + 1]
        full = row_length(rows, plus) == width and row_length(rows, minus) == width
        score = np.float32(0.0)
        length = np.float32(0.0)
        if full:
            _put_difference(rows, plus, minus, scratch)
            for e in range(first, last):
                score += q_weights[e] * dot(scratch, W[q_words[e]])
        else:
            for e in range(first, last):
                score += q_weights[e] * _difference_dot(rows, plus, minus, W[q_words[e]])
        loss = 1.0 - np.float64(score)
        if loss > 0:
            for e in range(first, last):
                length += q_weights[e] * q_weights[e]
            square = dot(scratch, scratch) if full else difference_square(rows, plus, minus, scratch)
            square = np.float64(length) * np.float64(square)
            total += loss
            if square > 0:
                n_moved += 1
                size = min(aggressiveness, loss / square)
                for e in range(first, last):
                    factor = np.float32(size * q_weights[e])
                    add_row(rows, plus, factor, W[q_words[e]])
                    add_row(rows, minus, -factor, W[q_words[e]])
    return total, n_moved


@njit(cache=True, nogil=True)
def _put_difference(rows, plus, minus, out):
    """Overwrite `out` with row `plus` minus row `minus`, both without gaps."""
    a = rows.vals[rows.start[plus] : rows.start[plus + 1]]
    b = rows.vals[rows.start[minus] : rows.start[minus + 1]]
    for c in range(out.shape[0]):
        out[c] = a[c] - b[c]


@njit(cache=True, nogil=True)
def _difference_dot(rows, plus, minus, weights):
    """Multiply row `plus` minus row `minus` by a float32 vector: four sums side by side, so that none waits long.

    A signed column would be asked at every turn whether it counts from the end; the casts halve the time.
    """
    a_cols, a_vals = row_of(rows, plus)
    b_cols, b_vals = row_of(rows, minus)
    a0 = a1 = b0 = b1 = np.float32(0.0)
    n_pairs = min(a_vals.shape[0], b_vals.shape[0]) // 2
    for p in range(n_pairs):
        e = 2 * p
        a0 += a_vals[e] * weights[np.uint64(a_cols[e])]
        b0 += b_vals[e] * weights[np.uint64(b_cols[e])]
        a1 += a_vals[e + 1] * weights[np.uint64(a_cols[e + 1])]
        b1 += b_vals[e + 1] * weights[np.uint64(b_cols[e + 1])]
    for e in range(2 * n_pairs, a_vals.shape[0]):
        a0 += a_vals[e] * weights[np.uint64(a_cols[e])]
    for e in range(2 * n_pairs, b_vals.shape[0]):
        b0 += b_vals[e] * weights[np.uint64(b_cols[e])]
    return (a0 + a1) - (b0 + b1)


@njit(cache=True, nogil=True)
def difference_square(rows, plus, minus, scratch):
    """Return the squared length of row `plus` minus row `minus`: exactly 0 where they are alike."""
    a_cols, a_vals = row_of(rows, plus)
    b_cols, b_vals = row_of(rows, minus)
    for e in range(b_vals.shape[0]):
        scratch[np.uint64(b_cols[e])] = 0.0
    for e in range(a_vals.shape[0]):
        scratch[np.uint64(a_cols[e])] = a_vals[e]
    for e in range(b_vals.shape[0]):
        scratch[np.uint64(b_cols[e])] -= b_vals[e]
    total = np.float32(0.0)
    for cols in (a_cols, b_cols):
        for e in range(cols.shape[0]):
            c = np.uint64(cols[e])
            total += scratch[c] * scratch[c]
            scratch[c] = 0.0  # columns that both rows have count once
    return total
