"""`wsabie` beside ridge on visterms, over folds of Corel5k's training photos: nine times the photos of the test split.

Each model learns from four fifths and is judged by the last, until every training photo has judged once. Visterms are
learned once, from all training photos without their tags. MAP over images with its paired 95 % bootstrap interval over
the photos of all folds. Test photos are not looked at.

    python folds.py SHARED --cache CACHE --json figures/folds.json
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from harness.data_sets import encoded
from harness.runs import machine, options, say, write
from numpy.typing import NDArray

from visterm.core.tables import MODELS
from visterm.metrics import average_precisions
from visterm.metrics.significance import paired_bootstrap
from visterm_research.data.drawn_tags import draw_visterms

SIDES = ("wsabie", "ridge")
FOLDS = 5


def one_fold(X: sp.csr_array, Y: sp.csr_array, fold: NDArray[np.int64], number: int, threads: int) -> dict[str, Any]:
    """Learn from the other folds, and return the seconds and the average precision of each image of this one."""
    learned, judged = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
    found: dict[str, Any] = {}
    for name in SIDES:
        model = MODELS.create(name)
        shared = {"n_jobs": threads, "random_state": number}
        model.set_params(**{key: value for key, value in shared.items() if key in model.get_params()})
        began = time.perf_counter()
        model.fit(X[learned], Y[learned])
        seconds = time.perf_counter() - began
        precisions = average_precisions(model.decision_function(X[judged]), sp.csr_array(Y[judged]))
        found[name] = {"seconds": seconds, "map": float(np.nanmean(precisions)), "of images": precisions}
        say(f"  fold {number}  {name:6} {seconds:6.1f} s  MAP {found[name]['map']:.4f}")
    return found


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("shared", type=Path, metavar="FOLDER", help="holds data/corel5k")
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="features of photos; made if they are not there")
    parser.add_argument("--threads", type=int, default=2)
    chosen = parser.parse_args()
    if chosen.quick:
        drawn = draw_visterms(400, 40, random_state=0)
        X, Y = sp.csr_array(drawn.X), sp.csr_array(drawn.Y)
    elif chosen.cache is None:
        parser.error("missing folder for features: pass --cache FOLDER.")
    else:
        X, Y, *_ = encoded(chosen.shared / "data" / "corel5k", "visterms", {}, chosen.cache / "visterms")
    fold = np.random.default_rng(0).permutation(np.arange(X.shape[0]) % FOLDS)
    folds = [one_fold(X, Y, fold, number, chosen.threads) for number in range(FOLDS)]
    of_images = {name: np.concatenate([one[name].pop("of images") for one in folds]) for name in SIDES}
    difference = paired_bootstrap(of_images["wsabie"], of_images["ridge"])
    means = {name: float(np.nanmean(precisions)) for name, precisions in of_images.items()}
    say(f"MAP {means}, wsabie - ridge: {difference.mean:+.4f} ({difference.low:+.4f} to {difference.high:+.4f})")
    of_all = {"images": X.shape[0], "map": means, "wsabie - ridge": difference._asdict()}
    write({"machine": machine(), "folds": folds, "of all folds": of_all}, chosen.json)


if __name__ == "__main__":
    main()
