"""What standardized scores change: embeddings with and without, beside ridge, in searches of several kinds.

Corel5k as visterms, as published blobs and as features of a network, Delicious, and drawn images. Rows to learn from
and rows to measure on are drawn from the training split; test rows are not looked at. Each model is fitted twice with
the same seed, with the setting `standardize` and without. It measures MAP over images (the same on both sides: no tag
changes its place), MAP over searches for one tag, for two tags, and for one tag without another; and how far
confidences are from the share that is right, in tenths. Searches rank as in a catalogue: one tag by score, several by
confidence, and also by the sum of scores, as runs without confidences do.

    python standardized.py SHARED --cache CACHE --json figures/standardized.json

FOLDER has data/corel5k, data/delicious and models/mobilenet_v2.onnx.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from harness.data_sets import encoded as photo_features
from harness.runs import machine, options, say, write
from numpy.typing import NDArray

from planted import plant_corpus
from visterm.core.queries import inverse_frequencies, weigh_words
from visterm.core.tables import MODELS
from visterm.core.vocabulary import Vocabulary
from visterm.data import read_mulan
from visterm.data.tag_formats.tables import read_table
from visterm.features.training_rows import TrainingRows
from visterm.learning.calibrating import held_out_scores
from visterm.metrics import evaluate
from visterm.metrics.retrieval import rank_images
from visterm.models.confidence.calibration import Calibration
from visterm.models.confidence.fit_calibration import fit_calibration

MEASURED, LEARNED = 1000, 3500
QUERIES = 500
"""Queries of each kind at most."""

LEAST = 0.05
"""Confidences from which on they count: nearly all tags of an image are unlikely, and right about that."""


class Data(NamedTuple):
    """Features and tags of the rows of a training split."""

    name: str
    X: Any
    Y: sp.csr_array


def training_splits(shared: Path, cache: Path | None, *, quick: bool) -> Iterator[Data]:
    """Yield Delicious, and Corel5k as features of a network and as visterms; in a quick run two small planted sets."""
    if quick:
        for name, form in (("planted, dense", np.asarray), ("planted, sparse", sp.csr_array)):
            planted = plant_corpus(n_train=400, random_state=0)
            yield Data(name, form(planted.X_train), planted.Y_train)
        return
    if cache is None:
        raise SystemExit("Missing folder for features: pass --cache FOLDER (it is filled where it is empty).")
    folder = shared / "data" / "delicious"
    read = read_mulan(folder / "delicious-train.arff", folder / "delicious.xml")
    yield Data("Delicious", read.X, read.Y)
    network = f"onnx:{shared / 'models' / 'mobilenet_v2.onnx'}"
    for name, file, encoder, params in (
        ("Corel5k, MobileNet", "network", network, {"output": "features"}),
        ("Corel5k, visterms", "visterms", "visterms", {}),
    ):
        X, Y, *_ = photo_features(shared / "data" / "corel5k", encoder, params, cache / file)
        yield Data(name, X, Y)


def more_data(shared: Path, cache: Path | None, quick: bool) -> Iterator[Data]:
    yield from training_splits(shared, cache, quick=quick)
    planted = plant_corpus(n_train=600 if quick else LEARNED + MEASURED, n_tags=60, n_features=120, random_state=1)
    yield Data("drawn", planted.X_train, planted.Y_train)
    if not quick:
        folder = shared / "data" / "corel5k"
        yield Data(
            "Corel5k, blobs", encoded(folder / "blobs.tsv", "blobs", " "), encoded(folder / "labels.tsv", "labels", ",")
        )


def encoded(path: Path, column: str, separator: str) -> sp.csr_array:
    """Read a column of lists of the images of the training split, as 0 and 1."""
    records = read_table(path, tags_column=column, separator=separator)
    lists = [record.tags for record in records if record.split == "train"]
    return Vocabulary.from_lists(lists).encode(lists)


def queries_of_two(Y: NDArray[np.bool_], sign: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw pairs of tags that two or more images have together; for -1 also two or more the first without the other."""
    together = Y.T.astype(np.float32) @ Y.astype(np.float32)
    alone = np.diag(together)[:, None] - together
    pairs = [
        pair
        for pair in permutations(range(len(together)), 2)
        if together[pair] >= 2 and (pair[0] < pair[1] if sign > 0 else alone[pair] >= 2)
    ]
    drawn = rng.permutation(len(pairs))[:QUERIES]
    return np.array(pairs, np.int64).reshape(-1, 2)[drawn]


