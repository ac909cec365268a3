"""Histograms over parts of an image: overlapping blocks, and its bag of visterms."""

from __future__ import annotations

import numpy as np
from numba import njit

from visterm.kernels.texture import N_PATTERNS

MIN_CELL = 4  # Pixels of the smallest cell, so that a block has something to count


def block_edges(length, stride):
    """Cut one side of an image, of `length` pixels, into equal cells of about `stride` pixels, at least one.

    Return where cells begin and end, from 0 to `length`: int64, (n_cells + 1,).
    """
    most = max(1, length // MIN_CELL)
    n_cells = min(max(1, round(length / stride)), most)
    return np.rint(np.linspace(0, length, n_cells + 1)).astype(np.int64)


@njit(cache=True, nogil=True)
def block_histograms(texture, colour, n_colours, rows, cols, block_cells=2):
    """Count texture and colour codes in all blocks of some × some neighbouring cells.

    Texture codes are below 59, colour codes below `n_colours`. Both are uint8 (height, width); the edges of the
    cells, `rows` and `cols`, come from `block_edges`. Blocks have `block_cells` cells along a side (with 2 they
    overlap by half); where a side has fewer, blocks have all of them. Returns float32 (n_blocks, 59 + n_colours),
    row by row: the texture columns of a block add up to 1, and so do the colour columns.
    """
    down, across, n_codes = len(rows) - 1, len(cols) - 1, N_PATTERNS + n_colours
    cells = np.zeros((down, across, n_codes), np.int32)
    _count_cells(texture, colour, rows, cols, cells)
    n_down, n_across = min(block_cells, down), min(block_cells, across)
    high, wide = down - n_down + 1, across - n_across + 1
    blocks = np.empty((high * wide, n_codes), np.float32)
    column = np.empty((across, n_codes), np.int32)
    counts = np.empty(n_codes, np.int32)
    for i in range(high):
        column[:] = cells[i]
        for below in range(i + 1, i + n_down):
            column += cells[below]
        for j in range(wide):
            counts[:] = 0
            for beside in range(j, j + n_across):
                for code in range(n_codes):
                    counts[code] += column[beside, code]
            pixels = np.float32(counts[:N_PATTERNS].sum())
            for code in range(n_codes):
                blocks[i * wide + j, code] = np.float32(counts[code]) / pixels
    return blocks


@njit(cache=True, nogil=True)
def _count_cells(texture, colour, rows, cols, cells):
    """Add to `cells` (zeros before) the codes of every pixel; codes beyond the last column are left out."""
    n_codes = cells.shape[2]
    for i in range(cells.shape[0]):
        for j in range(cells.shape[1]):
            histogram = cells[i, j]
            for row in range(rows[i], rows[i + 1]):
                for col in range(cols[j], cols[j + 1]):
                    histogram[min(np.int64(texture[row, col]), N_PATTERNS - 1)] += 1
                    histogram[min(N_PATTERNS + np.int64(colour[row, col]), n_codes - 1)] += 1


@njit(cache=True, nogil=True)
def bag_row(words, shares, idf, root):
    """Add up an image's words and weigh them; return weights above 0 (float32) and their words, increasing (int32).

    `words` and `shares`, (n_blocks, n_nearest), say how much a block counts for each of its words; words beyond `idf`,
    (n_words,), are left out. With `root`, they weigh by the square root of the term frequency. The squares of the
    weights add up to 1; there are none where no word has weight.
    """
    n_words = idf.shape[0]
    terms = np.zeros(n_words)
    for block in range(words.shape[0]):
        for j in range(words.shape[1]):
            word = words[block, j]
            if 0 <= word < n_words:
                terms[word] += shares[block, j]
    size = 0
    square = 0.0
    for word in range(n_words):
        terms[word] = (np.sqrt(terms[word]) if root else terms[word]) * idf[word]
        if terms[word] > 0.0:
            size += 1
            square += terms[word] * terms[word]

    weights = np.empty(size, np.float32)
    columns = np.empty(size, np.int32)
    length = np.sqrt(square)
    entry = 0
    for word in range(n_words):
        if terms[word] > 0.0:
            weights[entry] = terms[word] / length
            columns[entry] = word
            entry += 1
    return weights, columns
