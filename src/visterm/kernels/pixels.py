"""Codes of colour and texture for pixels, their histograms over overlapping blocks, and bags of visterms.

Codes of texture are local binary patterns: which of the eight neighbours of a pixel at radius two are at least as
bright. They are the 59 patterns of the uniform LBP(8,2) [1]_ with bilinear neighbours, numbered as in scikit-image's
method ``nri_uniform``. If an interpolated neighbour is as bright as the centre, the last bit of a float decides. The
interpolation here therefore has the same float64 operations in the same order, and the codes are equal.

References
----------
.. [1] T. Ojala, M. Pietikäinen, T. Mäenpää, "Multiresolution gray-scale and rotation invariant texture classification
   with local binary patterns", IEEE PAMI 24(7), 2002.
"""

from __future__ import annotations

import numpy as np

from visterm.kernels.compiled import kernel

LEVELS = 32  # Levels per channel of the colour table: its 32,768 bytes stay in the L1 cache
XYZ_FROM_RGB = np.array(
    [[0.412453, 0.357580, 0.180423], [0.212671, 0.715160, 0.072169], [0.019334, 0.119193, 0.950227]]
)
"""Linear sRGB to CIE XYZ (ITU-R BT.709 primaries, D65)."""

WHITE = np.array([0.95047, 1.0, 1.08883])  # CIE XYZ of the white point D65, 2° observer

N_PATTERNS = 59
LBP_RADIUS = 2
DIAGONAL = 1.41421  # 2·cos 45°, rounded to five digits as in scikit-image
MIN_CELL = 4  # Minimum side of a cell, in pixels, so that no block is empty


@kernel
def gray_levels(pixels):
    """Return the brightness of each pixel, uint8 (height, width), of uint8 pixels (height, width, 3).

    The weights are those of ITU-R 601, in units of 1/65536, and levels are rounded, as in Pillow's mode "L".
    """
    height, width = pixels.shape[0], pixels.shape[1]
    gray = np.empty((height, width), np.uint8)
    for row in range(height):
        for col in range(width):
            red_and_green = 19595 * np.int64(pixels[row, col, 0]) + 38470 * np.int64(pixels[row, col, 1])
            gray[row, col] = (red_and_green + 7471 * np.int64(pixels[row, col, 2]) + 32768) >> 16
    return gray


def lab_from_rgb(rgb):
    """Convert sRGB colours, (n, 3) from 0 to 255, to CIELAB (white point D65), float64 (n, 3).

    In CIELAB distances are close to perceived differences; L* is from 0 to 100, a* and b* are around 0.
    """
    unit_rgb = np.asarray(rgb, np.float64) / 255
    linear = np.where(unit_rgb > 0.04045, ((unit_rgb + 0.055) / 1.055) ** 2.4, unit_rgb / 12.92)
    xyz = linear @ XYZ_FROM_RGB.T / WHITE
    scaled = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz * (29 / 6) ** 2 / 3 + 4 / 29)
    x, y, z = scaled.T
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=1)


def colour_table(colours, lab):
    """Return the nearest codebook colour of each of the 32 × 32 × 32 boxes of the RGB cube, uint8 (32768,).

    `colours`, at most 256, are in CIELAB with `lab`, or in RGB from 0 to 255; distances use the same space. A box gets
    the colour nearest to its centre, the first one at ties. A pixel is at most 7 levels from its box's centre.
    """
    step = 256 // LEVELS
    middle = np.arange(LEVELS) * step + (step - 1) / 2
    boxes = np.stack(np.meshgrid(middle, middle, middle, indexing="ij"), axis=-1).reshape(-1, 3)
    first, second, third = np.ascontiguousarray((lab_from_rgb(boxes) if lab else boxes).T)
    best = np.full(first.size, np.inf)
    table = np.zeros(first.size, np.uint8)
    for index, (x, y, z) in enumerate(np.asarray(colours, np.float64)):
        distance = np.square(first - x) + np.square(second - y) + np.square(third - z)
        is_closer = distance < best
        best[is_closer] = distance[is_closer]
        table[is_closer] = index
    return table


@kernel
def colour_codes(pixels, table):
    """Return the codebook colour of each pixel, uint8 (height, width); `table` is from `colour_table`."""
    height, width = pixels.shape[0], pixels.shape[1]
    codes = np.empty((height, width), np.uint8)
    for row in range(height):
        for col in range(width):
            red, green, blue = pixels[row, col, 0], pixels[row, col, 1], pixels[row, col, 2]
            codes[row, col] = table[(np.int64(red) >> 3) * 1024 + (np.int64(green) >> 3) * 32 + (np.int64(blue) >> 3)]
    return codes


