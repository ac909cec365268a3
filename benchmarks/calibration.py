"""Whether confidences hold, and what a wanted precision gives beside the best single threshold of hindsight.

Corel5k (features of a network, and visterms), Delicious (by words, and by number), NUS-WIDE by number and drawn scenes,
with several models each, on test rows: entries of images and tags in each bin of confidence from .5 on, promised and
right; what a wanted precision gives and how much of it is right, beside what one threshold of hindsight gives; how far
promised is from right above .05, and in 95 % of draws of exact chances; the Brier score. By number, a quarter of the
tags is judged. `--small` learns from 30, 100 and 300 photos, `--runs` times each.

    python benchmarks/calibration.py ../shared --cache CACHE --json docs/figures/calibration.json

Scores are kept in CACHE: fits take hours, the table minutes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from harness.data_sets import corel5k, delicious, drawn_scenes, nuswide, stacked
from harness.runs import TEST_ROWS, machine, options, say, write
from numpy.typing import NDArray

from planted import plant_corpus
from visterm.core.progress import SILENT
from visterm.core.tables import MODELS
from visterm.core.vocabulary import Vocabulary
from visterm.features.training_rows import TrainingRows
from visterm.learning.calibrating import held_out_scores, search_scores
from visterm.learning.validation import learn_by_number
from visterm.metrics.significance import share_of_right
from visterm.models.confidence.calibration import cutoff_for_precision
from visterm.models.confidence.fit_calibration import fit_calibration

BY_FEATURES, BY_NUMBER = ("auto", "ridge", "wsabie", "knn", "kernel_ridge", "pamir"), ("auto", "wsabie", "vse_ens")
WANTED, BINS, SMALL = (0.5, 0.7, 0.9), (0.5, 0.6, 0.7, 0.8, 0.9, 1.0), (30, 100, 300)
EDGES = np.append(0.05, np.arange(0.1, 1, 0.1))
LEARNED, MEASURED, OUT = 3000, 2000, 0.25


def data_sets(shared: Path, cache: Path, *, quick: bool) -> Iterator[tuple[str, Any, sp.csr_array]]:
    """Yield names, features (None: by number) and tags."""
    if quick:
        planted = plant_corpus(n_train=400, random_state=0)
        yield "planted", planted.X_train, planted.Y_train
        return
    for kind in ("network", "visterms"):
        yield f"Corel5k, {kind}", *stacked(corel5k(shared, cache, kind))
    X, Y = stacked(delicious(shared))
    yield "Delicious, words", X, Y
    yield "Delicious, by number", None, Y
    yield "NUS-WIDE, by number", None, nuswide(shared / "data" / "nuswide")
    yield "scenes", *drawn_scenes(cache, 1000)


def scores_of(X: Any, Y: sp.csr_array, name: str, n_learned: int, seed: int) -> dict[str, NDArray[Any]]:
    """Fit a model on drawn rows; return scores and tags of held-out and of test rows, and what was known of these."""
    rng = np.random.default_rng(seed)
    order, model = rng.permutation(Y.shape[0]), MODELS.create(name)
    settings = {"n_jobs": 1, "random_state": seed}
    model.set_params(**{key: value for key, value in settings.items() if key in model.get_params()})
    rows = order[: 3 * MEASURED] if X is None else order[:n_learned]
    columns = np.flatnonzero((Y[rows] > 0).sum(axis=0))
    Y, vocabulary = sp.csr_array(Y[:, columns]), Vocabulary.from_lists([[f"t{tag}"] for tag in columns])
    given, test = Y[rows].toarray() > 0, order[n_learned:][:MEASURED]
    if X is not None:
        learned = TrainingRows(vocabulary, X[rows], sp.csr_array(Y[rows]), None, [])
        held_out = held_out_scores(model.fit(learned.X, learned.Y), learned, seed=seed)
        if held_out is None:
            return {}
        parts = held_out.scores, held_out.Y.toarray() > 0, held_out.Y_learned.toarray() > 0
        known = np.zeros((2, 0, columns.size), np.bool_)
        of_test = search_scores(model, X[test]), Y[test].toarray() > 0
        return packed(*parts, given.sum(axis=0), known[0], *of_test, known[1])
    eye, out = sp.eye_array(rows.size, dtype=np.float32, format="csr"), given & (rng.random(given.shape) < OUT)
    out[: rows.size // 3] = False
    rest = sp.csr_array((given & ~out).astype(np.float32))
    model = learn_by_number(model, TrainingRows(vocabulary, eye, rest, None, [], by_number=True), SILENT)
    half = slice(rows.size // 3, 2 * rows.size // 3), slice(2 * rows.size // 3, None)
    scores, right, known = (
        [part(each) for each in half]
        for part in (lambda some: search_scores(model, eye[some]), out.__getitem__, (given & ~out).__getitem__)
    )
    return packed(scores[0], right[0], given & ~out, rest.sum(axis=0), known[0], scores[1], right[1], known[1])


def packed(*arrays: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Name what is kept of a fit."""
    names = ("held", "Y", "others", "counts", "known", "test", "right", "test_known")
    return dict(zip(names, arrays, strict=True))


