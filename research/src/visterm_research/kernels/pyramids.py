"""Histograms over the cells of a spatial pyramid."""

from __future__ import annotations

import numpy as np
from numba import njit


def pyramid_histograms(codes, n_codes, levels):
    """Count the codes of an image, of its quarters, of its sixteenths, and so on.

    `codes`, uint16 (height, width), are below `n_codes`; grids have 1, 2, ..., 2^(levels - 1) cells per side. Returns a
    float32 array (4^level · n_codes,) for each level with a sum of 1: shares of all pixels, cell after cell, row by
    row. Cells of images that are smaller than the grid may be empty.
    """
    n = 2 ** (levels - 1)
    counts = np.zeros((n, n, n_codes), np.int32)
    rows, cols = (np.rint(np.linspace(0, side, n + 1)).astype(np.int64) for side in codes.shape)
    _count_pyramid_cells(codes, rows, cols, counts)
    level_counts = [counts]
    for _ in range(levels - 1):
        fine = level_counts[-1]
        level_counts.append(fine[::2, ::2] + fine[1::2, ::2] + fine[::2, 1::2] + fine[1::2, 1::2])
    return [level.reshape(-1).astype(np.float32) / np.float32(codes.size) for level in reversed(level_counts)]


@njit(cache=True, nogil=True)
def _count_pyramid_cells(codes, rows, cols, counts):
    """Count the codes of every pixel in `counts`, zeros at the start; codes above the largest are left out."""
    n_codes = counts.shape[2]
    for i in range(counts.shape[0]):
        for j in range(counts.shape[1]):
            for row in range(rows[i], rows[i + 1]):
                for col in range(cols[j], cols[j + 1]):
                    code = np.int64(codes[row, col])
                    if code < n_codes:
                        counts[i, j, code] += 1
