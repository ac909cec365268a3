"""One support vector machine per tag, each with its own penalty, and scores normalised to the same scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import check_number
from visterm.core.learned import Array, Kind
from visterm.core.products import product
from visterm.core.progress import Progress
from visterm.core.threads import Team, one_blas_thread, resolve_jobs
from visterm.core.types import Matrix, RandomState
from visterm.metrics import rank_images
from visterm.models import Judged, LinearAnnotator, LinearFit, Watch, check_weight_size, hold_out
from visterm_research.models.kernel_rows import (
    KEPT_KERNELS,
    KERNEL_LEARNED,
    check_kernel,
    check_support,
    keep_support,
    kernel_values,
    kernel_with,
    refuse_kernel,
)

Doubles = NDArray[np.float64]

PENALTIES = (0.1, 1.0, 10.0, 100.0)  # Values of C tried, for features of mean squared length 1
DEFAULT_C = 1.0

MIN_GAIN = 1e-9  # A tag gets another C than the best for all tags only if it gains more than this
ROUNDING_SHARE = 1e-12  # Variances below this share of the mean square are rounding errors
ROWS_AT_ONCE = 1024
TAGS_AT_ONCE = 64

BIAS_FEATURE = 10.0
"""liblinear penalises the bias like the weight of a feature with this value; a large value makes the penalty small."""

MAX_SPARSE_SHARE = 0.5
"""Features with less than this share of values other than 0 are converted to CSR, other features to arrays."""


@dataclass(kw_only=True, eq=False, repr=False)
class Svm(LinearAnnotator):
    """One support vector machine per tag, each with its own penalty, whose scores are normalised to be comparable.

    The machine of a tag separates images with the tag from all other images by a large margin; explicit negatives are
    ignored. Its scores are normalised to mean 0 and variance 1 over the training images, so that a query of several
    words can average the scores of its words (PAMIR paper, section II-A). A tag that no training image has always gets
    the lowest score of all tags on training images, and a tag that all have the highest.

    With the linear kernel, scores are ``x · w + b`` and rows are those of `LinearAnnotator`; the same holds for
    ``kernel="precomputed"``, where the features are kernel values with the training images. With the other kernels, the
    model keeps the support vectors of all tags, and its space is tag space.

    Parameters
    ----------
    kernel : {"linear", "rbf", "chi2", "intersection", "hellinger", "precomputed"}
        How images are compared. "linear" has squared hinge losses and uses liblinear; the others have hinge losses and
        use libsvm, in time that grows faster than the square of the number of images. "chi2", "intersection" and
        "hellinger" are for histograms. "precomputed": `X` is the kernel with the training images, (n, n_images).
    C : float, optional
        Cost of a violated margin, for features of mean squared length 1 (a kernel with mean 1 on the diagonal). More
        fits the training images more closely. None: chosen for each tag, from 0.1 to 100, by the average precision of
        a search for it among validation images; for a tag that none of them has, the best value for all tags together.
    gamma : float, optional
        ``γ`` of "rbf" and "chi2". None: 1 / mean distance between training images.
    normalise : bool
        Whether all tags' scores have the same mean and variance, for searches by several words. False keeps the
        margins, which rank the tags of an image far better, because scores of rare tags are low.
    valid_share : float
        Without validation images, `fit` holds out this share of the images to choose C. With 0, or if fewer than 50
        images would be held out, C is 1. At the end, machines are trained on all images.
    n_jobs : int, optional
        Number of threads, which train different tags; None or -1 for all cores.
    random_state : int, RandomState, Generator or None
        Draws the held-out images.

    Attributes
    ----------
    C_ : ndarray of float64, shape (n_tags,)
        The penalties that were used.
    gamma_ : float
        0 for kernels without γ.
    landmarks_ : array or CSR of float32, shape (n_features, n_support)
        With "rbf" to "hellinger": the support vectors, in the form for the kernel.
    tag_rows_, weights_, intercept_
        As in `LinearAnnotator`; if the kernel is not linear, features are kernel values with the support vectors or the
        training images.

    References
    ----------
    Grangier, Bengio 2008, section II-A. Amir et al.: IBM research TRECVID-2005 video retrieval system. TRECVID 2005.
    """

    learned: ClassVar[dict[str, Kind]] = KERNEL_LEARNED | {
        "tag_rows_": Array("float32", ("n_tags_", "n_inputs + 1"), required=False),
        "weights_": Array("float32", ("n_inputs", "n_tags_"), empty=True, required=False),
        "C_": Array("float64", ("n_tags_",), above=0),
    }

    test_params: ClassVar[dict[str, Any]] = {"valid_share": 0.25}

    kernel: str = "linear"
    gamma: float | None = None
    n_jobs: int | None = None
    C: float | None = None
    normalise: bool = True
    valid_share: float = 0.1
    random_state: RandomState = 0

    def _fit_monitored(self, X: Matrix, Y: sp.csr_array, rng: np.random.Generator, valid: Judged, watch: Watch) -> None:
        self.check_settings()
        given = sp.csr_array(Y > 0, dtype=np.float32)
        with one_blas_thread():
            kernel_inputs = kernel_with(self, X)
            F = kernel_inputs(X)
            check_weight_size(F.shape[1], Y.shape[1], "SVM")
            if self.C is not None:
                self.C_ = np.full(Y.shape[1], float(self.C))
            elif valid is not None:
                self.C_ = self._choose(F, given, kernel_inputs(valid[0]), valid[1], watch.monitor)
            else:
                training_ids, held_out = hold_out(X.shape[0], self.share_to_hold_out, rng)
                inputs, held_out_inputs = (
                    (F, F) if self.kernel == "linear" else (F[:, training_ids], F[:, training_ids])
                )
                self.C_ = self._choose(
                    inputs[training_ids], given[training_ids], held_out_inputs[held_out], given[held_out], watch.monitor
                )
            fitted = join_machines(self._train(F, given, self.C_, watch.monitor), F, given, normalise=self.normalise)
        if self.kernel not in KEPT_KERNELS:
            self._keep(fitted.weights, fitted.intercept, X)
            return
        support = np.flatnonzero(fitted.weights.any(axis=1))
        keep_support(self, X[support])
        self.weights_ = np.ascontiguousarray(fitted.weights[support])
        self.intercept_ = fitted.intercept

    def _check_settings(self) -> None:
        check_kernel(self)
        check_number(self.C, "C", above=0, otherwise="or None to have it chosen for each tag")
        check_number(self.valid_share, "valid_share", least=0, below=1)

    def _image_rows(self, X: Matrix) -> Matrix:
        if self.kernel not in KEPT_KERNELS:
            return super()._image_rows(X)
        return np.asarray(product(kernel_values(self, X), self.weights_) + self.intercept_, np.float32)

    def write_steps(self, steps: Any, x: str) -> str:
        """Add the steps from features to scores, see `WritesSteps`; raises UserError for kernels."""
        refuse_kernel(self, "linear")
        return super().write_steps(steps, x)

    def _scorer(self, x: Matrix, tag: int) -> tuple[Doubles, float]:
        refuse_kernel(self, "linear", "precomputed")
        return super()._scorer(x, tag)

    def _check_learned(self) -> None:
        super()._check_learned()
        check_support(self, self.tag_rows_.shape[1] - 1 if hasattr(self, "tag_rows_") else len(self.weights_))

    def _choose(
        self, F: Matrix, given: sp.csr_array, valid_inputs: Matrix, tags: sp.csr_array, monitor: Progress
    ) -> Doubles:
        """Return each tag's C, which is best in a search for it among validation images, after training on `F`."""
        relevant = sp.csc_array(tags > 0)
        if relevant.nnz == 0:
            return np.full(given.shape[1], DEFAULT_C)
        precisions = np.full((given.shape[1], len(PENALTIES)), np.nan)
        for column, C in enumerate(PENALTIES):
            machines = self._train(F, given, np.full(given.shape[1], C), monitor, selected=np.diff(relevant.indptr) > 0)
            for tag, machine in enumerate(machines):
                if relevant.indptr[tag] < relevant.indptr[tag + 1]:
                    scores = np.asarray(valid_inputs @ machine.weights + machine.bias)
                    precisions[tag, column] = rank_images(scores[:, None], relevant[:, [tag]]).average_precision()[0]
        best_column = int(np.argmax(np.nanmean(precisions, axis=0)))
        precisions[:, best_column] = np.nan_to_num(precisions[:, best_column]) + MIN_GAIN
        penalties: Doubles = np.asarray(PENALTIES)[np.nanargmax(precisions, axis=1)]
        return penalties

    def _train(
        self, F: Matrix, given: sp.csr_array, C: Doubles, monitor: Progress, selected: NDArray[np.bool_] | None = None
    ) -> list[Machine]:
        """Train the machine of each `selected` tag; other tags, and tags of no or all images, get zero weights."""
        solver = LinearMachines(F) if self.kernel == "linear" else KernelMachines(np.asarray(F))
        members = sp.csc_array(given)
        n, n_tags = given.shape

        def solve(tag: int) -> Machine:
            has = np.zeros(n, bool)
            has[members.indices[members.indptr[tag] : members.indptr[tag + 1]]] = True
            if has.all() or not has.any() or (selected is not None and not selected[tag]):
                return Machine(np.zeros(F.shape[1]), 0.0)
            return solver.solve(has, float(C[tag]))

        machines: list[Machine] = []
        monitor.start("support vector machines", n_tags)
        try:
            with Team(resolve_jobs(self.n_jobs)) as team:
                for start in range(0, n_tags, TAGS_AT_ONCE):
                    count = min(TAGS_AT_ONCE, n_tags - start)
                    machines += team.run(lambda number, start=start: solve(start + number), count)  # type: ignore[misc]
                    monitor.advance(count)
        finally:
            monitor.finish()
        return machines


