"""Logistic regression of all tags at once, along a path of penalties."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.optimize import minimize
from scipy.special import expit

from visterm.core.checks import check_number
from visterm.core.learned import Kind, Number
from visterm.core.products import dense, product
from visterm.core.selected_rows import copied, selected
from visterm.core.threads import one_blas_thread
from visterm.core.types import Matrix, RandomState
from visterm.metrics.ranking import average_precisions
from visterm.models.base import Limit
from visterm.models.linear.base import LinearAnnotator, check_weight_size
from visterm.models.linear.normal_equations import mean_square_norm
from visterm.models.stopping import Judged, Watch, hold_out

ALPHAS = tuple(
    10.0 ** (step / 2) for step in range(0, -11, -1)
)  # To try, in units of the features' mean squared length
DEFAULT_ALPHA = 0.01  # Without held-out images to choose by
BLOCK_ROWS = 4096
MAX_ROTATED = 4096  # With at most this many features, they are rotated to their principal axes
MAX_SCORES = 2**25  # With more scores of images for tags (128 MiB), solves for some tags at a time
MAX_WEIGHTS, WEIGHTS_AT_ONCE = 3 * 2**19, 2**19  # So it does with more weights: L-BFGS needs 250 bytes for each
BLOCK_SCORES = 2**23  # Compute at most this many scores at a time (32 MiB)
MAX_ROTATED_BYTES = 2**28  # Store rotated rows up to this size; rotate the weights of larger ones, once per step
MAX_STEPS, MEMORY = 8, 8  # Steps of L-BFGS for each penalty, and how many of them it remembers
TOLERANCE = 1e-3  # The steps end when one lowers the objective by a smaller share


@dataclass(kw_only=True, eq=False, repr=False)
class Logistic(LinearAnnotator):
    """Scores the tags by logistic regression, one linear scorer per tag; all tags are learned at once.

    Minimises ``Σ log(1 + exp(s)) - y s + alpha/2 ‖W‖²`` over all images and tags, with ``s = x · w + b``, by L-BFGS.
    It starts from the tag frequencies, ``b = log(p / (1 - p))``, and goes from strong to weak penalties, each from the
    solution of the previous one. Explicit negatives count as not given.

    Parameters
    ----------
    alpha : float, optional
        Penalty, in units of the mean squared length of the centred feature rows. More is smoother and nearer to the
        tag frequencies. None: the value from 1 down to 0.00001 that ranks the tags of held-out images best (MAP over
        images).
    valid_share : float
        Share of the images to hold out to choose the penalty if `fit` has no validation images; with less than 50
        such images, the penalty is 0.01.
    random_state : int, RandomState, Generator or None
        Draws the held-out images.

    Attributes
    ----------
    alpha_ : float
        The penalty that was used.
    tag_rows_, weights_, intercept_
        As in `LinearAnnotator`.
    """

    learned: ClassVar[dict[str, Kind]] = {"alpha_": Number(above=0)}

    limits: ClassVar[dict[str, Limit]] = {
        "alpha": partial(check_number, above=0, otherwise="or None to have it chosen"),
        "valid_share": partial(check_number, least=0, below=1),
    }

    test_params: ClassVar[Mapping[str, object]] = {"alpha": 0.01}
    reads_parts: ClassVar[bool] = True

    alpha: float | None = None
    valid_share: float = 0.1
    random_state: RandomState = 0

    def _fit_monitored(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator, valid: Judged, watch: Watch) -> None:
        self.check_settings()
        check_weight_size(X.shape[1], Y.shape[1], "Logistic")
        given = sp.csr_array(Y > 0, dtype=np.float32)
        with one_blas_thread():
            solver = LogisticSolver(X, given)
            self.alpha_ = DEFAULT_ALPHA if self.alpha is None else float(self.alpha)
            if self.alpha is None:
                training_ids, held_out = hold_out(X.shape[0], self.share_to_hold_out if valid is None else 0.0, rng)
                rows, tags = (X[held_out], given[held_out]) if valid is None else (valid[0], sp.csr_array(valid[1] > 0))
                if rows.shape[0] and tags.nnz:
                    self.alpha_ = solver.choose_alpha(training_ids if held_out.size else None, rows, tags)
            solver.solve(self.alpha_)
        self._keep(*solver.weights(), X)


class LogisticSolver:
    """Solves for all tags, one penalty after another, each from the solution of the previous one.

    Features are centred and rotated to their principal axes (with more than `MAX_ROTATED` features, they stay as they
    are). Each weight is measured in units of its curvature, the square root of ``λ_j p_t (1 - p_t) + penalty``, with
    the variance λ of an axis and the share p of a tag, so that steps have the right size for rare and frequent tags.
    """

    def __init__(self, X: Matrix, given: sp.csr_array) -> None:
        n, d = X.shape
        self._axes: NDArray[np.float32] | None = None
        self._rotation: NDArray[np.float32] | None = None  # The axes, if the rows are stored as they are
        self._mean = np.zeros(d, np.float32)
        self._rows: Matrix = X
        if d <= MAX_ROTATED:  # as arrays in blocks: sparse features give the same bytes
            blocks = [slice(start, start + BLOCK_ROWS) for start in range(0, n, BLOCK_ROWS)]
            mean = sum(dense(X[block]).sum(axis=0, dtype=np.float64) for block in blocks) / n
            self._mean = np.asarray(mean, np.float32)
            centred_blocks = (np.asarray(dense(X[block]), np.float32) - self._mean for block in blocks)
            if n < d:  # the axes of the images' products need a far smaller decomposition
                centred: NDArray[Any] = np.concatenate(list(centred_blocks)).astype(np.float64)
                gram = centred @ centred.T
            else:
                gram = np.zeros((d, d))
                for centred in centred_blocks:
                    gram += centred.T @ centred

            variances, axes = eigh(gram / n)
            self._scale = float(np.trace(gram)) / n or 1.0
            kept = variances > variances[-1] * 1e-7
            self._variances, kept_axes = variances[kept], axes[:, kept]
            rotation = centred.T @ kept_axes / np.sqrt(n * self._variances) if n < d else kept_axes
            self._axes = np.ascontiguousarray(rotation, np.float32)
            if 4 * n * d <= MAX_ROTATED_BYTES:
                self._rows = np.concatenate([(dense(X[block]) - self._mean) @ self._axes for block in blocks])
            else:
                self._rotation = self._axes
        else:
            self._rows = X = copied(X)
            squares: Any = sp.csr_array(X).power(2).mean(axis=0) if sp.issparse(X) else np.square(X).mean(axis=0)
            self._variances = np.maximum(squares, 1e-12)
            self._scale = mean_square_norm(X)

        self._given = given
        share = (np.asarray(given.sum(axis=0)) + 0.5) / (n + 1)
        self._spread = share * (1 - share)
        self._W = np.zeros((self._variances.size, given.shape[1]), np.float32)
        self._b = np.log(share / (1 - share)).astype(np.float32)

    def choose_alpha(self, training_ids: NDArray[np.int64] | None, X: Matrix, given: Matrix) -> float:
        """Return the penalty whose solution for some images (None: all) ranks the tags of other images, `X`, best."""
        best, best_map = float(ALPHAS[0]), -1.0
        for alpha in ALPHAS:
            self.solve(alpha, training_ids)
            weights, intercept = self.weights()
            value = float(np.nanmean(average_precisions(np.asarray(product(X, weights) + intercept), given)))
            if value <= best_map:
                break
            best, best_map = float(alpha), value
        return best

    def solve(self, alpha: float, images: NDArray[np.int64] | None = None) -> None:
        """Set the weights to the solution for a penalty, on some of the images (None: all)."""
        rows, given = self._rows, self._given
        if images is not None:
            rows, given = selected(rows, images), given[images]
            rows = copied(rows) if self._rotation is None else rows
        n_at_once = max(1, MAX_SCORES // given.shape[0])
        if self._W.size > MAX_WEIGHTS:
            n_at_once = max(1, min(n_at_once, WEIGHTS_AT_ONCE // len(self._W)))
        for first in range(0, given.shape[1], n_at_once):
            self._solve_tags(slice(first, first + n_at_once), rows, given, alpha * self._scale)

    def _solve_tags(self, tags: slice, rows: Matrix, all_given: sp.csr_array, penalty: float) -> None:
        given, spread, n = sp.csr_array(all_given[:, tags]), self._spread[tags], rows.shape[0]
        units = np.sqrt(np.outer(self._variances, spread) + penalty / n).astype(np.float32)
        bias_units = np.sqrt(spread).astype(np.float32)
        d, n_tags = units.shape
        axes, step = self._rotation, max(1, BLOCK_SCORES // n_tags)
        step = step if axes is None else min(step, BLOCK_ROWS)
        blocks = [slice(start, start + step) for start in range(0, n, step)]
        pairs = [given[block].nonzero() for block in blocks]

        def block_rows(block: slice) -> Matrix:
            part = rows[block] if len(blocks) > 1 else rows
            return part if axes is None else np.asarray(dense(part) - self._mean)

        def rotated(sums: Any) -> Any:
            return sums if axes is None else axes.T @ sums

        moments = rotated(np.asarray(sum(dense(block_rows(block).T @ given[block]) for block in blocks), np.float32))
        counts = np.asarray(given.sum(axis=0), np.float32)

        def objective(z: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            parts = z.astype(np.float32).reshape(d + 1, n_tags)
            W, b = parts[:d] / units, parts[d] / bias_units
            weights = W if axes is None else axes @ W
            loss, sums, totals = 0.0, np.zeros(weights.shape, np.float32), np.zeros(n_tags, np.float32)
            for block, (image, tag) in zip(blocks, pairs, strict=True):
                part = block_rows(block)
                scores = np.asarray(product(part, weights), np.float32)
                scores += b
                of_given = scores[image, tag].sum(dtype=np.float64)
                loss += float(np.logaddexp(0, scores).sum(dtype=np.float64) - of_given)
                probabilities = expit(scores, out=scores)
                sums += product(part.T, probabilities)
                totals += probabilities.sum(axis=0)
            gradient = np.empty_like(parts)
            gradient[:d] = (rotated(sums) - moments + np.float32(penalty) * W) / units
            gradient[d] = (totals - counts) / bias_units
            loss += 0.5 * penalty * float(np.square(W).sum(dtype=np.float64))
            return loss / n, (gradient.ravel() / n).astype(np.float64)

        start = np.vstack([self._W[:, tags] * units, self._b[tags] * bias_units]).astype(np.float64).ravel()
        options = {"maxiter": MAX_STEPS, "maxcor": MEMORY, "ftol": TOLERANCE, "gtol": 0.0}
        result = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
        parts = result.x.astype(np.float32).reshape(d + 1, n_tags)
        self._W[:, tags], self._b[tags] = parts[:d] / units, parts[d] / bias_units

    def weights(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the weights of the features (n_features, n_tags) and the intercepts (n_tags,)."""
        weights = self._W if self._axes is None else self._axes @ self._W
        return weights, self._b - self._mean @ weights
