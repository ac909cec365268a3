"""The rows that a search looks at, as they were committed at one moment, and which of them are the best.

A part holds the rows of one segment with the ids of their images. `Part` is the course of a search, wherever the rows
lie; `ArrayPart` has them in arrays, in memory or memory-mapped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from visterm.core.checks import as_ids, as_rows, check_k, row_lengths, stack_rows
from visterm.core.errors import DataError
from visterm.core.products import merged, top_k_products
from visterm.core.types import Matrix, Ranking
from visterm.kernels.topk import top_k

BLOCK = 65536  # Rows whose lengths are measured at a time
QUERY_BLOCK = 64  # Queries whose best rows are found at a time
PASSED_OVER = 200
"""Hidden rows up to which a search finds that many more, and drops them; with more it reads the others one by one."""

SELECTIVE = 16  # If one id in this many is requested, or more, a table of all ids is quicker than looking each one up
SAMPLED = 4096  # Rows that `CurrentRows.highest` looks at
MOST_COPIED = 2**26  # Bytes of the rows that are copied side by side
BLOCK_BYTES = 2**24  # Scores held at a time, of some queries and some sparse rows


@dataclass(eq=False)
class CurrentRows:
    """Rows to search, under the ids of their images.

    A video has a row for each of its frames. The first is under its own id, the others under those in `frames`, which
    nobody else sees: a video is found once, with the largest product of its frames.
    """

    version: str  # Of the tables: another one means that rows have changed
    parts: Sequence[Part]  # The segments of one run
    width: int | None  # None where there are no rows
    # Ids of frames after the first, and of their videos, in the order of the videos; shape (n, 2)
    frames: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 2), np.int64))
    _sample: Matrix | None = field(default=None, init=False, repr=False)
    _known_highest: dict[bytes, float] = field(default_factory=dict, init=False, repr=False)
    _copied: dict[int, tuple[NDArray[np.int64], NDArray[np.float32]]] = field(
        default_factory=dict, init=False, repr=False
    )

    def __len__(self) -> int:
        return len(self.ids) if len(self.frames) else sum(map(len, self.parts))

    @cached_property
    def ids(self) -> NDArray[np.int64]:
        """Ids of the images, in order; a video once."""
        if len(self.frames):
            return np.setdiff1d(self.frames_apart.ids, self.frames[:, 0], assume_unique=True)
        ids = [np.delete(part.ids, part.hidden) if len(part.hidden) else part.ids for part in self.parts]
        return np.sort(np.concatenate([np.empty(0, np.int64), *ids]))

    @cached_property
    def frames_apart(self) -> CurrentRows:
        """The same rows, each frame under its own id."""
        return replace(self, frames=self.frames[:0]) if len(self.frames) else self

    def search(self, q: ArrayLike | Matrix, k: int = 10, *, among: ArrayLike | None = None) -> Ranking:
        """Find the images with the largest dot products, among all or some ids; see `StoredCatalogue.search`.

        Of equal rows the one with the smaller id comes first. With an index a few of the best may be missed; the scores
        are right. Raises ShapeError if `q` is not as wide as the rows; DataError if `q` is not finite, or `among` are
        no whole numbers.
        """
        Q, ids = as_rows(q, "q", self.width, or_one=True), None if among is None else as_ids(among)
        if len(self.frames):
            return self._search_with_videos(Q, k, ids)

        places = [None if ids is None else part.places(ids) for part in self.parts]
        n_rows = sum(len(part) if at is None else len(at) for part, at in zip(self.parts, places, strict=True))
        k = check_k(k, n_rows)
        ranking = Ranking(np.empty((Q.shape[0], k), np.int64), np.empty((Q.shape[0], k), np.float32))
        for start in range(0, Q.shape[0] if k else 0, QUERY_BLOCK):
            queries = slice(start, start + QUERY_BLOCK)
            block = Q[queries]
            dense = block.toarray() if isinstance(block, sp.csr_array) else block

            best = []
            for part, at in zip(self.parts, places, strict=True):
                best.append(part.best(dense, k, at))
            ranking.ids[queries], ranking.scores[queries] = merged(best, k)
        return ranking

    def _search_with_videos(self, Q: Matrix, k: int, ids: NDArray[np.int64] | None) -> Ranking:
        """Search all rows, and count each video once, at its best frame."""
        ids = None if ids is None else np.intersect1d(ids, self.ids)
        n_images = len(self) if ids is None else len(ids)
        ids = None if ids is None else np.sort(np.concatenate([ids, self.frames_of(ids)[:, 0]]))
        n_rows = n_images + len(self.frames) if ids is None else len(ids)
        k = check_k(k, n_images)
        video_of = dict(self.frames.tolist())

        n_ranked = min(2 * k, n_rows)
        while True:  # frames of one video may be many of the best
            best_ids, best_scores = [], []
            for row_ids, scores in zip(*self.frames_apart.search(Q, n_ranked, among=ids), strict=True):
                images = np.array([video_of.get(i, i) for i in row_ids.tolist()], np.int64)
                first = np.sort(np.unique(images, return_index=True)[1])
                order = first[np.lexsort((images[first], -scores[first]))][:k]
                best_ids.append(images[order])
                best_scores.append(scores[order])
            if n_ranked == n_rows or all(len(images) == k for images in best_ids):
                return Ranking(np.array(best_ids, np.int64), np.array(best_scores, np.float32))
            n_ranked = min(4 * n_ranked, n_rows)

    def frames_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the frames after the first of those of some images, in order, that are videos; as in `frames`."""
        return self.frames[np.isin(self.frames[:, 1], ids)]

    def products(
        self, q: ArrayLike | Matrix, ids: ArrayLike | None = None, *, unit: bool = False
    ) -> NDArray[np.float32]:
        """Return the products of images (None: of all, in order) with query rows, shape (n_images, n_queries).

        That of a video is the largest of its frames. With `unit`, rows count as if their length were 1. Raises
        DataError if an image has no row.
        """
        if len(self.frames):
            return self._products_of_videos(q, ids, unit=unit)
        if unit:
            of_rows = slice(None) if ids is None else np.searchsorted(self.ids, ids)
            products: NDArray[np.float32] = self.products(q, ids) / self._lengths[of_rows, None]
            return products
        Q = as_rows(q, "q", self.width, or_one=True)
        queries = Q.toarray() if isinstance(Q, sp.csr_array) else Q
        if ids is None and len(self.parts) == 1 and self.parts[0].ascending:
            return self.parts[0].products(queries)  # all rows where they lie, without a copy

        placed, back = self._placed(self.ids if ids is None else ids)
        products = np.empty((sum(len(places) for _, places, _ in placed), len(queries)), np.float32)
        for part, places, at in placed:
            products[at] = part.products(queries, places)
        return products if back is None else products[back]

    def _products_of_videos(self, q: ArrayLike | Matrix, ids: ArrayLike | None, *, unit: bool) -> NDArray[np.float32]:
        rows = self.frames_apart
        if ids is None:  # all rows where they lie, without a copy
            every = rows.products(q, unit=unit)
            of_images, of_frames, images = self._places
            products = every[of_images]
            np.maximum.at(products, images, every[of_frames])
            return products
        requested, back = np.unique(np.asarray(ids, np.int64), return_inverse=True)
        products = rows.products(q, requested, unit=unit)
        frames = self.frames_of(requested)
        products_of_frames = rows.products(q, frames[:, 0], unit=unit)
        np.maximum.at(products, np.searchsorted(requested, frames[:, 1]), products_of_frames)
        return products[back]

    def highest(self, q: Matrix) -> NDArray[np.float32]:
        """Return the largest product of any row with each of some query rows, shape (n_queries,); -inf without rows.

        Of more than `SAMPLED` rows it is that of about so many, evenly spaced: a search has no time to look at all.
        """
        Q, known = as_rows(q, "q", self.width, or_one=True), self._known_highest
        if self._sample is None:
            ids = self.frames_apart.ids if len(self.frames) else self.ids
            self._sample = self.rows(ids[:: -(-len(ids) // SAMPLED) or 1])
        highest = np.empty(Q.shape[0], np.float32)
        for i, row in enumerate(Q.toarray() if isinstance(Q, sp.csr_array) else Q):
            key = row.tobytes()  # searches name the same words again
            if key not in known:
                if len(known) * row.nbytes > BLOCK_BYTES:
                    known.clear()
                known[key] = float((self._sample @ row).max(initial=-np.inf))
            highest[i] = known[key]
        return highest

    def products_again(self, q: NDArray[np.float32], ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return products of dense rows by id, 0 where there is none; the rows are kept for calls with this array.

        There must be no videos.
        """
        known = self._copied.get(id(ids))
        if known is None or known[0] is not ids:
            copies = np.zeros((len(ids), q.shape[1]), np.float32)
            has_row = np.searchsorted(self.ids, ids) < np.searchsorted(self.ids, ids, "right")
            copies[has_row] = self.rows(ids[has_row])
            known = ids, copies
            if copies.nbytes <= MOST_COPIED // 4:
                if sum(copy.nbytes for _, copy in list(self._copied.values())) + copies.nbytes > MOST_COPIED:
                    self._copied.clear()
                self._copied[id(ids)] = known  # which holds the ids: no other array has their number
        with np.errstate(invalid="ignore"):  # some BLAS kernels raise the flag for finite rows
            return np.asarray(known[1] @ q.T, np.float32)

    def rows(self, ids: ArrayLike) -> Matrix:
        """Return the rows of images, in the order of their ids; of a video that of its first frame.

        Raises DataError if an image has no row.
        """
        placed, back = self._placed(ids)
        if not placed:
            return np.empty((0, self.width or 0), np.float32)
        stack = stack_rows([part.take(places) for part, places, _ in placed])
        order = np.argsort(np.concatenate([at for _, _, at in placed]))
        return stack[order if back is None else order[back]]

    def _placed(
        self, ids: ArrayLike
    ) -> tuple[list[tuple[Part, NDArray[np.int64], NDArray[np.int64]]], NDArray[np.intp] | None]:
        """Return where rows lie: part by part their places, and which of the ids in order these are.

        Also the position of each given id among the ids in order, each once; None where they are in order already.
        """
        requested, back = np.asarray(ids, np.int64).ravel(), None
        if (requested[1:] <= requested[:-1]).any():
            requested, back = np.unique(requested, return_inverse=True)

        placed = []
        for part in self.parts:
            places = part.places(requested)
            placed.append((part, places, np.searchsorted(requested, part.ids[places])))
        if sum(len(at) for _, _, at in placed) < len(requested):
            missing = np.setdiff1d(requested, self.frames_apart.ids)
            raise DataError(f"The image {missing[0]} has no row of the current run ({len(missing)} have none).")
        return placed, back

    @cached_property
    def _lengths(self) -> NDArray[np.float32]:
        """The lengths of rows, in the order of `ids`."""
        parts = [row_lengths(self.rows(self.ids[at : at + BLOCK])) for at in range(0, len(self.ids), BLOCK)]
        lengths: NDArray[np.float32] = np.concatenate([np.empty(0, np.float32), *parts])
        return np.maximum(lengths, np.finfo(np.float32).tiny)

    @cached_property
    def _places(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Where among all rows the images' own are, and those of `frames`; and where in `ids` their videos are."""
        every = self.frames_apart.ids
        of_images, of_frames = (np.searchsorted(every, ids) for ids in (self.ids, self.frames[:, 0]))
        return of_images, of_frames, np.searchsorted(self.ids, self.frames[:, 1])


class Candidates(Protocol):
    """An index: rows that may be among the best. `n_rows` are covered, from the first on."""

    n_rows: int

    def candidates(self, q: NDArray[np.float32], k: int) -> NDArray[np.int64] | None:
        """Return places of rows, ascending, that hold most of the `k` best; None where an exact search is better."""


@dataclass(eq=False)
class Part(ABC):
    """Rows with ids; a subclass says where they lie, by three hooks."""

    ids: NDArray[np.int64]  # shape (n,): no visible one is there twice
    rows: object  # shape (n, width)
    # Places of rows that no search finds, ascending
    hidden: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    index: Candidates | None = None  # Of dense rows

    @abstractmethod
    def take(self, places: NDArray[np.int64]) -> Matrix:
        """Return the rows at some places, in that order."""

    @abstractmethod
    def products(self, Q: NDArray[np.float32], places: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
        """Return the products of rows (None: of all visible ones) with a few queries, shape (n_rows, n_queries)."""

    @abstractmethod
    def _best_of_blocks(self, Q: NDArray[np.float32], k: int, places: NDArray[np.int64] | None) -> Ranking:
        """Find the places with the `k` largest products (k > 0), among all or some (ascending), of rows in no array."""

    def __len__(self) -> int:
        return len(self.ids) - len(self.hidden)

    @cached_property
    def visible(self) -> NDArray[np.int64]:
        """Places of the rows that are not hidden, ascending."""
        return np.delete(np.arange(len(self.ids)), self.hidden)

    def places(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places of visible rows by id, ascending; unknown ids (sorted, unique) are left out."""
        if len(ids) == 0 or len(self.ids) == 0:
            return np.empty(0, np.int64)
        first = self.ids[0]
        if self.ascending and self.ids[-1] - first == len(self.ids) - 1:  # each id is one more than the one before
            inside = slice(*np.searchsorted(ids, (first, first + len(self.ids))))
            places: NDArray[np.int64] = ids[inside] - first
        elif len(ids) * SELECTIVE > len(self.ids):
            requested = np.zeros(self._largest + 2, np.bool_)
            requested[ids[(ids >= 0) & (ids <= self._largest)]] = True
            places = np.flatnonzero(requested[self.ids])
        else:
            order = self._order
            ids_in_order = self.ids if order is None else self.ids[order]
            at = np.searchsorted(ids_in_order, ids)
            at = at[(at < len(ids_in_order)) & (ids_in_order[np.minimum(at, len(ids_in_order) - 1)] == ids)]
            places = at if order is None else np.sort(order[at])
        return np.setdiff1d(places, self.hidden, assume_unique=True) if len(self.hidden) else places

    def best(self, Q: NDArray[np.float32], k: int, places: NDArray[np.int64] | None = None) -> Ranking:
        """Find the best of a few queries among the visible rows, or some of them by place; at most k, ties by id."""
        by_index = None if places is not None or self.index is None else self._best_by_index(self.index, Q, k)
        if by_index is not None:
            return by_index
        passed_over = 0
        if places is None and len(self.hidden) <= PASSED_OVER:
            passed_over = len(self.hidden)
        elif places is None:
            places = self.visible
        n_rows = len(self.ids) if places is None else len(places)
        k = min(k, n_rows - passed_over)
        if k == 0:
            return Ranking(np.empty((len(Q), 0), np.int64), np.empty((len(Q), 0), np.float32))

        k_visited = k + passed_over
        n_ranked = k_visited if self.ascending else min(k_visited + 1, n_rows)
        while True:
            if isinstance(self.rows, np.ndarray):
                ranking = top_k_products(Q, self.rows, n_ranked, among=places)
            else:
                ranking = self._best_of_blocks(Q, n_ranked, places)
            if self.ascending:
                break
            # Equal rows are ranked by id, and rows of changed images lie behind those of later ones
            if n_ranked == n_rows or not (ranking.scores[:, -1] == ranking.scores[:, k_visited - 1]).any():
                ranking = _at(ranking, np.lexsort((self.ids[ranking.ids], -ranking.scores), axis=1)[:, :k_visited])
                break
            n_ranked = min(2 * n_ranked, n_rows)

        if passed_over:
            ranking = _at(ranking, np.argsort(np.isin(ranking.ids, self.hidden), axis=1, kind="stable")[:, :k])
        return Ranking(self.ids[ranking.ids], ranking.scores)

    def _best_by_index(self, index: Candidates, Q: NDArray[np.float32], k: int) -> Ranking | None:
        """Score the index's candidates, and the rows that came after it was made, as exact search does.

        Returns None where these may lack some of the best.
        """
        k, rankings = min(k, len(self)), []
        for q in Q[:, None, :]:
            candidates = index.candidates(q, k)
            if candidates is None:
                return None
            candidates, later = (
                np.setdiff1d(places, self.hidden, assume_unique=True)
                for places in (candidates, np.arange(index.n_rows, len(self.ids)))
            )
            if k == 0 or len(candidates) < min(k, len(self) - len(later)):
                return None
            rankings.append(merged([self.best(q, k, some) for some in (candidates, later) if len(some)], k))
        return Ranking(*map(np.concatenate, zip(*rankings, strict=True)))

    @cached_property
    def _largest(self) -> int:
        return int(self.ids.max(initial=-1))

    @cached_property
    def ascending(self) -> bool:
        """Whether the rows lie in the order of their ids."""
        return bool((np.diff(self.ids) > 0).all())

    @cached_property
    def _order(self) -> NDArray[np.int64] | None:
        """The visible places by id; None where the rows lie so."""
        if len(self.hidden) == 0 and self.ascending:
            return None
        return self.visible[np.argsort(self.ids[self.visible], kind="stable")]


class ArrayPart(Part):
    """Rows in an array or CSR, in memory or memory-mapped: dense ones are streamed, sparse ones go block by block."""

    rows: Matrix

    def take(self, places: NDArray[np.int64]) -> Matrix:
        """Return the rows at some places, in that order."""
        return self.rows[places]

    def products(self, Q: NDArray[np.float32], places: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
        """Return the products of rows (None: of all visible ones) with a few queries, shape (n_rows, n_queries)."""
        if places is None and len(self.hidden):
            places = self.visible
        rows = self.rows if places is None else self.rows[places]
        with np.errstate(invalid="ignore"):  # some BLAS kernels raise the flag for finite rows
            return np.asarray(rows @ Q.T, np.float32)

    def _best_of_blocks(self, Q: NDArray[np.float32], k: int, places: NDArray[np.int64] | None) -> Ranking:
        step = max(1, BLOCK_BYTES // (4 * len(Q)))
        n = len(self.ids) if places is None else len(places)
        parts = []
        for start in range(0, n, step):
            if places is None:
                block = self.rows if n <= step else self.rows[start : start + step]
                numbers = np.arange(start, start + block.shape[0])
            else:
                numbers = places[start : start + step]
                block = self.rows[numbers]
            order, best = top_k(np.ascontiguousarray((block @ Q.T).T), min(k, block.shape[0]))
            parts.append(Ranking(numbers[order], best))
        return merged(parts, k)


def _at(ranking: Ranking, order: NDArray[np.int64]) -> Ranking:
    return Ranking(np.take_along_axis(ranking.ids, order, 1), np.take_along_axis(ranking.scores, order, 1))