def join_machines(machines: Sequence[Machine], F: Matrix, given: sp.csr_array, *, normalise: bool) -> LinearFit:
    """Join the machines of all tags, with scores of mean 0 and variance 1 for each tag over the training images.

    Without `normalise`, scores don't change. A tag that no image has gets the lowest score of all tags on training
    images, and a tag that all have the highest.
    """
    W = np.stack([machine.weights for machine in machines], axis=1)
    b = np.array([machine.bias for machine in machines])
    n = F.shape[0]
    sums, squares = np.zeros(len(b)), np.zeros(len(b))
    low, high = np.full(len(b), np.inf), np.full(len(b), -np.inf)
    for start in range(0, n, ROWS_AT_ONCE):
        scores = np.asarray(F[start : start + ROWS_AT_ONCE] @ W + b)
        sums += scores.sum(axis=0)
        squares += np.square(scores).sum(axis=0)
        low, high = np.minimum(low, scores.min(axis=0)), np.maximum(high, scores.max(axis=0))
    means, scales = np.zeros(len(b)), np.ones(len(b))
    counts = np.bincount(given.indices, minlength=len(b))
    if normalise:
        means = sums / n
        variances = squares / n - means**2
        varies = variances > ROUNDING_SHARE * np.maximum(squares / n, np.finfo(np.float64).tiny)
        scales = np.sqrt(np.where(varies, variances, 1.0))
    weights, intercept = W / scales, (b - means) / scales
    is_trained = (counts > 0) & (counts < n)
    intercept[counts == 0] = ((low - means) / scales)[is_trained].min(initial=-1)
    intercept[counts == n] = ((high - means) / scales)[is_trained].max(initial=1)
    return LinearFit(weights.astype(np.float32), intercept.astype(np.float32))