def judged(kept: dict[str, NDArray[Any]], seed: int) -> dict[str, Any]:
    """Calibrate, and judge what confidences promise of the test rows."""
    known = sp.csr_array(kept["known"]) if kept["known"].size else None
    Y, others = sp.csr_array(kept["Y"].astype(np.float32)), sp.csr_array(kept["others"].astype(np.float32))
    calibration = fit_calibration(kept["held"], Y, others, kept["counts"], known=known, seed=seed)
    assert calibration is not None
    assert calibration.held_out is not None
    chances, free = calibration.confidences(kept["test"]), np.ones(kept["test"].shape, np.bool_)
    if kept["test_known"].size:
        free = ~kept["test_known"]
    p, y, raw = chances[free], kept["right"][free], kept["test"][free]
    entry: dict[str, Any] = {"brier": float(np.mean((p - y) ** 2)), "wanted": {}, "bins": {}}
    entry["error"], entry["error of exact chances"] = distances(p[p >= EDGES[0]], y[p >= EDGES[0]], seed)
    for low, high in pairwise(BINS):
        some = (p >= low) & (p < high)
        entry["bins"][f"{low}-{high}"] = [int(some.sum()), float(p[some].sum()), int(y[some].sum())]
    for wanted in WANTED:
        above = free & (chances >= cutoff_for_precision(calibration.held_out, wanted))
        right = above & kept["right"]
        share = share_of_right(right.sum(axis=1), above.sum(axis=1))
        most = max(most_of_hindsight(values, y, wanted) for values in (p, raw))
        numbers = int(above.sum()), int(right.sum()), most
        holds = numbers[0] >= 0.7 * most and (share is None or share.high >= wanted)
        entry["wanted"][str(wanted)] = dict(zip(("given", "right", "hindsight"), numbers, strict=True)) | {
            "interval": None if share is None else share[1:], "holds": holds if most >= 50 else None,
        }  # fmt: skip
    return entry


def most_of_hindsight(values: NDArray[Any], right: NDArray[np.bool_], wanted: float) -> int:
    """Return how many entries lie above the lowest threshold at which as many are right as wanted."""
    order = np.argsort(-values, kind="stable")
    n, last = np.arange(1, order.size + 1), np.append(np.diff(values[order]) < 0, True)
    return int(n[(np.cumsum(right[order]) >= wanted * n) & last].max(initial=0))


def distances(p: NDArray[Any], right: NDArray[np.bool_], seed: int) -> tuple[float, float]:
    """Return the mean distance of promised from right over bins, and what exact chances show in 95 % of draws."""
    bins, rng = np.digitize(p, EDGES), np.random.default_rng(seed)

    def distance(hits: NDArray[np.bool_]) -> float:
        return float(np.abs(np.bincount(bins, p - hits)).sum() / max(p.size, 1))

    return distance(right), float(np.quantile([distance(rng.random(p.size) < p) for _ in range(100)], 0.95))


def shown(entry: dict[str, Any]) -> str:
    """Write an entry as a line."""
    cells = [f"{entry['error']:.3f} ({entry['error of exact chances']:.3f}) brier {entry['brier']:.5f}"]
    for wanted, each in entry["wanted"].items():
        verdict = {True: "+", False: "-", None: " "}[each["holds"]]
        cells.append(f"{wanted}: {each['right']}/{each['given']} of {each['hindsight']}{verdict}")
    cells += [f"{name}: {n} {promised:.0f} {right}" for name, (n, promised, right) in entry["bins"].items()]
    return "  ".join(cells)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("shared", type=Path, metavar="FOLDER", help="where data and models lie")
    parser.add_argument("--cache", type=Path, default=Path("encoded"), metavar="FOLDER", help="features and scores")
    parser.add_argument("--only", default="", help="only rows whose name has this")
    parser.add_argument("--small", action="store_true", help="learn from 30, 100 and 300 photos")
    parser.set_defaults(runs=1)
    chosen = parser.parse_args()
    result: dict[str, Any] = {"machine": machine(), "measured on": TEST_ROWS, "data": {}}
    sizes = SMALL[1:2] if chosen.quick else SMALL if chosen.small else (LEARNED,)
    for data, X, Y in data_sets(chosen.shared, chosen.cache, quick=chosen.quick):
        for name in BY_NUMBER if X is None else BY_FEATURES:
            for n, seed in ((n, seed) for n in sizes for seed in range(chosen.runs)):
                row = f"{data}, {name}, {n}, {seed}"
                path = chosen.cache / f"scores of {row}.npz"
                if chosen.only not in row or (chosen.small and X is None):
                    continue
                if not path.exists():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    np.savez_compressed(path, **scores_of(X, Y, name, min(n, Y.shape[0] // 2), seed))
                with np.load(path) as arrays:
                    kept = dict(arrays)
                result["data"][row] = judged(kept, seed) if kept else None
                say(f"{row:40}{shown(result['data'][row]) if kept else 'too few photos'}")
                write(result, chosen.json)


if __name__ == "__main__":
    main()
