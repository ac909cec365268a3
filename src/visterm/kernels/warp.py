"""WARP: draw tags until one outranks the true tag, and weigh the step by how soon that happened."""

from __future__ import annotations

import numpy as np
from numba import njit

from visterm.kernels.random import draw_below, stream_of
from visterm.kernels.vectors import dot, limit_norm


def harmonic_weights(n):
    """Give L(0) .. L(n) with L(k) = 1 + 1/2 + ... + 1/k (WSABIE, Eq. 5), float32, shape (n + 1,)."""
    return np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, n + 1))]).astype(np.float32)


@njit(cache=True, nogil=True)
def draw_violators(
    examples, images, tags, own_start, own_tags, U, W, scores, rank_weights, max_trials, seed, epoch, rate,
    violators, trials, steps,
):  # fmt: skip
    """Run the inner loop of Algorithm 1 on a block of examples against frozen weights.

    For each example (x, y): draw tags ȳ uniformly, with replacement, among those that the image does not have, until
    f_ȳ(x) > f_y(x) - 1 or the draws are used up. After N draws the rank is estimated as floor(candidates / N), and the
    step of the image's side is ``rate · L(rank) · (W_y - W_ȳ)``.

    Parameters
    ----------
    examples : ndarray of int64, shape (n,)
        Numbers of the examples: they key the draws.
    images, tags : ndarray of int64, shape (n,)
        The image (row of `own_start`) and the true tag of each.
    own_start : ndarray of int64, shape (n_images + 1,)
    own_tags : ndarray of int32 or int64
        ``own_tags[own_start[i]:own_start[i + 1]]`` are the tags that image i has, sorted.
    U : ndarray of float32, shape (n, dim)
        Embedded images, one for each example.
    W : ndarray of float32, shape (n_tags, dim)
    scores : ndarray of float32, shape (n, n_tags) or (n, 0)
        U · Wᵀ where that was cheaper to have at once; with no columns, each score is computed when drawn.
    rank_weights : ndarray of float32, shape (n_tags + 1,)
        L(k) of each rank.
    max_trials : int
        At most so many draws (and at most the number of candidates).
    seed, epoch : int
    rate : float
        Learning rate.
    violators : ndarray of int64, shape (n,)
        Overwritten: ȳ, or -1 where no violator was found.
    trials : ndarray of int64, shape (n,)
        Overwritten: N.
    steps : ndarray of float32, shape (n, dim)
        Overwritten where there is a violator.

    Returns
    -------
    float
        The sum of the losses L(rank) · (1 - f_y + f_ȳ) of the violators found.
    """
    n_tags, dim = W.shape
    table = scores.shape[1] == n_tags
    loss = 0.0
    for p in range(examples.shape[0]):
        first, last = own_start[images[p]], own_start[images[p] + 1]
        candidates = n_tags - (last - first)
        limit = min(candidates, max_trials)
        y = tags[p]
        true_score = scores[p, y] if table else dot(U[p], W[y])
        stream = stream_of(seed, epoch, examples[p])
        violators[p] = -1
        n = 0
        while n < limit:
            drawn = _absent_tag(own_tags, first, last, draw_below(stream, n, candidates))
            score = scores[p, drawn] if table else dot(U[p], W[drawn])
            n += 1
            if score > true_score - np.float32(1.0):
                violators[p] = drawn
                weight = rank_weights[candidates // n]
                loss += weight * (1.0 - true_score + score)
                factor = np.float32(rate) * weight
                for c in range(dim):
                    steps[p, c] = factor * (W[y, c] - W[drawn, c])
                break
        trials[p] = n
    return loss


@njit(cache=True, nogil=True)
def add_tag_steps(tags, violators, trials, images, own_start, U, rank_weights, rate, max_norm, first, last, W):
    """Take the steps of a block on the tags' side, then bring the tags that moved back under the norm limit.

    ``W_y += rate · L(rank) · u`` and ``W_ȳ -= rate · L(rank) · u`` for the tags first .. last-1, in the order of the
    examples. Threads with ranges of tags that do not meet change different rows.

    Parameters
    ----------
    tags, violators, trials, images, own_start, U, rank_weights, rate
        As `draw_violators` took and left them.
    max_norm : float
        Limit of each row's Euclidean norm.
    first, last : int
        The range of tags.
    W : ndarray of float32, shape (n_tags, dim)
        Rows first .. last-1 are changed.
    """
    n_tags, dim = W.shape
    for p in range(tags.shape[0]):
        if violators[p] < 0:
            continue
        candidates = n_tags - (own_start[images[p] + 1] - own_start[images[p]])
        factor = np.float32(rate) * rank_weights[candidates // trials[p]]
        y = tags[p]
        if first <= y < last:
            for c in range(dim):
                W[y, c] += factor * U[p, c]
        y = violators[p]
        if first <= y < last:
            for c in range(dim):
                W[y, c] -= factor * U[p, c]
    for p in range(tags.shape[0]):
        if violators[p] >= 0:
            if first <= tags[p] < last:
                limit_norm(W[tags[p]], max_norm)
            if first <= violators[p] < last:
                limit_norm(W[violators[p]], max_norm)


@njit(cache=True, nogil=True)
def _absent_tag(own_tags, first, last, r):
    """Give the tag number r, counted from 0, among those that are not in the sorted ``own_tags[first:last]``.

    It is r + c, where c counts the own tags that come before it: those at position q with own_tags[q] - q ≤ r.
    """
    low, high = first, last
    while low < high:
        middle = (low + high) // 2
        if own_tags[middle] - (middle - first) <= r:
            low = middle + 1
        else:
            high = middle
    return r + (low - first)
