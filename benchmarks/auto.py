"""`auto` beside its candidates alone, and beside the plain mean of ridge and k-NN, on six data sets.

Corel5k (features of a network, visterms, blobs), Delicious (words), and two drawn families whose shape is drawn anew in
each run (`--seed` repeats one). Models learn from the training rows and are measured on the test rows, once; with
`--validation` they are measured on a tenth of the training rows that they do not learn from. The plain mean is of the
scores of the two models alone, each less its mean and over its deviation.

Differences in MAP over images have paired 95 % bootstrap intervals over the images. N+ counts the tags recalled at
least once with five tags an image; F1 is that of the means of precision and recall over tags, as the literature on
Corel5k reports it: with five tags an image, and with the tags that `best_f1` gives.

    python benchmarks/auto.py ../shared --cache CACHE --json docs/figures/auto.json

About 10 minutes on 2 quiet cores.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from harness.data_sets import Problem, Rows, blobs, drawn_features, encoded, with_features
from harness.runs import machine, options, say, write

from visterm.core.tables import MODELS
from visterm.metrics import average_precisions, evaluate
from visterm.metrics.significance import paired_bootstrap
from visterm.models.blend.auto import Auto
from visterm.models.blend.candidates import DEFAULT_CANDIDATES
from visterm.models.confidence.calibration import HeldOutChances
from visterm.models.confidence.cutoffs import cutoff_of_best_f1, f1_score
from visterm.models.confidence.fit_calibration import fit_calibration
from visterm_research.comparison.image_problems import unit_rows
from visterm_research.data.mulan import read_mulan

METRICS = ["map", "word_map", "n_plus@5", "tag_p@5", "tag_r@5", "tag_f1@5"]
PLAIN = "mean of ridge and knn"


def data_sets(shared: Path, cache: Path, seed: int, *, quick: bool, only: Sequence[str] = ()) -> Iterator[Problem]:
    """Yield the six data sets, or those whose name has a part of `only`; in a quick run only drawn ones, small."""
    rng = np.random.default_rng(seed)
    for place in ("first", "second"):
        drawn = replace(drawn_features(rng, 800 if quick else 5_600), name=f"drawn, {place}")
        if chosen_by(drawn.name, only):
            yield drawn
    if quick:
        return
    corel, delicious = shared / "data" / "corel5k", shared / "data" / "delicious"
    network = f"onnx:{shared / 'models' / 'mobilenet_v2.onnx'}"
    encoders: list[tuple[str, str, dict[str, Any]]] = [
        ("network", network, {"output": "features"}),
        ("visterms", "visterms", {}),
    ]
    for kind, encoder, params in encoders:
        if chosen_by(name := f"Corel5k, {kind}", only):
            yield with_features(name, "corel5k", *encoded(corel, encoder, params, cache / kind))
    if chosen_by("Corel5k, blobs", only):
        yield with_features("Corel5k, blobs", "corel5k", *blobs(corel))
    if not chosen_by("Delicious, words", only):
        return
    parts = [
        read_mulan(delicious / f"delicious-{part}.arff", delicious / "delicious.xml") for part in ("train", "test")
    ]
    rows = [matrix for part in parts for matrix in (unit_rows(part.X), part.Y)]
    yield with_features("Delicious, words", "delicious", *rows)


def chosen_by(name: str, only: Sequence[str]) -> bool:
    """Return whether a name has one of these parts; without parts, all are chosen."""
    return not only or any(part in name for part in only)


def standardised(scores: Any) -> Any:
    """Return scores less their mean and over their deviation."""
    return ((scores - scores.mean(dtype=np.float64)) / scores.std(dtype=np.float64)).astype(np.float32)


def scores_of(rows: Rows, threads: int, seed: int) -> tuple[dict[str, Any], dict[str, float], Auto]:
    """Fit each candidate alone and `auto`; return scores, seconds, and `auto`."""
    auto = Auto(n_jobs=threads, random_state=seed)
    models: dict[str, Any] = {"auto": auto}
    for name, settings in DEFAULT_CANDIDATES:
        models[name] = MODELS.create(name, **settings)
        known = models[name].get_params()
        models[name].set_params(**{k: v for k, v in {"n_jobs": threads, "random_state": seed}.items() if k in known})
    scores, seconds = {}, {}
    for name, model in models.items():
        began = time.perf_counter()
        model.fit(rows.X, rows.Y)
        seconds[name] = time.perf_counter() - began
        scores[name] = model.decision_function(rows.judged)
        say(f"  {name:22} {seconds[name]:6.1f} s")
    scores[PLAIN] = standardised(scores["ridge"]) + standardised(scores["knn"])
    seconds[PLAIN] = seconds["ridge"] + seconds["knn"]
    return scores, seconds, auto


def with_cutoffs(auto: Auto, rows: Rows, scores: Any) -> dict[str, float]:
    """Measure the tags above the cut-offs of the best F1, chosen on the images that `auto` held out."""
    held = auto.take_held_out()
    assert held is not None
    others = np.setdiff1d(np.arange(rows.Y.shape[0]), held.images)
    counts = np.bincount(rows.Y.indices[rows.Y.data > 0], minlength=rows.Y.shape[1])
    every = np.arange(len(held.images))
    calibration = fit_calibration(held.scores(every), rows.Y[held.images], rows.Y[others], counts)
    assert calibration is not None
    assert calibration.held_out is not None
    judged = HeldOutChances.of(calibration.confidences(scores), rows.right.toarray() > 0)
    given = judged.chances >= cutoff_of_best_f1(calibration.held_out, "macro")[judged.tags]
    return {"f1": f1_score(judged, given, "macro"), "tags an image": float(given.sum() / judged.image_counts.size)}


def measure(rows: Rows, threads: int, seed: int) -> dict[str, Any]:
    """Compare `auto` with its candidates and with the plain mean on the same rows."""
    scores, seconds, auto = scores_of(rows, threads, seed)
    maps = {name: average_precisions(found, rows.right) for name, found in scores.items()}
    entry: dict[str, Any] = {"models": {}, "lift": auto.lift_}
    for name, found in scores.items():
        entry["models"][name] = {**evaluate(found, rows.right, METRICS), "seconds": seconds[name]}
        if name != "auto":
            difference = paired_bootstrap(maps["auto"], maps[name])
            entry["models"][name]["map, auto minus this"] = difference._asdict()
        shown = "  ".join(f"{metric} {entry['models'][name][metric]:.3f}" for metric in METRICS)
        say(f"  {name:22} {shown}")
        if name != "auto":
            say(f"    auto is {difference.mean:+.4f} [{difference.low:+.4f}, {difference.high:+.4f}]")
    entry["with --best-f1"] = with_cutoffs(auto, rows, scores["auto"])
    say("  with --best-f1: " + "  ".join(f"{name} {value:.3f}" for name, value in entry["with --best-f1"].items()))
    entry["weights"] = {each["model"]: each["weight"] for each in auto.report_}
    say(f"  weights {entry['weights']}, lift {auto.lift_}")
    return entry


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("shared", type=Path, nargs="?", help="the folder that holds data and models")
    parser.add_argument("--cache", type=Path, default=Path("encoded"), help="where encoded photos are kept")
    parser.add_argument("--seed", type=int, help="of the drawn families; without, the clock's")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--validation", action="store_true", help="measure on validation rows, not on test rows")
    parser.add_argument("--only", action="append", default=[], help="only data sets whose name has this; repeat it")
    chosen = parser.parse_args()
    if chosen.shared is None and not chosen.quick:
        parser.error("Name the folder with the data, or pass --quick.")
    seed = time.time_ns() % 2**31 if chosen.seed is None else chosen.seed
    result: dict[str, Any] = {"machine": machine(), "seed": seed, "threads": chosen.threads, "data": {}}
    result["measured on"] = "validation rows" if chosen.validation else "test rows"
    for data in data_sets(chosen.shared, chosen.cache, seed, quick=chosen.quick, only=chosen.only):
        say(f"\n{data.name}: {data.about}")
        rows = data.choose if chosen.validation else data.final
        result["data"][data.name] = {"about": data.about, **measure(rows, chosen.threads, 0)}
        write(result, chosen.json)


if __name__ == "__main__":
    main()
