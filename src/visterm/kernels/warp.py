"""WARP: draw tags until one outranks the true tag."""

from __future__ import annotations

import numpy as np
from numba import njit

from visterm.kernels.lanes import dot
from visterm.kernels.own import absent, is_own
from visterm.kernels.random import draw_below, stream_of
from visterm.kernels.rows import row_dot


@njit(cache=True, nogil=True)
def draw_violators(
    examples, images, tags, own_start, own_tags, rows, at, W, pool, pool_scores, margin, max_trials, seed, epoch,
    violators, trials, gaps,
):  # fmt: skip
    """Run the inner loop of Algorithm 1 on a block of examples against frozen weights.

    For each example (x, y): draw tags ȳ uniformly, with replacement, among those that the image does not have, until
    f_ȳ(x) > f_y(x) - margin or the draws are used up.

    The draws may come from a pool of tags drawn uniformly for many examples together, so that their scores are one
    matrix product. Each example reads the pool from a place of its own, passes over the tags that its image has, and
    goes on with draws of its own where the pool ends: what it sees are independent uniform draws, as without a pool.
    Only between examples that share a pool are they not independent.

    Parameters
    ----------
    examples : ndarray of int64, shape (n,)
        Numbers of the examples: they key the draws.
    images, tags : ndarray of int64, shape (n,)
        The image (row of `own_start`) and the true tag of each.
    own_start : ndarray of int64, shape (n_images + 1,)
    own_tags : ndarray of int32 or int64
        ``own_tags[own_start[i]:own_start[i + 1]]`` are the tags that image i has, sorted.
    rows : Rows
        Image rows u, of the width of W.
    at : ndarray of int64, shape (n,)
        Which of the rows is that of each example.
    W : ndarray of float32, shape (n_tags, width)
    pool : ndarray of int64, shape (m,)
        Tags, drawn uniformly among all; may be empty.
    pool_scores : ndarray of float32, shape (n, m)
        Scores of the pool's tags.
    margin : float
        1 for the hinge; infinite takes the first draw, whatever its score.
    max_trials : int
        At most so many draws (and at most the number of candidates).
    seed, epoch : int
    violators : ndarray of int64, shape (n,)
        Overwritten: ȳ, or -1 where no violator was found.
    trials : ndarray of int64, shape (n,)
        Overwritten: N, the number of draws.
    gaps : ndarray of float32, shape (n,)
        Overwritten where there is a violator: f_y - f_ȳ.
    """
    n_tags = W.shape[0]
    m = pool.shape[0]
    for p in range(examples.shape[0]):
        first, last = own_start[images[p]], own_start[images[p] + 1]
        candidates = n_tags - (last - first)
        limit = min(candidates, max_trials)
        y = tags[p]
        u = rows.vals[rows.start[at[p]] : rows.start[at[p] + 1]]
        whole = u.shape[0] == W.shape[1]
        true_score = dot(u, W[y]) if whole else row_dot(rows, at[p], W[y])
        least = true_score - np.float32(margin)
        stream = stream_of(seed, epoch, examples[p])
        violators[p] = -1
        n = 0
        if m > 0:
            place = draw_below(stream, max_trials, m)
            for _ in range(m):
                if n == limit:
                    break
                if pool_scores[p, place] > least:
                    if not is_own(own_tags, first, last, pool[place]):
                        n += 1
                        violators[p] = pool[place]
                        gaps[p] = true_score - pool_scores[p, place]
                        break
                elif not is_own(own_tags, first, last, pool[place]):
                    n += 1
                place += 1
                if place == m:
                    place = 0
        while n < limit and violators[p] < 0:
            drawn = absent(own_tags, first, last, draw_below(stream, n, candidates))
            score = dot(u, W[drawn]) if whole else row_dot(rows, at[p], W[drawn])
            n += 1
            if score > least:
                violators[p] = drawn
                gaps[p] = true_score - score
        trials[p] = n
