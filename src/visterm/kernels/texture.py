"""Local binary patterns: for each pixel, which of the eight neighbours at radius two are at least as bright.

The codes are the 59 of the uniform LBP(8,2) [1]_ with bilinear neighbours, numbered as in scikit-image's method
``nri_uniform``. An interpolated neighbour may be exactly as bright as the centre, where the last bit of a float
decides; so the interpolation here does the same float64 operations in the same order, and the codes are equal.

References
----------
.. [1] T. Ojala, M. Pietikäinen, T. Mäenpää, "Multiresolution gray-scale and rotation invariant texture classification
   with local binary patterns", IEEE PAMI 24(7), 2002.
"""

from __future__ import annotations

import numpy as np
from numba import njit

N_PATTERNS = 59
MARGIN = 2
DIAGONAL = 1.41421  # 2·cos 45°, rounded to five digits as in scikit-image


def lbp_codes(gray):
    """Return the code of every pixel of `gray`, uint8 (height, width).

    Beyond its edges the image is taken to repeat its outermost pixels (scikit-image takes zeros, so that the two agree
    only from two pixels inwards). Codes are 0 to 58: 0 is all darker, 57 none darker, 58 all patterns that are not
    uniform; 1 + 8 (m - 1) + s stands for a run of m neighbours not darker, that begins s steps clockwise of the one on
    the right.
    """
    codes = np.empty(gray.shape, np.uint8)
    if codes.size:
        _fill_codes(np.pad(gray, MARGIN, mode="edge").astype(np.float64), UNIFORM, codes)
    return codes


def _uniform_table():
    """Map the eight bits (bit i: the neighbour i·45° counter-clockwise of the right is not darker) to the 59 codes."""
    table = np.empty(256, np.uint8)
    for pattern in range(256):
        bits = [pattern >> i & 1 for i in range(8)]
        starts = [i for i in range(8) if bits[i] and not bits[i - 1]]
        if len(starts) > 1:
            table[pattern] = N_PATTERNS - 1
        elif not starts:
            table[pattern] = (N_PATTERNS - 2) * bits[0]
        else:
            table[pattern] = 1 + 8 * (sum(bits) - 1) + (-starts[0]) % 8
    return table


UNIFORM = _uniform_table()


@njit(cache=True, nogil=True)
def _fill_codes(padded, table, codes):
    """Fill `codes` from the image padded by two pixels; the diagonal neighbours first along the row, then across."""
    height, width = codes.shape
    left_gray = np.empty((height + 4, width))
    right_gray = np.empty((height + 4, width))
    _interpolate_rows(padded, left_gray, right_gray)
    bits = np.empty(width, np.uint8)

    for row in range(height):
        up = row - DIAGONAL
        up -= np.floor(up)
        down = row + DIAGONAL
        down -= np.floor(down)
        for col in range(width):
            centre = padded[row + 2, col + 2]
            up_right = (1.0 - up) * right_gray[row, col] + up * right_gray[row + 1, col]
            up_left = (1.0 - up) * left_gray[row, col] + up * left_gray[row + 1, col]
            down_left = (1.0 - down) * left_gray[row + 3, col] + down * left_gray[row + 4, col]
            down_right = (1.0 - down) * right_gray[row + 3, col] + down * right_gray[row + 4, col]
            bits[col] = (
                (padded[row + 2, col + 4] >= centre)
                | (up_right >= centre) << 1
                | (padded[row, col + 2] >= centre) << 2
                | (up_left >= centre) << 3
                | (padded[row + 2, col] >= centre) << 4
                | (down_left >= centre) << 5
                | (padded[row + 4, col + 2] >= centre) << 6
                | (down_right >= centre) << 7
            )
        for col in range(width):
            codes[row, col] = table[bits[col]]


@njit(cache=True, nogil=True)
def _interpolate_rows(padded, left_gray, right_gray):
    """Fill both arrays with the brightness `DIAGONAL` pixels to the left and right of each pixel, in all rows."""
    rows, width = left_gray.shape
    for col in range(width):
        # The offset's last bits depend on the column, and so do scikit-image's.
        to_left = col - DIAGONAL
        to_left -= np.floor(to_left)
        to_right = col + DIAGONAL
        to_right -= np.floor(to_right)
        for row in range(rows):
            left_gray[row, col] = (1.0 - to_left) * padded[row, col] + to_left * padded[row, col + 1]
            right_gray[row, col] = (1.0 - to_right) * padded[row, col + 3] + to_right * padded[row, col + 4]
