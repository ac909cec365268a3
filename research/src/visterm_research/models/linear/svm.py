"""One support vector machine a tag, with a penalty of its own, its scores brought to one scale."""

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
from visterm.models import (
    KEPT_KERNELS,
    KERNEL_LEARNED,
    LinearAnnotator,
    LinearFit,
    OnEpoch,
    check_kernel,
    check_support,
    check_weight_size,
    hold_out,
    keep_support,
    kernel_values,
    kernel_with,
    refuse_kernel,
)

Doubles = NDArray[np.float64]

PENALTIES = (0.1, 1.0, 10.0, 100.0)  # Values of C tried, for features of mean squared length 1
DEFAULT_C = 1.0

LEAST_GAIN = 1e-9  # By less than this no tag leaves the C that is best for all
ROUNDING = 1e-12  # Variances of less than this share of the mean square are rounding
ROWS_AT_ONCE = 1024
TAGS_AT_ONCE = 64

BIAS_FEATURE = 10.0
"""liblinear penalises the bias as the weight of a feature of this value: large, so that the penalty hardly matters."""

SPARSE_BELOW = 0.5
"""Share of values that are not 0 below which features are handed over as CSR, whatever form they came in."""


@dataclass(kw_only=True, eq=False, repr=False)
class Svm(LinearAnnotator):
    """One support vector machine for each tag, tuned for itself, whose scores are normalised to be comparable.

    The machine of a tag tells images that have it from all others, by a large margin; explicit negatives count as not
    given. Its score is brought to mean 0 and variance 1 over the training images, so that a query of several words can
    average the scores of its words (PAMIR paper, section II-A). A tag that no training image has gets the lowest score
    of any tag on any of them everywhere, one that all have the highest.

    With the linear kernel scores are ``x · w + b`` and the rows those of `LinearAnnotator`; so they are with
    ``kernel="precomputed"``, where the features are kernel values with the training images. With the other kernels the
    model keeps the support vectors of all tags, and its space is tag space.

    Parameters
    ----------
    kernel : {"linear", "rbf", "chi2", "intersection", "hellinger", "precomputed"}
        How images are compared. "linear" has squared hinge losses and is solved by liblinear, the others have hinge
        losses and are solved by libsvm, in time that grows faster than the square of the images; "chi2", "intersection"
        and "hellinger" are for histograms. "precomputed": `X` is the kernel with the training images, (n, n_images).
    C : float, optional
        What a violated margin costs, for features of mean squared length 1 (a kernel of mean 1 on the diagonal). More
        fits closer. None: chosen for each tag, from 0.1 to 100, by the average precision of a search for it among
        validation images; for a tag that none of those has, the one that is best for all tags together.
    gamma : float, optional
        ``γ`` of "rbf" and "chi2". None: 1 / mean distance between training images.
    normalise : bool
        Whether each tag's scores are brought to one mean and variance, as for searches by several words. False keeps
        the margins, which rank the tags of an image far better: those of rare tags stay low.
    valid_share : float
        Share of the images held out to choose C, where `fit` is given no validation images. With 0, or so few images
        that less than 50 would be held out, C is 1. Machines are trained again on all images.
    n_jobs : int, optional
        Threads, which share out the tags; None or -1 for all cores.
    random_state : int, RandomState, Generator or None
        Which images are held out.

    Attributes
    ----------
    C_ : ndarray of float64, shape (n_tags,)
        The penalties that were used.
    gamma_ : float
        0 for kernels without.
    landmarks_ : array or CSR of float32, shape (n_features, n_support)
        With "rbf" to "hellinger": the support vectors, as the kernel compares them.
    tag_rows_, weights_, intercept_
        As in `LinearAnnotator`; the features are kernel values with the support vectors, or the training images, where
        the kernel is not linear.

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

    def _fit_monitored(
        self,
        X: Matrix,
        Y: sp.csr_array,
        rng: np.random.Generator,
        valid: tuple[Matrix, sp.csr_array] | None,
        monitor: Progress,
        on_epoch: OnEpoch | None,
    ) -> None:
        self.check_settings()
        given = sp.csr_array(Y > 0, dtype=np.float32)
        with one_blas_thread():
            compare = kernel_with(self, X)
            F = compare(X)
            check_weight_size(F.shape[1], Y.shape[1], "SVM")
            if self.C is not None:
                self.C_ = np.full(Y.shape[1], float(self.C))
            elif valid is not None:
                self.C_ = self._choose(F, given, compare(valid[0]), valid[1], monitor)
            else:
                trained, held = hold_out(X.shape[0], self.share_to_hold_out, rng)
                some, judged = (F, F) if self.kernel == "linear" else (F[:, trained], F[:, trained])
                self.C_ = self._choose(some[trained], given[trained], judged[held], given[held], monitor)
            found = scaled_alike(self._train(F, given, self.C_, monitor), F, given, normalise=self.normalise)
        if self.kernel not in KEPT_KERNELS:
            self._keep(found.weights, found.intercept, X)
            return
        support = np.flatnonzero(found.weights.any(axis=1))
        keep_support(self, X[support])
        self.weights_ = np.ascontiguousarray(found.weights[support])
        self.intercept_ = found.intercept

    def _check_settings(self) -> None:
        check_kernel(self)
        check_number(self.C, "C", above=0, otherwise="or None to have it chosen for each tag")
        check_number(self.valid_share, "valid_share", least=0, below=1)

    def _image_rows(self, X: Matrix) -> Matrix:
        if self.kernel not in KEPT_KERNELS:
            return super()._image_rows(X)
        return np.asarray(product(kernel_values(self, X), self.weights_) + self.intercept_, np.float32)

    def write_steps(self, steps: Any, x: str) -> str:
        """Add the steps from features to scores, as `WritesSteps` says; with kernels there are none."""
        refuse_kernel(self, "linear")
        return super().write_steps(steps, x)

    def _scorer(self, x: Matrix, tag: int) -> tuple[Doubles, float]:
        refuse_kernel(self, "linear", "precomputed")
        return super()._scorer(x, tag)

    def _check_learned(self) -> None:
        super()._check_learned()
        check_support(self, self.tag_rows_.shape[1] - 1 if hasattr(self, "tag_rows_") else len(self.weights_))

    def _choose(self, F: Matrix, given: sp.csr_array, judged: Matrix, tags: sp.csr_array, monitor: Progress) -> Doubles:
        """Return each tag's C: by a search for it among the judged images, with machines trained on the others."""
        relevant = sp.csc_array(tags > 0)
        if relevant.nnz == 0:
            return np.full(given.shape[1], DEFAULT_C)
        reached = np.full((given.shape[1], len(PENALTIES)), np.nan)
        for place, C in enumerate(PENALTIES):
            machines = self._train(F, given, np.full(given.shape[1], C), monitor, only=np.diff(relevant.indptr) > 0)
            for tag, machine in enumerate(machines):
                if relevant.indptr[tag] < relevant.indptr[tag + 1]:
                    scores = np.asarray(judged @ machine.weights + machine.bias)
                    reached[tag, place] = rank_images(scores[:, None], relevant[:, [tag]]).average_precision()[0]
        common = int(np.argmax(np.nanmean(reached, axis=0)))
        reached[:, common] = np.nan_to_num(reached[:, common]) + LEAST_GAIN
        chosen: Doubles = np.asarray(PENALTIES)[np.nanargmax(reached, axis=1)]
        return chosen

    def _train(
        self, F: Matrix, given: sp.csr_array, C: Doubles, monitor: Progress, only: NDArray[np.bool_] | None = None
    ) -> list[Machine]:
        """Train the machine of each tag (of those in `only`); of tags that none or all images have, without weights."""
        solver = LinearMachines(F) if self.kernel == "linear" else KernelMachines(np.asarray(F))
        members = sp.csc_array(given)
        n, n_tags = given.shape

        def solve(tag: int) -> Machine:
            has = np.zeros(n, bool)
            has[members.indices[members.indptr[tag] : members.indptr[tag + 1]]] = True
            if has.all() or not has.any() or (only is not None and not only[tag]):
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


