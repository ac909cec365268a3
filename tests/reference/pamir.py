"""PAMIR's training in plain NumPy, one row of weights at a time, on index arrays that are sliced beforehand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from visterm.kernels.random import draw_below, stream_of


def slices(matrix):
    """Cut a CSR matrix into (columns, values) of its rows."""
    starts = matrix.indptr
    return [(matrix.indices[a:b], matrix.data[a:b]) for a, b in pairwise(starts)]


def drawn_triplets(relevant, n_images, n_steps, seed, epoch):
    """Draw (query, relevant image, other image) from lists of relevant images, three numbers of a stream each."""
    stream = np.uint64(stream_of(seed, epoch, 0))
    others = [np.setdiff1d(np.arange(n_images), images) for images in relevant]
    for step in range(n_steps):
        q = int(draw_below(stream, 3 * step, len(relevant)))
        plus = relevant[q][int(draw_below(stream, 3 * step + 1, len(relevant[q])))]
        yield q, int(plus), int(others[q][int(draw_below(stream, 3 * step + 2, len(others[q])))])


def train(triplets, queries, images, c, W):
    """Make the steps of section III-D on W (n_words, n_features), in place; give the losses.

    Queries and images are (columns, values), as `slices` gives them.
    """
    losses = []
    for q, plus, minus in triplets:
        words, weights = queries[q]
        (columns_plus, values_plus), (columns_minus, values_minus) = images[plus], images[minus]
        score = 0.0
        for t, weight in zip(words, weights, strict=True):
            score += weight * (W[t, columns_plus] @ values_plus - W[t, columns_minus] @ values_minus)
        loss = max(0.0, 1.0 - score)
        losses.append(loss)
        if loss == 0:
            continue
        _, at_plus, at_minus = np.intersect1d(columns_plus, columns_minus, assume_unique=True, return_indices=True)
        square = values_plus @ values_plus + values_minus @ values_minus
        square -= 2 * values_plus[at_plus] @ values_minus[at_minus]
        square *= weights @ weights
        if square <= 1e-12:
            continue
        step = min(c, loss / square)
        for t, weight in zip(words, weights, strict=True):
            W[t, columns_plus] += step * weight * values_plus
            W[t, columns_minus] -= step * weight * values_minus
    return losses


def train_by_kernel(triplets, queries, K, c, A):
    """Make the steps of section III-E on A (n_words, n_images), in place, every score anew from the kernel."""
    losses = []
    for q, plus, minus in triplets:
        words, weights = queries[q]
        score = sum(weight * (A[t] @ K[:, plus] - A[t] @ K[:, minus]) for t, weight in zip(words, weights, strict=True))
        loss = max(0.0, 1.0 - score)
        losses.append(loss)
        square = (weights @ weights) * (K[plus, plus] + K[minus, minus] - 2 * K[plus, minus])
        if loss == 0 or square <= 1e-12:
            continue
        step = min(c, loss / square)
        for t, weight in zip(words, weights, strict=True):
            A[t, plus] += step * weight
            A[t, minus] -= step * weight
    return losses


def train_top(relevant, shares, table, queries, X, n_steps, max_trials, c, seed, epoch, W):
    """Draw until an image violates, and make weighed steps on W (n_words, n_features), in place; give the losses.

    `relevant` has a dict of gains by image for each query; X is an array. Losses are weighed; draws are counted.
    """
    losses, n_trials = [], 0
    for step in range(n_steps):
        stream = np.uint64(stream_of(seed, epoch, step))
        q = int(draw_below(stream, 0, len(relevant)))
        images = sorted(relevant[q])
        plus = images[int(draw_below(stream, 1, len(images)))]
        words, weights = queries[q]
        own = sum(weight * (W[t] @ X[plus]) for t, weight in zip(words, weights, strict=True))
        for trial in range(max_trials):
            n_trials += 1
            minus = int(draw_below(stream, 2 + trial, len(X)))
            gap = relevant[q][plus] - relevant[q].get(minus, 0.0)
            loss = 1 - own + sum(weight * (W[t] @ X[minus]) for t, weight in zip(words, weights, strict=True))
            if gap <= 0 or loss <= 0:
                continue
            weight_of_step = table[max(1, len(X) // (trial + 1))] * gap * shares[q]
            losses.append(weight_of_step * loss)
            square = (weights @ weights) * np.square(X[plus] - X[minus]).sum()
            if square > 0:
                size = min(c * weight_of_step, loss / square)
                for t, weight in zip(words, weights, strict=True):
                    W[t] += size * weight * (X[plus] - X[minus])
            break
    return losses, n_trials
