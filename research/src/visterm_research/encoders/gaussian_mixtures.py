"""Mixtures of Gaussians fitted to bags of points, and the expected likelihood kernel between them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from visterm.core.progress import Progress
from visterm.core.threads import Team, one_blas_thread, resolve_jobs
from visterm_research.encoders.bags import Doubles, Floats, in_turn
from visterm_research.kernels.bags import log_expected_likelihoods

COVARIANCES = {"diagonal": "diag", "full": "full"}  # What scikit-learn calls them
STEPS = 100  # Of expectation maximisation, at most
ROWS_AT_ONCE = 32  # Training images between two reports of progress


class Mixtures(NamedTuple):
    """Mixtures of Gaussians end to end."""

    weights: Doubles  # float64, shape (n_components,). Their logarithms.
    means: Doubles  # float64, shape (n_components, n_features)
    spreads: Doubles  # float64, shape (n_components, n_features, n_features or 1). Covariances, or variances.
    start: NDArray[np.int64]  # shape (n_mixtures + 1,): where the components of each mixture begin

    @classmethod
    def of(cls, mixtures: Sequence[Mixtures]) -> Self:
        """Lay mixtures end to end."""
        counts = [len(one.weights) for one in mixtures]
        parts = [np.concatenate([one[part] for one in mixtures]) for part in range(3)]
        return cls(parts[0], parts[1], parts[2], np.cumsum([0, *counts], dtype=np.int64))

    def __len__(self) -> int:
        return len(self.start) - 1


def fit_mixtures(
    bags: Sequence[Floats], n_gaussians: int, covariance: str, floor: float, seed: int, n_jobs: int | None
) -> Mixtures:
    """Fit a mixture to each bag, (n_points, n_features), by expectation maximisation, each from the same seed.

    A bag of fewer than `n_gaussians` points gets fewer. `covariance` is one of `COVARIANCES`; `floor` is added to all
    variances.
    """

    def fitted(i: int) -> Mixtures:
        points = bags[i].astype(np.float64)
        found = GaussianMixture(
            min(n_gaussians, len(points)),
            covariance_type=COVARIANCES[covariance],
            reg_covar=floor,
            max_iter=STEPS,
            random_state=seed,
        )
        if len(points) == 1:
            found.means_, found.weights_ = points, np.ones(1)
            spread = np.full(points.shape[1], floor)
            found.covariances_ = spread[None] if covariance == "diagonal" else np.diag(spread)[None]
        else:
            found.fit(points)
        spreads = found.covariances_[:, :, None] if covariance == "diagonal" else found.covariances_
        return Mixtures(np.log(found.weights_), found.means_, spreads, np.array([0, len(found.means_)]))

    with warnings.catch_warnings(), one_blas_thread(), Team(min(resolve_jobs(n_jobs), len(bags))) as team:
        warnings.simplefilter("ignore", ConvergenceWarning)  # of bags with few different points
        return Mixtures.of(team.run(fitted, len(bags)))


def log_likelihoods(x: Mixtures, y: Mixtures, n_jobs: int | None) -> Doubles:
    """Return the logarithms of the expected likelihood kernel of mixtures with others, shape (n_x, n_y)."""
    out = np.empty((len(x), len(y)))

    def row(i: int) -> None:
        log_expected_likelihoods(*x, *y, _full(y), i, i + 1, 0, out)

    with Team(min(resolve_jobs(n_jobs), max(1, len(x)))) as team:
        team.run(row, len(x))
    return out


def log_likelihoods_among(x: Mixtures, n_jobs: int | None, progress: Progress) -> Doubles:
    """Return the same for mixtures with each other, shape (n, n), symmetric."""
    out = np.empty((len(x), len(x)))

    def row(i: int) -> None:
        log_expected_likelihoods(*x, *x, _full(x), i, i + 1, i, out)
        out[i:, i] = out[i, i:]

    in_turn(row, len(x), ROWS_AT_ONCE, "compare training images", n_jobs, progress)
    return out


def log_own_likelihoods(x: Mixtures) -> Doubles:
    """Return the same for each mixture with itself, shape (n,)."""
    own = np.empty(len(x))
    for i, (first, last) in enumerate(zip(x.start[:-1], x.start[1:], strict=True)):
        alone = Mixtures(x.weights[first:last], x.means[first:last], x.spreads[first:last], np.array([0, last - first]))
        own[i] = log_likelihoods(alone, alone, 1)[0, 0]
    return own


def _full(mixtures: Mixtures) -> bool:
    """Return whether covariances are full, not variances."""
    return bool(mixtures.spreads.shape[2] > 1)
