"""2PKNN with a learned metric beside 2PKNN as it is, on Corel5k's photos and on Delicious' pages; as JSON.

Photos of Corel5k have three feature blocks: a network, and colours in two spaces (whole photo and quarters); pages of
Delicious one, words. A part of the training rows is learned from, others, from which nothing learned, are judged by;
test rows are not used. Differences in MAP over images have paired 95 % bootstrap intervals over the images.

    python learned_metric.py SHARED --cache CACHE --json figures/learned_metric.json
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from harness.data_sets import encoded
from harness.runs import machine, options, say, write
from numpy.typing import NDArray

from visterm.data import read_mulan
from visterm.metrics import average_precisions, evaluate
from visterm.metrics.significance import paired_bootstrap
from visterm_research.comparison.image_problems import unit_rows
from visterm_research.data.drawn_tags import draw_visterms
from visterm_research.models.neighbours.two_pass_knn import METRICS, TwoPassKnn

MEASURES = ["tag_p@5", "tag_r@5", "n_plus@5"]
JUDGED = 450
COLOURS = {"colours": 64, "textons": 0, "levels": 2, "scales": (1.0,)}


class DataSet(NamedTuple):
    """Rows of one kind of images, with tags, and how their features are compared."""

    name: str
    X: Any
    Y: sp.csr_array
    blocks: list[int] | None
    distances: Any
    block_names: list[str]


def corel(shared: Path, cache: Path) -> DataSet:
    """Encode Corel5k's training photos three times."""
    network = f"onnx:{shared / 'models' / 'mobilenet_v2.onnx'}"
    encoders: dict[str, tuple[str, dict[str, Any]]] = {
        "network": (network, {"output": "features"}),
        "lab": ("histograms", COLOURS),
        "rgb": ("histograms", {**COLOURS, "colour_space": "rgb"}),
    }
    parts, Y = [], None
    for name, (encoder, params) in encoders.items():
        X, Y, _, _ = encoded(shared / "data" / "corel5k", encoder, params, cache / name)
        parts.append(np.asarray(X.toarray() if sp.issparse(X) else X, np.float32))
    distances = ["l2", "l1", "l1"]
    return DataSet(
        "Corel5k", np.hstack(parts), sp.csr_array(Y), [part.shape[1] for part in parts], distances, [*encoders]
    )


def delicious(shared: Path) -> DataSet:
    """Read the training pages of Delicious."""
    folder = shared / "data" / "delicious"
    pages = read_mulan(folder / "delicious-train.arff", folder / "delicious.xml")
    return DataSet("Delicious", unit_rows(pages.X), sp.csr_array(pages.Y), None, "l2", ["words"])


def drawn() -> DataSet:
    """Draw images whose tags show, for a run that takes seconds."""
    found = draw_visterms(400, 40, n_features=60, random_state=0)
    return DataSet("drawn", sp.csr_array(found.X), sp.csr_array(found.Y), None, "l2", ["drawn"])


def compared(data: DataSet, n_learned: int, n_judged: int, threads: int) -> Iterator[dict[str, Any]]:
    """Fit each kind of metric on the same rows and measure it on the same others; yield all figures after each."""
    order = np.random.default_rng(0).permutation(data.Y.shape[0])
    judged, learned = np.sort(order[:n_judged]), np.sort(order[n_judged : n_judged + n_learned])
    found: dict[str, Any] = {"learned_from": int(learned.size), "judged": int(judged.size), "metrics": {}}
    maps: dict[str, NDArray[np.float64]] = {}
    alone = f"{data.block_names[0]} alone"
    for metric in [*METRICS, *([alone] if data.blocks else [])]:
        if metric == "blocks" and data.blocks is None:
            continue  # one block has nothing to be weighed against
        if metric == alone and data.blocks is not None:
            X = data.X[:, : data.blocks[0]]
            model = TwoPassKnn(distances=data.distances[0], n_jobs=threads)
        else:
            X = data.X
            model = TwoPassKnn(blocks=data.blocks, distances=data.distances, metric=metric, n_jobs=threads)
        began = time.process_time()
        model.fit(X[learned], data.Y[learned])
        seconds = time.process_time() - began
        scores = model.decision_function(X[judged])
        maps[metric] = average_precisions(scores, data.Y[judged])
        entry = {"map": float(np.nanmean(maps[metric])), "processor_seconds_of_fit": seconds}
        entry |= {"n_neighbors": model.n_neighbors_, "bandwidth": model.bandwidth_}
        entry |= evaluate(scores, data.Y[judged], MEASURES)
        if metric != "equal":
            if metric != alone:
                entry["block_weights"] = dict(zip(data.block_names, model.block_weights_.tolist(), strict=True))
            gap = paired_bootstrap(maps[metric], maps["equal"], n_resamples=2000)
            entry["map_less_equal"] = [gap.mean, gap.low, gap.high]
        found["metrics"][metric] = entry
        say(f"  {data.name}, {metric:9} {entry}")
        yield found


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("shared", type=Path, nargs="?", default=Path("../shared"))
    parser.add_argument("--cache", type=Path, default=Path("cache"))
    parser.add_argument("--learned", type=int, default=2000, help="rows to learn from")
    parser.add_argument("--only", choices=["Corel5k", "Delicious"], help="one data set; the figures of the other stay")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    result: dict[str, Any] = {"machine": machine(), "data": {}}
    shared = arguments.shared
    n_judged = 100 if arguments.quick else JUDGED
    makers = {"Corel5k": lambda: corel(shared, arguments.cache), "Delicious": lambda: delicious(shared)}
    if arguments.only and arguments.json is not None and arguments.json.exists():
        result["data"] = json.loads(arguments.json.read_text(encoding="utf-8"))["data"]
    chosen = [drawn] if arguments.quick else [make for name, make in makers.items() if arguments.only in (None, name)]
    for make in chosen:
        data = make()
        for found in compared(data, arguments.learned, n_judged, arguments.threads):
            result["data"][data.name] = found
            write(result, arguments.json)


if __name__ == "__main__":
    main()
