"""Pairs a second of WSABIE's training, dense and sparse, with one thread and two: medians of interleaved runs, as JSON.

python benchmarks/warp.py [--runs 5] [--json FILE]
"""

from __future__ import annotations

import json
import time

import numpy as np
import scipy.sparse as sp
from harness.runs import machine, options, parse, ratios, say, spread, write

from visterm.core.checks import as_csr
from visterm.core.threads import Team, one_blas_thread
from visterm.kernels.row_moves import limit_norms
from visterm.models.ranking.image_sides import EmbeddedImages, StepSettings
from visterm.models.ranking.warp import Objective, PairTraining, rank_weights

DIM, TAGS_AN_IMAGE = 100, 3
CASES = {
    "dense, 1,280 features, 371 tags": (4000, 1280, None, 371),
    "sparse, 245 of 10,000 features, 371 tags": (4000, 10_000, 245, 371),
    "sparse, 245 of 10,000 features, 16,000 tags": (4000, 10_000, 245, 16_000),
}
"""Images, features, stored features an image (None: dense), tags; 245 of 10,000 are those of WSABIE's section 6.2."""


def draw(n_images: int, n_features: int, stored: int | None, n_tags: int, rng: np.random.Generator):
    if stored is None:
        X = rng.standard_normal((n_images, n_features), np.float32)
        X /= np.linalg.norm(X, axis=1, keepdims=True)
    else:
        weights = 1 / np.arange(10, n_features + 10)
        columns = rng.choice(n_features, (n_images, stored), p=weights / weights.sum())
        rows = np.repeat(np.arange(n_images), stored)
        X = sp.csr_array((rng.random(columns.size, np.float32), (rows, columns.ravel())), shape=(n_images, n_features))
        X.sum_duplicates()
        X = as_csr(X / np.sqrt(X.multiply(X).sum(axis=1))[:, None])
    frequency = 1 / np.arange(1, n_tags + 1)
    tags = rng.choice(n_tags, (n_images, TAGS_AN_IMAGE), p=frequency / frequency.sum())
    pairs = np.ones(tags.size, np.float32), (np.repeat(np.arange(n_images), TAGS_AN_IMAGE), tags.ravel())
    return X, as_csr(sp.csr_array(pairs, shape=(n_images, n_tags)))


def pairs_a_second(X, own, n_jobs: int) -> float:
    """Time the third epoch: the first two warm the caches up and leave the start, where every draw violates."""
    rng = np.random.default_rng(0)
    A, V = (rng.standard_normal((n, DIM), np.float32) for n in (X.shape[1], own.shape[1]))
    for start_weights in (A, V):
        start_weights /= np.float32(np.sqrt(X.shape[1]))
        limit_norms(start_weights, 2.0)
    with one_blas_thread(), Team(n_jobs) as team:
        steps = StepSettings(256, max_norm=2.0)
        side = EmbeddedImages(X, A, steps, scale=1.0, n_jobs=n_jobs)
        objective = Objective(rank_weights("harmonic", len(V)), len(V))
        training = PairTraining(side, own, V, objective, steps, rng=rng, team=team)
        training.run_epoch(0.01)
        training.run_epoch(0.01)
        start = time.perf_counter()
        training.run_epoch(0.01)
        return own.nnz / (time.perf_counter() - start)


def main() -> None:
    arguments = parse(options(__doc__))
    results = {"machine": machine(), "runs": arguments.runs, "cases": {}}
    for name, case in CASES.items():
        X, own = draw(*case, np.random.default_rng(1))
        speeds: dict[int, list[float]] = {1: [], 2: []}
        for _ in range(arguments.runs):
            for n_jobs, found in speeds.items():
                found.append(pairs_a_second(X, own, n_jobs))
        one, two = spread(speeds[1]), spread(speeds[2])
        case = {"pairs_a_second_1_thread": one, "pairs_a_second_2_threads": two, "ratio": ratios(speeds[2], speeds[1])}
        results["cases"][name] = case
    say(json.dumps(results, indent=1))
    write(results, arguments.json)


if __name__ == "__main__":
    main()