class Machine(NamedTuple):
    """A scorer ``x · weights + bias``, where x is a row of features or of kernel values with the training images."""

    weights: Doubles
    bias: float


class LinearMachines:
    """Solves ``½ |w|² + C Σ |1 - y (w · x + b)|₊²`` in the primal, without random draws.

    C is for features of mean squared length 1, to which `X` is scaled.
    """

    def __init__(self, X: Matrix) -> None:
        exact: Any = X.astype(np.float64)
        n_values = exact.nnz if sp.issparse(exact) else np.count_nonzero(exact)
        if n_values < MAX_SPARSE_SHARE * np.prod(exact.shape):
            exact = sp.csr_array(exact)
            exact.indices, exact.indptr = exact.indices.astype(np.int32), exact.indptr.astype(np.int32)
        elif sp.issparse(exact):
            exact = exact.toarray()
        squares = float(exact.power(2).sum() if sp.issparse(exact) else np.einsum("ij,ij->", exact, exact))
        self._scale = np.sqrt(squares / X.shape[0]) or 1.0
        self._features = exact / self._scale

    def solve(self, has: NDArray[np.bool_], C: float) -> Machine:
        """Train the machine that tells images that have a tag from those that have not, both among them."""
        from sklearn.svm import LinearSVC

        svm = LinearSVC(C=C, dual=False, intercept_scaling=BIAS_FEATURE).fit(self._features, has)
        return Machine(svm.coef_[0] / self._scale, float(svm.intercept_[0]))


class KernelMachines:
    """Solves ``½ |w|² + C Σ |1 - y (w · φ(x) + b)|₊`` in the dual.

    C is for a kernel with mean 1 on the diagonal, to which the kernel `K` of the training images is scaled.
    """

    def __init__(self, K: NDArray[np.float32]) -> None:
        mean = float(np.diag(K).mean(dtype=np.float64))
        self._scale = mean if mean > 0 else 1.0
        self._kernel = K.astype(np.float64) / self._scale

    def solve(self, has: NDArray[np.bool_], C: float) -> Machine:
        """Train the machine that tells images that have a tag from those that have not, both among them."""
        from sklearn.svm import SVC

        svm = SVC(C=C, kernel="precomputed").fit(self._kernel, has)
        weights = np.zeros(len(has))
        weights[svm.support_] = svm.dual_coef_[0] / self._scale
        return Machine(weights, float(svm.intercept_[0]))
