"""Approximate nearest neighbours by random-projection median trees: the exact neighbours within an image's leaf."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from visterm.core.checks import check_count
from visterm.core.errors import DataError, UserError
from visterm.core.learned import Array, Csr, Kind
from visterm.core.threads import Team, one_blas_thread, resolve_jobs
from visterm.core.types import Matrix
from visterm.kernels import Rows, dense_rows, sparse_rows, top_k
from visterm.models import BLOCK_BYTES, Cosines, Ids, VotingAnnotator
from visterm_research.kernels.rp_tree import find_leaves, grow_tree, products_within

MAX_LEVELS = 30


@dataclass(kw_only=True, eq=False, repr=False)
class RpKnn(VotingAnnotator):
    """Lets the most similar training images of one leaf of a tree vote for their tags.

    At each node, the training images are projected on a random direction and split at the median, so after `levels`
    nodes an image is in a leaf with about n / 2^levels training images. Neighbours are searched only within the leaf:
    each level halves the time, and loses some of the true neighbours. Votes, scores and the choice of the settings are
    those of `VotingAnnotator`, as for exact neighbours (`knn`).

    Parameters
    ----------
    levels : int
        p of the paper: number of nodes from the root to a leaf. 0 is exact search; a leaf has at least one image.
    trees : int
        Number of trees, each with its own directions, whose leaves are searched together. 1 as in the paper; more find
        more of the true neighbours, and each takes time, and memory for a number per image.
    n_neighbors, power
        As in `VotingAnnotator`. If the leaves have fewer neighbours, all of them vote.
    n_jobs : int, optional
        Number of threads; None or -1 for all cores.
    random_state : int, RandomState, Generator or None
        Draws the directions and, if there are more than 1,000 images, 1,000 of them to choose the settings.

    Attributes
    ----------
    n_neighbors_, power_, rows_, given_
        As in `VotingAnnotator`.
    seeds_ : ndarray of int64, shape (trees,)
        The seed of each tree's directions.
    thresholds_ : ndarray of float64, shape (trees, 2^levels)
        Medians of the projections; column m is node m (root 1, children 2m and 2m + 1).
    order_ : ndarray of int64, shape (trees, n_images)
        The training images, leaf after leaf.
    bounds_ : ndarray of int64, shape (trees, 2^levels + 1)
        The start of each leaf in `order_`.
    postings_ : csr_array of float32, shape (n_features, trees · n_images)
        Only for sparse features: the images that have each feature, in the order of the first tree, the second tree and
        so on, so that the images of a leaf are adjacent.

    References
    ----------
    Weston, Bengio, Usunier 2010, section 6.3; the trade of leaf size against precision in section 6.4.
    """

    learned: ClassVar[dict[str, Kind]] = {
        "seeds_": Array("int64", ("trees",), least=0),
        "thresholds_": Array("float64", ("trees", "n_leaves")),
        "order_": Array("int64", ("trees", "n_images"), permuted=True),
        "bounds_": Array("int64", ("trees", "n_leaves + 1"), least=0, most="n_images"),
        "postings_": Csr("float32", ("n_features_in_", None), required=False),
    }

    test_params: ClassVar[dict[str, Any]] = {"levels": 2, "trees": 2}

    levels: int = 4
    trees: int = 1
    n_jobs: int | None = None

    def _check_settings(self) -> None:
        super()._check_settings()
        if isinstance(self.levels, bool) or not isinstance(self.levels, int | np.integer) or self.levels < 0:
            raise UserError(f"levels is {self.levels!r}; expected a whole number of 0 (exact) or more.")
        check_count(self.trees, "trees")

    def _check_learned(self) -> None:
        super()._check_learned()
        n_leaves, n_images = self.thresholds_.shape[1], self.order_.shape[1]
        if n_leaves & (n_leaves - 1):
            raise DataError(f"thresholds_ are of {n_leaves} leaves; expected a power of 2")
        if (self.bounds_[:, 0] != 0).any() or (self.bounds_[:, -1] != n_images).any():
            raise DataError(f"bounds_ do not go from 0 to all {n_images} images")
        if (np.diff(self.bounds_) < 1).any():
            raise DataError("bounds_ have a leaf without an image")
        if sp.issparse(self.rows_) != hasattr(self, "postings_"):
            raise DataError("postings_ exists for dense rows, or is missing for sparse rows")
        if sp.issparse(self.rows_) and self.postings_.shape[1] != self.order_.size:
            raise DataError(f"postings_ are of {self.postings_.shape[1]} images; expected {self.order_.size}")

    def _prepare(self, rng: np.random.Generator) -> None:
        n = self.rows_.shape[0]
        n_leaves = 2 ** min(int(self.levels), n.bit_length() - 1, MAX_LEVELS)
        self.seeds_ = rng.integers(2**62, size=self.trees)
        self.thresholds_ = np.empty((self.trees, n_leaves))
        self.order_ = np.empty((self.trees, n), np.int64)
        self.bounds_ = np.empty((self.trees, n_leaves + 1), np.int64)
        rows = _view(self.rows_)

        def grow(tree: int) -> None:
            grow_tree(rows, self.seeds_[tree], self.order_[tree], self.bounds_[tree], self.thresholds_[tree])

        with Team(resolve_jobs(self.n_jobs)) as team:
            team.run(grow, self.trees)
        if sp.issparse(self.rows_):
            self.postings_ = sp.csr_array(self.rows_[self.order_.ravel()].T, dtype=np.float32)

    def _neighbors(self, X: Matrix, k: int) -> Iterator[tuple[Ids, Cosines]]:
        k = min(k, self.rows_.shape[0])
        step = max(1, BLOCK_BYTES // (4 * k * self.trees))
        postings = _view(self.postings_) if sp.issparse(self.rows_) else None
        with one_blas_thread(), Team(resolve_jobs(self.n_jobs)) as team:
            for start in range(0, X.shape[0], step):
                block = X[start : start + step]
                yield _merge_trees(
                    [self._within_leaves(tree, postings, block, k, team) for tree in range(self.trees)], k
                )

    def _within_leaves(self, tree: int, postings: Rows | None, X: Matrix, k: int, team: Team) -> tuple[Ids, Cosines]:
        """Return the k nearest images of each row within its leaf of one tree; -1 and -inf if the leaf has fewer."""
        rows, order, bounds = _view(X), self.order_[tree], self.bounds_[tree]
        leaves = np.empty(X.shape[0], np.int64)
        find_leaves(rows, self.seeds_[tree], self.thresholds_[tree], leaves)
        ids = np.full((X.shape[0], k), -1, np.int64)
        nearest = np.full((X.shape[0], k), -np.inf, np.float32)
        members = np.argsort(leaves, kind="stable")
        visited, starts = np.unique(leaves[members], return_index=True)
        stops = np.append(starts[1:], members.size)

        def search(part: int) -> None:
            first, stop = bounds[visited[part]], bounds[visited[part] + 1]
            leaf_images = order[first:stop]
            width = min(k, leaf_images.size)
            step = max(1, BLOCK_BYTES // (4 * leaf_images.size))
            for start in range(starts[part], stops[part], step):
                queries = members[start : min(start + step, stops[part])]
                if postings is None:
                    cosines = np.ascontiguousarray(X[queries] @ self.rows_[leaf_images].T, np.float32)
                else:
                    cosines = np.empty((queries.size, leaf_images.size), np.float32)
                    offset = tree * order.size
                    products_within(postings, offset + first, offset + stop, rows, queries, cosines)
                best, values = top_k(cosines, width)
                ids[queries, :width], nearest[queries, :width] = leaf_images[best], values

        team.run(search, visited.size)
        return ids, nearest


def _merge_trees(tree_results: list[tuple[Ids, Cosines]], k: int) -> tuple[Ids, Cosines]:
    """Return the k nearest images in the results of all trees, without duplicates; -1 and 0 if there are fewer."""
    if len(tree_results) == 1:
        ids, cosines = tree_results[0]
        return ids, np.where(ids < 0, np.float32(0), cosines)
    ids = np.concatenate([part for part, _ in tree_results], axis=1)
    cosines = np.concatenate([part for _, part in tree_results], axis=1)
    order = np.lexsort((-cosines, ids), axis=1)
    ids, cosines = np.take_along_axis(ids, order, axis=1), np.take_along_axis(cosines, order, axis=1)
    is_duplicate = np.zeros(ids.shape, bool)
    is_duplicate[:, 1:] = ids[:, 1:] == ids[:, :-1]
    ids, cosines = np.where(is_duplicate, -1, ids), np.where(is_duplicate, -np.inf, cosines)
    order = np.lexsort((ids, -cosines), axis=1)[:, :k]
    ids, cosines = np.take_along_axis(ids, order, axis=1), np.take_along_axis(cosines, order, axis=1)
    return ids, np.where(ids < 0, 0, cosines).astype(np.float32)


def _view(X: Any) -> Rows:
    view: Rows = sparse_rows(X.data, X.indices, X.indptr) if sp.issparse(X) else dense_rows(X)
    return view
