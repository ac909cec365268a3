"""Colours: brightness of pixels, and the nearest of a few codebook colours through a table."""

from __future__ import annotations

import numpy as np
from numba import njit

LEVELS = 32  # Levels a channel of the colour table: its 32,768 bytes stay in the first cache
XYZ_FROM_RGB = np.array(
    [[0.412453, 0.357580, 0.180423], [0.212671, 0.715160, 0.072169], [0.019334, 0.119193, 0.950227]]
)
"""Linear sRGB to CIE XYZ (ITU-R BT.709 primaries, D65)."""

WHITE = np.array([0.95047, 1.0, 1.08883])  # CIE XYZ of the white point D65, 2° observer


@njit(cache=True, nogil=True)
def gray_levels(pixels):
    """Return the brightness of each pixel, uint8 (height, width), of uint8 pixels (height, width, 3).

    The weights are those of ITU-R 601, in units of 1/65536, and levels are rounded, as Pillow's mode "L" has it.
    """
    height, width = pixels.shape[0], pixels.shape[1]
    gray = np.empty((height, width), np.uint8)
    for row in range(height):
        for col in range(width):
            red, green, blue = (
                np.int64(pixels[row, col, 0]),
                np.int64(pixels[row, col, 1]),
                np.int64(pixels[row, col, 2]),
            )
            gray[row, col] = (19595 * red + 38470 * green + 7471 * blue + 32768) >> 16
    return gray


def lab_from_rgb(rgb):
    """Convert sRGB colours, (n, 3) from 0 to 255, to CIELAB (white point D65), float64 (n, 3).

    There distances are about as large as they look; L* is from 0 to 100, a* and b* are around 0.
    """
    share = np.asarray(rgb, np.float64) / 255
    linear = np.where(share > 0.04045, ((share + 0.055) / 1.055) ** 2.4, share / 12.92)
    xyz = linear @ XYZ_FROM_RGB.T / WHITE
    root = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz * (29 / 6) ** 2 / 3 + 4 / 29)
    x, y, z = root.T
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=1)


def colour_table(colours, lab):
    """Find the nearest codebook colour of each of the 32 × 32 × 32 boxes that the RGB cube is cut into, uint8 (32768,).

    `colours`, at most 256, are in CIELAB with `lab`, where distances are then measured, or in RGB from 0 to 255. A box
    takes the colour nearest to its middle, the first of equals. A pixel is at most 7 levels from its box's middle.
    """
    step = 256 // LEVELS
    middle = np.arange(LEVELS) * step + (step - 1) / 2
    boxes = np.stack(np.meshgrid(middle, middle, middle, indexing="ij"), axis=-1).reshape(-1, 3)
    first, second, third = np.ascontiguousarray((lab_from_rgb(boxes) if lab else boxes).T)
    best = np.full(first.size, np.inf)
    table = np.zeros(first.size, np.uint8)
    for index, (x, y, z) in enumerate(np.asarray(colours, np.float64)):
        distance = np.square(first - x) + np.square(second - y) + np.square(third - z)
        closer = distance < best
        best[closer] = distance[closer]
        table[closer] = index
    return table


@njit(cache=True, nogil=True)
def colour_codes(pixels, table):
    """Return the codebook colour of each pixel, uint8 (height, width); `table` is from `colour_table`."""
    height, width = pixels.shape[0], pixels.shape[1]
    codes = np.empty((height, width), np.uint8)
    for row in range(height):
        for col in range(width):
            red, green, blue = pixels[row, col, 0], pixels[row, col, 1], pixels[row, col, 2]
            codes[row, col] = table[(np.int64(red) >> 3) * 1024 + (np.int64(green) >> 3) * 32 + (np.int64(blue) >> 3)]
    return codes
