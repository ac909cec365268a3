"""Slow twins of the kernels behind `visterms`: one pixel, one block, one word at a time."""

from __future__ import annotations

import numpy as np

STEPS = [
    (0, 2),
    (-1.41421, 1.41421),
    (-2, 0),
    (-1.41421, -1.41421),
    (0, -2),
    (1.41421, -1.41421),
    (2, 0),
    (1.41421, 1.41421),
]
"""Rows and columns to the neighbours, counter-clockwise from the one on the right."""


def lbp_code(gray, row, col):
    """Code one pixel by its definition; the image repeats its outermost pixels."""
    bits = [brightness(gray, row + down, col + right) >= float(gray[row, col]) for down, right in STEPS]
    changes = sum(bits[i] != bits[i - 1] for i in range(8))
    if changes > 2:
        return 58
    if changes == 0:
        return 57 if bits[0] else 0
    start = next(i for i in range(8) if bits[i] and not bits[i - 1])
    return 1 + 8 * (sum(bits) - 1) + (8 - start) % 8


def brightness(gray, row, col):
    """Interpolate between four pixels, first along the rows."""
    top, left = int(np.floor(row)), int(np.floor(col))
    down, right = row - top, col - left
    upper = (1 - right) * pixel(gray, top, left) + right * pixel(gray, top, left + 1)
    lower = (1 - right) * pixel(gray, top + 1, left) + right * pixel(gray, top + 1, left + 1)
    return (1 - down) * upper + down * lower


def pixel(gray, row, col):
    return float(gray[min(max(row, 0), gray.shape[0] - 1), min(max(col, 0), gray.shape[1] - 1)])


def block_histograms(texture, colour, n_colours, rows, cols, block_cells=2):
    """Count the codes in every block of `block_cells` × `block_cells` cells."""
    histograms = []
    for top, bottom in spans(rows, block_cells):
        for left, right in spans(cols, block_cells):
            block = (slice(top, bottom), slice(left, right))
            of_texture = np.bincount(texture[block].ravel(), minlength=59)
            of_colour = np.bincount(colour[block].ravel(), minlength=n_colours)
            histograms.append(np.concatenate([of_texture, of_colour]) / texture[block].size)
    return np.array(histograms)


def spans(edges, n):
    n = min(n, len(edges) - 1)
    return [(edges[i], edges[i + n]) for i in range(len(edges) - n)]


def nearest_words(points, codebook, n_nearest):
    """Measure every distance, and sort them."""
    squares = np.square(points[:, None].astype(np.float64) - codebook[None]).sum(axis=2)
    return np.argsort(squares, axis=1, kind="stable")[:, :n_nearest]


def bag_row(words, shares, idf, root):
    """Return the row as a dense vector."""
    terms = np.zeros(len(idf))
    for word, share in zip(words.ravel(), shares.ravel(), strict=True):
        terms[word] += share
    row = (np.sqrt(terms) if root else terms) * idf
    length = np.sqrt(np.square(row).sum())
    return row / length if length > 0 else row
