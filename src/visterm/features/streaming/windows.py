"""One pass over a features folder to check, measure and hold out rows; then windows of rows for training.

A window is a group of shards, drawn again in each epoch; the next window is read while the current one is trained on.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import check_magnitude, stack_rows
from visterm.core.progress import Progress, reported
from visterm.core.threads import map_ahead
from visterm.core.types import Matrix
from visterm.features.streaming.joining import NO_SPLIT, VALID, TagsOnDisk
from visterm.features.streaming.memory import Plan
from visterm.features.streaming.shards import Shards, grouped
from visterm.models.base import MAX_FEATURE
from visterm.models.stopping import MIN_HELD_OUT

IMAGES_PER_DRAW = 2**20  # Number of images whose keys are from one generator
MAX_VALID_ROWS = 5000  # Maximum number of validation rows: more are hardly more precise, and slow down every epoch


class Survey(NamedTuple):
    """The result of one pass over the rows."""

    mean_length: float  # Root mean square length of the training rows, held-out rows included
    valid: tuple[Matrix, sp.csr_array] | None  # Validation rows for early stopping
    held_out: NDArray[np.int64]  # Sorted positions of the validation rows, if they are taken from the training rows
    # Numbers of training images, and of their tags
    n_learned: int
    n_pairs: int


def survey(shards: Shards, tags: TagsOnDisk, share: float, seed: int, plan: Plan, progress: Progress) -> Survey:
    """Read all rows once: check the shards, measure the rows, and draw the validation rows for early stopping.

    Validation rows are from the split "valid" if there is one, otherwise a `share` of the training rows, unless these
    are fewer than 50.
    """
    n_learned = tags.count(tags.learned)
    n_split = 0 if tags.learned == NO_SPLIT else tags.count(VALID)
    max_valid = min(MAX_VALID_ROWS, max(MIN_HELD_OUT, plan.window // (4 * max(1, shards.contents.width))))
    n_valid = n_split or round(share * n_learned)
    chosen = draw_positions(shards, tags, VALID if n_split else tags.learned, min(n_valid, max_valid), seed)
    if not n_split and chosen.size < MIN_HELD_OUT:
        chosen = chosen[:0]

    squares, n_pairs = 0.0, 0
    parts: list[Matrix] = []
    with reported(progress, "survey features", shards.n_rows):
        for number in range(len(shards)):
            shards.check(number)
            rows: Any = shards.read(number).rows
            first, end = shards.starts[number : number + 2].tolist()
            check_magnitude(rows.data if sp.issparse(rows) else rows, MAX_FEATURE, "X")
            is_learned = tags.learned_among(first, end)
            measured = rows[np.flatnonzero(is_learned)] if sp.issparse(rows) or not is_learned.all() else rows
            values = (measured.data if sp.issparse(measured) else measured).reshape(-1)
            squares += float(np.einsum("i,i->", values, values, dtype=np.float64))
            n_pairs += tags.rows_at(first + np.flatnonzero(is_learned)).nnz
            low, high = np.searchsorted(chosen, [first, end])
            if high > low:
                parts.append(rows[chosen[low:high] - first])
            progress.advance(end - first)

    valid = (stack_rows(parts), tags.rows_at(chosen)) if chosen.size else None
    is_usable = valid is not None and valid[1].nnz > 0
    held_out = chosen[:0] if n_split or not is_usable else chosen
    n_pairs -= valid[1].nnz if valid is not None and held_out.size else 0
    mean_length = math.sqrt(squares / max(1, n_learned))
    return Survey(mean_length, valid if is_usable else None, held_out, n_learned, n_pairs)


def draw_positions(shards: Shards, tags: TagsOnDisk, bit: int, n: int, seed: int) -> NDArray[np.int64]:
    """Draw `n` positions of images with a bit uniformly, in one pass; the result is sorted.

    Each image draws a random key; the sample are the images with the smallest keys (reservoir sampling).
    """
    smallest, sample = np.empty(0), np.empty(0, np.int64)
    for start in range(0, shards.n_rows, IMAGES_PER_DRAW):
        bits = tags.bits[start : start + IMAGES_PER_DRAW]
        keys = np.random.default_rng([seed, start]).random(bits.size)
        candidates = np.flatnonzero(bits & bit)
        smallest, sample = np.append(smallest, keys[candidates]), np.append(sample, start + candidates)
        chosen = np.argsort(smallest, kind="stable")[:n]
        smallest, sample = smallest[chosen], sample[chosen]
    return np.sort(sample)


class ShardWindows:
    """The training images of a features folder, as the input of `fit_stream`.

    The shards of an epoch are in a random order that depends on the seed and the epoch, and are grouped into windows of
    up to `window` bytes; a larger shard is a window of its own. Training draws the order of pairs within a window.
    The images that `stats` holds out are left out.

    The attributes are those of `visterm.models.ranking.training.Windows`.
    """

    def __init__(self, shards: Shards, tags: TagsOnDisk, stats: Survey, *, window: int, seed: int) -> None:
        self._shards, self._tags, self._held_out = shards, tags, stats.held_out
        self._window, self._seed = window, seed
        self.n_features, self.n_tags = shards.contents.width, tags.n_tags
        self.n_pairs, self.mean_length = stats.n_pairs, stats.mean_length

    def plan(self, epoch: int) -> list[list[int]]:
        """Return the shards of each window of an epoch."""
        order = np.random.default_rng([self._seed, epoch]).permutation(len(self._shards)).tolist()
        return grouped(order, self._shards.sizes, self._window)

    def epoch(self, epoch: int, first: int = 0) -> Generator[tuple[Matrix, sp.csr_array]]:
        """Yield the windows of an epoch; the memory of a window is reused for the next window but one."""
        plan = self.plan(epoch)[first:]
        is_dense = self._shards.contents.layout == "dense"
        counts = np.diff(self._shards.starts)
        n_rows = max((int(counts[part].sum()) for part in plan), default=0) if is_dense else 0
        buffers = [np.empty((n_rows, self.n_features), np.float32) for _ in range(min(2, len(plan)))]
        yield from map_ahead(lambda number: self._read(plan[number], buffers[number % 2]), range(len(plan)))

    def _read(self, numbers: list[int], buffer: NDArray[np.float32]) -> tuple[Matrix, sp.csr_array]:
        """Return the training rows and the tags of shards; dense rows are written into `buffer`."""
        parts, tags = [], []
        n_filled = 0
        for number in numbers:
            first, end = self._shards.starts[number : number + 2].tolist()
            is_learned = self._tags.learned_among(first, end)
            low, high = np.searchsorted(self._held_out, [first, end])
            is_learned[self._held_out[low:high] - first] = False
            chosen = np.flatnonzero(is_learned)
            tags.append(self._tags.rows_at(first + chosen))
            rows: Any = self._shards.read(number).rows
            if sp.issparse(rows):
                parts.append(rows[chosen])
            else:  # in the mode "raise", `take` copies the rows twice
                np.take(rows, chosen, axis=0, out=buffer[n_filled : n_filled + chosen.size], mode="clip")
                n_filled += chosen.size
        return stack_rows(parts) if parts else buffer[:n_filled], sp.csr_array(sp.vstack(tags, format="csr"))
