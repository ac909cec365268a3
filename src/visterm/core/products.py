"""Matrix products in which no row depends on the others, and the exact top k of each row without all scores."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from visterm.core.checks import check_k
from visterm.core.errors import DataError, ShapeError, UserError
from visterm.core.threads import one_blas_thread, resolve_jobs, standing_team
from visterm.core.types import Doubles, Floats, Ints, Matrix, Ranking
from visterm.kernels.topk import screen_best, stream_best

MIN_IMAGES_TO_SCREEN = 10
"""From this number of images on, a matrix product that excludes rows of V is faster (measured at width 100)."""

PART_WORK = 2**20  # Minimum number of multiplications per thread, which take about 50 µs
TILE_FLOATS = 2**17  # Floats per tile of V, and per block of scores: both fit in the second-level cache
PARTS_PER_THREAD = 4  # Parts of V per thread, so one slow thread does not delay the others
IMAGES_AT_ONCE = 4096  # Rows of U that are compared with all of V before the next rows
ALL_ROWS = np.empty(0, np.int64)  # What `stream_best` reads as all rows
SQUARE = 128  # Rows and columns that `transposed_for` copies at a time
MIN_ROWS_TO_COPY = 64  # For fewer sparse rows, only the columns that they use are copied
ROUNDING = 2.0**-24  # ε of float32


def product(A: Matrix, B: Matrix) -> Any:
    """Return A · B, shape (n, m), sparse if both are; the bytes of each row don't depend on the other rows.

    For a `B` with one column, BLAS uses another routine, whose last digit depends on the position of the row on some
    processors. A second column of zeros avoids that.
    """
    if B.shape[1] != 1 or sp.issparse(A) or sp.issparse(B):
        return A @ B
    return (A @ np.hstack([B, np.zeros_like(B)]))[:, :1]


def transposed_for(U: Matrix, V: Matrix | None, n_rows: int) -> Floats | None:
    """Return ``Vᵀ`` in C order if that saves time for `n_rows` rows like `U`: if they are sparse and V is an array.

    SciPy would copy it for each block of rows. Copied in squares, which fit in the cache, it takes a fraction of that.
    """
    if not sp.issparse(U) or not isinstance(V, np.ndarray) or n_rows < MIN_ROWS_TO_COPY:
        return None
    columns = np.empty(V.shape[::-1], V.dtype)
    for start in range(0, V.shape[0], SQUARE):
        for first in range(0, V.shape[1], SQUARE):
            square = slice(start, start + SQUARE), slice(first, first + SQUARE)
            columns[square[::-1]] = V[square].T
    return columns


def all_products(U: Any, V: Any, columns: Floats | None = None) -> Floats:
    """Return U · Vᵀ as an array; `V` of None is the identity, and `columns` a `transposed_for` of several blocks."""
    if V is None:
        return np.ascontiguousarray(dense(U), np.float32)
    columns = transposed_for(U, V, U.shape[0]) if columns is None else columns
    if columns is None and sp.issparse(U) and isinstance(V, np.ndarray):  # only the columns that the rows use
        used = np.unique(U.indices)
        U, V = U[:, used], V[:, used]
    return np.ascontiguousarray(dense(product(U, V.T if columns is None else columns)), np.float32)


def dense(matrix: Any) -> NDArray[Any]:
    """Return an array or a CSR matrix as an array."""
    return np.asarray(matrix.toarray() if sp.issparse(matrix) else matrix)


def column_means(matrix: Matrix) -> Doubles:
    """Return the mean of each column of an array or a CSR matrix; for 0 and 1 never above 1.

    SciPy's `mean` multiplies the sums by 1 / n in float32: the mean of ten ones is 1.0000001.
    """
    means: Doubles = np.asarray(matrix.sum(axis=0, dtype=np.float64)).ravel() / matrix.shape[0]
    return means


def top_k_products(
    U: ArrayLike, V: ArrayLike, k: int, n_jobs: int | None = None, *, among: ArrayLike | None = None
) -> Ranking:
    """Rank the rows of `V`, shape (m, width), by their product with each row of `U`, shape (n, width).

    Returns row numbers of `V` and products, shape (n, min(k, m)), best first, ties by the smaller row number; a `k` of
    0 means all. With `among` (ascending row numbers), only these rows of V are scored. V is not copied if it is float32
    in C order. Small jobs use fewer threads than `n_jobs`. The matrix of all products is never in memory.

    The result is exact, and its bytes don't depend on `n_jobs`, the other rows of `U`, or the BLAS library: a matrix
    product only excludes rows of V that cannot be among the best, and one loop scores the remaining rows. Raises
    ShapeError if the two are not matrices of the same width; DataError if `among` are not ascending row numbers of V;
    UserError if a matrix is sparse, or `k` or `n_jobs` is invalid.
    """
    for name, matrix in (("U", U), ("V", V)):
        if sp.issparse(matrix):
            advice = "Multiply sparse rows and select with top_k."
            raise UserError(f"{name} is sparse", setting=name, expected="an array", advice=advice)
    U, V = (np.ascontiguousarray(matrix, np.float32) for matrix in (U, V))
    if U.ndim != 2 or V.ndim != 2 or U.shape[1] != V.shape[1]:
        raise ShapeError(f"U has the shape {U.shape}, V {V.shape}; expected two matrices of the same width.")
    candidates = None if among is None else np.ascontiguousarray(among, np.int64)
    if candidates is not None:
        in_range = candidates.ndim == 1 and (not candidates.size or (candidates[0] >= 0 and candidates[-1] < len(V)))
        if not in_range or (np.diff(candidates) <= 0).any():
            raise DataError(f"among must be ascending rows of V, from 0 to {len(V) - 1}, none of them twice.")

    n, m = len(U), len(V) if candidates is None else len(candidates)
    k = check_k(k, m)
    if n == 0 or k == 0:
        return Ranking(np.empty((n, k), np.int64), np.empty((n, k), np.float32))
    n_threads = min(resolve_jobs(n_jobs), 1 + n * m * U.shape[1] // PART_WORK)
    n_parts = min(m, 1 if n_threads == 1 else n_threads * PARTS_PER_THREAD)
    bounds = [m * part // n_parts for part in range(n_parts + 1)]
    if n_parts == 1 and n < MIN_IMAGES_TO_SCREEN:
        return merged([_best_of_part(U, V, candidates, bounds, k, 0)], k)
    team = standing_team(n_threads)
    if candidates is not None or n < MIN_IMAGES_TO_SCREEN:
        return merged(team.run(partial(_best_of_part, U, V, candidates, bounds, k), n_parts), k)

    rankings = []
    with one_blas_thread():
        for start in range(0, n, IMAGES_AT_ONCE):
            rows = U[start : start + IMAGES_AT_ONCE]
            rankings.append(merged(team.run(partial(_screened_part, rows, V, bounds, k), n_parts), k))
    return Ranking(np.concatenate([r.ids for r in rankings]), np.concatenate([r.scores for r in rankings]))


def _best_of_part(U: Floats, V: Floats, candidates: Ints | None, bounds: list[int], k: int, part: int) -> Ranking:
    """Score one part of the rows of V, or of the `candidates` rows, one by one; return the heaps of the best rows."""
    start, stop = bounds[part], bounds[part + 1]
    shape = len(U), min(k, stop - start)
    heaps = Ranking(np.empty(shape, np.int64), np.empty(shape, np.float32))
    stream_best(U, V, ALL_ROWS if candidates is None else candidates, start, stop, *heaps)
    return heaps


def _screened_part(U: Floats, V: Floats, bounds: list[int], k: int, part: int) -> Ranking:
    """Return the heaps of the best rows in one part of V, tile by tile; each tile is multiplied with blocks of U."""
    first, stop = bounds[part], bounds[part + 1]
    heaps = _best_of_part(U, V, None, [first, min(first + k, stop)], k, 0)
    width = U.shape[1]
    n_tags = int(np.clip(TILE_FLOATS // max(width, 1), 64, 4096))
    n_images = max(1, TILE_FLOATS // n_tags)
    norms = _norms(U)
    scratch = np.empty((min(n_images, len(U)), n_tags), np.float32)
    for start in range(first + heaps.ids.shape[1], stop, n_tags):
        tile = V[start : min(start + n_tags, stop)]
        slack = _slack(norms * _norms(tile).max(), width)
        for i in range(0, len(U), n_images):
            rows = slice(i, i + n_images)
            block = scratch.ravel()[: len(U[rows]) * len(tile)].reshape(-1, len(tile))
            np.matmul(U[rows], tile.T, out=block)
            screen_best(block, U[rows], V, start, slack[rows], heaps.ids[rows], heaps.scores[rows])
    return heaps


def _norms(rows: Floats) -> Doubles:
    """Return the Euclidean norms of rows; infinity if a square overflows float32."""
    return np.asarray(np.sqrt(np.einsum("ij,ij->i", rows, rows), dtype=np.float64))


def _slack(norms: Doubles, width: int) -> Floats:
    """Return the maximum difference between two float32 products of the same rows, for any order of summation.

    Each product is within γ |u| |v| of the true value, γ = width ε / (1 - width ε) (Higham, Accuracy and Stability of
    Numerical Algorithms, section 3.1). The factor is 4 instead of 2 because norms and bound are rounded as well. NaN
    means that the product may overflow.
    """
    bound = 4 * width * ROUNDING * norms + np.where(norms > 0, width * float(np.finfo(np.float32).tiny), 0)
    return np.where(norms < 1e37, bound, np.nan).astype(np.float32)


def merged(parts: Sequence[Ranking], k: int) -> Ranking:
    """Merge rankings (or heaps) of the same queries, and keep the k best per row, ties by the smaller id."""
    ids = np.concatenate([part.ids for part in parts], axis=1)
    scores = np.concatenate([part.scores for part in parts], axis=1)
    order = np.lexsort((ids, -scores), axis=1)[:, :k]
    rows = np.arange(len(ids))[:, None]
    return Ranking(ids[rows, order], scores[rows, order])
