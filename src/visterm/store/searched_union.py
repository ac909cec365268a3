"""Several catalogues of one run, searched as one: their images under ids that tell which catalogue each is of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.executor import Shards
from visterm.core.products import merged
from visterm.core.types import Matrix, Ranking
from visterm.store.base import as_queries, checked_question
from visterm.store.filters import Filter
from visterm.store.rows import stack_rows
from visterm.store.searched import Ids, Where

APART = 2**40
"""Ids that each catalogue has room for: images come while others search, and the ids of no other move."""


class SearchedUnion:
    """Catalogues, as searches ask them: `Searched`.

    Parameters
    ----------
    shards : Shards
        Of `StoredCatalogue`.
    names : sequence of str
        Of the catalogues, for people.
    """

    def __init__(self, shards: Shards, names: Sequence[str]) -> None:
        self._shards, self._names = shards, list(names)
        self._bases = [APART * i for i in range(len(self._names))]
        self._sharded = ShardedRows(shards, self._bases)

    def __len__(self) -> int:
        return len(self._sharded)

    def search(self, q: Any, k: int = 10, *, among: Any = None) -> Ranking:
        """Find the images with the largest dot products."""
        return self._sharded.search(q, k, among=among)

    def products(self, q: Any, ids: Any = None) -> NDArray[np.float32]:
        """Return the products of images with query rows."""
        Q = as_queries(q)
        if ids is None:
            return np.concatenate(self._of_all("products", q=Q))
        wanted = np.asarray(ids, np.int64).ravel()
        found = np.empty((len(wanted), Q.shape[0]), np.float32)
        for places, products in self._of_some("products", wanted, q=Q):
            found[places] = products
        return found

    def rows(self, ids: Any) -> Matrix:
        """Return the rows of some images."""
        parts = [
            (places, rows) for places, rows in self._of_some("rows", np.asarray(ids, np.int64).ravel()) if len(places)
        ]
        if not parts:
            return np.empty((0, 0), np.float32)
        return stack_rows([rows for _, rows in parts])[np.argsort(np.concatenate([places for places, _ in parts]))]

    def searchable(self) -> Ids:
        """Return the ids of the images that can be searched."""
        return self._joined(self._of_all("searchable"))

    def find(self, wanted: Filter) -> Ids:
        """Return the ids of the images that pass a filter."""
        return self._joined(self._of_all("find", wanted=wanted))

    def lengths(self) -> tuple[Ids, NDArray[np.float32]]:
        """Return the lengths of rows; each catalogue measures its own, once."""
        found = self._of_all("lengths")
        return self._joined([ids for ids, _ in found]), np.concatenate([lengths for _, lengths in found])

    def rejected(self, tags: Sequence[str]) -> Ids:
        """Return the images of which a person has rejected one of some tags."""
        return self._joined(self._of_all("rejected", tags=list(tags)))

    def where(self, ids: Sequence[int]) -> list[Where]:
        """Say which images some ids are."""
        wanted = np.asarray(ids, np.int64)
        found: dict[int, Where] = {}
        for name, (places, answers) in zip(self._names, self._of_some("where", wanted), strict=True):
            found |= {int(at): one._replace(catalogue=name) for at, one in zip(places, answers, strict=True)}
        return [found[place] for place in range(len(wanted))]

    def at_path(self, path: str) -> int | None:
        """Return the image that lies at a path now: of the first catalogue that has it."""
        found = self._of_all("at_path", path=path)
        return next((one + base for one, base in zip(found, self._bases, strict=True) if one is not None), None)

    def called(self, name: str) -> list[int]:
        """Return the images of a name, or whose path ends so."""
        found = self._of_all("called", name=name)
        return [one + base for these, base in zip(found, self._bases, strict=True) for one in these]

    def _of_all(self, what: str, **given: Any) -> list[Any]:
        return self._shards.ask(what, [given] * len(self._names))

    def _of_some(self, what: str, ids: Ids, **given: Any) -> list[tuple[Ids, Any]]:
        """Ask each catalogue about those of some images that are its own; give their places in `ids`, and answers."""
        divided = self._sharded.divided(ids)
        arguments = [given | {"ids": ids[places] - base} for places, base in zip(divided, self._bases, strict=True)]
        return list(zip(divided, self._shards.ask(what, arguments), strict=True))

    def _joined(self, found: Sequence[Any]) -> Ids:
        parts = [np.asarray(ids, np.int64) + base for ids, base in zip(found, self._bases, strict=True)]
        return np.concatenate([np.empty(0, np.int64), *parts])


class ShardedRows:
    """Rows of several stores, searched as one.

    The id of a row is its id in its shard, and what that shard's ids begin from. Scores, order and ties are those of
    one store with all rows under these ids: the best of all are among the best of each shard.

    Parameters
    ----------
    shards : Shards
        Of what has `search` and `__len__`; some may be empty.
    bases : sequence of int
        What the ids of each shard begin from, ascending; a shard's own ids are less than the distance to the next.
    """

    def __init__(self, shards: Shards, bases: Sequence[int]) -> None:
        self._shards = shards
        self._bases = np.asarray(bases, np.int64)

    def __len__(self) -> int:
        return sum(self._shards.ask("__len__", [{}] * len(self._shards)))

    def divided(self, ids: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        """Return the places, in `ids`, of those of each shard."""
        of_shard = np.searchsorted(self._bases, ids, "right") - 1
        return [np.flatnonzero(of_shard == shard) for shard in range(len(self._bases))]

    def search(self, q: Any, k: int = 10, *, among: Any = None) -> Ranking:
        """Find the rows with the largest dot products, see `StoredCatalogue.search`."""
        Q, k, wanted = checked_question(q, k, among, len(self), None)
        arguments: list[dict[str, Any]] = [{"q": Q, "k": max(k, 1)} for _ in self._bases]
        if wanted is not None:
            for given, base, places in zip(arguments, self._bases, self.divided(wanted), strict=True):
                given["among"] = wanted[places] - base
        found: list[Ranking] = self._shards.ask("search", arguments)
        nothing = Ranking(np.empty((Q.shape[0], 0), np.int64), np.empty((Q.shape[0], 0), np.float32))
        under = [Ranking(one.ids + base, one.scores) for one, base in zip(found, self._bases, strict=True)]
        best = merged([nothing, *under], k)
        return Ranking(best.ids[:, :k], best.scores[:, :k])
