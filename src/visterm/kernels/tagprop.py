"""The likelihood of the tags of images under votes of their neighbours, and its slope along every vote."""

from __future__ import annotations

import math

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def vote_slopes(
    first, last, ids, weights, start, cols, own_start, own_cols, costs, room, scale, offset, squash, losses, slopes
):
    """Sum up how badly votes predict the tags of some images, and how that changes with each vote.

    The votes for tag t of image i are ``v = Σ_k weights[i, k] [image ids[i, k] has t]``. They make the tag as likely as
    ``p = room + (1 - 2 room) v``, or with `squash` ``p = 1 / (1 + exp(-scale_t v - offset_t))``. The loss is
    ``-costs[0] ln p`` for each tag that the image has and ``-costs[1] ln (1 - p)`` for each other that has a vote; tags
    with neither are left to the caller.

    Parameters
    ----------
    first, last : int
        The images meant.
    ids : ndarray of int64, shape (n, k)
        Neighbours, rows of the tag matrix; below 0 for none.
    weights : ndarray of float64, shape (n, k)
    start, cols : ndarray
        The tags that images have, as the arrays ``indptr`` and ``indices`` of a CSR matrix.
    own_start, own_cols : ndarray
        Those of the images themselves, shape (n + 1,) and sorted; also CSR.
    costs : tuple of two float
        Of a tag that the image has, and of one that it has not.
    room : float
        Above 0 and below one half.
    scale, offset : ndarray of float64, shape (n_tags,)
    squash : bool
    losses : ndarray of float64, shape (n,)
        Overwritten for the images meant.
    slopes : ndarray of float64, shape (n, k)
        Overwritten for the images meant: by how much the loss grows with each weight.
    """
    n_tags = scale.shape[0]
    votes = np.zeros(n_tags)
    turns = np.zeros(n_tags)
    state = np.zeros(n_tags, np.int8)
    touched = np.empty(n_tags, np.int64)
    for i in range(first, last):
        n_touched = 0
        for e in range(own_start[i], own_start[i + 1]):
            tag = own_cols[e]
            touched[n_touched] = tag
            n_touched += 1
            state[tag] = 2
        for k in range(ids.shape[1]):
            near = ids[i, k]
            if near < 0:
                continue
            for e in range(start[near], start[near + 1]):
                tag = cols[e]
                if state[tag] == 0:
                    state[tag] = 1
                    touched[n_touched] = tag
                    n_touched += 1
                votes[tag] += weights[i, k]
        loss = 0.0
        for t in range(n_touched):
            tag = touched[t]
            has = state[tag] == 2
            cost = costs[0] if has else costs[1]
            if squash:
                sign = 1.0 if has else -1.0
                margin = sign * (scale[tag] * votes[tag] + offset[tag])
                tail = math.exp(-abs(margin))
                loss += cost * (math.log1p(tail) + max(-margin, 0.0))
                turns[tag] = -cost * sign * scale[tag] * (tail if margin > 0 else 1.0) / (1.0 + tail)
            else:
                p = room + (1.0 - 2.0 * room) * votes[tag]
                p = min(max(p if has else 1.0 - p, room), 1.0)
                loss -= cost * math.log(p)
                turns[tag] = (-cost if has else cost) * (1.0 - 2.0 * room) / p
        losses[i] = loss
        for k in range(ids.shape[1]):
            near = ids[i, k]
            slope = 0.0
            if near >= 0:
                for e in range(start[near], start[near + 1]):
                    slope += turns[cols[e]]
            slopes[i, k] = slope
        for t in range(n_touched):
            tag = touched[t]
            votes[tag] = 0.0
            state[tag] = 0