def lbp_codes(gray):
    """Return the code of every pixel of `gray`, uint8 (height, width).

    At its edges the image is extended by repeating the outermost pixels (scikit-image uses zeros, so codes differ in
    the outer two pixels). Codes are 0 to 58: 0 if all neighbours are darker, 57 if no neighbour is darker, 58 for
    patterns that are not uniform. 1 + 8 (m - 1) + s is a run of m neighbours that are not darker, which starts s steps
    clockwise of the right neighbour.
    """
    codes = np.empty(gray.shape, np.uint8)
    if codes.size:
        _fill_codes(np.pad(gray, LBP_RADIUS, mode="edge").astype(np.float64), UNIFORM_CODES, codes)
    return codes


def _uniform_table():
    """Map 8 bits (bit i: the neighbour at i·45° counter-clockwise from the right is not darker) to the 59 codes."""
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


UNIFORM_CODES = _uniform_table()


@kernel
def _fill_codes(padded, table, codes):
    """Fill `codes` from an image padded by two pixels; diagonals are interpolated along rows, then along columns."""
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


@kernel
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


def block_edges(length, stride):
    """Cut one side of an image, `length` pixels, into equal cells of about `stride` pixels, at least one.

    Return where cells begin and end, from 0 to `length`: int64, (n_cells + 1,).
    """
    max_cells = max(1, length // MIN_CELL)
    n_cells = min(max(1, round(length / stride)), max_cells)
    return np.rint(np.linspace(0, length, n_cells + 1)).astype(np.int64)


def block_histograms(texture, colour, n_colours, rows, cols, block_cells=2):
    """Return the histograms of texture and colour codes of all blocks of neighbouring cells.

    Texture codes are below 59, colour codes below `n_colours`. Both are uint8 (height, width); the edges of the
    cells, `rows` and `cols`, come from `block_edges`. Blocks have `block_cells` cells along a side (with 2 they
    overlap by half), or all cells if a side has fewer. Returns float32 (n_blocks, 59 + n_colours), row by row: the
    texture columns of a block sum to 1, and so do the colour columns.
    """
    cells = np.zeros((len(rows) - 1, len(cols) - 1, N_PATTERNS + n_colours), np.int32)
    _count_cells(texture, colour, rows, cols, cells)
    n_down, n_across = min(block_cells, cells.shape[0]), min(block_cells, cells.shape[1])
    n_rows, n_cols = cells.shape[0] - n_down + 1, cells.shape[1] - n_across + 1
    corners = [(i, j) for i in range(n_down) for j in range(n_across)]
    counts = np.sum([cells[i : i + n_rows, j : j + n_cols] for i, j in corners], axis=0).reshape(-1, cells.shape[2])

    n_pixels = counts[:, :N_PATTERNS].sum(axis=1, keepdims=True)
    return counts.astype(np.float32) / n_pixels.astype(np.float32)


@kernel
def _count_cells(texture, colour, rows, cols, cells):
    """Count the codes of all pixels in `cells`, zeros at the start; codes above the largest count as the largest."""
    n_codes = cells.shape[2]
    for i in range(cells.shape[0]):
        for j in range(cells.shape[1]):
            histogram = cells[i, j]
            for row in range(rows[i], rows[i + 1]):
                for col in range(cols[j], cols[j + 1]):
                    histogram[min(np.int64(texture[row, col]), N_PATTERNS - 1)] += 1
                    histogram[min(N_PATTERNS + np.int64(colour[row, col]), n_codes - 1)] += 1


def bag_row(visterms, shares, idf, root):
    """Weigh the visterms of an image; return their non-zero weights (float32) and ids (int32, ascending).

    `visterms` and `shares`, (n_blocks, n_nearest), are the visterms of a block and their shares of it; ids outside
    `idf`, (n_visterms,), are ignored. With `root`, weights use the square root of the term frequency. The squares of
    the weights sum to 1; both arrays are empty if no visterm has weight.
    """
    is_known = (visterms >= 0) & (visterms < len(idf))
    terms = np.bincount(visterms[is_known], shares[is_known], len(idf))
    terms = (np.sqrt(terms) if root else terms) * idf
    columns = np.flatnonzero(terms > 0)

    weights = terms[columns]
    length = np.sqrt(np.cumsum(weights * weights)[-1:])  # added in order: the same bytes on every machine
    return (weights / length).astype(np.float32), columns.astype(np.int32)
