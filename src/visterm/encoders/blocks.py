"""How a photo becomes blocks: codes of its pixels, and the points that its blocks are at each scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import UserError
from visterm.kernels.colour import colour_codes, gray_levels
from visterm.kernels.histograms import block_edges, block_histograms
from visterm.kernels.texture import N_PATTERNS, lbp_codes

MOST_CELLS = 8  # Along the side of a block: a pixel is then in 64 blocks of each scale
ROUNDED = 1e-3  # How far from 1 - 1/n an overlap may be written


class Codes(NamedTuple):
    """An image as codes of its pixels, two bytes a pixel: what blocks count."""

    texture: NDArray[np.uint8]  # shape (height, width): lBP codes below 59
    colour: NDArray[np.uint8]  # shape (height, width): codebook colours


def pixel_codes(pixels: NDArray[np.uint8], table: NDArray[np.uint8]) -> Codes:
    """Code each pixel of an RGB image; `table` maps colours (see `colour_table`)."""
    return Codes(lbp_codes(gray_levels(pixels)), colour_codes(pixels, table))


def cells_of_overlap(overlap: Any) -> int:
    """Return the cells along the side of blocks with this overlap: n for 1 - 1/n.

    Raises UserError if there is no such n.
    """
    if isinstance(overlap, int | float | np.number) and not isinstance(overlap, bool) and 0 <= overlap < 1:
        n = round(1 / (1 - overlap))
        if n <= MOST_CELLS and abs(overlap - (1 - 1 / n)) < ROUNDED:
            return n
    raise UserError(
        f"overlap is {overlap!r}; expected 0, or 1 - 1/n for a whole n up to {MOST_CELLS}: 0.5, 0.667, 0.75, 0.8, ..."
    )


@dataclass(frozen=True)
class BlockCutter:
    """Cuts images into overlapping blocks, and describes each by a point."""

    sides: tuple[float, ...]  # Side of a block at each scale, as a share of the image's long side
    n_colours: int
    root: bool  # Points are square roots of histograms
    texture_weight: float  # What the texture part of points is multiplied with
    block_cells: int = 2  # Steps from one block to the next along the side of a block (see `cells_of_overlap`)

    def count(self, codes: Codes, scale: int) -> int:
        """Return how many blocks an image has at a scale."""
        stride = self._stride(codes, scale)
        rows, cols = (block_edges(side, stride) for side in codes.texture.shape)
        return max(1, len(rows) - self.block_cells) * max(1, len(cols) - self.block_cells)

    def points(self, codes: Codes, scale: int) -> NDArray[np.float32]:
        """Describe the blocks of an image at a scale, row by row, shape (n_blocks, 59 + n_colours)."""
        (height, width), stride = codes.texture.shape, self._stride(codes, scale)
        rows, cols = block_edges(height, stride), block_edges(width, stride)
        points: NDArray[np.float32] = block_histograms(
            codes.texture, codes.colour, self.n_colours, rows, cols, self.block_cells
        )
        if self.root:
            np.sqrt(points, out=points)
        points[:, :N_PATTERNS] *= np.float32(self.texture_weight)
        return points

    def boxes(self, codes: Codes, scale: int) -> NDArray[np.float64]:
        """Return where the blocks of an image lie at a scale, in the order of `points`: float64, shape (n_blocks, 4).

        Left, top, right and bottom are shares of the image's width and height.
        """
        (height, width), stride = codes.texture.shape, self._stride(codes, scale)
        top, bottom = _ends(block_edges(height, stride) / height, self.block_cells)
        left, right = _ends(block_edges(width, stride) / width, self.block_cells)
        shape = (len(top), len(left))
        sides = (left[None, :], top[:, None], right[None, :], bottom[:, None])
        return np.stack([np.broadcast_to(side, shape).ravel() for side in sides], axis=1)

    def _stride(self, codes: Codes, scale: int) -> float:
        """Return the pixels along the side of a cell, about."""
        height, width = codes.texture.shape
        return float(max(height, width) * self.sides[scale] / self.block_cells)


def _ends(edges: NDArray[np.float64], block_cells: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return where blocks begin and end along one side: all cells are one block where there are fewer than it has."""
    cells = min(block_cells, len(edges) - 1)
    return edges[:-cells], edges[cells:]
