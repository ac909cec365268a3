"""OWPC: the exact rank of the true tag, and a step for every tag that is within its margin."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def weigh_all(tags, images, own_start, own_tags, rank_weights, scores, violators, trials):
    """Turn the scores of a block into the factors of Eq. 6: each violator weighs L(rank) / rank, the true tag L(rank).

    The rank of y counts the tags ȳ that the image does not have with 1 + f_ȳ(x) > f_y(x) (Eq. 7).

    Parameters
    ----------
    tags, images, own_start, own_tags
        As for `draw_violators`.
    rank_weights : ndarray of float32, shape (n_tags + 1,)
        L(k) of each rank.
    scores : ndarray of float32, shape (n, n_tags)
        Scores; overwritten by the factors: L(rank) at y, -L(rank) / rank at its violators, else 0.
    violators : ndarray of int64, shape (n,)
        Overwritten: the rank, or -1 where nothing violates.
    trials : ndarray of int64, shape (n,)
        Overwritten: the candidates, all of which were scored.

    Returns
    -------
    total : float
        Sum over the examples of Eq. 6.
    n_trials : int
    n_steps : int
        Examples with a violator.

    References
    ----------
    Weston, Bengio, Usunier 2010, Eqs. 6 and 7.
    """
    n_tags = scores.shape[1]
    total = 0.0
    n_trials = n_steps = 0
    for p in range(tags.shape[0]):
        first, last = own_start[images[p]], own_start[images[p] + 1]
        row = scores[p]
        true_score = row[tags[p]]
        rank = 0
        excess = 0.0
        q = first
        for t in range(n_tags):
            if q < last and own_tags[q] == t:
                q += 1
                row[t] = 0.0
                continue
            hinge = np.float32(1.0) - true_score + row[t]
            if hinge > 0:
                rank += 1
                excess += hinge
                row[t] = -1.0
            else:
                row[t] = 0.0
        trials[p] = n_tags - (last - first)
        n_trials += trials[p]
        violators[p] = -1
        if rank == 0:
            continue
        n_steps += 1
        violators[p] = rank
        weight = rank_weights[rank]
        share = weight / np.float32(rank)
        total += share * excess
        for t in range(n_tags):
            row[t] *= share
        row[tags[p]] = weight
    return total, n_trials, n_steps
