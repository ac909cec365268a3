"""PAMIR's passive-aggressive steps on triplets in the dual form: weights of training images, with all their scores."""

from __future__ import annotations

import numpy as np
from numba import njit

from visterm.kernels import MIN_DISTANCE_SHARE, draw_triplet, stream_of


@njit(cache=True, nogil=True)
def rank_triplets_by_kernel(n_steps, queries, K, images, scale, aggressiveness, key, W, F):
    """Draw triplets and take steps like `rank_triplets`, on expansions ``w_t = Σ_j W[t, j] p_j``.

    Section III-E of the PAMIR paper: a step ``w_t += τ q_t (p+ - p-)`` adds ``τ q_t`` to the weight of p+ and subtracts
    it from the weight of p-, and ``|p+ - p-|² = k(p+, p+) + k(p-, p-) - 2 k(p+, p-)``. The scores of all images for all
    words, ``F = W K``, are kept up to date, so a triplet that makes no step costs almost nothing. Two images make no
    step if their squared distance is 0, a rounding error, or negative (if K is not a Mercer kernel).

    The kernel is `scale` times `K`, float32 (n, n), C-contiguous and symmetric. `images`, int64, are the rows of K to
    learn from, and queries refer to positions in `images`; other images have scores but no weights. Changes `W`,
    float32 (n_words, at least n), in the columns of `images`, and ``F = scale · W K``, float32 (n_words, n). Returns
    the same as `rank_triplets`.
    """
    q_start, q_words, q_weights, r_start, r_images = queries
    stream = stream_of(key[0], key[1], 0)
    total = 0.0
    n_moved = 0
    if r_start.shape[0] < 2:
        return total, n_moved

    for step in range(n_steps):
        query, p, m = draw_triplet(stream, step, r_start, r_images, images.shape[0])
        plus, minus = images[p], images[m]
        first, stop = q_start[query], q_start[query + 1]
        score = 0.0
        query_square = 0.0
        for e in range(first, stop):
            weight = np.float64(q_weights[e])
            score += weight * (np.float64(F[q_words[e], plus]) - np.float64(F[q_words[e], minus]))
            query_square += weight * weight
        loss = 1.0 - score
        if not loss > 0:
            continue
        total += loss
        image_squares = np.float64(K[plus, plus]) + np.float64(K[minus, minus])
        square = image_squares - 2.0 * np.float64(K[plus, minus])
        if not square * query_square > MIN_DISTANCE_SHARE * abs(image_squares) * query_square:
            continue
        n_moved += 1
        step_size = min(aggressiveness, loss / (query_square * scale * square))
        for e in range(first, stop):
            factor = step_size * q_weights[e]
            word_weights = W[q_words[e]]
            word_weights[plus] += np.float32(factor)
            word_weights[minus] -= np.float32(factor)
            _add_difference(K[plus], K[minus], np.float32(factor * scale), F[q_words[e]])
    return total, n_moved


@njit(cache=True, nogil=True)
def _add_difference(a, b, factor, out):
    """Add `factor` times ``a - b`` to a vector, in place; all float32."""
    for j in range(out.shape[0]):
        out[j] += factor * (a[j] - b[j])
