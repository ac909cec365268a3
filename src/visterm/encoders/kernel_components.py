"""Principal components in the space of a kernel: exact where all training rows are landmarks, otherwise Nyström's."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from visterm.core.errors import DataError
from visterm.core.threads import one_blas_thread

RANK = 1e-6
"""Eigenvalues below this share of the largest are taken for the rounding of a float32 kernel."""


class Components(NamedTuple):
    """What turns kernel values with the landmarks into coordinates: ``(k - centre) weights``.

    Attributes
    ----------
    centre : ndarray of float64, shape (n_landmarks,)
        Mean kernel values of the training rows.
    weights : ndarray of float64, shape (n_landmarks, n_components)
    variances : ndarray of float64, shape (n_components,)
        Of the training rows' coordinates, falling.
    """

    centre: NDArray[np.float64]
    weights: NDArray[np.float64]
    variances: NDArray[np.float64]


def kernel_components(K: NDArray[np.float32], dim: int) -> Components:
    """Find the directions in which training rows differ most.

    Parameters
    ----------
    K : ndarray of float32, shape (n_rows, n_landmarks)
        The kernel of training rows with the landmarks, which are the first of them.
    dim : int
        Components at most; fewer are given where the kernel has no more.

    Returns
    -------
    Components
        If all rows are landmarks, those of Schölkopf, Smola, Müller: Nonlinear component analysis as a kernel
        eigenvalue problem, Neural Computation 10, 1998. Otherwise the principal components of all rows projected into
        the space that the landmarks span, ``φ(x) = K_mm^(-1/2) k(x)`` (Williams, Seeger: Using the Nyström method to
        speed up kernel machines, NIPS 2000).

    Raises
    ------
    DataError
        If all rows are the same.
    """
    with one_blas_thread():
        if K.shape[0] == K.shape[1]:
            return _exact(K.astype(np.float64), dim)
        return _nystroem(K.astype(np.float64), dim)


def _exact(K: NDArray[np.float64], dim: int) -> Components:
    n = len(K)
    centre = K.mean(axis=0)
    values, vectors = _largest(K - centre - centre[:, None] + centre.mean(), dim, np.trace(K))
    return Components(centre, vectors / np.sqrt(values), values / n)


def _nystroem(K: NDArray[np.float64], dim: int) -> Components:
    n, m = K.shape
    centre = K.mean(axis=0)
    values, vectors = _largest(K[:m], m, np.trace(K[:m]))
    whitening = vectors / np.sqrt(values)
    features = (K - centre) @ whitening
    variances, turn = _largest(features.T @ features / n, dim, np.trace(K[:m]) / m)
    return Components(centre, whitening @ turn, variances)


def _largest(matrix: NDArray[np.float64], n: int, trace: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the `n` largest eigenvalues falling, with vectors whose largest entry is positive, without noise."""
    size = len(matrix)
    values, vectors = eigh(matrix, subset_by_index=(max(0, size - n), size - 1))
    values, vectors = values[::-1], vectors[:, ::-1]
    if values[0] <= RANK * trace:
        raise DataError(
            "The training images all have the same row, so that there is nothing to tell them apart by. "
            "Give at least 2 that differ, or another encoder."
        )
    kept = values > RANK * values[0]
    values, vectors = values[kept], vectors[:, kept]
    largest = np.abs(vectors).argmax(axis=0)
    return values, vectors * np.sign(vectors[largest, np.arange(vectors.shape[1])])
