"""Fit the rows of new tags to fixed image rows, in closed form."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.products import dense
from visterm.core.types import Matrix
from visterm.models.base import row_blocks
from visterm.models.epochs import Floats

POSITIVE_WEIGHT = 10.0  # Of 1 to 30 the best on validation rows, judged by old and new tags together
PENALTY = 1e-3  # As a share of the mean square of a component of the image rows; 1e-4 to 1e-1 differ little
DIRECT_WIDTH = 3000  # With wider rows, conjugate gradients solve the system without forming it
CG_TOLERANCE = 1e-5
CG_ITERATIONS = 500


def fit_new_tags(U: Matrix, V: Floats, positives: sp.csr_array) -> Floats:
    """Return rows for new tags, shape (n_new, width), for fixed image rows `U`, (n_images, width).

    Stored entries of `positives`, (n_images, n_new), are the images' new tags; `V` are the rows of the old tags. The
    row of a new tag is the mean of the old ones, plus the solution of ``min_w Σ_i c_i (u_i · w - r_i)² + λ |w|²``. For
    an image with the new tag, r_i is the distance from the mean score of the old tags to the best one, and c_i is
    `POSITIVE_WEIGHT`; for other images, r_i is 0 and c_i is 1.

    References
    ----------
    Hu, Koren, Volinsky: Collaborative filtering for implicit feedback datasets. ICDM 2008; Eq. 4 and 5.
    """
    from scipy.linalg import solve

    mean, width = V.mean(axis=0, dtype=np.float64), V.shape[1]
    has_tag = np.flatnonzero(np.diff(positives.indptr))
    gains = np.zeros(U.shape[0])
    gains[has_tag] = _best_scores(U[has_tag], V - mean.astype(np.float32))
    squares = float(sp.csr_array(U).power(2).sum() if sp.issparse(U) else np.einsum("ij,ij->", U, U, dtype=np.float64))
    penalty = PENALTY * squares / width or 1.0
    gram = None
    if width <= DIRECT_WIDTH:
        gram = dense(U.T @ U).astype(np.float64)
        gram[np.diag_indices(width)] += penalty

    by_tag, rows = sp.csr_array(positives.T), np.empty((positives.shape[1], width), np.float32)
    for tag in range(len(rows)):
        images = by_tag.indices[by_tag.indptr[tag] : by_tag.indptr[tag + 1]]
        u = dense(U[images]).astype(np.float64)
        target = POSITIVE_WEIGHT * (gains[images] @ u)
        if gram is not None:
            solution = solve(gram + (POSITIVE_WEIGHT - 1) * (u.T @ u), target, assume_a="pos")
        else:
            solution = _solve_wide(U, u, penalty, target)
        rows[tag] = mean + solution
    return rows


def _solve_wide(U: Matrix, u: NDArray[np.float64], penalty: float, target: NDArray[np.float64]) -> NDArray[np.float64]:
    from scipy.sparse.linalg import LinearOperator, cg

    def product(w: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(U.T @ (U @ w) + (POSITIVE_WEIGHT - 1) * (u.T @ (u @ w)) + penalty * w)

    operator = LinearOperator((target.size, target.size), matvec=product, dtype=np.float64)
    solution: NDArray[np.float64] = cg(operator, target, rtol=CG_TOLERANCE, maxiter=CG_ITERATIONS)[0]
    return solution


def _best_scores(U: Matrix, V: Floats) -> Floats:
    parts = [np.asarray(U[rows] @ V.T).max(axis=1) for rows in row_blocks(U.shape[0], 4 * len(V))]
    return np.concatenate(parts) if parts else np.empty(0, np.float32)
