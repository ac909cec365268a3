"""Votes of neighbours: the likelihood of tags given votes (TagProp), and votes of each tag's nearest images (2PKNN)."""

from __future__ import annotations

import math

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def vote_slopes(
    first, stop, ids, weights, start, cols, image_start, image_cols, costs, room, scale, offset, squash, losses, slopes
):
    """Compute the losses of predicting the tags of images from votes, and their slopes with respect to each vote.

    The votes for tag t of image i are ``v = Σ_k weights[i, k] [image ids[i, k] has t]``. They make the tag as likely as
    ``p = room + (1 - 2 room) v``, or with `squash` ``p = 1 / (1 + exp(-scale_t v - offset_t))``. The loss is
    ``-costs[0] ln p`` for each tag that the image has and ``-costs[1] ln (1 - p)`` for each other tag with a vote; tags
    without a vote that the image does not have are left to the caller.

    The images are first .. stop-1. `ids`, int64 (n, k), are neighbours, rows of the tag matrix, or below 0 for no
    neighbour; `weights` are float64 (n, k). `start` and `cols` are the arrays ``indptr`` and ``indices`` of a CSR
    matrix of the tags of neighbours, `image_start` and the sorted `image_cols` of the tags of the images. `room` is
    above 0 and below one half; `scale` and `offset` are float64 (n_tags,). Overwrites the images' rows of `losses`,
    float64 (n,), and of `slopes`, float64 (n, k): the slope of the loss by each weight.
    """
    n_tags = scale.shape[0]
    votes = np.zeros(n_tags)
    vote_slopes_of_tags = np.zeros(n_tags)
    state = np.zeros(n_tags, np.int8)
    touched = np.empty(n_tags, np.int64)
    for i in range(first, stop):
        n_touched = 0
        for e in range(image_start[i], image_start[i + 1]):
            tag = image_cols[e]
            touched[n_touched] = tag
            n_touched += 1
            state[tag] = 2
        for k in range(ids.shape[1]):
            neighbour = ids[i, k]
            if neighbour < 0:
                continue
            for e in range(start[neighbour], start[neighbour + 1]):
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
                vote_slopes_of_tags[tag] = -cost * sign * scale[tag] * (tail if margin > 0 else 1.0) / (1.0 + tail)
            else:
                p = room + (1.0 - 2.0 * room) * votes[tag]
                p = min(max(p if has else 1.0 - p, room), 1.0)
                loss -= cost * math.log(p)
                vote_slopes_of_tags[tag] = (-cost if has else cost) * (1.0 - 2.0 * room) / p
        losses[i] = loss
        for k in range(ids.shape[1]):
            neighbour = ids[i, k]
            slope = 0.0
            if neighbour >= 0:
                for e in range(start[neighbour], start[neighbour + 1]):
                    slope += vote_slopes_of_tags[cols[e]]
            slopes[i, k] = slope
        for t in range(n_touched):
            tag = touched[t]
            votes[tag] = 0.0
            state[tag] = 0


@njit(cache=True, nogil=True)
def two_pass_votes(distances, self_images, members_start, members, tags_start, tags, n_neighbors, bandwidth, out):
    """Compute each tag's share of the votes of an image's semantic neighbours.

    The semantic neighbours are, for every tag, the `n_neighbors` nearest of the images with the tag, except the image
    in `self_images`. Each neighbour votes once, also if it was found for several tags, for all its tags with the weight
    ``exp(-bandwidth · (d - d_nearest))``.

    `distances` are float32 (n, n_images); `self_images`, int64 (n,), is the number of the row's own image, or -1.
    `members_start` and `members`, the images of each tag in ascending order, are the arrays ``indptr`` and ``indices``
    of a CSR matrix (n_tags, n_images); `tags_start` and `tags` are the same for the tags of each image, (n_images,
    n_tags). `out`, float32 (n, n_tags), is overwritten.
    """
    n_tags = members_start.shape[0] - 1
    is_listed = np.zeros(distances.shape[1], np.uint8)
    neighbours = np.empty(distances.shape[1], np.int64)
    votes = np.empty(n_tags)
    for i in range(distances.shape[0]):
        row = distances[i]
        n_neighbours = semantic_neighbours(
            row, self_images[i], members_start, members, n_neighbors, is_listed, neighbours
        )
        nearest = np.inf
        for f in range(n_neighbours):
            nearest = min(nearest, row[neighbours[f]])
        votes[:] = 0.0
        total = 0.0
        for f in range(n_neighbours):
            image = neighbours[f]
            weight = math.exp(-bandwidth * (row[image] - nearest))
            total += weight
            for e in range(tags_start[image], tags_start[image + 1]):
                votes[tags[e]] += weight
            is_listed[image] = 0
        for tag in range(n_tags):
            out[i, tag] = votes[tag] / total if total > 0 else 0.0


@njit(cache=True, nogil=True)
def semantic_neighbours(row, self_image, members_start, members, n_neighbors, is_listed, neighbours):
    """List the nearest images of each tag, in the order of the tags and without duplicates; return their number.

    `row`, float32 (n_images,), are the distances of all images. Fills `neighbours`, int64 (n_images,), with ids, and
    sets `is_listed`, zeros of uint8 (n_images,), to 1 for these images. Other parameters are as in `two_pass_votes`.
    """
    best_ids = np.empty(n_neighbors, np.int64)
    best = np.empty(n_neighbors, np.float32)
    n_neighbours = 0
    for tag in range(members_start.shape[0] - 1):
        count = 0
        for e in range(members_start[tag], members_start[tag + 1]):
            image = members[e]
            if image == self_image:
                continue
            count = _keep(best, best_ids, count, row[image], image)
        for k in range(count):
            if is_listed[best_ids[k]] == 0:
                is_listed[best_ids[k]] = 1
                neighbours[n_neighbours] = best_ids[k]
                n_neighbours += 1
    return n_neighbours


@njit(cache=True)
def _keep(best, best_ids, count, distance, image):
    """Insert an image among the nearest so far, after equally near images; return their number."""
    if count == best.shape[0]:
        if count == 0 or distance >= best[count - 1]:
            return count
        count -= 1
    rank = count
    while rank > 0 and best[rank - 1] > distance:
        best[rank] = best[rank - 1]
        best_ids[rank] = best_ids[rank - 1]
        rank -= 1
    best[rank] = distance
    best_ids[rank] = image
    return count + 1
