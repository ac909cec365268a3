"""What it costs `auto` to keep a model that explains: seconds of a fit and bytes of a run, with and without one.

Corel5k with features of a network and with visterms, in three cases: the usual candidates on a part of the photos, so
that runs take seconds; only candidates that compare whole photos; and a budget that is too small for others than the
first. Both sides (`explainable` True and False) are fitted in turns, in an order that changes with every run. Where no
clock decides, the scores of the test photos are compared byte by byte, and so are MAP over photos and over tags.

    python explainable.py SHARED --cache CACHE --json figures/explainable.json

About 15 minutes on a busy core.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from harness.data_sets import Rows, drawn_features, encoded, with_features
from harness.runs import TEST_ROWS, machine, options, ratios, say, spread, write

from visterm.core.persist import save_estimator
from visterm.core.tables import MODELS
from visterm.metrics import evaluate
from visterm.models.blend.auto import Auto
from visterm.models.blend.kept import explained_by, vectors_from

METRICS = ["map", "word_map"]
WHOLE_PHOTOS = [["knn", {}], ["kernel_ridge", {"gamma": 1.0, "alpha": 0.3}]]
CASES: dict[str, tuple[int | None, dict[str, Any]]] = {
    "usual candidates, 1,000 photos": (1_000, {}),
    "knn and kernel_ridge alone": (None, {"candidates": WHOLE_PHOTOS}),
    "a budget of 1 s": (None, {"budget": 1.0}),
}


def rows_of(shared: Path, cache: Path, name: str) -> Rows:
    """Return the training rows of Corel5k by one encoder, judged by its test rows."""
    network = f"onnx:{shared / 'models' / 'mobilenet_v2.onnx'}"
    encoder, params = (network, {"output": "features"}) if name == "network" else ("visterms", {})
    return with_features(name, "corel5k", *encoded(shared / "data" / "corel5k", encoder, params, cache / name)).final


def bytes_of(model: Auto) -> int:
    """Return the bytes of a saved model."""
    with tempfile.TemporaryDirectory() as folder:
        save_estimator(model, MODELS, Path(folder), "model")
        return sum(file.stat().st_size for file in Path(folder).iterdir())


def fitted(rows: Rows, n: int | None, settings: dict[str, Any], *, explainable: bool) -> dict[str, Any]:
    """Fit once; return seconds, bytes, measures and scores."""
    model = Auto(n_jobs=1, explainable=explainable, **settings)
    began = time.perf_counter()
    model.fit(rows.X[:n], rows.Y[:n])
    seconds = time.perf_counter() - began
    scores = model.decision_function(rows.judged)
    kept = [entry for entry in model.report_ if "kept to explain" in entry["reason"]]
    return {
        "seconds": seconds,
        "bytes": bytes_of(model),
        **evaluate(scores, rows.right, METRICS),
        "scores": scores,
        "explained by": explained_by(model),
        "tags compared by": vectors_from(model),
        "members": {MODELS.name_of(one): float(w) for one, w in zip(model.members_, model.weights_, strict=True)},
        "kept": [f"{entry['model']}: {entry['reason']}" for entry in kept],
    }


def compare(rows: Rows, n: int | None, settings: dict[str, Any], runs: int) -> dict[str, Any]:
    """Fit both sides in turns."""
    sides: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
    for run in range(runs + 1):  # the first one compiles
        for explainable in (True, False) if run % 2 else (False, True):
            found = fitted(rows, n, settings, explainable=explainable)
            if run:
                sides[explainable].append(found)
    ours, plain = sides[True], sides[False]
    last = {name: ours[-1][name] for name in ("explained by", "tags compared by", "members", "kept")}
    entry: dict[str, Any] = {
        **last,
        "seconds with": spread([each["seconds"] for each in ours]),
        "seconds without": spread([each["seconds"] for each in plain]),
        "seconds, with over without": ratios([e["seconds"] for e in ours], [e["seconds"] for e in plain]),
        "bytes with": ours[-1]["bytes"],
        "bytes without": plain[-1]["bytes"],
        **{f"{name} with": ours[-1][name] for name in METRICS},
        **{f"{name} without": plain[-1][name] for name in METRICS},
    }
    if "budget" not in settings:
        entry["same scores"] = all(
            np.array_equal(one["scores"], other["scores"]) for one, other in zip(ours, plain, strict=True)
        )
    return entry


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("shared", type=Path, nargs="?", help="the folder that holds data and models")
    parser.add_argument("--cache", type=Path, default=Path("encoded"), help="where encoded photos are kept")
    chosen = parser.parse_args()
    if chosen.shared is None and not chosen.quick:
        parser.error("Name the folder with the data, or pass --quick.")
    runs = 1 if chosen.quick else chosen.runs
    result: dict[str, Any] = {"machine": machine(), "runs": runs, "features": {}, "measured on": TEST_ROWS}
    for name in ("drawn",) if chosen.quick else ("network", "visterms"):
        rows = (
            drawn_features(np.random.default_rng(0), 800).final
            if chosen.quick
            else rows_of(chosen.shared, chosen.cache, name)
        )
        result["features"][name] = {}
        for case, (n, settings) in CASES.items():
            found = compare(rows, n, settings, runs)
            result["features"][name][case] = found
            ratio = found["seconds, with over without"]
            say(
                f"{name}, {case}: explained by {', '.join(found['explained by'])}; seconds "
                f"{found['seconds without']['median']:.1f} -> {found['seconds with']['median']:.1f}, ratio "
                f"{ratio['median']:.3f} [{ratio['least']:.3f}, {ratio['most']:.3f}]; MB "
                f"{found['bytes without'] / 1e6:.2f} -> {found['bytes with'] / 1e6:.2f}; "
                f"MAP {found['map without']:.4f} -> {found['map with']:.4f}; "
                f"same scores: {found.get('same scores')}"
            )
            write(result, chosen.json)


if __name__ == "__main__":
    main()
