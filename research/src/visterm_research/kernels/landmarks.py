"""Kernels between rows and landmarks: the similarity of images to selected training images."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.checks import as_csr
from visterm.core.errors import DataError, ShapeError
from visterm.core.threads import Team, resolve_jobs
from visterm.core.types import Matrix
from visterm_research.kernels.overlaps import Overlap, add_dense_overlaps, add_sparse_overlaps

MIN_DENSE_SHARE = 0.1
"""Landmarks with a lower share of non-zero values are CSR: a fifth of the memory, and below 0.05 also faster."""

ROWS_PER_TASK = 32


class Kernel(NamedTuple):
    """A kernel as a function of the overlap of two rows, ``s = Σ overlap(x, y)``."""

    overlap: Overlap
    rooted: bool = False  # Whether square roots of the rows are compared
    signed: bool = False  # Whether features may be negative
    common: float = 0  # 0: the kernel is ``s``; else ``exp(-γ d)`` of the distance ``d = |x| + |y| - common · s``
    power: int = 1  # The exponent in the distance, ``|x| = Σ x^power``


KERNELS = {
    "intersection": Kernel(Overlap.SMALLER),
    "linear": Kernel(Overlap.PRODUCT, signed=True),
    "hellinger": Kernel(Overlap.PRODUCT, rooted=True),
    "chi2": Kernel(Overlap.HARMONIC, common=4),
    "rbf": Kernel(Overlap.PRODUCT, signed=True, common=2, power=2),
}
"""``(x - y)² / (x + y) = x + y - 4 x y / (x + y)``, and ``(x - y)² = x² + y² - 2 x y``."""


class Landmarks:
    """Rows with which other rows are compared by a kernel of `KERNELS`.

    `columns`, float32 (n_features, n_landmarks), dense or CSR, come from `landmark_columns`.
    """

    def __init__(self, kernel: str, columns: Matrix) -> None:
        self._kernel = KERNELS[kernel]
        self._name = kernel
        self._columns = columns
        self._sizes = self._measure(as_csr(columns.T)) if self._kernel.common else np.empty(0)

    def values(self, rows: Matrix, gamma: float, n_jobs: int | None) -> NDArray[np.float32]:
        """Return the kernel between rows, dense or sparse, and all landmarks, shape (n_rows, n_landmarks)."""
        if not self._kernel.common:
            return self._overlap_sums(self._prepared(rows), n_jobs)
        return np.exp(-gamma * self.distances(rows, n_jobs)).astype(np.float32)

    def distances(self, rows: Matrix, n_jobs: int | None) -> NDArray[np.float64]:
        """Return the distances that the kernel is computed from, shape (n_rows, n_landmarks)."""
        prepared = self._prepared(rows)
        size_sums = self._measure(prepared)[:, None] + self._sizes
        return np.maximum(size_sums - self._kernel.common * self._overlap_sums(prepared, n_jobs).astype(np.float64), 0)

    def usual_gamma(self, rows: Matrix, n_jobs: int | None) -> float:
        """Return 1 / the mean distance between landmarks; `rows` are the landmarks. 1 if all distances are 0."""
        distances = self.distances(rows, n_jobs)
        total = float(distances.sum() - np.trace(distances))
        return len(distances) * (len(distances) - 1) / total if total > 0 else 1.0

    def _prepared(self, rows: Matrix) -> sp.csr_array:
        n = self._columns.shape[0]
        if rows.shape[1] != n:
            raise ShapeError(f"The rows have {rows.shape[1]} features, but the landmarks have {n}.")
        return prepared_rows(self._name, rows)

    def _measure(self, rows: sp.csr_array) -> NDArray[np.float64]:
        """Return the sum of each row's values, or of their squares."""
        powers = rows.data.astype(np.float64) ** self._kernel.power
        row_ids = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        return np.bincount(row_ids, powers, minlength=rows.shape[0]).astype(np.float64)

    def _overlap_sums(self, rows: sp.csr_array, n_jobs: int | None) -> NDArray[np.float32]:
        sums = np.zeros((rows.shape[0], self._columns.shape[1]), np.float32)
        columns: Any = self._columns
        overlap = self._kernel.overlap
        row_arrays = rows.indptr, rows.indices, rows.data

        def add_part(i: int) -> None:
            span = i * ROWS_PER_TASK, min((i + 1) * ROWS_PER_TASK, rows.shape[0])
            if sp.issparse(columns):
                add_sparse_overlaps(overlap, *row_arrays, columns.indptr, columns.indices, columns.data, *span, sums)
            else:
                add_dense_overlaps(overlap, *row_arrays, columns, *span, sums)

        n_parts = -(-rows.shape[0] // ROWS_PER_TASK)
        with Team(min(resolve_jobs(n_jobs), n_parts)) as team:
            team.run(add_part, n_parts)
        return sums


def landmark_columns(kernel: str, rows: Matrix) -> Matrix:
    """Prepare rows for the kernel and transpose them for `Landmarks`; CSR if few values are not 0."""
    columns = as_csr(prepared_rows(kernel, rows).T)
    return columns if columns.nnz < MIN_DENSE_SHARE * np.prod(columns.shape) else columns.toarray()


def prepared_rows(kernel: str, rows: Matrix) -> sp.csr_array:
    """Return rows prepared for a kernel, as canonical CSR.

    Raises DataError if there are negative values and the kernel does not allow them.
    """
    csr = as_csr(rows)
    if not KERNELS[kernel].signed and csr.nnz and csr.data.min() < 0:
        alternatives = " or ".join(f"'{name}'" for name, entry in KERNELS.items() if entry.signed)
        raise DataError(
            f"The kernel '{kernel}' does not allow negative features, but there is {csr.data.min():.3g}. "
            f"Choose the kernel {alternatives}, or an encoder of histograms."
        )
    if KERNELS[kernel].rooted:
        csr = sp.csr_array((np.sqrt(csr.data), csr.indices, csr.indptr), shape=csr.shape)
    return csr
