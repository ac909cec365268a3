"""Chains of encoders on Corel5k beside each of their parts: ridge and knn, weights chosen on held-out training rows.

Each encoder learns from the training photos and encodes once; a chain's rows are the parts' side by side, scaled as
`chain` does it. Of every chain the weights that are best on 450 held-out training photos are kept, then each model is
fitted on all training rows and meets the test rows once. Prints MAP over images, with paired bootstrap intervals, and
writes JSON.

    python benchmarks/chains.py ../shared --json docs/figures/chains.json
"""

from __future__ import annotations

import argparse
import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from visterm.core.tables import MODELS
from visterm.core.types import Matrix
from visterm.core.vocabulary import Vocabulary
from visterm.data.corpus import Corpus
from visterm.encoders.named import make_encoder
from visterm.features.training_rows import encode_corpus
from visterm.metrics import average_precisions, paired_bootstrap

MODEL_NAMES = ("ridge", "knn")
WEIGHTS = (0.3, 0.5, 0.7, 1.0)
"""Of the weaker parts, beside 1 for the first."""

CHAINS = (("network", "visterms"), ("network", "histograms"), ("network", "visterms", "histograms"))


def chained(rows: dict[str, Matrix], lengths: dict[str, float], weights: dict[str, float]) -> sp.csr_array:
    """Put the rows of some encoders side by side."""
    whole = np.sqrt(sum(weight**2 for weight in weights.values()))
    blocks = [sp.csr_array(rows[part]) * np.float32(weight / lengths[part] / whole) for part, weight in weights.items()]
    return sp.csr_array(sp.hstack(blocks, format="csr"))


def precisions(name: str, train: tuple[Any, Any], test: tuple[Any, Any]) -> np.ndarray:
    """Fit a model, and give the average precision of each image that has a known tag."""
    found = average_precisions(MODELS.create(name).fit(*train).decision_function(test[0]), test[1])
    return found[np.isfinite(found)]


def encoded(shared: Path) -> tuple[dict[str, Matrix], dict[str, Matrix], Any, Any]:
    """Encode the training and the test photos with each part."""
    folder = shared / "data" / "corel5k"
    corpus = Corpus.read(folder / "images", folder / "labels.tsv")
    train, test = corpus.select("train"), corpus.select("test")
    vocabulary = Vocabulary.from_lists(train.tags)
    parts = {
        "network": (f"onnx:{shared / 'models' / 'mobilenet_v2.onnx'}", {"output": "features"}),
        "visterms": ("visterms", {}),
        "histograms": ("kernel_pca:histograms", {}),
    }
    rows, test_rows = {}, {}
    for part, (spec, params) in parts.items():
        encoder = make_encoder(spec, params, {"random_state": 0, "n_jobs": None})
        encoder.fit(train.images)
        rows[part], Y, _ = encode_corpus(encoder, train, vocabulary)
        test_rows[part], Y_test, _ = encode_corpus(encoder, test, vocabulary)
        print(f"{part}: {rows[part].shape[1]:,} numbers", flush=True)
    return rows, test_rows, Y, Y_test


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shared", type=Path, help="the folder that holds data/corel5k and models/mobilenet_v2.onnx")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    arguments = parser.parse_args()
    rows, test_rows, Y, Y_test = encoded(arguments.shared)
    lengths = {part: float(np.sqrt(sp.csr_array(X).power(2).sum(axis=1)).mean()) for part, X in rows.items()}
    order = np.random.default_rng(0).permutation(Y.shape[0])
    held, kept = np.sort(order[:450]), np.sort(order[450:])
    figures: dict[str, Any] = {}
    for name in MODEL_NAMES:
        scores: dict[str, np.ndarray] = {}
        for chain in (*((part,) for part in rows), *CHAINS):
            tried = []
            for others in product(WEIGHTS, repeat=len(chain) - 1):
                weights = dict(zip(chain, (1.0, *others), strict=True))
                X = chained(rows, lengths, weights)
                found = precisions(name, (X[kept], Y[kept]), (X[held], Y[held])).mean()
                tried.append((float(found), weights))
            valid, weights = max(tried, key=lambda item: item[0])
            X, X_test = chained(rows, lengths, weights), chained(test_rows, lengths, weights)
            label = " + ".join(chain)
            scores[label] = precisions(name, (X, Y), (X_test, Y_test))
            found = {"weights": weights, "validation map": valid, "map": float(scores[label].mean())}
            for part in chain if len(chain) > 1 else ():
                found[f"better than {part}"] = paired_bootstrap(scores[label], scores[part])._asdict()
            figures[f"{name}, {label}"] = found
            print(name, label, json.dumps(found, default=float), flush=True)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(figures, indent=1, default=float) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
