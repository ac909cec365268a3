"""Rows with ids, some of them hidden: which there are, and the course of a search, wherever the rows lie."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from visterm.core.products import merged
from visterm.core.types import Matrix, Ranking

PASSED_OVER = 200
"""Hidden rows up to which a search finds so many more, and drops them; with more it reads the others one by one."""

SELECTIVE = 16
"""Of so many ids one or more: a table of all of them is quicker than looking each up."""


class Candidates(Protocol):
    """An index: rows that may be among the best. `n_rows` are covered, from the first on."""

    n_rows: int

    def candidates(self, q: NDArray[np.float32], k: int) -> NDArray[np.int64] | None:
        """Return places of rows, ascending, that hold most of the `k` best; None where an exact search is better."""


class AnyPart(ABC):
    """Rows with ids; a subclass says where they lie, by three hooks.

    Parameters
    ----------
    ids : ndarray of int64, shape (n,)
        None of the visible ones twice.
    hidden : ndarray of int64
        Places of rows that no search finds, ascending.
    index : Candidates, optional
        Of dense rows.
    """

    def __init__(
        self, ids: NDArray[np.int64], hidden: NDArray[np.int64] | None = None, index: Candidates | None = None
    ) -> None:
        self.ids = ids
        self.hidden = np.empty(0, np.int64) if hidden is None else hidden
        self.index = index

    @abstractmethod
    def take(self, places: NDArray[np.int64]) -> Matrix:
        """Return the rows at some places, in that order."""

    @abstractmethod
    def products(self, Q: NDArray[np.float32], places: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
        """Return the products of rows (None: of all visible ones) with a few queries, shape (n_rows, n_queries)."""

    @abstractmethod
    def _best_places(self, Q: NDArray[np.float32], k: int, places: NDArray[np.int64] | None) -> Ranking:
        """Find the places with the `k` largest products, among all or some (ascending); exact."""

    def __len__(self) -> int:
        return len(self.ids) - len(self.hidden)

    @cached_property
    def visible(self) -> NDArray[np.int64]:
        """Places of the rows that are not hidden, ascending."""
        return np.delete(np.arange(len(self.ids)), self.hidden)

    @cached_property
    def visible_ids(self) -> NDArray[np.int64]:
        """Ids of the rows that are not hidden, in their order."""
        return self.ids if len(self.hidden) == 0 else self.ids[self.visible]

    def places(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places of visible rows by id, ascending; unknown ids (sorted, unique) are left out."""
        if len(ids) == 0 or len(self) == 0:
            return np.empty(0, np.int64)
        if self._follow_each_other:
            first = self.ids[0]
            inside = slice(*np.searchsorted(ids, (first, first + len(self.ids))))
            places: NDArray[np.int64] = ids[inside] - first
        elif len(ids) * SELECTIVE > len(self.ids):
            wanted = np.zeros(self._largest + 2, np.bool_)
            wanted[ids[(ids >= 0) & (ids <= self._largest)]] = True
            places = np.flatnonzero(wanted[self.ids])
        else:
            places = self._look_up(ids)
        if len(self.hidden):
            places = np.setdiff1d(places, self.hidden, assume_unique=True)
        return places

    def best(self, Q: NDArray[np.float32], k: int, places: NDArray[np.int64] | None = None) -> Ranking:
        """Find the best of a few queries among the visible rows, or among some of them by place; at most k, by id."""
        if places is None and self.index is not None:
            by_index = [self._best_by_index(q[None, :], k) for q in Q]
            if all(one is not None for one in by_index):
                found = Ranking(*(np.concatenate(part) for part in zip(*filter(None, by_index), strict=True)))
                return Ranking(self.ids[found.ids], found.scores)
        passed_over = 0
        if places is None and len(self.hidden):
            if len(self.hidden) <= PASSED_OVER:
                passed_over = len(self.hidden)
            else:
                places = self.visible
        n_rows = len(self.ids) if places is None else len(places)
        wanted = min(k + passed_over, n_rows)
        found = self._ranked(Q, wanted, places)
        if passed_over:
            found = _without(found, self.hidden, min(k, len(self)))
        return Ranking(self.ids[found.ids], found.scores)

    def _ranked(self, Q: NDArray[np.float32], k: int, places: NDArray[np.int64] | None) -> Ranking:
        """Find the `k` best places; equal ones by id, though rows of changed images lie behind those of later ones."""
        n_rows = len(self.ids) if places is None else len(places)
        if k == 0 or self._ascending:
            return self._best_places(Q, k, places)
        wanted = min(k + 1, n_rows)
        found = self._best_places(Q, wanted, places)
        while wanted < n_rows and (found.scores[:, -1] == found.scores[:, k - 1]).any():
            wanted = min(2 * wanted, n_rows)
            found = self._best_places(Q, wanted, places)
        order = np.lexsort((self.ids[found.ids], -found.scores), axis=1)[:, :k]
        return Ranking(np.take_along_axis(found.ids, order, 1), np.take_along_axis(found.scores, order, 1))

    def _best_by_index(self, q: NDArray[np.float32], k: int) -> Ranking | None:
        """Score the index's candidates, and the rows that came after it was made, as exact search does."""
        assert self.index is not None
        chosen = self.index.candidates(q, k)
        if chosen is None:
            return None
        if len(self.hidden):
            chosen = np.setdiff1d(chosen, self.hidden, assume_unique=True)
        n_covered = self.index.n_rows
        later = np.arange(n_covered, len(self.ids))
        if len(self.hidden):
            later = np.setdiff1d(later, self.hidden, assume_unique=True)
        k = min(k, len(self))
        if len(chosen) < min(k, len(self) - len(later)):
            return None
        found = self._best_places(q, k, chosen)
        if len(later) == 0:
            return found
        return merged([found, self._best_places(q, min(k, len(later)), later)], k)

    @cached_property
    def _largest(self) -> int:
        return int(self.ids.max(initial=-1))

    @cached_property
    def _follow_each_other(self) -> bool:
        return bool((np.diff(self.ids) == 1).all())

    @cached_property
    def _ascending(self) -> bool:
        return bool((np.diff(self.ids) > 0).all())

    @cached_property
    def _order(self) -> NDArray[np.int64] | None:
        """The visible places by id; None where the rows lie so."""
        if len(self.hidden) == 0 and self._ascending:
            return None
        return self.visible[np.argsort(self.visible_ids, kind="stable")]

    def _look_up(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        order = self._order
        there = self.ids if order is None else self.ids[order]
        at = np.searchsorted(there, ids)
        at = at[(at < len(there)) & (there[np.minimum(at, len(there) - 1)] == ids)]
        return at if order is None else np.sort(order[at])


def _without(found: Ranking, hidden: NDArray[np.int64], k: int) -> Ranking:
    kept = np.argsort(np.isin(found.ids, hidden), axis=1, kind="stable")[:, :k]
    return Ranking(np.take_along_axis(found.ids, kept, 1), np.take_along_axis(found.scores, kept, 1))