def scaled_alike(machines: Sequence[Machine], F: Matrix, given: sp.csr_array, *, normalise: bool) -> LinearFit:
    """Join the machines of all tags, with scores of mean 0 and variance 1 each over the training images.

    Without `normalise` scores stay as they are. A tag that no image has gets the lowest score of any tag on any of
    them, one that all have the highest.
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
        varies = variances > ROUNDING * np.maximum(squares / n, np.finfo(np.float64).tiny)
        scales = np.sqrt(np.where(varies, variances, 1.0))
    weights, intercept = W / scales, (b - means) / scales
    trained = (counts > 0) & (counts < n)
    intercept[counts == 0] = ((low - means) / scales)[trained].min(initial=-1)
    intercept[counts == n] = ((high - means) / scales)[trained].max(initial=1)
    return LinearFit(weights.astype(np.float32), intercept.astype(np.float32))


class Machine(NamedTuple):
    """A scorer ``x · weights + bias``, x being a row of features or of kernel values with the training images."""

    weights: Doubles
    bias: float


class LinearMachines:
    """Solves ``½ |w|² + C Σ |1 - y (w · x + b)|₊²`` in the primal, which draws nothing at random.

    The features `X` are scaled to a mean squared length of 1, to which C relates.
    """

    def __init__(self, X: Matrix) -> None:
        exact: Any = X.astype(np.float64)
        n_values = exact.nnz if sp.issparse(exact) else np.count_nonzero(exact)
        if n_values < SPARSE_BELOW * np.prod(exact.shape):
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

        found = LinearSVC(C=C, dual=False, intercept_scaling=BIAS_FEATURE).fit(self._features, has)
        return Machine(found.coef_[0] / self._scale, float(found.intercept_[0]))


class KernelMachines:
    """Solves ``½ |w|² + C Σ |1 - y (w · φ(x) + b)|₊`` in the dual.

    The kernel `K` of the training images is scaled to a mean of 1 on the diagonal, to which C relates.
    """

    def __init__(self, K: NDArray[np.float32]) -> None:
        mean = float(np.diag(K).mean(dtype=np.float64))
        self._scale = mean if mean > 0 else 1.0
        self._kernel = K.astype(np.float64) / self._scale

    def solve(self, has: NDArray[np.bool_], C: float) -> Machine:
        """Train the machine that tells images that have a tag from those that have not, both among them."""
        from sklearn.svm import SVC

        found = SVC(C=C, kernel="precomputed").fit(self._kernel, has)
        weights = np.zeros(len(has))
        weights[found.support_] = found.dual_coef_[0] / self._scale
        return Machine(weights, float(found.intercept_[0]))
