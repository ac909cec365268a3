"""One pass over the rows of a features folder: shards are checked, rows measured, and validation rows drawn."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import check_magnitude
from visterm.core.progress import Progress, reported
from visterm.core.types import Matrix
from visterm.data.one_pass import Reservoir
from visterm.features.streaming.joining import NO_SPLIT, VALID, JoinedTags
from visterm.features.streaming.memory import Plan
from visterm.features.streaming.shards import Shards
from visterm.features.streaming.tag_rows import PAIRS
from visterm.features.streaming.windows import RowCopy
from visterm.models.base import MAX_FEATURE
from visterm.models.stopping import MIN_HELD_OUT
from visterm.store.rows import stack_rows

MOST_VALID = 5000  # Rows that say when to stop, at most: more say it hardly better, and each epoch waits for them


class Survey(NamedTuple):
    """What one pass over the rows finds."""

    mean_length: float  # Of the rows to learn from, those held out too
    valid: tuple[Matrix, sp.csr_array] | None  # Rows that say when to stop
    held_out: NDArray[np.int64]  # Their positions, sorted, where they are taken from the rows to learn from
    # Images to learn from, and their tags
    n_learned: int
    n_pairs: int


def survey(
    shards: Shards,
    tags: JoinedTags,
    share: float,
    seed: int,
    plan: Plan,
    progress: Progress,
    copy: RowCopy | None = None,
) -> Survey:
    """Go once over all rows: check the shards, measure rows, and draw those that early stopping validates on.

    These are of the split "valid" where the tags name it, else `share` of those to learn from; none where that is less
    than 50. Rows go into the copy, if there is one.
    """
    counts = tags.split_counts()
    n_learned = sum(n for bits, n in counts.items() if bits & tags.learned)
    n_split = 0 if tags.learned == NO_SPLIT else sum(n for bits, n in counts.items() if bits & VALID)
    width = max(1, shards.contents.width)
    most = min(MOST_VALID, max(MIN_HELD_OUT, plan.window // (4 * width)))
    n_valid = n_split or round(share * n_learned)
    chosen = draw_positions(shards, tags, VALID if n_split else tags.learned, min(n_valid, most), seed)
    if not n_split and chosen.size < MIN_HELD_OUT:
        chosen = chosen[:0]
    squares, n_pairs = 0.0, 0
    parts: list[Matrix] = []
    with reported(progress, "survey features", shards.n_rows):
        for number in range(len(shards)):
            shards.check(number)
            rows: Any = shards.rows(number)
            first, last = shards.starts[number : number + 2].tolist()
            check_magnitude(rows.data if sp.issparse(rows) else rows, MAX_FEATURE, "X")
            if copy is not None:
                copy.add(rows)
            kept = tags.learned_among(first, last)
            squares += _squares(rows, kept)
            n_pairs += tags.rows_at(first + np.flatnonzero(kept)).nnz
            start, stop = np.searchsorted(chosen, [first, last])
            if stop > start:
                parts.append(rows[chosen[start:stop] - first])
            progress.advance(last - first)
    valid = (stack_rows(parts), tags.rows_at(chosen)) if chosen.size else None
    usable = valid is not None and valid[1].nnz > 0
    held_out = chosen[:0] if n_split or not usable else chosen
    n_pairs -= valid[1].nnz if valid is not None and held_out.size else 0
    mean_length = math.sqrt(squares / max(1, n_learned))
    return Survey(mean_length, valid if usable else None, held_out, n_learned, n_pairs)


def draw_positions(shards: Shards, tags: JoinedTags, bit: int, n: int, seed: int) -> NDArray[np.int64]:
    """Draw positions of images with a bit, in one pass."""
    reservoir = Reservoir(n)
    for start in range(0, shards.n_rows, PAIRS):
        bits = np.asarray(tags.bits[start : start + PAIRS])
        keys = np.random.default_rng([seed, start]).random(bits.size)
        there = np.flatnonzero(bits & bit)
        reservoir.offer(keys[there], start + there)
    return reservoir.sample()


def _squares(rows: Any, kept: NDArray[np.bool_]) -> float:
    chosen = rows[np.flatnonzero(kept)] if sp.issparse(rows) or not kept.all() else rows
    values = (chosen.data if sp.issparse(chosen) else chosen).reshape(-1)
    return float(np.einsum("i,i->", values, values, dtype=np.float64))
