"""Several catalogues of one run, searched as one: their images under ids that tell which catalogue each is of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from visterm.core.checks import check_k
from visterm.core.executor import Shards
from visterm.core.products import merged
from visterm.core.types import Matrix, Ranking
from visterm.store.filters import Filter
from visterm.store.rows import as_ids, as_queries, stack_rows
from visterm.store.searched import Ids, Where

APART = 2**40
"""Ids that each catalogue has room for: images come while others search, and the ids of no other move."""


class ShardedRows:
    """Rows of several stores, searched as one.

    The id of a row is its id in its shard, and what that shard's ids begin from. Scores, order and ties are those of
    one store with all rows under these ids: the best of all are among the best of each shard.

    Parameters
    ----------
    shards : Shards
        Of what has the searches of a `StoredCatalogue`; some may be empty.
    bases : sequence of int
        What the ids of each shard begin from, ascending; a shard's own ids are less than the distance to the next.
    """

    def __init__(self, shards: Shards, bases: Sequence[int]) -> None:
        self._shards = shards
        self._bases = np.asarray(bases, np.int64)

    def __len__(self) -> int:
        return sum(self.of_all("__len__"))

    @property
    def ids(self) -> Ids:
        """Ids of the images, in order."""
        return self.joined(self.of_all("searchable"))

    def search(self, q: Any, k: int = 10, *, among: Any = None) -> Ranking:
        """Find the rows with the largest dot products, see `StoredCatalogue.search`."""
        Q, k = as_queries(q), check_k(k, len(self))
        arguments: list[dict[str, Any]] = [{"q": Q, "k": max(k, 1)} for _ in self._bases]
        if among is not None:
            ids = as_ids(among)
            for given, base, places in zip(arguments, self._bases, self._divided(ids), strict=True):
                given["among"] = ids[places] - base
        found: list[Ranking] = self._shards.ask("search", arguments)
        nothing = Ranking(np.empty((Q.shape[0], 0), np.int64), np.empty((Q.shape[0], 0), np.float32))
        under = [Ranking(one.ids + base, one.scores) for one, base in zip(found, self._bases, strict=True)]
        best = merged([nothing, *under], k)
        return Ranking(best.ids[:, :k], best.scores[:, :k])

    def products(self, q: Any, ids: Any = None) -> NDArray[np.float32]:
        """Return the products of images (None: of all) with query rows, shape (n_images, n_queries)."""
        Q = as_queries(q)
        if ids is None:
            return np.concatenate(self.of_all("products", q=Q))
        wanted = np.asarray(ids, np.int64).ravel()
        found = np.empty((len(wanted), Q.shape[0]), np.float32)
        for places, products in self.of_some("products", wanted, q=Q):
            found[places] = products
        return found

    def rows(self, ids: Any) -> Matrix:
        """Return the rows of some images."""
        found = [(at, rows) for at, rows in self.of_some("rows", np.asarray(ids, np.int64).ravel()) if len(at)]
        if not found:
            return np.empty((0, 0), np.float32)
        return stack_rows([rows for _, rows in found])[np.argsort(np.concatenate([places for places, _ in found]))]

    def of_all(self, what: str, **given: Any) -> list[Any]:
        """Call a method of each shard with the same arguments, and return the answers in order."""
        return self._shards.ask(what, [given] * len(self._bases))

    def of_some(self, what: str, ids: Ids, **given: Any) -> list[tuple[Ids, Any]]:
        """Ask each shard about those of some images that are its own; return their places in `ids`, and answers."""
        divided = self._divided(ids)
        arguments = [given | {"ids": ids[places] - base} for places, base in zip(divided, self._bases, strict=True)]
        return list(zip(divided, self._shards.ask(what, arguments), strict=True))

    def joined(self, found: Sequence[Any]) -> Ids:
        """Return ids of each shard in one array, as ids of the whole."""
        parts = [np.asarray(ids, np.int64) + base for ids, base in zip(found, self._bases, strict=True)]
        return np.concatenate([np.empty(0, np.int64), *parts])

    def _divided(self, ids: Ids) -> list[Ids]:
        """Return the places, in `ids`, of those of each shard."""
        of_shard = np.searchsorted(self._bases, ids, "right") - 1
        return [np.flatnonzero(of_shard == shard) for shard in range(len(self._bases))]


class SearchedUnion:
    """Catalogues as searches ask them, see `Searched`.

    Parameters
    ----------
    shards : Shards
        Of `StoredCatalogue`.
    names : sequence of str
        Of the catalogues, for people.
    """

    def __init__(self, shards: Shards, names: Sequence[str]) -> None:
        self._names = list(names)
        self._rows = ShardedRows(shards, [APART * i for i in range(len(self._names))])

    def current_rows(self) -> ShardedRows:
        """Return the rows of all catalogues; each looks which ones it has now whenever it is asked."""
        return self._rows

    def find(self, wanted: Filter) -> Ids:
        """Return the ids of the images that pass a filter."""
        return self._rows.joined(self._rows.of_all("find", wanted=wanted))

    def lengths(self) -> tuple[Ids, NDArray[np.float32]]:
        """Return the lengths of rows; each catalogue measures its own, once."""
        found = self._rows.of_all("lengths")
        return self._rows.joined([ids for ids, _ in found]), np.concatenate([lengths for _, lengths in found])

    def rejected(self, tags: Sequence[str]) -> Ids:
        """Return the images of which a person has rejected one of some tags."""
        return self._rows.joined(self._rows.of_all("rejected", tags=list(tags)))

    def where(self, ids: Sequence[int]) -> list[Where]:
        """Return which images some ids are."""
        found: dict[int, Where] = {}
        answers = self._rows.of_some("where", np.asarray(ids, np.int64))
        for name, (places, these) in zip(self._names, answers, strict=True):
            found |= {int(at): one._replace(catalogue=name) for at, one in zip(places, these, strict=True)}
        return [found[place] for place in range(len(ids))]

    def at_path(self, path: str) -> int | None:
        """Return the image that lies at a path now: of the first catalogue that has it."""
        found = self._rows.of_all("at_path", path=path)
        ids = self._rows.joined([[] if one is None else [one] for one in found])
        return int(ids[0]) if len(ids) else None

    def called(self, name: str) -> list[int]:
        """Return the images of a name, or whose path ends so."""
        ids: list[int] = self._rows.joined(self._rows.of_all("called", name=name)).tolist()
        return ids
