"""Corel5k, end to end: wsabie beside knn, ridge and prior on visterms; ridge and knn on network features.

Everything is chosen on held-out training rows, the same for every model; then each model is fitted on all training rows
and is measured on the test rows once per run. Prints a table with paired bootstrap intervals, and writes JSON.

    python corel5k.py SHARED --json figures/corel5k.json
"""

from __future__ import annotations

import argparse
import json
import time
from itertools import product
from pathlib import Path

import numpy as np
from harness.runs import log_look

from visterm.core.tables import MODELS
from visterm.core.vocabulary import Vocabulary
from visterm.data.corpus import Corpus
from visterm.encoders.named import make_encoder
from visterm.features.training_rows import encode_corpus
from visterm.metrics import average_precisions, evaluate, paired_bootstrap

GRIDS = {
    "wsabie": {"learning_rate": [0.0008, 0.0015, 0.003], "max_norm": [0.5, 0.7, 1.0]},
    "knn": {"n_neighbors": [5, 10, 20, 40, 80], "power": [1.0, 2.0, 4.0, 8.0]},
    "ridge": {"alpha": [0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0]},
    "prior": {},
}
METRICS = ["map", "p@5", "r@5", "tag_r@5", "n_plus@5", "word_map"]


def settings(grid: dict) -> list[dict]:
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def images_map(model, X, Y):
    return average_precisions(model.decision_function(X), Y)


def choose(name: str, train, valid) -> tuple[dict, float, int]:
    """Take the setting with the best MAP on the validation rows; the defaults are among those tried."""
    tried = []
    for params in [{}, *settings(GRIDS[name])]:
        model = MODELS.create(name, **params).fit(*train, **({"valid": valid} if name == "wsabie" else {}))
        tried.append((float(np.nanmean(images_map(model, *valid))), params))
    best, params = max(tried, key=lambda item: item[0])
    return params, best, len(tried)


def compare(encoder, corpus: Corpus, names: list[str]) -> dict:
    train, test = corpus.select("train"), corpus.select("test")
    vocabulary = Vocabulary.from_lists(train.tags)
    began = time.perf_counter()
    encoder.fit(train.images)
    X, Y, _ = encode_corpus(encoder, train, vocabulary)
    X_test, Y_test, _ = encode_corpus(encoder, test, vocabulary)
    seconds = time.perf_counter() - began
    order = np.random.default_rng(0).permutation(X.shape[0])
    held, kept = np.sort(order[:450]), np.sort(order[450:])
    results, scores = {}, {}
    for name in names:
        params, valid_map, n_tried = choose(name, (X[kept], Y[kept]), (X[held], Y[held]))
        for label, chosen in ((name, {}), (f"{name}, tuned", params)):
            began = time.perf_counter()
            model = MODELS.create(name, **chosen).fit(X, Y)
            fit_seconds = time.perf_counter() - began
            scores[label] = images_map(model, X_test, Y_test)
            results[label] = {
                "settings": chosen,
                "validation map of the tuned": valid_map,
                "settings tried": n_tried,
                "fit seconds": fit_seconds,
                **evaluate(model.decision_function(X_test), Y_test, METRICS),
            }
            print(label, {k: round(v, 4) for k, v in results[label].items() if k in METRICS}, chosen, flush=True)
    differences = {}
    for ours, name in product((names[0], f"{names[0]}, tuned"), names[1:]):
        difference = paired_bootstrap(scores[ours], scores[f"{name}, tuned"])
        differences[f"{ours} - {name}, tuned"] = difference._asdict()
        print(f"{ours} - {name}, tuned", difference, flush=True)
    return {"encode seconds": seconds, "results": results, "differences in MAP": differences}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared", type=Path, help="the folder that holds data/corel5k and models/mobilenet_v2.onnx")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    arguments = parser.parse_args()
    folder = arguments.shared / "data" / "corel5k"
    corpus = Corpus.read(folder / "images", folder / "labels.tsv")
    shared = {"random_state": 0, "n_jobs": None}
    network = arguments.shared / "models" / "mobilenet_v2.onnx"
    figures = {
        "visterms": compare(make_encoder("visterms", {}, shared), corpus, ["wsabie", "knn", "ridge", "prior"]),
        "mobilenet": compare(make_encoder(f"onnx:{network}", {"output": "features"}, shared), corpus, ["knn", "ridge"]),
    }
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(figures, indent=1, default=float) + "\n", encoding="utf-8")
        log_look(arguments.json)


main()
