"""Whether `auto` may be the default: it beside each of its candidates alone, on three data sets and five seeds.

Corel5k as visterms and as features of a network, and Delicious (sparse features, 983 tags). Each seed draws rows to
learn from and rows to measure on from the training split; test rows are not looked at. For each data set the best
candidate alone is the one with the highest mean MAP over all seeds, known only afterwards. `auto` passes where the
lower bound of the paired 95 % bootstrap interval of its MAP over images minus that one's, over the images of all seeds,
is above -0.01. Encoders are fitted once, on all rows, without tags.

    python benchmarks/auto.py ../shared --json docs/figures/auto.json

About 15 minutes on 2 cores. FOLDER has data/corel5k, data/delicious and models/mobilenet_v2.onnx.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from harness.runs import machine, options, parse, say, write

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from planted import plant_corpus
from visterm.core.tables import MODELS
from visterm.core.vocabulary import Vocabulary
from visterm.encoders.named import make_encoder
from visterm.features.training_rows import encode_corpus, read_corpus
from visterm.metrics import average_precisions, evaluate
from visterm.metrics.significance import paired_bootstrap
from visterm.models.blend.auto import Auto
from visterm.models.blend.candidates import candidates_for
from visterm_research.data.mulan import read_mulan

METRICS = ["map", "word_map", "n_plus@5"]
MEASURED = 500
"""Rows of each seed to measure on."""

LEARNED = 4000
"""Rows of each seed to learn from, at most."""

MARGIN = -0.01


class Data(NamedTuple):
    """Features and tags of the rows that seeds draw from."""

    name: str
    X: Any
    Y: sp.csr_array


def corel5k(shared: Path, name: str, spec: str, params: dict[str, Any]) -> Data:
    folder = shared / "data" / "corel5k"
    encoder = make_encoder(spec, params, {"random_state": 0})
    corpus = read_corpus(encoder, folder / "images", str(folder / "labels.tsv")).select("train")
    encoder.fit(corpus.images)
    X, Y, _ = encode_corpus(encoder, corpus, Vocabulary.from_lists(corpus.tags))
    return Data(name, X, Y)


def delicious(shared: Path) -> Data:
    folder = shared / "data" / "delicious"
    read = read_mulan(folder / "delicious-train.arff", folder / "delicious.xml")
    return Data("Delicious", read.X, read.Y)


def data_sets(shared: Path, quick: bool) -> Iterator[Data]:
    if quick:
        for name, form in (("planted, dense", np.asarray), ("planted, sparse", sp.csr_array)):
            planted = plant_corpus(n_train=400, random_state=0)
            yield Data(name, form(planted.X_train), planted.Y_train)
        return
    yield corel5k(shared, "Corel5k, visterms", "visterms", {})
    network = str(shared / "models" / "mobilenet_v2.onnx")
    yield corel5k(shared, "Corel5k, MobileNet", f"onnx:{network}", {"output": "features"})
    yield delicious(shared)


def one_seed(data: Data, seed: int, n_measured: int, threads: int) -> dict[str, dict[str, Any]]:
    """Fit `auto` and each candidate alone on the same rows, and measure them on the same others."""
    order = np.random.default_rng(seed).permutation(data.X.shape[0])
    measured, learned = np.sort(order[:n_measured]), np.sort(order[n_measured:][:LEARNED])
    X, Y, X_new, Y_new = data.X[learned], data.Y[learned], data.X[measured], data.Y[measured]
    models = {"auto": Auto(n_jobs=threads, random_state=seed)}
    for name, settings in candidates_for(X, by_number=False):
        model = MODELS.create(name, **settings)
        shared = {"n_jobs": threads, "random_state": seed}
        models[name] = model.set_params(**{k: v for k, v in shared.items() if k in model.get_params()})
    found = {}
    for name, model in models.items():
        began = time.perf_counter()
        model.fit(X, Y)
        seconds = time.perf_counter() - began
        scores = model.decision_function(X_new)
        found[name] = {"seconds": seconds, "of images": average_precisions(scores, Y_new)}
        found[name] |= evaluate(scores, Y_new, METRICS)
        say(f"  seed {seed}  {name:14}  {seconds:6.1f} s  " + "  ".join(f"{m} {found[name][m]:.3f}" for m in METRICS))
    found["auto"]["weights"] = {entry["model"]: entry["weight"] for entry in models["auto"].report_}
    found["auto"]["lift"] = models["auto"].lift_
    return found


def judge(seeds: list[dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """Compare `auto` with the candidate that did best over all seeds."""
    means = {name: {m: float(np.mean([seed[name][m] for seed in seeds])) for m in METRICS} for name in seeds[0]}
    best = max((name for name in means if name != "auto"), key=lambda name: means[name]["map"])
    ours, theirs = (np.concatenate([seed[name]["of images"] for seed in seeds]) for name in ("auto", best))
    difference = paired_bootstrap(ours, theirs)
    return {
        "means": means,
        "seconds": {name: float(np.mean([seed[name]["seconds"] for seed in seeds])) for name in means},
        "best alone": best,
        "map, auto minus best": difference._asdict(),
        "auto may be the default": difference.low > MARGIN,
        "weights": [seed["auto"]["weights"] for seed in seeds],
        "lifts": [seed["auto"]["lift"] for seed in seeds],
    }


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("shared", type=Path, metavar="FOLDER", help="where data and models lie")
    parser.add_argument("--threads", type=int, default=2)
    chosen = parse(parser)
    result: dict[str, Any] = {"machine": machine(), "seeds": chosen.runs, "threads": chosen.threads, "data": {}}
    for data in data_sets(chosen.shared, chosen.quick):
        say(f"{data.name}: {data.X.shape[0]:,} rows, {data.X.shape[1]:,} features, {data.Y.shape[1]:,} tags")
        n_measured = 100 if chosen.quick else MEASURED
        judged = judge([one_seed(data, seed, n_measured, chosen.threads) for seed in range(chosen.runs)])
        result["data"][data.name] = judged
        difference = judged["map, auto minus best"]
        say(
            f"  auto minus {judged['best alone']}: {difference['mean']:+.4f} "
            f"[{difference['low']:+.4f}, {difference['high']:+.4f}]"
        )
    result["auto may be the default"] = all(each["auto may be the default"] for each in result["data"].values())
    say("auto may be the default" if result["auto may be the default"] else "auto may not be the default")
    write(result, chosen.json)


if __name__ == "__main__":
    main()
