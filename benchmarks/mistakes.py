"""Planted mistakes found: average precision of `visterm mistakes` beside ranking by the chance alone.

Of the tags that images have, 2, 5 and 10 % are taken away, and as many of the same tags are put on images that lack
them. An ensemble of ridge and k-NN predicts each image from four fifths of the others. Given tags are ranked by
``1 - p`` and tags that were not given by ``p``, p the calibrated chance, and both as `visterm mistakes` ranks them.
Only what was planted counts as right, so that real mistakes of the data count against both. Ratios have 95 %
intervals of resampled images. The method was chosen with seed 0; other seeds judge it. With
``uniform`` wrong tags are drawn from all pairs alike, so that most are of rare tags.

    python benchmarks/mistakes.py ../shared --cache CACHE --json docs/figures/mistakes.json
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from defaults import blobs, encoded
from harness.runs import machine, options, parse, say, write

from visterm.core.tables import MODELS
from visterm.core.vocabulary import Vocabulary
from visterm.models.confidence.mistakes import find_mistakes
from visterm.tagging.mistakes import cross_chances
from visterm_research.comparison.image_problems import unit_rows
from visterm_research.comparison.sources import Source
from visterm_research.data.mulan import read_mulan

RATES = (0.02, 0.05, 0.1)
MOST_IMAGES = 6000
RESAMPLES = 100


def data_sets(shared: Path, cache: Path) -> Iterator[tuple[str, Any, sp.csr_array]]:
    """Yield names, features and tags of all images."""
    from visterm.data.corpus import Corpus
    from visterm.demo.drawn import draw_library
    from visterm_research.data.drawn_library import read_drawn_library

    network = f"onnx:{shared / 'models' / 'mobilenet_v2.onnx'}"
    source = Source(cache, n_jobs=1)
    library = read_drawn_library(source.drawn("scenes", draw_library, 3000))
    corpora = [Corpus.read(library.images, library.tags_file).select(part) for part in ("train", "valid", "test")]
    vocabulary = Vocabulary.from_lists(corpora[0].tags)
    parts = source.encode(corpora, vocabulary, network, {"output": "features"})
    yield "drawn scenes, network", *stacked([matrix for part in parts for matrix in (part.X, part.Y)])
    corel = shared / "data" / "corel5k"
    for name, encoder, params in (("network", network, {"output": "features"}), ("visterms", "visterms", {})):
        yield f"Corel5k, {name}", *stacked(encoded(corel, encoder, params, cache / name))
    yield "Corel5k, blobs", *stacked(blobs(corel))
    folder = shared / "data" / "delicious"
    both = [read_mulan(folder / f"delicious-{part}.arff", folder / "delicious.xml") for part in ("train", "test")]
    yield "Delicious, words", *stacked([matrix for part in both for matrix in (unit_rows(part.X), part.Y)])


def stacked(matrices: list[Any]) -> tuple[Any, sp.csr_array]:
    """Join features, tags, features, tags, ... of several parts."""
    X, Y = matrices[::2], [sp.csr_array(part) for part in matrices[1::2]]
    return sp.csr_array(sp.vstack(X)) if sp.issparse(X[0]) else np.vstack(X), sp.csr_array(sp.vstack(Y))


def planted(true: Any, rate: float, rng: np.random.Generator, *, uniform: bool) -> tuple[Any, Any]:
    """Return which tags are put where they don't belong, and which are taken away: bool, the shape of `true`."""
    images, tags = np.nonzero(true)
    n = round(rate * images.size)
    wrong, missing = np.zeros_like(true), np.zeros_like(true)
    taken = rng.permutation(images.size)[:n]
    missing[images[taken], tags[taken]] = True
    for tag in tags[rng.permutation(images.size)[:n]]:
        while True:
            image, column = rng.integers(true.shape[0]), rng.integers(true.shape[1]) if uniform else tag
            if not true[image, column] and not wrong[image, column]:
                wrong[image, column] = True
                break
    return wrong, missing


