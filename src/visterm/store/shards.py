"""Rows in shards: each is asked for its best, and these are put together, so that the result is that of one store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.executor import Shards
from visterm.core.types import Matrix, Ranking
from visterm.store.any_part import merged
from visterm.store.base import SearchedRows


class ShardedRows(SearchedRows):
    """Rows of several stores, searched as one.

    The id of a row is its id in its shard, and what that shard's ids begin from. Scores, order and ties are those of
    one store with all rows under these ids: the best of all are among the best of each shard.

    Parameters
    ----------
    shards : Shards
        Of `SearchedRows`; some may be empty.
    bases : sequence of int
        What the ids of each shard begin from, ascending; a shard's own ids are less than the distance to the next.
    """

    def __init__(self, shards: Shards, bases: Sequence[int]) -> None:
        self._shards = shards
        self._bases = np.asarray(bases, np.int64)

    def __len__(self) -> int:
        return sum(self._shards.ask("__len__", [{}] * len(self._shards)))

    @property
    def width(self) -> int | None:
        """None: each shard looks whether a query fits it."""
        return None

    def divided(self, ids: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Give the places, in `ids`, of those of each shard."""
        of_shard = np.searchsorted(self._bases, ids, "right") - 1
        return [np.flatnonzero(of_shard == shard) for shard in range(len(self._bases))]

    def _search(self, Q: Matrix, k: int, among: NDArray[np.int64] | None) -> Ranking:
        arguments: list[dict[str, Any]] = [{"q": Q, "k": max(k, 1)} for _ in self._bases]
        if among is not None:
            for given, base, places in zip(arguments, self._bases, self.divided(among), strict=True):
                given["among"] = among[places] - base
        found: list[Ranking] = self._shards.ask("search", arguments)
        nothing = Ranking(np.empty((Q.shape[0], 0), np.int64), np.empty((Q.shape[0], 0), np.float32))
        under = [Ranking(one.ids + base, one.scores) for one, base in zip(found, self._bases, strict=True)]
        best = merged([nothing, *under], k)
        return Ranking(best.ids[:, :k], best.scores[:, :k])
