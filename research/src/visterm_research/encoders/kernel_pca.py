"""Kernel PCA on top of any encoder: rows of a few numbers from features compared by a kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from visterm.core.checks import as_csr, check_count, check_number
from visterm.core.errors import DataError, UnknownNameError
from visterm.core.learned import Array, DenseOrCsr, Fitted, Kind, Listed, Number
from visterm.core.progress import Progress, reported
from visterm.core.registry import unknown
from visterm.core.threads import Team, one_blas_thread, resolve_jobs
from visterm.core.types import Matrix, RandomState
from visterm.encoders import AnyEncoder, Images, NestedEncoder, stack_rows
from visterm.kernels import dense_rows, embed
from visterm_research.kernels.landmarks import KERNELS, Landmarks, landmark_columns

PART = 16  # Rows that a thread projects at a time
RANK = 1e-6  # Eigenvalues below this share of the largest are taken for the rounding of a float32 kernel


@dataclass(kw_only=True, eq=False, repr=False)
class KernelPca(NestedEncoder):
    """Principal components of an encoder's rows, in the space of a kernel.

    The objects-and-parts paper (section 6.1) brings an ensemble of histograms to 1,024 numbers by kernel PCA with the
    intersection kernel ``Σ min(x, y)`` [1]_: ``--encoder kernel_pca:histograms``. An image becomes
    ``(k(x) - k̄) A``, divided by its length. ``k(x)`` is its kernel with the landmarks, training images that are kept,
    ``k̄`` its mean over training images, and the columns of ``A`` are the directions in which those differ most.

    Up to `landmarks` training images, all are landmarks and the components are exact. Of more, that many are drawn, and
    the components are those of all training images (at most 5,000 are read) within the space that the landmarks span
    (Nyström).

    Parameters
    ----------
    encoder : str, pair or encoder
        What gives the rows: a name, with an argument if it takes one (``"onnx:PATH"``), a pair of name and settings
        (``("histograms", {"levels": 2})``), or an encoder, which is cloned.
        Any but `ids`.
    kernel : {"intersection", "chi2", "hellinger", "linear", "rbf"}
        How rows are compared. The first three are for histograms: ``Σ min(x, y)``, ``exp(-γ Σ (x - y)² / (x + y))``,
        ``Σ √(x y)``; the others for any features: ``x · y``, ``exp(-γ |x - y|²)``.
    dim : int
        Numbers a row, at most; fewer where the training images span no more.
    landmarks : int
        Training images that are kept and compared with. More is nearer to the exact components, and costs time, and
        memory in the run: 4 bytes for each feature of each, or 8 for each that is not 0 where most are 0.
    gamma : float, optional
        ``γ`` of chi2 and rbf. None: 1 / mean distance between landmarks.
    whiten : bool
        Divide each number by its standard deviation over training images, so that all weigh alike.
    normalise : bool
        Divide rows by their length, so that dot products are cosines.
    random_state : int, RandomState, Generator or None
        Draws the landmarks; and for the encoder inside unless its settings have one.
    batch_size : int
        Images encoded at a time.
    n_jobs : int, optional
        Threads, of the encoder inside too unless its settings say otherwise; None is all cores. The output is the same
        for any number.

    Attributes
    ----------
    parts_ : list of AnyEncoder
        The fitted encoder inside, alone in its list.
    landmarks_ : array or CSR of float32, shape (n_features, n_landmarks)
        The landmarks' features (their roots for "hellinger"), CSR where less than a tenth of them are not 0.
    centre_ : ndarray of float32, shape (n_landmarks,)
        ``k̄``.
    components_ : ndarray of float32, shape (n_landmarks, n_components)
        ``A``.
    variances_ : ndarray of float64, shape (n_components,)
        Of the training images along the components, before whitening.
    gamma_ : float
        ``γ``; 0 for kernels without.

    References
    ----------
    .. [1] A. Barla, F. Odone, A. Verri, "Histogram intersection kernel for image classification", ICIP 2003.
    """

    argument = "encoder"

    test_params: ClassVar[dict[str, Any]] = {
        "encoder": ["histograms", {"colours": 6, "textons": 4, "orientations": 2, "levels": 2, "sample_pixels": 300}],
        "dim": 4,
        "landmarks": 5,
    }

    learned: ClassVar[dict[str, Kind]] = {
        "parts_": Listed(Fitted(base=AnyEncoder), 1),
        "landmarks_": DenseOrCsr("float32", ("n_features", "n_landmarks")),
        "centre_": Array("float32", ("n_landmarks",)),
        "components_": Array("float32", ("n_landmarks", "n_components")),
        "variances_": Array("float64", ("n_components",), least=0),
        "gamma_": Number(least=0),
    }

    encoder: Any = "histograms"
    kernel: str = "intersection"
    dim: int = 1024
    landmarks: int = 2048
    gamma: float | None = None
    whiten: bool = False
    normalise: bool = True
    random_state: RandomState = 0
    batch_size: int = 64
    n_jobs: int | None = None

    def _fit_images(self, images: Images, skip_unreadable: bool, progress: Progress) -> None:
        self._check_params()
        self._fit_parts(images, skip_unreadable, progress)
        with closing(self._sample_rows(images, skip_unreadable, progress, "compare training images")) as batches:
            K = self._compare(batches)
        with reported(progress, "kernel PCA", 1):
            found = kernel_components(K, self.dim)
            progress.advance()
        weights = found.weights / np.sqrt(found.variances) if self.whiten else found.weights
        self.centre_ = found.centre.astype(np.float32)
        self.components_ = np.ascontiguousarray(weights, np.float32)
        self.variances_ = found.variances

    def _compare(self, batches: Iterator[list[Matrix]]) -> NDArray[np.float32]:
        """Keep the first rows as landmarks, and return the kernel of all with them."""
        held: list[Matrix] = []
        for [rows] in batches:
            held.append(as_csr(rows))
            if sum(part.shape[0] for part in held) >= self.landmarks:
                break
        first = stack_rows(held)
        self.landmarks_ = landmark_columns(self.kernel, first[: self.landmarks])
        self.gamma_ = 0.0
        if KERNELS[self.kernel].common:
            self.gamma_ = float(self.gamma or self._landmarks().usual_gamma(first[: self.landmarks], self.n_jobs))
        K = [self._kernel_values(first)]
        K.extend(self._kernel_values(rows) for [rows] in batches)
        return np.concatenate(K)

    def _join(self, rows: list[Matrix]) -> NDArray[np.float32]:
        n = rows[0].shape[0]
        centred = dense_rows(self._kernel_values(rows[0]) - self.centre_)
        projected = np.empty((n, self.components_.shape[1]), np.float32)

        def project(i: int) -> None:
            chosen = np.arange(i * PART, min((i + 1) * PART, n))
            part = projected[chosen[0] : chosen[-1] + 1]
            embed(centred, chosen, self.components_, part)
            if self.normalise:
                lengths = np.sqrt(np.einsum("ij,ij->i", part, part))
                part /= np.where(lengths > 0, lengths, 1)[:, None]

        n_parts = -(-n // PART)
        with Team(min(resolve_jobs(self.n_jobs), n_parts)) as team:
            team.run(project, n_parts)
        return projected

    def _kernel_values(self, rows: Matrix) -> NDArray[np.float32]:
        return self._landmarks().values(rows, self.gamma_, self.n_jobs)

    def _landmarks(self) -> Landmarks:
        """Return the landmarks, ready to compare rows with."""
        return self._cached(Landmarks, self.kernel, self.landmarks_)

    @property
    def width(self) -> int | None:
        """One column a component."""
        return int(self.components_.shape[1])

    def _inner_encoders(self) -> Sequence[Any]:
        return [self.encoder]

    def _check_learned(self) -> None:
        """Refuse landmarks that are no rows of the encoder inside."""
        found = self.parts_[0].width
        if found not in (None, self.landmarks_.shape[0]):
            raise DataError(
                f"landmarks_ has {self.landmarks_.shape[0]} features; the encoder inside gives rows of {found}"
            )

    def _check_params(self) -> None:
        for name in ("dim", "landmarks", "batch_size"):
            check_count(getattr(self, name), name)
        check_number(self.gamma, "gamma", above=0, otherwise="or None")
        if self.kernel not in KERNELS:
            raise UnknownNameError(unknown("kernel", str(self.kernel), list(KERNELS)))


class Components(NamedTuple):
    """What turns kernel values with the landmarks into coordinates, ``(k - centre) weights``."""

    centre: NDArray[np.float64]  # shape (n_landmarks,): mean kernel values of the training rows
    weights: NDArray[np.float64]  # shape (n_landmarks, n_components)
    variances: NDArray[np.float64]  # shape (n_components,): of the training rows' coordinates, falling


def kernel_components(K: NDArray[np.float32], dim: int) -> Components:
    """Return at most `dim` directions in which training rows differ most.

    `K`, float32 (n_rows, n_landmarks), is the kernel of training rows with the landmarks, which are the first of them.
    If all rows are landmarks, the directions are those of Schölkopf, Smola, Müller: Nonlinear component analysis as a
    kernel eigenvalue problem, Neural Computation 10, 1998. Otherwise they are the principal components of all rows
    projected into the space that the landmarks span, ``φ(x) = K_mm^(-1/2) k(x)`` (Williams, Seeger: Using the Nyström
    method to speed up kernel machines, NIPS 2000). Raises DataError if all rows are the same.
    """
    n, m = K.shape
    kernel = K.astype(np.float64)
    centre = kernel.mean(axis=0)
    with one_blas_thread():
        if n == m:
            values, vectors = _largest(kernel - centre - centre[:, None] + centre.mean(), dim, np.trace(kernel))
            return Components(centre, vectors / np.sqrt(values), values / n)
        values, vectors = _largest(kernel[:m], m, np.trace(kernel[:m]))
        whitening = vectors / np.sqrt(values)
        features = (kernel - centre) @ whitening
        variances, turn = _largest(features.T @ features / n, dim, np.trace(kernel[:m]) / m)
        return Components(centre, whitening @ turn, variances)


def _largest(matrix: NDArray[np.float64], n: int, trace: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the `n` largest eigenvalues falling, with vectors whose largest entry is positive, without noise."""
    size = len(matrix)
    values, vectors = eigh(matrix, subset_by_index=(max(0, size - n), size - 1))
    values, vectors = values[::-1], vectors[:, ::-1]
    if values[0] <= RANK * trace:
        raise DataError(
            "The training images all have the same row, so nothing distinguishes them. "
            "Pass at least 2 that differ, or another encoder."
        )
    kept = values > RANK * values[0]
    values, vectors = values[kept], vectors[:, kept]
    largest = np.abs(vectors).argmax(axis=0)
    return values, vectors * np.sign(vectors[largest, np.arange(vectors.shape[1])])
