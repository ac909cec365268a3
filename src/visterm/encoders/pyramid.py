"""Spatial pyramids: what each level weighs, and bags of words counted in the whole picture, its quarters, ..."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from visterm.core.errors import UserError
from visterm.kernels.histograms import bag_row

MOST_LEVELS = 6


def weights_of_levels(levels: int, given: Sequence[float] | None) -> NDArray[np.float64]:
    """Return the weights of the levels, the whole picture first; they sum to 1.

    `given` weights are in proportion. None: 1/2 for the finest, half as much for each coarser one, the coarsest as the
    one after it.
    """
    if given is not None:
        weights: NDArray[np.float64] = np.array(given, np.float64)
        weights /= weights.sum()
        return weights
    return np.array([2.0 ** (max(level, 1) - levels) for level in range(levels)])


def check_levels(levels: Any, given: Any) -> None:
    """Refuse levels that no pyramid has, and weights that are not one number above 0 for each."""
    check_whole(levels, "levels", 1, MOST_LEVELS)
    if given is None:
        return
    what = f"{levels} numbers above 0, one a level"
    check_numbers(given, "level_weights", f"None, or {what}")
    if len(given) != levels:
        raise UserError(f"level_weights is {given!r}; expected {what}.")


def check_whole(value: Any, name: str, least: int, most: int) -> None:
    """Refuse what is not a whole number from `least` to `most`."""
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or not least <= value <= most:
        raise UserError(f"{name} is {value!r}; expected a whole number from {least} to {most}.")


def check_numbers(values: Any, name: str, expected: str, *, most: float = np.inf) -> None:
    """Refuse what is not a sequence of one finite number or more, each above 0 and at most `most`."""
    listed = list(values) if isinstance(values, Sequence | np.ndarray) and not isinstance(values, str) else []
    right = [isinstance(v, int | float | np.number) and not isinstance(v, bool) and 0 < v <= most for v in listed]
    if not right or not all(right) or not np.isfinite(listed).all():
        raise UserError(f"{name} is {values!r}; expected {expected}.")


class Level(NamedTuple):
    """The columns of one level, and the words of an image as their numbers."""

    columns: slice  # Of the row
    words: NDArray[np.int32]  # shape (n_blocks, n_nearest): numbered from the level's first column on
    factor: np.float32  # What the level's bag, of length 1, is multiplied with


class VistermPyramid(NamedTuple):
    """How rows of words in cells are laid out: level by level, cell by cell (row by row), word by word."""

    n_words: int
    weights: NDArray[np.float64]
    """shape (n_levels,): what each level weighs in the inner product of two rows; they sum to 1."""

    @property
    def n_columns(self) -> int:
        """How long rows are."""
        return self._first(len(self.weights))

    @property
    def knows_places(self) -> bool:
        """Whether there is more than the whole picture, so that it counts where a block lies."""
        return len(self.weights) > 1

    def levels(self, words: NDArray[np.int32], boxes: NDArray[np.float64]) -> Iterator[Level]:
        """Yield the words of an image, numbered anew at each level by the cell that the centre of a block lies in.

        `words` are (n_blocks, n_nearest); `boxes`, (n_blocks, 4), are left, top, right and bottom as shares of the
        image's width and height. Boxes are not read where there is one level.
        """
        for level, weight in enumerate(self.weights):
            numbered = words
            if level:
                n = 2**level
                column, row = np.minimum((boxes[:, :2] + boxes[:, 2:]) * (n / 2), n - 1).astype(np.int32).T
                numbered = words + ((row * n + column) * np.int32(self.n_words))[:, None]
            columns = slice(self._first(level), self._first(level + 1))
            yield Level(columns, numbered, np.float32(np.sqrt(weight)))

    def row(
        self,
        words: NDArray[np.int32],
        shares: NDArray[np.float32],
        boxes: NDArray[np.float64],
        idf: NDArray[np.float32],
        *,
        root: bool,
    ) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
        """Make the row of an image: the bag of each level (`bag_row`), times the root of the level's weight.

        `words` and `boxes` are as in `levels`, `shares` (n_blocks, n_nearest), `idf` (n_columns,). Returns weights
        (float32) and increasing columns (int32).
        """
        parts = []
        for level in self.levels(words, boxes):
            weights, columns = bag_row(level.words, shares, idf[level.columns], root)
            parts.append((weights * level.factor, columns + np.int32(level.columns.start)))
        return np.concatenate([weights for weights, _ in parts]), np.concatenate([columns for _, columns in parts])

    def _first(self, level: int) -> int:
        """Return the first column of a level: after the 1 + 4 + 16 + ... cells of those before it."""
        return self.n_words * int((4**level - 1) // 3)
