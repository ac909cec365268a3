"""What is lost where several workers train a ranking model together: MAP of 1, 2 and 4, on photos and by number.

Corel5k's training photos as features of MobileNetV2: 500 of them say when to stop, 500 others judge; test photos stay
out. NUS-WIDE's images by number: one tag of each image with two or more is held out. Each worker has its share of the
images; all run in threads of this process, so that only quality is measured, and the same for several seeds. What is
told is MAP, and the relative difference to one worker with a 95 % interval (paired bootstrap over the judged images,
each image's average precision being the mean over the seeds). The goal: within 1 %.

    python benchmarks/training_together.py --shared ../shared --cache corel.npz --json training_together.json
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from harness.row_windows import RowWindows
from harness.runs import machine, options, parse, say, write
from train_by_number import nuswide, zipf
from train_head import corel

from visterm.core.tables import MODELS
from visterm.core.threads import one_blas_thread
from visterm.core.types import Matrix
from visterm.data.held_tags import hold_one_out
from visterm.metrics import average_precisions
from visterm.metrics.significance import paired_bootstrap
from visterm.models.ranking.worker_sync import Exchange, MeetingPlace

WORKERS = (1, 2, 4)
STOPPED_BY, JUDGED = 500, 500
MOST_JUDGED = 20_000

Judge = Callable[[Any], np.ndarray]


def train(X: Matrix, Y: sp.csr_array, n_workers: int, seed: int, valid: Any, params: dict[str, Any]) -> Any:
    """Return the model of the first of so many workers: all have the same."""
    place = MeetingPlace(n_workers)

    def work(rank: int) -> Any:
        model = MODELS.create("wsabie", **params, random_state=seed, n_jobs=1)
        exchange = Exchange(rank, n_workers, place.meet) if n_workers > 1 else None
        return model.fit_stream(RowWindows(X, Y, rank, n_workers, seed), valid=valid, exchange=exchange)

    with one_blas_thread(), ThreadPoolExecutor(n_workers) as pool:
        running = [pool.submit(work, rank) for rank in range(n_workers)]
        return running[0].result()


def compare(
    X: Matrix, Y: sp.csr_array, valid: Any, judge: Judge, params: dict[str, Any], seeds: range
) -> dict[str, Any]:
    """Train with each number of workers and each seed, and set the others against one worker."""
    found: dict[int, np.ndarray] = {}
    result: dict[str, Any] = {"images": X.shape[0], "tags": Y.shape[1], "pairs": int(Y.nnz), "seeds": len(seeds)}
    for n_workers in WORKERS:
        each = [judge(train(X, Y, n_workers, seed, valid, params)) for seed in seeds]
        found[n_workers] = np.mean(each, axis=0)
        arm: dict[str, Any] = {"map": float(found[n_workers].mean()), "maps": [float(one.mean()) for one in each]}
        if n_workers > 1:
            alone = float(found[1].mean())
            difference = paired_bootstrap(found[n_workers], found[1], random_state=0)
            arm["relative"] = difference.mean / alone
            arm["interval"] = [bound / alone for bound in (difference.low, difference.high)]
        result[str(n_workers)] = arm
        told = f"{n_workers} workers: MAP {arm['map']:.4f}"
        if "relative" in arm:
            low, high = arm["interval"]
            told += f", {arm['relative']:+.2%} of one worker's ({low:+.2%} to {high:+.2%})"
        say(told)
    return result


def by_features(X: np.ndarray, Y: sp.csr_array, params: dict[str, Any], seeds: range) -> dict[str, Any]:
    """Compare on photos, some of which say when to stop and others judge."""
    order = np.random.default_rng(0).permutation(X.shape[0])
    stop, judged, rest = np.split(order, [STOPPED_BY, STOPPED_BY + JUDGED])
    say(f"\nphotos: {rest.size:,} × {Y.shape[1]:,} tags")
    relevant = Y[judged]

    def judge(model: Any) -> np.ndarray:
        return np.nan_to_num(average_precisions(model.score_blocks(X[judged]), relevant))

    return compare(X[rest], sp.csr_array(Y[rest]), (X[stop], Y[stop]), judge, params, seeds)


def by_number(Y: sp.csr_array, params: dict[str, Any], seeds: range) -> dict[str, Any]:
    """Compare on images known by number, judged by tags held out."""
    held = hold_one_out(Y, np.random.default_rng(0), at_most=MOST_JUDGED)
    say(f"\nby number: {Y.shape[0]:,} × {Y.shape[1]:,} tags")
    X = sp.eye_array(Y.shape[0], dtype=np.float32, format="csr")

    def judge(model: Any) -> np.ndarray:
        scores = model.score_blocks(X[held.images])
        return np.nan_to_num(average_precisions(scores, held.held, exclude=held.known))

    return compare(X, held.rest, None, judge, params, seeds)


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--shared", type=Path, metavar="FOLDER", help="with data/corel5k, data/nuswide and models")
    parser.add_argument("--cache", type=Path, metavar="FILE", help="where the photos' features are kept")
    parser.add_argument("--images", type=int, default=60_000, help="of NUS-WIDE, drawn")
    parser.add_argument("--seeds", type=int, default=5)
    chosen = parse(parser)
    result: dict[str, Any] = {"machine": machine()}
    seeds = range(1 if chosen.quick else chosen.seeds)
    if chosen.quick or chosen.shared is None:
        rng = np.random.default_rng(0)
        X = rng.standard_normal((1500, 32)).astype(np.float32)
        result["drawn photos"] = by_features(X, zipf(1500, 50), {"epochs": 3}, seeds)
        result["drawn numbers"] = by_number(zipf(2000, 100), {"epochs": 3}, seeds)
    else:
        X, Y = corel(chosen.shared, chosen.cache)
        result["corel5k"] = by_features(X, Y, {}, seeds)
        Y = nuswide(chosen.shared / "data" / "nuswide")
        drawn = np.sort(np.random.default_rng(0).permutation(Y.shape[0])[: chosen.images])
        result["nuswide"] = by_number(sp.csr_array(Y[drawn]), {}, seeds)
    write(result, chosen.json)


if __name__ == "__main__":
    main()
