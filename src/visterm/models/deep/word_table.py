"""The vectors of words in training: their start values, and a table that sends only drawn rows to the network."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from visterm.core.errors import DataError, ShapeError, UserError
from visterm.core.types import Floats, Ints
from visterm.kernels.row_moves import move_drawn_rows

DEFAULT_DIM = 300  # Default width of vectors, from Ni et al.: Sampled image tagging
BLOCK_ROWS = 16_384


class WordTable:
    """A table of vectors in CPU memory, trained by row-wise Adagrad (Ni et al., section 3.2).

    A batch takes copies of the rows that it drew to the network's device; their gradients then change only these rows
    (unless `trainable` is False). So there is never a gradient or moment of the size of the table: Adagrad stores one
    number per row in `sums`, the sum of the mean squares of its gradients. `rows`, float32 (n_tags, dim), are changed
    in place. `taken` has, for each `take` since the last step, the tags and the tensor of their rows.
    """

    def __init__(self, rows: Floats, *, trainable: bool, device: torch.device) -> None:
        self.rows = rows
        self.sums: Floats = np.zeros(len(rows) if trainable else 0, np.float32)
        self.trainable = trainable
        self._device = device
        self.taken: list[tuple[Ints, torch.Tensor]] = []

    def take(self, tags: Ints) -> torch.Tensor:
        """Return the rows of tags as a tensor for the network, shape (*tags.shape, dim)."""
        leaf = torch.from_numpy(self.rows[tags]).to(self._device)
        if self.trainable:
            self.taken.append((tags.reshape(-1), leaf.requires_grad_()))
        return leaf

    def step(self, rate: float) -> None:
        """Change the taken rows by their gradients, and clear `taken`."""
        for tags, leaf in self.taken:
            if leaf.grad is None:
                continue
            gradients = np.ascontiguousarray(leaf.grad.reshape(-1, self.rows.shape[1]).cpu().numpy())
            keys = tags * tags.size + np.arange(tags.size)  # sorting numbers takes a fifth of the time of `argsort`
            keys.sort()
            move_drawn_rows(self.rows, self.sums, tags, keys % tags.size, gradients, rate)
        self.taken = []


def start_vectors(
    vectors: Floats | None, n_tags: int, dim: int | None, rng: np.random.Generator, *, shared_bias: bool = False
) -> tuple[Floats, float | None]:
    """Return the start vectors of tags, float32 (n_tags, dim), and the factor that scaled `vectors` to length 1.

    Length means root mean square length. A memory map is read in blocks. Rows of zeros mean tags without a vector,
    which get random start values: normal, of length 1. If `vectors` is None, all start values are random, and the
    factor is None. A `dim` of None is the width of `vectors`, or 300. With `shared_bias`, and without `vectors`, the
    last column is √0.5, half of the squared length of each row, which allows low scores for all tags.
    """
    width = (dim or DEFAULT_DIM) if vectors is None else int(np.shape(vectors)[1])
    rows: Floats = np.empty((n_tags, width), np.float32)
    factor = None
    if vectors is not None:
        squares = sum(float(np.einsum("ij,ij->", block, block, dtype=np.float64)) for _, block in _blocks(vectors))
        n_vectors = sum(int(block.any(axis=1).sum()) for _, block in _blocks(vectors))
        factor = math.sqrt(n_vectors / squares) if squares else 1.0

    for start in range(0, n_tags, BLOCK_ROWS):
        block = rows[start : start + BLOCK_ROWS]
        if vectors is not None:
            block[:] = vectors[start : start + BLOCK_ROWS]
            _free_pages(vectors)
            block *= np.float32(factor)
        missing = ~block.any(axis=1) if vectors is not None else np.ones(len(block), np.bool_)
        block[missing] = rng.standard_normal((int(missing.sum()), width), np.float32) / np.float32(math.sqrt(width))
        if shared_bias and vectors is None and width > 1:
            block *= np.float32(math.sqrt(0.5))
            block[:, -1] = math.sqrt(0.5)
    return rows, factor


def check_vectors(vectors: Floats, n_tags: int, dim: int | None) -> None:
    """Check that word vectors fit the tags.

    Raises ShapeError if the number of rows is not `n_tags`; UserError if `dim` is another width; DataError if a number
    is not finite.
    """
    shape = np.shape(vectors)
    if len(shape) != 2 or shape[0] != n_tags or shape[1] == 0:
        raise ShapeError(setting="word_vectors", value=shape, expected=f"a row for each of {n_tags} tags")
    if dim is not None and dim != shape[1]:
        expected = f"{shape[1]}, the width of `word_vectors`"
        raise UserError(setting="dim", value=dim, expected=expected, advice="Leave `dim` out.")
    for start, block in _blocks(vectors):
        invalid_rows = np.flatnonzero(~np.isfinite(block).all(axis=1))
        if invalid_rows.size:
            raise DataError(f"The word vector of tag {start + invalid_rows[0]} has infinity or NaN. Set it to zeros.")


def _blocks(vectors: Floats) -> Iterator[tuple[int, Floats]]:
    for start in range(0, len(vectors), BLOCK_ROWS):
        yield start, np.asarray(vectors[start : start + BLOCK_ROWS], np.float32)
        _free_pages(vectors)


def _free_pages(vectors: Floats) -> None:
    """Free the pages of a read-only memory map, which would otherwise stay in this process's memory during training.

    A map in another mode may have unsaved changes, and is not freed.
    """
    if not isinstance(vectors, np.memmap) or vectors.mode != "r":
        return
    base: Any = vectors
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap) and hasattr(base, "madvise") and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)
