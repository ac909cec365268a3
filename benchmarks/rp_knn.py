"""What approximate neighbours find and cost, by the depth of their trees, beside exact ones; and lost ones, as JSON.

python benchmarks/rp_knn.py [--images 20000] [--runs 5] [--json FILE]

Planted images, dense and sparse. For each number of levels: recall of the 10 true nearest and of the very nearest,
MAP over held-out images, and the time of an image in batches of 200, as the exact search's time over it (medians of
interleaved runs, one thread). Then the simulation of WSABIE's section 6.4: exact neighbours of which some are lost at
random, or only the nearest.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from planted import Planted, plant_corpus
from visterm.metrics.ranking import average_precisions
from visterm.models.neighbours.knn import Knn, votes
from visterm_research.models.neighbours.rp_knn import RpKnn

SETTINGS = {"n_neighbors": 10, "power": 4.0}
LEVELS = (0, 1, 2, 3, 4, 6, 8)
TREES = (1, 4)
QUERIES = 200
FOUND = 100
"""Exact neighbours that are looked at in the simulation: enough to lose nine of ten."""

MISS_SHARES = (0.0, 0.25, 0.5, 0.75, 0.9)
DRAWS = 10
CASES = {"dense, 1,280 features": (1280, False), "sparse, 1 of 20 of 5,000 features": (5000, True)}


def nearest(model: Knn | RpKnn, X, k: int) -> tuple[np.ndarray, np.ndarray]:
    parts = list(model._neighbors(X, k))
    return np.concatenate([ids for ids, _ in parts]), np.concatenate([near for _, near in parts])


def plant(n_images: int, n_features: int, sparse: bool) -> Planted:
    data = plant_corpus(
        n_train=n_images,
        n_test=QUERIES,
        n_tags=200,
        n_features=n_features,
        tags_an_image=4,
        noise=0.04 if sparse else 0.5,
        random_state=0,
    )
    if sparse:
        return Planted(sp.csr_array(data.X_train), data.Y_train, sp.csr_array(data.X_test), data.Y_test)
    return data


def mean_ap(scores, data: Planted) -> float:
    return float(np.nanmean(average_precisions(scores, data.Y_test)))


def depths(data: Planted, runs: int) -> dict:
    exact = Knn(**SETTINGS).fit(data.X_train, data.Y_train)
    models = {"exact": exact}
    for trees in TREES:
        for levels in LEVELS[1:] if trees > 1 else LEVELS:
            model = RpKnn(levels=levels, trees=trees, n_jobs=1, **SETTINGS)
            models[f"{levels} levels, {trees} tree{'s' * (trees > 1)}"] = model.fit(data.X_train, data.Y_train)
    true, _ = nearest(exact, data.X_test, 10)
    seconds: dict[str, list[float]] = {name: [] for name in models}
    for run in range(runs + 1):
        for name, model in models.items():
            start = time.perf_counter()
            model.image_rows(data.X_test)
            if run:
                seconds[name].append(time.perf_counter() - start)
    results = {}
    for name, model in models.items():
        found, _ = nearest(model, data.X_test, 10)
        same = (found[:, :, None] == true[:, None, :]).any(axis=1)
        ratios = [a / b for a, b in zip(seconds["exact"], seconds[name], strict=True)]
        results[name] = {
            "recall_at_10": float(same.mean()),
            "recall_of_the_nearest": float(same[:, 0].mean()),
            "map": mean_ap(model.decision_function(data.X_test), data),
            "ms_an_image": 1e3 * statistics.median(seconds[name]) / QUERIES,
            "times_faster_than_exact": statistics.median(ratios),
            "range": [min(ratios), max(ratios)],
        }
    return results


def losses(data: Planted) -> dict:
    model = Knn(**SETTINGS).fit(data.X_train, data.Y_train)
    ids, near = nearest(model, data.X_test, FOUND)
    k = SETTINGS["n_neighbors"]
    results = {}
    for share in MISS_SHARES:
        for only_first in (False, True):
            found = []
            for seed in range(DRAWS):
                left, cosines = lose_neighbors(ids, near, share, np.random.default_rng(seed), only_first=only_first)
                voted = votes(left[:, :k], cosines[:, :k], model.given_, model.power_)
                found.append(mean_ap(voted.toarray(), data))
            lost = "the nearest" if only_first else "any neighbour"
            results[f"{lost} lost with a chance of {share:g}"] = {"map": statistics.mean(found)}
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = {"load_before": os.getloadavg()[0], "images": arguments.images, "runs": arguments.runs, "cases": {}}
    for name, case in CASES.items():
        data = plant(arguments.images, *case)
        results["cases"][name] = {"depths": depths(data, arguments.runs), "losses": losses(data)}
    text = json.dumps(results, indent=1)
    sys.stdout.write(text + "\n")
    if arguments.json:
        arguments.json.write_text(text + "\n", encoding="utf-8")


def lose_neighbors(
    ids: np.ndarray, near: np.ndarray, miss_share: float, rng: np.random.Generator, *, only_first: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Drop found neighbours at random, and let those behind them move up: what approximate search costs, simulated.

    Each of the neighbours (n, k), nearest first, is lost with the chance `miss_share`; with `only_first` only the
    nearest may be. Returned are ids and cosines of the same shape, with -1 and 0 at the end of each row for the lost.

    References
    ----------
    Weston, Bengio, Usunier 2010, section 6.4 ("Approximate nearest neighbor and nearest neighbor").
    """
    lost = rng.random(ids.shape) < miss_share
    if only_first:
        lost[:, 1:] = False
    order = np.argsort(lost, axis=1, kind="stable")
    kept = np.take_along_axis(~lost, order, axis=1)
    ids, near = np.take_along_axis(ids, order, axis=1), np.take_along_axis(near, order, axis=1)
    return np.where(kept, ids, -1), np.where(kept, near, np.float32(0))


if __name__ == "__main__":
    main()
