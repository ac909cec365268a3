"""Votes of neighbours: how likely they make the tags of images (TagProp), and those of each tag's nearest (2PKNN)."""

from __future__ import annotations

import math

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def vote_slopes(
    first, last, ids, weights, start, cols, image_start, image_cols, costs, room, scale, offset, squash, losses, slopes
):
    """Sum up how badly votes predict the tags of some images, and how that changes with each vote.

    The votes for tag t of image i are ``v = Σ_k weights[i, k] [image ids[i, k] has t]``. They make the tag as likely as
    ``p = room + (1 - 2 room) v``, or with `squash` ``p = 1 / (1 + exp(-scale_t v - offset_t))``. The loss is
    ``-costs[0] ln p`` for each tag that the image has and ``-costs[1] ln (1 - p)`` for each other that has a vote; tags
    with neither are left to the caller.

    The images meant are first .. last-1. `ids`, int64 (n, k), are neighbours, rows of the tag matrix, or below 0 for
    none; `weights` are float64 (n, k). `start` and `cols` are the arrays ``indptr`` and ``indices`` of a CSR matrix of
    the tags that neighbours have, `image_start` and the sorted `image_cols` those of the images themselves. `room` is
    above 0 and below one half; `scale` and `offset` are float64 (n_tags,). Overwritten for the images meant are
    `losses`, float64 (n,), and `slopes`, float64 (n, k): by how much the loss grows with each weight.
    """
    n_tags = scale.shape[0]
    votes = np.zeros(n_tags)
    turns = np.zeros(n_tags)
    state = np.zeros(n_tags, np.int8)
    touched = np.empty(n_tags, np.int64)
    for i in range(first, last):
        n_touched = 0
        for e in range(image_start[i], image_start[i + 1]):
            tag = image_cols[e]
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


@njit(cache=True, nogil=True)
def two_pass_votes(distances, itself, members_start, members, tags_start, tags, n_neighbors, bandwidth, out):
    """Fill in each tag's share of the votes of an image's semantic neighbours.

    For every tag, the `n_neighbors` nearest of the images that have it are found; the image in `itself` is
    never among them. Each image found, once however many tags it was found for, votes for all its tags with the weight
    ``exp(-bandwidth · (d - d_nearest))``.

    `distances` are float32 (n, n_images); `itself`, int64 (n,), is the image that the row is itself, or -1.
    `members_start` and `members`, the images of each tag in growing order, are the arrays ``indptr`` and ``indices`` of
    a CSR matrix (n_tags, n_images); `tags_start` and `tags`, the tags of each image, likewise (n_images, n_tags).
    `out`, float32 (n, n_tags), is overwritten.
    """
    n_tags = members_start.shape[0] - 1
    chosen = np.zeros(distances.shape[1], np.uint8)
    found = np.empty(distances.shape[1], np.int64)
    votes = np.empty(n_tags)
    for i in range(distances.shape[0]):
        row = distances[i]
        n_found = semantic_neighbours(row, itself[i], members_start, members, n_neighbors, chosen, found)
        nearest = np.inf
        for f in range(n_found):
            nearest = min(nearest, row[found[f]])
        votes[:] = 0.0
        total = 0.0
        for f in range(n_found):
            image = found[f]
            weight = math.exp(-bandwidth * (row[image] - nearest))
            total += weight
            for e in range(tags_start[image], tags_start[image + 1]):
                votes[tags[e]] += weight
            chosen[image] = 0
        for tag in range(n_tags):
            out[i, tag] = votes[tag] / total if total > 0 else 0.0


@njit(cache=True, nogil=True)
def semantic_neighbours(row, itself, members_start, members, n_neighbors, chosen, found):
    """Fill in the nearest images of each tag, in the order of the tags and each once; return how many they are.

    `row`, float32 (n_images,), is how far all images are; `found`, int64 (n_images,), gets their ids, and `chosen`,
    zeros of uint8 (n_images,), is 1 at them. The others are as in `two_pass_votes`, `itself` of this one image.
    """
    best_ids = np.empty(n_neighbors, np.int64)
    best = np.empty(n_neighbors, np.float32)
    n_found = 0
    for tag in range(members_start.shape[0] - 1):
        count = 0
        for e in range(members_start[tag], members_start[tag + 1]):
            image = members[e]
            if image == itself:
                continue
            count = _keep(best, best_ids, count, row[image], image)
        for k in range(count):
            if chosen[best_ids[k]] == 0:
                chosen[best_ids[k]] = 1
                found[n_found] = best_ids[k]
                n_found += 1
    return n_found


@njit(cache=True)
def _keep(best, best_ids, count, distance, image):
    """Insert an image among the nearest so far, behind equally near ones; give how many there are."""
    if count == best.shape[0]:
        if count == 0 or distance >= best[count - 1]:
            return count
        count -= 1
    place = count
    while place > 0 and best[place - 1] > distance:
        best[place] = best[place - 1]
        best_ids[place] = best_ids[place - 1]
        place -= 1
    best[place] = distance
    best_ids[place] = image
    return count + 1
