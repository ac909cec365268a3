"""Votes of 2PKNN: each tag's own nearest images are found first, and all of them vote for all their tags."""

from __future__ import annotations

import math

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def two_pass_votes(distances, own, members_start, members, tags_start, tags, n_neighbors, bandwidth, out):
    """Fill in each tag's share of the votes of an image's semantic neighbours.

    For every tag, the `n_neighbors` nearest of the images that have it are found; the image that stands in `own` is
    never among them. Each image found, once however many tags it was found for, votes for all its tags with the weight
    ``exp(-bandwidth · (d - d_nearest))``.

    Parameters
    ----------
    distances : ndarray of float32, shape (n, n_images)
    own : ndarray of int64, shape (n,)
        The image that the row is itself, or -1.
    members_start, members : ndarray
        The images of each tag in growing order, as the arrays ``indptr`` and ``indices`` of a CSR matrix (n_tags,
        n_images).
    tags_start, tags : ndarray
        The tags of each image, likewise (n_images, n_tags).
    n_neighbors : int
    bandwidth : float
    out : ndarray of float32, shape (n, n_tags)
        Overwritten.
    """
    n_tags = members_start.shape[0] - 1
    chosen = np.zeros(distances.shape[1], np.uint8)
    found = np.empty(distances.shape[1], np.int64)
    best_ids = np.empty(n_neighbors, np.int64)
    best = np.empty(n_neighbors, np.float32)
    votes = np.empty(n_tags)
    for i in range(distances.shape[0]):
        row = distances[i]
        n_found = 0
        for tag in range(n_tags):
            count = 0
            for e in range(members_start[tag], members_start[tag + 1]):
                image = members[e]
                if image == own[i]:
                    continue
                count = _keep(best, best_ids, count, row[image], image)
            for k in range(count):
                if chosen[best_ids[k]] == 0:
                    chosen[best_ids[k]] = 1
                    found[n_found] = best_ids[k]
                    n_found += 1
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