def average_precision(right: Any, weights: Any) -> float:
    """Return that of a ranking, in which each entry counts as often as its weight says."""
    hits = np.cumsum(right * weights)
    return float((hits / np.maximum(np.cumsum(weights), 1) * right * weights).sum() / max(hits[-1], 1))


def judged(ours: Any, by_chance: Any, right: Any, n_images: int, rng: np.random.Generator) -> dict[str, Any]:
    """Compare two rankings, each (images, tags), best first."""
    rankings = [(images, right[images, tags]) for images, tags in (ours, by_chance)]
    values = [average_precision(hit, np.ones(hit.size)) for _, hit in rankings]
    ratios = []
    for _ in range(RESAMPLES):
        times = np.bincount(rng.integers(n_images, size=n_images), minlength=n_images)
        found = [average_precision(hit, times[images]) for images, hit in rankings]
        ratios.append(found[0] / max(found[1], 1e-9))
    low, high = np.quantile(ratios, [0.025, 0.975])
    return {
        "planted": int(right.sum()), "ours": values[0], "by chance": values[1], "ratio": values[0] / values[1],
        "low": float(low), "high": float(high),
    }  # fmt: skip


def measure(X: Any, Y: sp.csr_array, rate: float, seed: int, *, uniform: bool) -> dict[str, Any]:
    """Plant, predict, and judge both rankings."""
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.permutation(Y.shape[0])[:MOST_IMAGES])
    true = Y[rows].toarray() > 0
    true = true[:, true.any(axis=0)]
    wrong, missing = planted(true, rate, rng, uniform=uniform)
    given = (true & ~missing) | wrong
    tags = sp.csr_array(given.astype(np.float32))
    model = MODELS.create("ensemble", members=[["ridge", {}], ["knn", {}]], n_jobs=1, random_state=seed)
    model.fit(X[rows], tags)
    entry = {}
    with cross_chances(model, X[rows], tags, seed=seed) as (p, folds):
        found = find_mistakes(p, tags, folds, limit=given.size, seed=seed)
        for kind, right, listed, score in (("wrong", wrong, given, p), ("missing", missing, ~given, -p)):
            images, columns = np.nonzero(listed)
            order = np.argsort(score[images, columns], kind="stable")
            pairs = getattr(found, kind)
            ours, chance = (pairs.images, pairs.tags), (images[order], columns[order])
            entry[kind] = judged(ours, chance, right, len(rows), rng)
            likely = pairs.chance >= 0.5
            entry[kind]["of half or more"] = {
                "pairs": int(likely.sum()), "promised": float(pairs.chance[likely].mean()) if likely.any() else None,
                "planted": float(right[pairs.images, pairs.tags][likely].mean()) if likely.any() else None,
            }  # fmt: skip
    return entry


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("shared", type=Path, metavar="FOLDER", help="where data and models lie")
    parser.add_argument("--cache", type=Path, default=Path("encoded"), help="where encoded photos are kept")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parse(parser)
    result: dict[str, Any] = {"machine": machine(), "seed": chosen.seed, "data": {}}
    for name, X, Y in data_sets(chosen.shared, chosen.cache):
        entries = result["data"][name] = {}
        for rate, uniform in [(rate, False) for rate in RATES] + ([(0.05, True)] if name.endswith("network") else []):
            label = f"{rate:.0%}" + (", uniform" if uniform else "")
            entries[label] = entry = measure(X, Y, rate, chosen.seed, uniform=uniform)
            for kind, of in entry.items():
                ratio = f"{of['ratio']:.2f} [{of['low']:.2f}, {of['high']:.2f}]"
                say(f"{name:22} {label:12} {kind:8} {of['ours']:.3f} beside {of['by chance']:.3f}: {ratio}")
        write(result, chosen.json)


if __name__ == "__main__":
    main()
