"""What annotating costs: seconds an image and bytes of a model as measured, and as the formula of WSABIE's Table 6."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from visterm.core.packing import learned_bytes
from visterm.core.types import Matrix
from visterm_research.comparison.problem import Problem

IMAGES = 200
ROUNDS = 5
K = 10


def measure_cost(model: Any, X: Matrix, seed: int) -> dict[str, float]:
    """Time a model on a few test images, and count the bytes of its learned arrays.

    Returns
    -------
    dict of str to float
        ``alone``: median seconds of annotating one image by itself with its best 10 tags; ``batch``: seconds an image
        where up to 200 are annotated together, the median of 5 rounds; ``bytes``.
    """
    rows = np.sort(np.random.default_rng(seed).permutation(X.shape[0])[:IMAGES])
    some = X[rows]
    model.annotate(some, K)
    alone = [_seconds(model, some[row : row + 1]) for row in range(rows.size)]
    batch = [_seconds(model, some) / rows.size for _ in range(ROUNDS)]
    return {"alone": float(np.median(alone)), "batch": float(np.median(batch)), "bytes": float(learned_bytes(model))}


class Formula(NamedTuple):
    """A line of WSABIE's Table 6: what is said of time and space, and how many numbers that is here."""

    time: str
    space: str
    operations: float
    numbers: float


def formula(model: str, problem: Problem, settings: dict[str, Any]) -> Formula | None:
    """Return the paper's formula for a model, counted for a problem; None for models that the table does not have."""
    n, d = problem.train.X.shape
    given, n_tags, dim = problem.nonzeros, len(problem.tags), settings.get("dim", 0)
    if model == "knn":
        return Formula("O(n · d₀)", "O(n · d₀)", n * given, n * given)
    if model == "rp_knn":
        levels = settings["levels"]
        return Formula("O((p + n/2ᵖ) · d₀)", "O(n · d)", (levels + n / 2**levels) * given, n * given)
    if model in ("one_vs_rest", "pamir_ia", "warp_linear", "ridge"):
        return Formula("O(Y · d₀)", "O(Y · d)", n_tags * given, n_tags * d)
    if dim:
        return Formula("O((Y + d₀) · D)", "O((Y + d) · D)", (n_tags + given) * dim, (n_tags + d) * dim)
    return None


def _seconds(model: Any, X: Matrix) -> float:
    began = time.perf_counter()
    model.annotate(X, K)
    return time.perf_counter() - began
