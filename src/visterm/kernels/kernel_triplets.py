"""PAMIR's steps where images are known only by a kernel: weights of training images instead of weights of features."""

from __future__ import annotations

import numpy as np
from numba import njit

from visterm.kernels.random import stream_of
from visterm.kernels.triplets import draw_triplet

ALIKE = 1e-6
"""Squared distances below this share of the squared lengths are the rounding of a float32 kernel."""


@njit(cache=True, nogil=True)
def rank_triplets_by_kernel(
    n_steps, q_start, q_words, q_weights, r_start, r_images, K, images, scale, aggressiveness, seed, epoch, A, F
):
    """Draw triplets (q, p+, p-) as `rank_triplets` does, and make its steps on expansions ``w_t = Σ_j A[t, j] p_j``.

    Section III-E of the PAMIR paper: a step ``w_t += τ q_t (p+ - p-)`` adds ``τ q_t`` to the weight of p+ and takes as
    much from that of p-, and ``|p+ - p-|² = k(p+, p+) + k(p-, p-) - 2 k(p+, p-)``. The scores of all images for all
    words, ``F = A K``, are kept up to date, so that a triplet that makes no step costs next to nothing. Images at a
    squared distance that is 0, rounding, or below 0 (the kernel is then none of Mercer's) make no step.

    Parameters
    ----------
    n_steps, q_start, q_words, q_weights, r_start, r_images, aggressiveness, seed, epoch
        As for `rank_triplets`; the images are those of `images`, by their place there.
    K : ndarray of float32, shape (n, n)
        C-contiguous and symmetric.
    images : ndarray of int64
        The rows of K that are learned from; the others have a score, and never a weight.
    scale : float
        The kernel is `scale` times K.
    A : ndarray of float32, shape (n_words, at least n)
        Changed in the columns of `images`.
    F : ndarray of float32, shape (n_words, n)
        Changed: ``scale · A K``.

    Returns
    -------
    total : float
        Sum of the losses.
    n_moved : int
        Triplets that made a step.
    """
    stream = stream_of(seed, epoch, 0)
    total = 0.0
    n_moved = 0
    if r_start.shape[0] < 2:
        return total, n_moved
    for step in range(n_steps):
        query, p, m = draw_triplet(stream, step, r_start, r_images, images.shape[0])
        plus, minus = images[p], images[m]
        first, last = q_start[query], q_start[query + 1]
        score = 0.0
        length = 0.0
        for e in range(first, last):
            weight = np.float64(q_weights[e])
            score += weight * (np.float64(F[q_words[e], plus]) - np.float64(F[q_words[e], minus]))
            length += weight * weight
        loss = 1.0 - score
        if not loss > 0:
            continue
        total += loss
        lengths = np.float64(K[plus, plus]) + np.float64(K[minus, minus])
        square = lengths - 2.0 * np.float64(K[plus, minus])
        if not square * length > ALIKE * abs(lengths) * length:
            continue
        n_moved += 1
        size = min(aggressiveness, loss / (length * scale * square))
        for e in range(first, last):
            factor = size * q_weights[e]
            weights = A[q_words[e]]
            weights[plus] += np.float32(factor)
            weights[minus] -= np.float32(factor)
            _add_difference(K[plus], K[minus], np.float32(factor * scale), F[q_words[e]])
    return total, n_moved


@njit(cache=True, nogil=True)
def _add_difference(a, b, factor, out):
    """Add `factor` times ``a - b`` to a vector, in place; all float32."""
    for j in range(out.shape[0]):
        out[j] += factor * (a[j] - b[j])