def search_map(
    scores: NDArray[np.float32], Y: NDArray[np.bool_], sign: int, idf: NDArray[np.float32], chances: Calibration | None
) -> float:
    """Return MAP over searches for two tags, or for one without the other."""
    found = []
    for pair in queries_of_two(Y, sign, np.random.default_rng(0)):
        words = sp.csr_array((np.float32([1, sign]), pair, [0, 2]), shape=(1, Y.shape[1]))
        weights = weigh_words(words, idf).toarray()[0, pair]
        own = scores[:, pair]
        ranked = own @ weights if chances is None else chances.log_confidences(chances.log_odds(own, pair), weights)
        right = Y[:, pair[0]] & (Y[:, pair[1]] == (sign > 0))
        [precision] = rank_images(ranked.astype(np.float32)[:, None], sp.csr_array(right[:, None])).average_precision()
        found.append(precision)
    return float(np.mean(found))


def off_by(chances: NDArray[np.float64], right: NDArray[np.bool_]) -> float:
    """Return how far confidences are from the share that is right, in the mean over those that count, in tenths."""
    counted = chances >= LEAST
    chances, right = chances[counted], right[counted]
    tenths = np.minimum((chances * 10).astype(int), 9)
    gaps = [abs(chances[tenths == tenth].sum() - right[tenths == tenth].sum()) for tenth in range(10)]
    return float(sum(gaps) / max(1, len(chances)))


def one_fit(data: Data, name: str, settings: dict[str, Any], sizes: tuple[int, int], seed: int) -> dict[str, Any]:
    """Fit and calibrate one model on drawn rows, and measure it on others."""
    order = np.random.default_rng(seed).permutation(data.X.shape[0])
    measured, learned = np.sort(order[: sizes[0]]), np.sort(order[sizes[0] :][: sizes[1]])
    X, Y, X_new, Y_new = data.X[learned], data.Y[learned], data.X[measured], data.Y[measured]
    model = MODELS.create(name, **settings)
    shared = {"n_jobs": 1, "random_state": seed}
    model.set_params(**{key: value for key, value in shared.items() if key in model.get_params()}).fit(X, Y)
    vocabulary = Vocabulary.from_lists([[f"t{tag}"] for tag in range(Y.shape[1])])
    held_out = held_out_scores(model, TrainingRows(vocabulary, X, Y, None, []), seed=seed)
    calibration = None if held_out is None else fit_calibration(*held_out, seed=seed)
    scores, right = model.decision_function(X_new), Y_new.toarray() > 0
    idf = inverse_frequencies(np.bincount(Y.indices, minlength=Y.shape[1]), Y.shape[0])
    found: dict[str, Any] = evaluate(scores, Y_new, ["map", "word_map"])
    for sign, kind in ((1, "two tags"), (-1, "one without another")):
        found[f"{kind}, sum"] = search_map(scores, right, sign, idf, None)
        if calibration is not None:
            found[kind] = search_map(scores, right, sign, idf, calibration)
    if calibration is not None:
        found["confidences off by"] = off_by(calibration.confidences(scores), right)
    return found


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("shared", type=Path, metavar="FOLDER", help="where data and models lie")
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="features of photos; made if they are not there")
    parser.add_argument("--models", nargs="+", default=["wsabie"], help="models with the setting standardize")
    parser.set_defaults(runs=1)
    chosen = parser.parse_args()
    result: dict[str, Any] = {"machine": machine(), "seeds": chosen.runs, "data": {}}
    sizes = (200, 400) if chosen.quick else (MEASURED, LEARNED)
    sides: list[tuple[str, dict[str, Any]]] = [("ridge", {})]
    sides += [(name, {"standardize": standardize}) for name in chosen.models for standardize in (False, True)]
    for data in more_data(chosen.shared, chosen.cache, chosen.quick):
        say(f"{data.name}: {data.X.shape[0]:,} rows, {data.X.shape[1]:,} features, {data.Y.shape[1]:,} tags")
        for name, settings in sides:
            seeds = [one_fit(data, name, settings, sizes, seed) for seed in range(chosen.runs)]
            found = {key: float(np.mean([one[key] for one in seeds])) for key in seeds[0]}
            label = name + ("" if not settings else ", standardized" if settings["standardize"] else ", as trained")
            result["data"].setdefault(data.name, {})[label] = found
            say(f"  {label:22} " + "  ".join(f"{key} {value:.3f}" for key, value in found.items()))
            write(result, chosen.json)


if __name__ == "__main__":
    main()
