"""Ridge regression in the space of a Gaussian kernel: as fast as ridge, but not linear in the features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve, lapack

from visterm.core.checks import check_count, check_number, check_size
from visterm.core.learned import Array, Kind, Number
from visterm.core.products import column_means, dense, product
from visterm.core.threads import one_blas_thread
from visterm.core.types import Doubles, Ints, Matrix, RandomState
from visterm.encoders.onnx_graph import GraphSteps
from visterm.metrics.ranking import average_precisions
from visterm.models.base import Annotator, Limit, row_blocks
from visterm.models.neighbours.distances import squared_distances
from visterm.models.neighbours.knn import UNIT_ROWS, unit_rows

GAMMAS = (1.0, 3.0)
ALPHAS = (3.0, 1.0, 0.3, 0.1, 0.03)  # Penalties to try, from strong to weak
DEFAULT_ALPHA = 0.3  # Used if there is no data to choose by

CHOICE_ROWS = 1000  # Use at most this many images to choose the settings: the time grows with their cube
MAX_KERNEL_BYTES = 2**33

PANEL = 512  # Landmarks whose sums are computed at a time, which limits the memory
ROUNDING = 1e-8  # Added to the diagonal of the landmarks' kernel, whose values there are 1


@dataclass(kw_only=True, eq=False, repr=False)
class KernelRidge(Annotator):
    """Predicts 1 for tags of an image and 0 for other tags, by penalised least squares in the space of a kernel.

    The kernel of two images is ``exp(-g ‖x - x'‖²)`` of their feature rows, scaled to unit length: 1 for an image with
    itself, and less for distant images. The score of a tag is its frequency plus ``Σ_j k(x, x_j) c_j`` over the
    landmarks ``x_j``, where ``c`` minimises ``Σ (k · c - (y - mean y))² + alpha cᵀ K c``. Like nearest neighbours, it
    can learn tags with several different looks; like ridge, it uses all images. Explicit negatives count as unknown.

    If there are at most `landmarks` training images, all are landmarks, and the solution is exact; otherwise landmarks
    are drawn, and training still uses all images (the subset of regressors). Scores are in tag space.

    Parameters
    ----------
    gamma : float, optional
        ``g`` in units of 1 / mean squared distance of training images. More is more local. None: chosen from 1 and 3.
    alpha : float, optional
        Penalty. More is smoother and nearer to the tag frequencies. None: chosen from 3 to 0.03.
    landmarks : int
        Maximum number of training images that others are compared with. The time of a fit grows with their cube, and
        with their square times the number of images.
    random_state : int, RandomState, Generator or None
        Draws the landmarks and, if there are more than 1,000 images, the 1,000 that choose the settings.

    Attributes
    ----------
    gamma_, alpha_ : float
        The settings that were used. Chosen settings have the best exact leave-one-out predictions on training images
        (MAP over images).
    width_ : float
        The mean squared distance.
    rows_ : array or CSR of float32, shape (n_landmarks, n_features)
        Features of the landmarks, of unit length.
    dual_ : ndarray of float32, shape (n_landmarks, n_tags)
        c.
    frequencies_ : ndarray of float32, shape (n_tags,)

    References
    ----------
    Saunders, Gammerman, Vovk: Ridge regression learning algorithm in dual variables. ICML 1998. Rasmussen, Williams:
    Gaussian processes for machine learning, 2006; sections 5.4.2 (leaving one out) and 8.3.1 (subset of regressors).
    """

    learned: ClassVar[dict[str, Kind]] = {
        "gamma_": Number(above=0),
        "alpha_": Number(above=0),
        "width_": Number(above=0),
        "rows_": UNIT_ROWS,
        "dual_": Array("float32", ("n_images", "n_tags_")),
        "frequencies_": Array("float32", ("n_tags_",), least=0, most=1),
    }

    limits: ClassVar[dict[str, Limit]] = {
        "landmarks": check_count,
        "gamma": partial(check_number, above=0, otherwise="or None to have it chosen"),
        "alpha": partial(check_number, above=0, otherwise="or None to have it chosen"),
    }

    test_params: ClassVar[Mapping[str, object]] = {"landmarks": 200}
    reads_parts: ClassVar[bool] = True

    gamma: float | None = None
    alpha: float | None = None
    landmarks: int = 5000
    random_state: RandomState = 0

    def _fit(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator) -> None:
        self.check_settings()
        n, m = X.shape[0], min(int(self.landmarks), X.shape[0])
        check_size(24 * m * m, MAX_KERNEL_BYTES, f"The kernel of {m} landmarks", "Take fewer (landmarks).")
        given = sp.csr_array(Y > 0, dtype=np.float32)
        order = rng.permutation(n)
        with one_blas_thread():
            self.gamma_, self.alpha_, self.width_ = self._choose(X, given, np.sort(order[:CHOICE_ROWS]))
            self.rows_ = unit_rows(X[np.sort(order[:m])])
            frequencies = column_means(given)
            self.frequencies_ = frequencies.astype(np.float32)
            self.dual_ = np.ascontiguousarray(self._solve(X, given, frequencies), np.float32)

    def _image_rows(self, X: Matrix) -> Matrix:
        scores = np.empty((X.shape[0], self.n_tags_), np.float32)
        with one_blas_thread():
            for part in row_blocks(X.shape[0], 8 * self.rows_.shape[0]):
                scores[part] = product(self._kernel(unit_rows(X[part]), self.rows_).astype(np.float32), self.dual_)
        scores += self.frequencies_
        return scores

    def write_steps(self, steps: GraphSteps, x: str) -> str:
        """Add the steps from features to scores, see `WritesSteps`; the graph has the features of the landmarks."""
        landmarks, rows = dense(self.rows_), steps.unit(x, self.n_features_in_)
        lengths = steps.add("Add", steps.squares(rows, self.n_features_in_), np.square(landmarks).sum(axis=1))
        distances = steps.add("Sub", lengths, steps.affine(rows, 2 * landmarks.T))
        kernel = steps.add("Exp", steps.add("Mul", distances, -self.gamma_ / self.width_))
        return str(steps.affine(kernel, self.dual_, self.frequencies_))

    def _kernel(self, A: Matrix, B: Matrix) -> Doubles:
        exponents = squared_distances(A, B)
        exponents *= -self.gamma_ / self.width_
        return np.exp(exponents, out=exponents)

    def _choose(self, X: Matrix, given: sp.csr_array, sample: Ints) -> tuple[float, float, float]:
        """Return γ, the penalty and the mean squared distance; choose settings of None by leave-one-out on a sample."""
        distances = squared_distances(unit_rows(X[sample]), unit_rows(X[sample]))
        bandwidth = float(distances.sum()) / max(sample.size * (sample.size - 1), 1) or 1.0
        gammas = GAMMAS if self.gamma is None else (float(self.gamma),)
        alphas = ALPHAS if self.alpha is None else (float(self.alpha),)
        tags = given[sample]
        best, best_map = (gammas[0], alphas[0] if len(alphas) == 1 else DEFAULT_ALPHA, bandwidth), -1.0
        if len(gammas) * len(alphas) == 1 or tags.nnz == 0 or min(tags.shape) < 2:
            return best
        targets = tags.toarray().astype(np.float64)
        for gamma in gammas:
            kernel = np.exp(distances * (-gamma / bandwidth))
            previous_map = -1.0
            for alpha in alphas:
                current_map = float(np.nanmean(average_precisions(_leave_one_out(kernel, targets, alpha), tags)))
                if current_map > best_map:
                    best, best_map = (gamma, alpha, bandwidth), current_map
                if current_map <= previous_map:
                    break
                previous_map = current_map
        return best

    def _solve(self, X: Matrix, given: sp.csr_array, frequencies: Doubles) -> Doubles:
        """Solve ``(K_mn K_nm + alpha K_mm) c = K_mn (Y - mean Y)``, processing the images in blocks.

        If all n images are landmarks, this is ``(K + alpha I) c = Y - mean Y``. Otherwise only the lower triangle of
        the square matrix is set, which is all that the factorisation reads.
        """
        n, m = X.shape[0], self.rows_.shape[0]
        if n == m:
            square = self._kernel(unit_rows(X), self.rows_)
            square[np.diag_indices_from(square)] += self.alpha_
            moment = given.toarray() - frequencies
        else:
            # In the order of LAPACK, which then solves in place
            square, moment = np.zeros((m, m), order="F"), np.zeros((m, given.shape[1]), order="F")
            panels = [slice(start, start + PANEL) for start in range(0, m, PANEL)]
            totals = np.zeros(m)
            for part in row_blocks(n, 8 * m):
                kernel = self._kernel(unit_rows(X[part]), self.rows_)
                totals += kernel.sum(axis=0)
                tags = given[part].T
                for panel in panels:
                    square[panel.start :, panel] += kernel[:, panel.start :].T @ kernel[:, panel]
                    moment[panel] += (tags @ kernel[:, panel]).T
            for panel in panels:
                between = self._kernel(self.rows_[panel], self.rows_)
                between[np.arange(len(between)), np.arange(panel.start, panel.start + len(between))] += ROUNDING * n
                square[panel] += self.alpha_ * between
                moment[panel] -= np.outer(totals[panel], frequencies)
        factor = cho_factor(square, lower=True, overwrite_a=True)
        return np.asarray(cho_solve(factor, np.asarray(moment, np.float64), overwrite_b=True))


def _leave_one_out(kernel: Doubles, targets: Doubles, alpha: float) -> Doubles:
    """Return the prediction of each row by the fit to all other rows: its error is ``c / diag (K + αI)⁻¹``."""
    square = kernel.copy()
    square[np.diag_indices_from(square)] += alpha
    factor, lower = cho_factor(square, lower=True, overwrite_a=True)
    dual = cho_solve((factor, lower), targets - targets.mean(axis=0))
    inverse, _ = lapack.dpotri(factor, lower=lower, overwrite_c=True)
    return np.asarray(targets - dual / np.diag(inverse)[:, None])
