"""Products of rows: whole, each row as if it stood alone; and the k largest of each row, exact, without the others."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from visterm.core.checks import check_k
from visterm.core.errors import DataError, ShapeError, UserError
from visterm.core.threads import one_blas_thread, resolve_jobs, standing_team
from visterm.core.types import Matrix, Ranking
from visterm.kernels.topk import best_of_chosen, largest_norm, screen_best, start_heaps, stream_best

Floats: TypeAlias = NDArray[np.float32]

SCREEN_FROM = 10
"""Images from which on a matrix product, and the limit put on BLAS for it, pays (measured at width 100)."""

PART_WORK = 2**20  # Multiplications that are worth one more thread: about 50 µs
TILE_FLOATS = 2**17  # Floats of a tile of V, and of the block of scores that it makes: both stay in the second cache
PARTS_PER_THREAD = 4  # Parts of V a thread, so that a thread that is held up does not hold up the others
IMAGES_AT_ONCE = 4096
ROUNDING = 2.0**-24


def product(A: Matrix, B: Matrix) -> Any:
    """Return A · B, (n, m), sparse where both are: each row has the same bytes whichever rows are above and below it.

    A product with a single column is another routine of BLAS, whose last digit depends, on some processors, on the
    place of the row: so a column of zeros is put beside it.
    """
    if B.shape[1] != 1 or sp.issparse(A) or sp.issparse(B):
        return A @ B
    return (A @ np.hstack([B, np.zeros_like(B)]))[:, :1]


def dense(matrix: Any) -> NDArray[Any]:
    """Return a matrix as an array, whether it is one or CSR."""
    return np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix)


def column_means(matrix: Matrix) -> NDArray[np.float64]:
    """Return the mean of each column of an array or a CSR matrix: the share of rows that have a tag is never above 1.

    SciPy multiplies the sums by 1 / n as a float32: ten ones make 1.0000001.
    """
    means: NDArray[np.float64] = np.asarray(matrix.sum(axis=0, dtype=np.float64)).ravel() / matrix.shape[0]
    return means


def top_k_products(
    U: ArrayLike, V: ArrayLike, k: int, n_jobs: int | None = None, *, among: ArrayLike | None = None
) -> Ranking:
    """Rank the rows of `V`, (m, width), for each row of `U`, (n, width), by product, without ever holding all products.

    Returns rows of `V` and products, (n, min(k, m)), best first, ties by the smaller id; a `k` of 0 means all. With
    `among`, ascending, only these rows of V are scored, without a copy. V is read without a copy if it is float32 in
    C order, else copied. Small jobs use fewer threads than `n_jobs`.

    Exact, and the same bytes for any `n_jobs`, whatever other rows are in `U`, and whichever BLAS is there: a matrix
    product only says which rows of V cannot be among the best; what remains is scored by one and the same loop. Raises
    ShapeError if the two are not matrices of one width; DataError if `among` are not ascending rows of V; UserError if
    one is sparse, or `k` or `n_jobs` is no such number.
    """
    for name, matrix in (("U", U), ("V", V)):
        if sp.issparse(matrix):
            advice = "Multiply sparse rows and select with top_k."
            raise UserError(f"{name} is sparse", setting=name, expected="an array", advice=advice)
    U, V = (np.ascontiguousarray(matrix, np.float32) for matrix in (U, V))
    if U.ndim != 2 or V.ndim != 2 or U.shape[1] != V.shape[1]:
        raise ShapeError(f"U has the shape {U.shape}, V {V.shape}; expected two matrices with as many columns each.")
    chosen = None if among is None else np.ascontiguousarray(among, np.int64)
    if chosen is not None:
        inside = chosen.ndim == 1 and (not chosen.size or (chosen[0] >= 0 and chosen[-1] < len(V)))
        if not inside or (np.diff(chosen) <= 0).any():
            raise DataError(f"among must be ascending rows of V, from 0 to {len(V) - 1}, none of them twice.")

    n, m = len(U), len(V) if chosen is None else len(chosen)
    k = check_k(k, m)
    if n == 0 or k == 0:
        return Ranking(np.empty((n, k), np.int64), np.empty((n, k), np.float32))
    n_threads = min(resolve_jobs(n_jobs), 1 + n * m * U.shape[1] // PART_WORK)
    n_parts = min(m, 1 if n_threads == 1 else n_threads * PARTS_PER_THREAD)
    bounds = [m * part // n_parts for part in range(n_parts + 1)]
    if n_parts == 1 and n < SCREEN_FROM:
        return merged([_best_of_part(U, V, chosen, bounds, k, 0)], k)
    team = standing_team(n_threads)
    if chosen is not None or n < SCREEN_FROM:
        return merged(team.run(partial(_best_of_part, U, V, chosen, bounds, k), n_parts), k)

    rankings = []
    with one_blas_thread():
        for start in range(0, n, IMAGES_AT_ONCE):
            rows = U[start : start + IMAGES_AT_ONCE]
            rankings.append(merged(team.run(partial(_screened_part, rows, V, bounds, k), n_parts), k))
    return Ranking(np.concatenate([f.ids for f in rankings]), np.concatenate([f.scores for f in rankings]))


def _best_of_part(
    U: Floats, V: Floats, chosen: NDArray[np.int64] | None, bounds: list[int], k: int, part: int
) -> Ranking:
    """Score one part of the tags, or of the chosen ones, tag by tag, and return the heaps of the best."""
    first, stop = bounds[part], bounds[part + 1]
    shape = len(U), min(k, stop - first)
    heaps = Ranking(np.empty(shape, np.int64), np.empty(shape, np.float32))
    if chosen is not None:
        best_of_chosen(U, V, chosen[first:stop], *heaps)
    else:
        start_heaps(U, V, first, *heaps)
        stream_best(U, V, first + heaps.ids.shape[1], stop, *heaps)
    return heaps


def _screened_part(U: Floats, V: Floats, bounds: list[int], k: int, part: int) -> Ranking:
    """Go over one part of the tags tile by tile, and over the images block by block while the tile is in the cache."""
    first, stop = bounds[part], bounds[part + 1]
    shape = len(U), min(k, stop - first)
    heaps = Ranking(np.empty(shape, np.int64), np.empty(shape, np.float32))
    start_heaps(U, V, first, *heaps)
    width = U.shape[1]
    n_tags = int(np.clip(TILE_FLOATS // max(width, 1), 64, 4096))
    n_images = max(1, TILE_FLOATS // n_tags)
    norms = np.array([largest_norm(U[i : i + 1]) for i in range(len(U))])
    scratch = np.empty((min(n_images, len(U)), n_tags), np.float32)
    for start in range(first + heaps.ids.shape[1], stop, n_tags):
        tile = V[start : min(start + n_tags, stop)]
        slack = _slack(norms * largest_norm(tile), width)
        for i in range(0, len(U), n_images):
            rows = slice(i, i + n_images)
            block = scratch.ravel()[: len(U[rows]) * len(tile)].reshape(-1, len(tile))
            np.matmul(U[rows], tile.T, out=block)
            screen_best(block, U[rows], V, start, slack[rows], heaps.ids[rows], heaps.scores[rows])
    return heaps


def _slack(norms: NDArray[np.float64], width: int) -> Floats:
    """Bound how far two float32 sums of the products of two rows can be apart, in whatever order they are added.

    Each is within γ |u| |v| of the true value, γ = width ε / (1 - width ε) (Higham, Accuracy and Stability of Numerical
    Algorithms, section 3.1), and 4 instead of 2 leaves room for the roundings of norms and bound. NaN: may overflow.
    """
    bound = 4 * width * ROUNDING * norms + np.where(norms > 0, width * float(np.finfo(np.float32).tiny), 0)
    return np.where(norms < 1e37, bound, np.nan).astype(np.float32)


def merged(parts: Sequence[Ranking], k: int) -> Ranking:
    """Sort rankings (or heaps) of the same queries together and keep the k best of each row, ties by the smaller id."""
    ids = np.concatenate([part.ids for part in parts], axis=1)
    scores = np.concatenate([part.scores for part in parts], axis=1)
    order = np.lexsort((ids, -scores), axis=1)[:, :k]
    rows = np.arange(len(ids))[:, None]
    return Ranking(ids[rows, order], scores[rows, order])
