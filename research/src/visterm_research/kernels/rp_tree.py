"""Random-projection median trees: grow a tree from feature rows, find the leaves of rows, and multiply within a leaf.

A tree of `levels` levels is a full binary tree in heap order: the root is node 1, the children of node m are 2m (left)
and 2m + 1. The random directions are not stored: component j of a node's direction is a hash of (seed, node, j),
uniform between -1 and 1, so a tree consists of its thresholds and an order of the images, for any number of features.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from visterm.kernels import GOLDEN, mix, stream_of

S40 = np.uint64(40)


@njit(cache=True, nogil=True)
def project(rows, i, seed, node):
    """Project row `i` on the direction of a node.

    The sum, float64, is in the order of the columns, so that dense rows and sparse rows give the same bytes.
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

    A node sends the floor(m / 2) of its m images with the smallest projections left (at ties, earlier images); its
    threshold is the middle between both sides. There are at least as many rows as leaves. `order`, (n_rows,), is
    overwritten with the rows, leaf after leaf, ascending within a leaf; leaf l has ``order[bounds[l]:bounds[l + 1]]``.
    `thresholds`, (2^levels,), is overwritten: entry m is the threshold of node m; entry 0 is not used.
    """
    n = order.shape[0]
    n_leaves = thresholds.shape[0]
    if n < n_leaves or bounds.shape[0] != n_leaves + 1 or rows.start.shape[0] < n + 1:
        raise IndexError("a tree needs at least one row per leaf, and one more bound than leaves")
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
            order_by_value = np.argsort(values, kind="mergesort")
            n_left = part.shape[0] // 2
            thresholds[node] = (values[order_by_value[n_left - 1]] + values[order_by_value[n_left]]) / 2
            part[:] = part[order_by_value]
            part[:n_left] = np.sort(part[:n_left])
            part[n_left:] = np.sort(part[n_left:])
            bounds[first + width // 2] = start + n_left
            node += 1
        width //= 2


@njit(cache=True, nogil=True)
def find_leaves(rows, seed, thresholds, leaves):
    """Find the leaf of each row: a node sends it left if its projection is below the threshold, otherwise right.

    `thresholds`, float64 (2^levels,), are from `grow_tree`; `leaves`, int64 (n_rows,), is overwritten with the number
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
    """Multiply the rows `members` by all images of a leaf: ``out[a, b] = rows[members[a]] · image(first + b)``.

    The leaf has the images first .. stop-1. Row j of `postings` has the values of feature j, with images as ascending
    columns, so only the images of the leaf that share a feature with the row are visited.
    """
    if out.shape[0] < members.shape[0] or out.shape[1] < stop - first:
        raise IndexError("out has fewer entries than there are products")
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
            shift_j = postings.shift[j]
            entry, end = postings.start[j] - shift_j, postings.start[j + 1] - shift_j
            entry += np.searchsorted(postings.cols[entry:end], first)
            while entry < end and postings.cols[entry] < stop:
                out[a, postings.cols[entry] - first] += value * postings.vals[entry + shift_j]
                entry += 1
