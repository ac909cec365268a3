"""Histograms of overlapping square blocks, each the sum of the cells that it covers: every pixel is counted once."""

from __future__ import annotations

import numpy as np
from numba import njit

from visterm.kernels.texture import N_PATTERNS

MIN_CELL = 4
"""Cells are not cut smaller than so many pixels, so that a block has something to count."""


def block_edges(length, stride):
    """Cut one side of an image into equal cells of about `stride` pixels, at least one.

    Parameters
    ----------
    length : int
        Pixels of the side, at least 1.
    stride : float
        From the beginning of a block to that of the next, in pixels.

    Returns
    -------
    ndarray of int64, shape (n_cells + 1,)
        Where cells begin and end, from 0 to `length`.
    """
    most = max(1, length // MIN_CELL)
    n_cells = min(max(1, round(length / stride)), most)
    return np.rint(np.linspace(0, length, n_cells + 1)).astype(np.int64)


def block_histograms(texture, colour, n_colours, rows, cols, block_cells=2):
    """Count texture and colour codes in all blocks of some × some neighbouring cells.

    Parameters
    ----------
    texture : ndarray of uint8, shape (height, width)
        Codes below 59.
    colour : ndarray of uint8, shape (height, width)
        Codes below `n_colours`.
    n_colours : int
    rows, cols : ndarray of int64
        Edges of the cells, from `block_edges`. Where a side has fewer cells than a block, blocks have all of them.
    block_cells : int
        Cells along the side of a block, at least 1: with 2, blocks overlap by half.

    Returns
    -------
    ndarray of float32, shape (n_blocks, 59 + n_colours)
        Shares: the texture columns of a block add up to 1, and so do the colour columns. Blocks go row by row.
    """
    down, across = len(rows) - 1, len(cols) - 1
    cells = np.zeros((down, across, N_PATTERNS + n_colours), np.int32)
    _count_cells(texture, colour, rows, cols, cells)
    blocks = _sums_of_neighbours(cells, block_cells)
    blocks = _sums_of_neighbours(blocks.swapaxes(0, 1), block_cells).swapaxes(0, 1)
    blocks = blocks.reshape(-1, N_PATTERNS + n_colours)
    pixels = blocks[:, :N_PATTERNS].sum(axis=1, keepdims=True, dtype=np.int64)
    return blocks.astype(np.float32) / pixels.astype(np.float32)


def _sums_of_neighbours(cells, n):
    """Add up each `n` cells that follow each other along the first axis, or all where there are fewer."""
    n = min(n, len(cells))
    ends = len(cells) - n + 1
    sums = cells[:ends]
    for step in range(1, n):
        sums = sums + cells[step : step + ends]
    return sums


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
