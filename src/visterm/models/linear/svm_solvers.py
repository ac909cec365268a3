"""Support vector machines for one tag, solved by scikit-learn: linear in the features, or in columns of a kernel."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.svm import SVC, LinearSVC

from visterm.core.types import Matrix

Doubles = NDArray[np.float64]

BIAS_FEATURE = 10.0
"""liblinear penalises the bias as the weight of a feature of this value: large, so that the penalty hardly matters."""

SPARSE_BELOW = 0.5
"""Share of values that are not 0 below which features are handed over as CSR, whatever form they came in."""


class Machine(NamedTuple):
    """A scorer ``x · weights + bias``, x being a row of features or of kernel values with the training images."""

    weights: Doubles
    bias: float


class LinearMachines:
    """Solves ``½ |w|² + C Σ |1 - y (w · x + b)|₊²`` in the primal, which draws nothing at random.

    Parameters
    ----------
    X : array or CSR of float32, shape (n, n_features)
        Scaled to a mean squared length of 1, to which C relates.
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
        found = LinearSVC(C=C, dual=False, intercept_scaling=BIAS_FEATURE).fit(self._features, has)
        return Machine(found.coef_[0] / self._scale, float(found.intercept_[0]))


class KernelMachines:
    """Solves ``½ |w|² + C Σ |1 - y (w · φ(x) + b)|₊`` in the dual.

    Parameters
    ----------
    K : ndarray of float32, shape (n, n)
        Kernel of the training images; scaled to a mean of 1 on the diagonal, to which C relates.
    """

    def __init__(self, K: NDArray[np.float32]) -> None:
        mean = float(np.diag(K).mean(dtype=np.float64))
        self._scale = mean if mean > 0 else 1.0
        self._kernel = K.astype(np.float64) / self._scale

    def solve(self, has: NDArray[np.bool_], C: float) -> Machine:
        """Train the machine that tells images that have a tag from those that have not, both among them."""
        found = SVC(C=C, kernel="precomputed").fit(self._kernel, has)
        weights = np.zeros(len(has))
        weights[found.support_] = found.dual_coef_[0] / self._scale
        return Machine(weights, float(found.intercept_[0]))
