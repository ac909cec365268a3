"""OWPC: the exact rank of the true tag, and a step for every tag that is within its margin."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def weigh_all(pairs, first, stop, positives, rank_weights, scores):
    """Turn scores into the factors of Eq. 6: L(rank) for the true tag, and -L(rank) / rank for each violator.

    The rank of y is the number of tags ȳ that the image does not have with 1 + f_ȳ(x) > f_y(x) (Eq. 7).
    `rank_weights`, (n_tags + 1,), are L(k) of each rank. `scores`, float32 (n, n_tags), are overwritten with the
    factors; 0 for all other tags.

    For the pairs first .. stop-1, sets `violators` to the rank, or to -1 without a violator, and `trials` to the number
    of candidates, all of which were scored. Returns the sum of Eq. 6 over the pairs, the sum of the trials, and the
    number of pairs with a violator.

    References
    ----------
    Weston, Bengio, Usunier 2010, Eqs. 6 and 7.
    """
    _, images, tags, _, violators, trials, _, _ = pairs
    tags_start, positive_tags = positives
    n_tags = scores.shape[1]
    total = 0.0
    n_trials = n_steps = 0
    for p in range(first, stop):
        begin, end = tags_start[images[p]], tags_start[images[p] + 1]
        row = scores[p]
        true_score = row[tags[p]]
        rank = 0
        excess = 0.0
        q = begin
        for t in range(n_tags):
            if q < end and positive_tags[q] == t:
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
        trials[p] = n_tags - (end - begin)
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
