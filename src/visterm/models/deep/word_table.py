"""The vectors of words in training: what they start with, and a table of which only drawn rows go to the network."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from visterm.core.errors import DataError, ShapeError, UserError
from visterm.kernels.row_moves import move_all_rows, move_drawn_rows

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

DIM = 300  # Numbers of a vector where nothing says how many: those of the paper
BLOCK_ROWS = 16_384


class WordTable:
    """A table of vectors that stays where it is, and learns by row-wise Adagrad (section 3.2).

    A batch takes the rows that it drew, as a tensor of its own on the network's device; their gradients come back and
    move those rows alone (unless `moving` is False). So neither a gradient nor a moment of the size of the table ever
    exists, but for costs that take all rows: Adagrad remembers one number a row in `sums`, the sum of the mean squares
    of its gradients. `rows`, float32 (n_tags, dim), are changed in place, and
    `taken` are the tensors that were taken since the last step, and the tags of each (None: all).
    """

    def __init__(self, rows: Floats, *, moving: bool, device: torch.device) -> None:
        self.rows = rows
        self.sums: Floats = np.zeros(len(rows) if moving else 0, np.float32)
        self.moving = moving
        self._device = device
        self.taken: list[tuple[Ints | None, torch.Tensor]] = []

    def take(self, tags: Ints) -> torch.Tensor:
        """Return rows for the network to use until `step`, shape (*tags.shape, dim)."""
        return self._lend(tags.reshape(-1), torch.from_numpy(self.rows[tags]).to(self._device))

    def take_all(self) -> torch.Tensor:
        """Return all rows, shape (n_tags, dim)."""
        return self._lend(None, torch.from_numpy(self.rows).to(self._device))

    def step(self, rate: float) -> None:
        """Move the rows that were taken, down their gradients, and forget that they were."""
        for tags, leaf in self.taken:
            if leaf.grad is None:
                continue
            gradients = np.ascontiguousarray(leaf.grad.reshape(-1, self.rows.shape[1]).cpu().numpy())
            if tags is None:
                move_all_rows(self.rows, self.sums, gradients, rate)
            else:
                keys = tags * tags.size + np.arange(tags.size)  # plain numbers sort in a fifth of `argsort`'s time
                keys.sort()
                move_drawn_rows(self.rows, self.sums, tags, keys % tags.size, gradients, rate)
        self.taken = []

    def _lend(self, tags: Ints | None, leaf: torch.Tensor) -> torch.Tensor:
        """Note the rows of tags (None: all, in order), whose gradients `step` moves them by."""
        if self.moving:
            self.taken.append((tags, leaf.requires_grad_()))
        return leaf


def start_vectors(
    given: Floats | None, n_tags: int, dim: int | None, rng: np.random.Generator, *, common: bool = False
) -> tuple[Floats, float | None]:
    """Return the start vectors of tags, float32 (n_tags, dim), and the factor that brings given ones to length 1.

    The length is that in the mean square. A memory map of given vectors is read in blocks. Rows of zeros are tags
    without a vector: their start values are random, as all are where nothing is given: normal, of length 1 in the mean
    square, and the factor is None. A `dim` of None is that of `given`, or 300. With `common`, where none are given, all
    have the same last number, which makes half of that length: so scores can be low for all tags alike.
    """
    width = (dim or DIM) if given is None else int(np.shape(given)[1])
    rows: Floats = np.empty((n_tags, width), np.float32)
    factor = None
    if given is not None:
        squares = sum(float(np.einsum("ij,ij->", block, block, dtype=np.float64)) for _, block in _blocks(given))
        n_given = sum(int(block.any(axis=1).sum()) for _, block in _blocks(given))
        factor = math.sqrt(n_given / squares) if squares else 1.0
    for first in range(0, n_tags, BLOCK_ROWS):
        block = rows[first : first + BLOCK_ROWS]
        if given is not None:
            block[:] = given[first : first + BLOCK_ROWS]
            _let_go(given)
            block *= np.float32(factor)
        missing = ~block.any(axis=1) if given is not None else np.ones(len(block), np.bool_)
        block[missing] = rng.standard_normal((int(missing.sum()), width), np.float32) / np.float32(math.sqrt(width))
        if common and given is None and width > 1:
            block *= np.float32(math.sqrt(0.5))
            block[:, -1] = math.sqrt(0.5)
    return rows, factor


def offset_for(rows: Floats, score: float) -> Floats:
    """Return the vector whose products with all rows are as near to a score as can be (least squares), (dim,).

    Of more than 16,384 rows the first ones count.
    """
    some = rows[:BLOCK_ROWS].astype(np.float64)
    return np.asarray(np.linalg.lstsq(some, np.full(len(some), score), rcond=1e-3)[0], np.float32)


def check_vectors(given: Floats, n_tags: int, dim: int | None) -> None:
    """Refuse word vectors that do not fit the tags.

    Raises ShapeError if there is not a row for each tag; UserError if `dim` says another width; DataError if a number
    is not finite.
    """
    shape = np.shape(given)
    if len(shape) != 2 or shape[0] != n_tags or shape[1] == 0:
        raise ShapeError(setting="word_vectors", value=shape, expected=f"a row for each of {n_tags} tags")
    if dim is not None and dim != shape[1]:
        expected = f"{shape[1]}, the numbers that `word_vectors` has of a tag"
        raise UserError(setting="dim", value=dim, expected=expected, advice="Leave `dim` out.")
    for first, block in _blocks(given):
        bad = np.flatnonzero(~np.isfinite(block).all(axis=1))
        if bad.size:
            raise DataError(f"The word vector of tag {first + bad[0]} has infinite numbers or NaN. Set it to zeros.")


def _blocks(given: Floats) -> Iterator[tuple[int, Floats]]:
    for first in range(0, len(given), BLOCK_ROWS):
        yield first, np.asarray(given[first : first + BLOCK_ROWS], np.float32)
        _let_go(given)


def _let_go(given: Floats) -> None:
    """Let go of what was read of a read-only memory map: else all of it stays in this process's memory as it trains.

    A map in another mode may hold changes that are in no file, and is left alone.
    """
    if not isinstance(given, np.memmap) or given.mode != "r":
        return
    base: Any = given
    while isinstance(base, np.ndarray):
        base = base.base
    if isinstance(base, mmap.mmap) and hasattr(base, "madvise") and hasattr(mmap, "MADV_DONTNEED"):
        base.madvise(mmap.MADV_DONTNEED)
