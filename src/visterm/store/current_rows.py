"""A snapshot of the committed rows of a run, and the search for the rows with the largest products.

A part has the rows of one segment with the ids of their images. `Part` implements the search for all kinds of storage;
`ArrayPart` has its rows in arrays, in memory or memory-mapped.
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
from visterm.core.id_sets import IDS_PER_LOOKUP, contains, positions_of
from visterm.core.products import merged, top_k_products
from visterm.core.types import Floats, Ints, Matrix, Ranking
from visterm.kernels.topk import top_k

BLOCK_ROWS = 65536  # Number of rows whose lengths are computed at a time
BLOCK_QUERIES = 64  # Number of queries that are searched at a time
MAX_SINGLE_QUERIES = 4  # Up to this number, products with one query after another are faster than of all at once
MAX_RANKED_HIDDEN = 200
"""Maximum number of hidden rows that a search ranks and then drops; with more, it reads the visible rows only."""

MAX_K = 1600  # Maximum number of results of a search with an index; searches for more results are exact
MAX_SAMPLED_ROWS = 4096
MAX_KEPT_BYTES = 2**26  # Maximum size of the products of all rows with single queries that a part keeps
MAX_BLOCK_BYTES = 2**24  # Maximum size of a block of scores (queries x sparse rows), and of cached products


@dataclass(eq=False)
class CurrentRows:
    """Rows to search, identified by the ids of their images.

    A video has one row per frame. The first frame has the video's id, the others have the internal ids in `frames`.
    A search returns each video once, with the largest product of its frames.
    """

    version: str  # Changes whenever rows change
    parts: Sequence[Part]  # The segments of one run
    width: int | None  # None without rows
    # (frame id, video id) of all frames except first frames, ordered by video; shape (n, 2)
    frames: Ints = field(default_factory=lambda: np.empty((0, 2), np.int64))
    _sample: Matrix | None = field(default=None, init=False, repr=False)
    _cached_products: dict[bytes, Floats] = field(default_factory=dict, init=False, repr=False)

    def __len__(self) -> int:
        return len(self.ids) if len(self.frames) else sum(map(len, self.parts))

    @cached_property
    def ids(self) -> Ints:
        """Ids of the images, ascending; each video once."""
        if len(self.frames):
            return np.setdiff1d(self.frames_apart.ids, self.frames[:, 0], assume_unique=True)
        ids = [np.delete(part.ids, part.hidden) if len(part.hidden) else part.ids for part in self.parts]
        return np.sort(np.concatenate([np.empty(0, np.int64), *ids]))

    @cached_property
    def frames_apart(self) -> CurrentRows:
        """The same rows without grouping frames into videos."""
        return replace(self, frames=self.frames[:0]) if len(self.frames) else self

    def is_indexed(self, k: int) -> bool:
        """Return whether a search for `k` images uses an approximate index."""
        return k <= MAX_K and any(part.index is not None for part in self.parts)

    def search(self, q: ArrayLike | Matrix, k: int = 10, *, among: ArrayLike | None = None) -> Ranking:
        """Find the images with the largest dot products, optionally `among` some ids; see `StoredCatalogue.search`.

        Ties are sorted by id. An index may miss a few of the best images, but all scores are exact. Raises
        ShapeError if `q` has another width than the rows; DataError if `q` is not finite, or `among` has values that
        are not whole numbers.
        """
        Q, ids = as_rows(q, "q", self.width, allow_vector=True), None if among is None else as_ids(among)
        if len(self.frames):
            return self._search_with_videos(Q, k, ids)

        positions = [None if ids is None else part.positions(ids) for part in self.parts]
        n_rows = sum(len(part) if rows is None else len(rows) for part, rows in zip(self.parts, positions, strict=True))
        k = check_k(k, n_rows)
        ranking = Ranking(np.empty((Q.shape[0], k), np.int64), np.empty((Q.shape[0], k), np.float32))
        for start in range(0, Q.shape[0] if k else 0, BLOCK_QUERIES):
            queries = slice(start, start + BLOCK_QUERIES)
            block = Q[queries]
            dense_queries = block.toarray() if isinstance(block, sp.csr_array) else block

            best = [part.best(dense_queries, k, rows) for part, rows in zip(self.parts, positions, strict=True)]
            ranking.ids[queries], ranking.scores[queries] = merged(best, k) if len(best) > 1 else best[0]
        return ranking

    def proposed(self, q: Matrix, k: int, n: int) -> Ints:
        """Return the ascending ids of `n` images, or a few more, that include nearly all of the `k` best.

        Those that an index proposes are not scored. `q` has the shape (1, width).
        """
        if len(self.frames):
            return np.sort(self.search(q, n).ids[0])
        Q = as_rows(q, "q", self.width)
        queries = Q.toarray() if isinstance(Q, sp.csr_array) else Q
        return np.sort(np.concatenate([part.proposed(queries, k, n) for part in self.parts]))

    def _search_with_videos(self, Q: Matrix, k: int, ids: Ints | None) -> Ranking:
        """Search all frames, and return each video once, with its best frame's score."""
        ids = None if ids is None else np.intersect1d(ids, self.ids)
        n_images = len(self) if ids is None else len(ids)
        ids = None if ids is None else np.sort(np.concatenate([ids, self.frames_of(ids)[:, 0]]))
        n_rows = n_images + len(self.frames) if ids is None else len(ids)
        k = check_k(k, n_images)
        video_of = dict(self.frames.tolist())

        n_ranked = min(2 * k, n_rows)
        while True:  # many of the best rows may be frames of one video
            best_ids, best_scores = [], []
            for row_ids, scores in zip(*self.frames_apart.search(Q, n_ranked, among=ids), strict=True):
                images = np.array([video_of.get(i, i) for i in row_ids.tolist()], np.int64)
                first_positions = np.sort(np.unique(images, return_index=True)[1])
                order = first_positions[np.lexsort((images[first_positions], -scores[first_positions]))][:k]
                best_ids.append(images[order])
                best_scores.append(scores[order])
            if n_ranked == n_rows or all(len(images) == k for images in best_ids):
                return Ranking(np.array(best_ids, np.int64), np.array(best_scores, np.float32))
            n_ranked = min(4 * n_ranked, n_rows)

    def frames_of(self, ids: Ints) -> Ints:
        """Return the rows of `frames` whose video is in `ids`."""
        return self.frames[np.isin(self.frames[:, 1], ids)]

    def products(self, q: ArrayLike | Matrix, ids: ArrayLike | None = None, *, unit: bool = False) -> Floats:
        """Return the products of images (None: all, by id) with query rows, shape (n_images, n_queries).

        A video has the largest product of its frames. With `unit`, image rows are normalised to length 1. Raises
        DataError if an image has no row.
        """
        if len(self.frames):
            return self._products_of_videos(q, ids, unit=unit)
        if unit:
            selected = slice(None) if ids is None else np.searchsorted(self.ids, ids)
            products: Floats = self.products(q, ids) / self._lengths[selected, None]
            return products

        Q = as_rows(q, "q", self.width, allow_vector=True)
        queries = Q.toarray() if isinstance(Q, sp.csr_array) else Q
        if ids is None and len(self.parts) == 1 and self.parts[0].ascending:
            return self.parts[0].products(queries)  # all rows in place, without a copy

        positions_in_parts, inverse = self._positions_in_parts(self.ids if ids is None else ids)
        products = np.empty((sum(len(positions) for _, positions, _ in positions_in_parts), len(queries)), np.float32)
        for part, positions, targets in positions_in_parts:
            products[targets] = part.products(queries, positions)
        return products if inverse is None else products[inverse]

    def _products_of_videos(self, q: ArrayLike | Matrix, ids: ArrayLike | None, *, unit: bool) -> Floats:
        rows = self.frames_apart
        if ids is None:  # all rows in place, without a copy
            all_products = rows.products(q, unit=unit)
            own_rows, frame_rows, videos = self._frame_positions
            products = all_products[own_rows]
            np.maximum.at(products, videos, all_products[frame_rows])
            return products
        requested, inverse = np.unique(np.asarray(ids, np.int64), return_inverse=True)
        products = rows.products(q, requested, unit=unit)
        frames = self.frames_of(requested)
        np.maximum.at(products, np.searchsorted(requested, frames[:, 1]), rows.products(q, frames[:, 0], unit=unit))
        return products[inverse]

    def sampled_products(self, q: Matrix) -> Floats:
        """Return the products of query rows with up to `MAX_SAMPLED_ROWS` evenly spaced rows, (n_rows, n_queries)."""
        Q, cached = as_rows(q, "q", self.width, allow_vector=True), self._cached_products
        if self._sample is None:
            ids = self.frames_apart.ids if len(self.frames) else self.ids
            self._sample = self.rows(ids[:: -(-len(ids) // MAX_SAMPLED_ROWS) or 1])
        products = np.empty((Q.shape[0], self._sample.shape[0]), np.float32)
        for i, row in enumerate(Q.toarray() if isinstance(Q, sp.csr_array) else Q):
            key = row.tobytes()  # searches often repeat the same words
            if key not in cached:
                if len(cached) * products[i].nbytes > MAX_BLOCK_BYTES:
                    cached.clear()
                cached[key] = self._sample @ row
            products[i] = cached[key]
        return products.T

    def rows(self, ids: ArrayLike) -> Matrix:
        """Return the rows of images, in the order of `ids`; for a video the row of its first frame.

        Raises DataError if an image has no row.
        """
        positions_in_parts, inverse = self._positions_in_parts(ids)
        if not positions_in_parts:
            return np.empty((0, self.width or 0), np.float32)
        stack = stack_rows([part.take(positions) for part, positions, _ in positions_in_parts])
        order = np.argsort(np.concatenate([targets for _, _, targets in positions_in_parts]))
        return stack[order if inverse is None else order[inverse]]

    def _positions_in_parts(self, ids: ArrayLike) -> tuple[list[tuple[Part, Ints, Ints]], NDArray[np.intp] | None]:
        """Return, for each part, the positions of its requested rows and their indices among the sorted unique `ids`.

        Also returns the position of each id among the sorted unique `ids`; None if `ids` are sorted and unique.
        """
        requested, inverse = np.asarray(ids, np.int64).ravel(), None
        if (requested[1:] <= requested[:-1]).any():
            requested, inverse = np.unique(requested, return_inverse=True)

        positions_in_parts = []
        for part in self.parts:
            positions = part.positions(requested)
            is_all = part.ascending and len(positions) == len(requested)
            targets = np.arange(len(requested)) if is_all else np.searchsorted(requested, part.ids[positions])
            positions_in_parts.append((part, positions, targets))
        if sum(len(targets) for _, _, targets in positions_in_parts) < len(requested):
            missing_ids = np.setdiff1d(requested, self.frames_apart.ids)
            raise DataError(f"The image {missing_ids[0]} has no row of the current run ({len(missing_ids)} have none).")
        return positions_in_parts, inverse

    @cached_property
    def _lengths(self) -> Floats:
        """Euclidean lengths of the rows, in the order of `ids`."""
        parts = [row_lengths(self.rows(self.ids[i : i + BLOCK_ROWS])) for i in range(0, len(self.ids), BLOCK_ROWS)]
        lengths: Floats = np.concatenate([np.empty(0, np.float32), *parts])
        return np.maximum(lengths, np.finfo(np.float32).tiny)

    @cached_property
    def _frame_positions(self) -> tuple[Ints, Ints, Ints]:
        """Positions of the images and of `frames` among all rows; and positions of the frames' videos in `ids`."""
        row_ids = self.frames_apart.ids
        own_rows, frame_rows = (np.searchsorted(row_ids, ids) for ids in (self.ids, self.frames[:, 0]))
        return own_rows, frame_rows, np.searchsorted(self.ids, self.frames[:, 1])


class Candidates(Protocol):
    """An approximate index of the first `n_rows` rows, which proposes candidates for the best rows."""

    n_rows: int

    def candidates(self, q: Floats, k: int, n: int | None = None) -> Ints:
        """Return ascending positions of `n` rows (None: enough to choose from) with most of the `k` best rows."""


@dataclass(eq=False)
class Part(ABC):
    """Rows with ids; a subclass implements access to its storage with three methods."""

    ids: Ints  # shape (n,), without duplicates among visible rows
    rows: object  # shape (n, width)
    # Ascending positions of rows that searches skip
    hidden: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    index: Candidates | None = None  # Only for dense rows

    @abstractmethod
    def take(self, positions: Ints) -> Matrix:
        """Return the rows at `positions`, in that order."""

    @abstractmethod
    def products(self, Q: Floats, positions: Ints | None = None) -> Floats:
        """Return the products of rows (None: all visible rows) with a few queries, shape (n_rows, n_queries)."""

    @abstractmethod
    def _best_of_blocks(self, Q: Floats, k: int, positions: Ints | None) -> Ranking:
        """Find the `k` > 0 largest products among `positions` (ascending; None: all) of rows outside an array."""

    def __len__(self) -> int:
        return len(self.ids) - len(self.hidden)

    @cached_property
    def visible(self) -> Ints:
        """Positions of the rows that are not hidden, ascending."""
        return np.delete(np.arange(len(self.ids)), self.hidden)

    def positions(self, ids: Ints) -> Ints:
        """Return the ascending positions of visible rows with these sorted unique ids; unknown ids are left out."""
        if len(ids) == 0 or len(self.ids) == 0:
            return np.empty(0, np.int64)
        first_id = self.ids[0]
        if self.ascending and self.ids[-1] - first_id == len(self.ids) - 1:  # consecutive ids
            id_range = slice(*np.searchsorted(ids, (first_id, first_id + len(self.ids))))
            positions: Ints = ids[id_range] - first_id
        elif len(ids) * IDS_PER_LOOKUP > len(self.ids):
            positions = np.flatnonzero(contains(ids, self.ids))
        else:
            order = self._order
            i = positions_of(ids, self.ids if order is None else self.ids[order])
            i = i[i >= 0]
            positions = i if order is None else np.sort(order[i])
        return self._without_hidden(positions)

    def best(self, Q: Floats, k: int, positions: Ints | None = None) -> Ranking:
        """Find up to `k` best visible rows per query, optionally only among `positions`; ties are sorted by id."""
        index_ranking = None if positions is not None or self.index is None else self._best_by_index(self.index, Q, k)
        if index_ranking is not None:
            return index_ranking
        n_dropped = 0
        if positions is None and len(self.hidden) <= MAX_RANKED_HIDDEN:
            n_dropped = len(self.hidden)
        elif positions is None:
            positions = self.visible

        n_rows = len(self.ids) if positions is None else len(positions)
        k = min(k, n_rows - n_dropped)
        if k == 0:
            return Ranking(np.empty((len(Q), 0), np.int64), np.empty((len(Q), 0), np.float32))

        k_visited = k + n_dropped
        n_ranked = k_visited if self.ascending else min(k_visited + 1, n_rows)
        while True:
            if isinstance(self.rows, np.ndarray):
                ranking = top_k_products(Q, self.rows, n_ranked, among=positions)
            else:
                ranking = self._best_of_blocks(Q, n_ranked, positions)
            if self.ascending:
                break
            # Ties are ranked by id, but rows of changed images were appended after rows with larger ids
            if n_ranked == n_rows or not (ranking.scores[:, -1] == ranking.scores[:, k_visited - 1]).any():
                ranking = _at(ranking, np.lexsort((self.ids[ranking.ids], -ranking.scores), axis=1)[:, :k_visited])
                break
            n_ranked = min(2 * n_ranked, n_rows)

        if n_dropped:
            ranking = _at(ranking, np.argsort(np.isin(ranking.ids, self.hidden), axis=1, kind="stable")[:, :k])
        return Ranking(self.ids[ranking.ids], ranking.scores)

    def _best_by_index(self, index: Candidates, Q: Floats, k: int) -> Ranking | None:
        """Score the index's candidates, and the rows added after the index was built, like an exact search.

        Returns None if the candidates may be too few.
        """
        k, rankings, later = min(k, len(self)), [], self._later
        if not 0 < k <= MAX_K:
            return None
        for q in Q[:, None, :]:
            candidates = self._without_hidden(index.candidates(q, k))
            if len(candidates) < min(k, len(self) - len(later)):
                return None
            best = self.best(q, k, candidates)
            rankings.append(merged([best, self.best(q, k, later)], k) if len(later) else best)
        return Ranking(*map(np.concatenate, zip(*rankings, strict=True)))

    def proposed(self, Q: Floats, k: int, n: int) -> Ints:
        """Return the ids of `n` visible rows, or a few more, with nearly all of the `k` best; see `CurrentRows`."""
        if self.index is not None and n <= MAX_K:
            candidates = self._without_hidden(self.index.candidates(Q, k, n))
            if len(candidates) >= min(k, len(self) - len(self._later)):
                return np.concatenate([self.ids[candidates], self.best(Q, n, self._later).ids[0]])
        best: Ints = self.best(Q, n).ids[0]
        return best

    @cached_property
    def _later(self) -> Ints:
        """Ascending positions of the visible rows that were added after the index was built."""
        return self._without_hidden(np.arange(self.index.n_rows if self.index else 0, len(self.ids)))

    def _without_hidden(self, positions: Ints) -> Ints:
        return np.setdiff1d(positions, self.hidden, assume_unique=True) if len(self.hidden) else positions

    @cached_property
    def ascending(self) -> bool:
        """Whether the rows are stored by ascending id."""
        return bool((np.diff(self.ids) > 0).all())

    @cached_property
    def _order(self) -> Ints | None:
        """Visible positions sorted by id; None if the rows are stored in this order."""
        if len(self.hidden) == 0 and self.ascending:
            return None
        return self.visible[np.argsort(self.ids[self.visible], kind="stable")]


class ArrayPart(Part):
    """Rows in a dense array or CSR, in memory or memory-mapped; sparse rows are searched block by block."""

    rows: Matrix

    def take(self, positions: Ints) -> Matrix:
        """Return the rows at `positions`, in that order."""
        return self.rows[positions]

    def products(self, Q: Floats, positions: Ints | None = None) -> Floats:
        """Return the products of rows (None: all visible rows) with a few queries, shape (n_rows, n_queries)."""
        few_queries = 0 < len(Q) <= MAX_SINGLE_QUERIES
        with np.errstate(invalid="ignore"):  # some BLAS kernels raise the flag for finite rows
            if positions is None and few_queries and isinstance(self.rows, np.ndarray):
                return np.stack([self._kept_products(self.rows, q) for q in Q]).T
            if positions is None and len(self.hidden):
                positions = self.visible
            rows = self.rows if positions is None else self.rows[positions]
            if few_queries and isinstance(rows, np.ndarray):
                return np.stack([rows @ q for q in Q]).T
            return np.asarray(rows @ Q.T, np.float32)

    def _kept_products(self, rows: Floats, q: Floats) -> Floats:
        """Return the products of all visible rows with a query; they are kept, as searches repeat the same words."""
        kept, key = self._kept, q.tobytes()
        if (products := kept.get(key)) is None:
            products = (rows @ q)[self.visible] if len(self.hidden) else rows @ q  # not a copy of the visible rows
            if (len(kept) + 1) * products.nbytes > MAX_KEPT_BYTES:
                kept.clear()
            kept[key] = products
        return products

    @cached_property
    def _kept(self) -> dict[bytes, Floats]:
        return {}

    def _best_of_blocks(self, Q: Floats, k: int, positions: Ints | None) -> Ranking:
        step = max(1, MAX_BLOCK_BYTES // (4 * len(Q)))
        n = len(self.ids) if positions is None else len(positions)
        parts = []
        for start in range(0, n, step):
            if positions is None:
                block = self.rows if n <= step else self.rows[start : start + step]
                block_positions = np.arange(start, start + block.shape[0])
            else:
                block_positions = positions[start : start + step]
                block = self.rows[block_positions]
            order, best = top_k(np.ascontiguousarray((block @ Q.T).T), min(k, block.shape[0]))
            parts.append(Ranking(block_positions[order], best))
        return merged(parts, k)


def _at(ranking: Ranking, order: Ints) -> Ranking:
    return Ranking(np.take_along_axis(ranking.ids, order, 1), np.take_along_axis(ranking.scores, order, 1))
