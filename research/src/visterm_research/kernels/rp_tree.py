"""Random-projection median trees: grown over feature rows, gone down by others, and the cosines within a leaf.

A tree of `levels` levels is a full binary tree in heap order: the root is node 1, the children of node m are 2m (left)
and 2m + 1. Nothing of the random directions is stored: component j of a node's direction is a hash of (seed, node, j),
uniform between -1 and 1, so that a tree over ten thousand features is its thresholds and an order of the images.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from visterm.kernels import GOLDEN, mix, stream_of

S40 = np.uint64(40)


@njit(cache=True, nogil=True)
def project(rows, i, seed, node):
    """Project row `i` on the direction of a node.

    The sum, float64, is in the order of the columns, so that dense rows and sparse ones give the same bytes.
    """
    stream = stream_of(seed, np.int64(0), node)
    shift = rows.shift[i]
    total = 0.0
    for e in range(rows.start[i], rows.start[i + 1]):
        word = mix(stream + (np.uint64(rows.cols[e - shift]) + np.uint64(1)) * GOLDEN)
        total += np.float64(rows.vals[e]) * (np.float64(word >> S40) / 8388608.0 - 1.0)
    return total


@njit(cache=True, nogil=True)
def grow_tree(rows, seed, order, bounds, thresholds):
    """Split rows level by level at the median of their projections, which keeps the tree balanced.

    Of m images the floor(m / 2) with the smallest projections go left (at equal ones those that came first), and the
    threshold lies in the middle between the two sides. There are at least as many rows as leaves. `order`, (n_rows,),
    is overwritten with the rows, leaf after leaf, ascending within each; leaf l holds ``order[bounds[l]:bounds[l +
    1]]``. `thresholds`, (2^levels,), are overwritten: of node m in entry m; entry 0 is not used.
    """
    n = order.shape[0]
    n_leaves = thresholds.shape[0]
    if n < n_leaves or bounds.shape[0] != n_leaves + 1 or rows.start.shape[0] < n + 1:
        raise IndexError("a tree needs at least one row a leaf, and as many bounds as leaves, and one")
    for i in range(n):
        order[i] = i
    thresholds[0] = 0.0
    bounds[0] = 0
    bounds[n_leaves] = n
    projections = np.empty(n, np.float64)
    node = 1
    width = n_leaves
    while width > 1:
        for first in range(0, n_leaves, width):
            start, stop = bounds[first], bounds[first + width]
            part = order[start:stop]
            values = projections[start:stop]
            for p in range(part.shape[0]):
                values[p] = project(rows, part[p], seed, node)
            ranked = np.argsort(values, kind="mergesort")
            half = part.shape[0] // 2
            thresholds[node] = (values[ranked[half - 1]] + values[ranked[half]]) / 2
            part[:] = part[ranked]
            part[:half] = np.sort(part[:half])
            part[half:] = np.sort(part[half:])
            bounds[first + width // 2] = start + half
            node += 1
        width //= 2


@njit(cache=True, nogil=True)
def find_leaves(rows, seed, thresholds, leaves):
    """Send rows down a tree: left where the projection is below the threshold, else right.

    `thresholds`, float64 (2^levels,), are from `grow_tree`; `leaves`, int64 (n_rows,), are overwritten with the number
    of each row's leaf, 0 .. 2^levels - 1.
    """
    n_leaves = thresholds.shape[0]
    for i in range(leaves.shape[0]):
        node = 1
        while node < n_leaves:
            node = 2 * node + (0 if project(rows, i, seed, node) < thresholds[node] else 1)
        leaves[i] = node - n_leaves


@njit(cache=True, nogil=True)
def products_within(postings, first, stop, rows, members, out):
    """Multiply some rows by all images of a leaf: ``out[a, b] = rows[members[a]] · image(first + b)``.

    The images first .. stop-1 of the leaf lie by their features: row j of `postings` holds the values of feature j, and
    columns are images, in growing order. So only those of the leaf that share a feature with the row are visited.
    """
    if out.shape[0] < members.shape[0] or out.shape[1] < stop - first:
        raise IndexError("out has fewer places than there are products")
    out[:] = np.float32(0.0)
    n_features = postings.start.shape[0] - 1
    for a in range(members.shape[0]):
        i = members[a]
        shift = rows.shift[i]
        for e in range(rows.start[i], rows.start[i + 1]):
            value = rows.vals[e]
            j = rows.cols[e - shift]
            if value == 0 or j >= n_features:
                continue
            lead = postings.shift[j]
            place, end = postings.start[j] - lead, postings.start[j + 1] - lead
            place += np.searchsorted(postings.cols[place:end], first)
            while place < end and postings.cols[place] < stop:
                out[a, postings.cols[place] - first] += value * postings.vals[place + lead]
                place += 1
