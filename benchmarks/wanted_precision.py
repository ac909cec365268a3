"""Whether confidences of rare tags hold: achieved beside wanted precision, by how many training images tags have.

Corel5k as visterms and as features of a network, and Delicious, each with several models. A seed (`--runs`: how many)
draws rows to learn from and rows to measure on from the training split; test rows are not looked at. For tags with 1 to
4, 5 to 19, and 20 or more training images it prints how many tags are given at a wanted precision of .5, .7 and .9, how
many of these are right with their 95 % interval, and how many of the tags with a confidence of 50 % or more are right
beside what their confidences promise.

    python benchmarks/wanted_precision.py ../shared --cache CACHE --json docs/figures/wanted_precision.json

FOLDER has data/corel5k, data/delicious and models/mobilenet_v2.onnx.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from harness.data_sets import Data, training_splits
from harness.runs import machine, options, say, write
from numpy.typing import NDArray

from visterm.core.tables import MODELS
from visterm.core.vocabulary import Vocabulary
from visterm.features.training_rows import TrainingRows
from visterm.learning.calibrating import held_out_scores
from visterm.metrics.bands import bands_from
from visterm.metrics.significance import share_of_right
from visterm.models.confidence.cutoffs import cutoff_for_precision
from visterm.models.confidence.fit_calibration import fit_calibration

MODEL_NAMES = ("knn", "ridge", "wsabie", "auto")
WANTED = (0.5, 0.7, 0.9)
STARTS = (1, 5, 20)
SURE = 0.5
LEARNED, MEASURED = 2500, 2000


def one_fit(data: Data, name: str, seed: int, n_learned: int, n_measured: int, threads: int) -> list[dict[str, Any]]:
    """Fit and calibrate a model on drawn rows, and judge its confidences of others."""
    order = np.random.default_rng(seed).permutation(data.X.shape[0])
    learned, measured = np.sort(order[:n_learned]), np.sort(order[n_learned:][:n_measured])
    known = np.flatnonzero(np.bincount(sp.csr_array(data.Y[learned]).indices, minlength=data.Y.shape[1]))
    X, Y, X_new, Y_new = (*(part[learned] for part in (data.X, data.Y)), data.X[measured], data.Y[measured])
    Y, Y_new = sp.csr_array(Y[:, known]), sp.csr_array(Y_new[:, known])
    model = MODELS.create(name)
    settings = {"n_jobs": threads, "random_state": seed}
    model.set_params(**{key: value for key, value in settings.items() if key in model.get_params()}).fit(X, Y)
    vocabulary = Vocabulary.from_lists([[f"t{tag}"] for tag in known])
    held_out = held_out_scores(model, TrainingRows(vocabulary, X, Y, None, []), seed=seed)
    assert held_out is not None
    calibration = fit_calibration(*held_out, seed=seed)
    assert calibration is not None
    assert calibration.held_out is not None
    everyone = sp.eye_array(Y.shape[1], format="csr", dtype=np.float32)
    scores: Any = model.image_rows(X_new) @ model.query_rows(everyone).T
    chances = calibration.confidences(scores.toarray() if sp.issparse(scores) else scores)
    right = Y_new.toarray() > 0
    found = []
    for band in bands_from(np.bincount(Y.indices, minlength=Y.shape[1]), STARTS):
        entry: dict[str, Any] = {"tags": band.name, "n_tags": len(band.tags)}
        for wanted in WANTED:
            above = chances >= cutoff_for_precision(calibration.held_out, wanted).least
            entry[f"wanted {wanted}"] = of_band(above[:, band.tags], right[:, band.tags])
        sure = chances[:, band.tags] >= SURE
        n_sure, n_right = sure.sum(axis=0), (sure & right[:, band.tags]).sum(axis=0)
        entry["sure"] = of_band(sure, right[:, band.tags]) | {
            "promised": float(chances[:, band.tags][sure].mean()) if sure.any() else None,
            "tags never right of 5 or more": int(((n_sure >= 5) & (n_right == 0)).sum()),
        }
        found.append(entry)
        cells = [f"{wanted} {shown(entry[f'wanted {wanted}'])}" for wanted in WANTED]
        promised = entry["sure"]["promised"]
        say(
            f"  seed {seed}  {name:7} {band.name:11} {'  '.join(cells)}  "
            f"sure {'-' if promised is None else f'{promised:.2f}'} {shown(entry['sure'])}"
        )
    return found


def of_band(given: NDArray[np.bool_], right: NDArray[np.bool_]) -> dict[str, Any]:
    """Count what was given and how much of it is right, over tags; tags that are wrong together say less."""
    share = share_of_right((given & right).sum(axis=0), given.sum(axis=0))
    return {
        "given": int(given.sum()),
        "precision": None if share is None else share._asdict(),
        "recall": float((given & right).sum() / max(1, right.sum())),
    }


def shown(found: dict[str, Any]) -> str:
    """Write a precision with its interval and the number that was given."""
    share = found["precision"]
    if share is None:
        return "-".ljust(24)
    return f"{share['mean']:.2f} [{share['low']:.2f}, {share['high']:.2f}] of {found['given']}".ljust(24)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("shared", type=Path, metavar="FOLDER", help="where data and models lie")
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="features of photos; made if they are not there")
    parser.add_argument("--threads", type=int, default=2)
    parser.set_defaults(runs=1)
    chosen = parser.parse_args()
    result: dict[str, Any] = {"machine": machine(), "seeds": chosen.runs, "data": {}}
    sizes = (200, 150) if chosen.quick else (LEARNED, MEASURED)
    for data in training_splits(chosen.shared, chosen.cache, quick=chosen.quick):
        say(f"{data.name}: {data.X.shape[0]:,} rows, {data.Y.shape[1]:,} tags")
        result["data"][data.name] = {
            name: [one_fit(data, name, seed, *sizes, chosen.threads) for seed in range(chosen.runs)]
            for name in MODEL_NAMES
        }
        write(result, chosen.json)


if __name__ == "__main__":
    main()
