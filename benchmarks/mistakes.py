"""Planted mistakes found: average precision of `visterm mistakes` beside ranking by the chance alone.

Of the tags that images have, 2, 5 and 10 % are taken away, and as many of the same tags are put on images that lack
them. An ensemble of ridge and k-NN predicts each image from four fifths of the others. Given tags are ranked by
``1 - p`` and tags that were not given by ``p``, p the calibrated chance, and both as `visterm mistakes` ranks them.
Only what was planted counts as right. Ratios have 95 % intervals of resampled images. Seed 0 chose the method; others
judge it. With ``uniform`` wrong tags are drawn from all pairs alike, so most are of rare tags. ``people's own`` plants
nothing: the drawn scenes know which of the tags that people gave are wrong, and which they left out.
``steps`` compares promised chances with the share that is right, ``rare`` those of tags of up to ten images; ``likely``
are pairs of .5 or more. ``60 photos`` are ten libraries together, ``400 photos`` four, drawn for their rare tags.

    python benchmarks/mistakes.py ../shared --cache CACHE --json docs/figures/mistakes.json
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from harness.data_sets import corel5k, delicious, stacked
from harness.runs import machine, options, parse, say, write

from visterm.core.tables import MODELS
from visterm.core.vocabulary import Vocabulary
from visterm.data.corpus import Corpus
from visterm.models.confidence.mistakes import MAX_IMAGES_OF_RARE_TAG, find_mistakes
from visterm.tagging.mistakes import cross_chances
from visterm_research.comparison.sources import Source
from visterm_research.scenes import draw_library, read_drawn_library

RATES = (0.02, 0.05, 0.1)
STEPS = (0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 1.0)  # Chances that are looked at together
LIKELY, FEWEST = 0.05, 8  # The least chance that counts for rare tags, and the pairs of a step that is listed
SMALL, LIBRARIES, MANY_TAGS, MANY_TAGGED = 60, 10, 400, 4  # Photos of small libraries and of those with many rare tags
DRAWN, OWN = "drawn scenes", "people's own"
TRUE = f"{DRAWN}, true tags"
PARTS = ("train", "valid", "test")
MOST_IMAGES, RESAMPLES = 6000, 100


def data_sets(shared: Path, cache: Path, only: str) -> Iterator[tuple[str, Any, sp.csr_array, Any]]:
    """Yield names, features, tags and the drawn library, if any, of data sets whose names begin with `only`."""
    network = f"onnx:{shared / 'models' / 'mobilenet_v2.onnx'}"
    if DRAWN.startswith(only):
        yield from drawn_data(network, cache)
    for kind in ("network", "visterms", "blobs"):
        if (name := f"Corel5k, {kind}").startswith(only):
            yield name, *stacked(corel5k(shared, cache, kind)), None
    if "Delicious, words".startswith(only):
        yield "Delicious, words", *stacked(delicious(shared)), None


def drawn_data(network: str, cache: Path) -> Iterator[tuple[str, Any, sp.csr_array, Any]]:
    """Yield those of drawn scenes, with what is true of them and with what people gave."""
    source = Source(cache, n_jobs=1)
    library = read_drawn_library(source.drawn("scenes", draw_library, 3000))
    corpora = [Corpus.read(library.images, library.tags_file).select(part) for part in PARTS]
    vocabulary = Vocabulary.from_lists(corpora[0].tags)
    parts = source.encode(corpora, vocabulary, network, {"output": "features"})
    X, Y = stacked([matrix for part in parts for matrix in (part.X, part.Y)])
    true = [picture.tags for picture in pictures_of(library)]
    yield TRUE, X, sp.csr_array(Vocabulary.from_lists(true).encode(true)), library
    yield f"{DRAWN}, network", X, Y, library


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
    ratio = values[0] / max(values[1], 1e-9)
    return {"ours": values[0], "by chance": values[1], "ratio": ratio, "low": float(low), "high": float(high)}


def reliability(chance: Any, right: Any, counts: Any) -> dict[str, Any]:
    """Return, for steps of the chance and for rare tags, how many are promised to be mistakes and how many are."""

    def shares(of: Any) -> dict[str, Any]:
        return {"pairs": int(of.sum()), "promised": float(chance[of].mean()), "right": float(right[of].mean())}

    steps = [(low, high, (chance >= low) & (chance < high)) for low, high in pairwise(STEPS)]
    rare = (counts <= MAX_IMAGES_OF_RARE_TAG) & (chance >= LIKELY)
    return {
        "steps": [{"from": low, "to": high, **shares(of)} for low, high, of in steps if of.sum() >= FEWEST],
        "rare": shares(rare) if rare.sum() >= FEWEST else None,
    }


def measure(
    X: Any, given: Any, mistakes: tuple[Any, Any], seed: int, rng: np.random.Generator
) -> dict[str, tuple[dict[str, Any], tuple[Any, Any, Any]]]:
    """Predict, judge both rankings, and return for each kind figures, and chances, right ones and counts of tags."""
    tags = sp.csr_array(given.astype(np.float32))
    counts = given.sum(axis=0)
    model = MODELS.create("ensemble", members=[["ridge", {}], ["knn", {}]], n_jobs=1, random_state=seed)
    model.fit(X, tags)
    measured = {}
    with cross_chances(model, X, tags, seed=seed) as (p, folds):
        found = find_mistakes(p, tags, folds, limit=given.size, seed=seed)
        for pairs, right, listed, score, kind in zip(
            found, mistakes, (given, ~given), (p, -p), ("wrong", "missing"), strict=True
        ):
            images, columns = np.nonzero(listed)
            order = np.argsort(score[images, columns], kind="stable")
            ours, chance = (pairs.images, pairs.tags), (images[order], columns[order])
            figures = judged(ours, chance, right, len(given), rng) if len(given) > SMALL else {}
            promised = np.where(pairs.unusual, np.nan, pairs.probability)
            measured[kind] = figures, (promised, right[ours], counts[pairs.tags])
    return measured


def planted_in(X: Any, Y: sp.csr_array, rate: float, seed: int, n_images: int, *, uniform: bool) -> dict[str, Any]:
    """Plant in some of the images, and measure."""
    rng = np.random.default_rng(seed)
    rarity, rows = (Y @ (1 / np.maximum(1, Y.sum(axis=0)))) ** 1.5, np.sort(rng.permutation(Y.shape[0])[:n_images])
    if n_images == MANY_TAGS:
        rows = np.sort(rng.choice(Y.shape[0], n_images, replace=False, p=rarity / rarity.sum()))
    true = Y[rows].toarray() > 0
    true = true[:, true.sum(axis=0) >= (2 if n_images <= MANY_TAGS else 1)]
    wrong, missing = planted(true, rate, rng, uniform=uniform)
    given = (true & ~missing) | wrong
    kept = given.sum(axis=0) >= (2 if n_images == MANY_TAGS else 1)
    return measure(X[rows], given[:, kept], (wrong[:, kept], missing[:, kept]), seed, rng)


def own_mistakes(library: Any, X: Any, seed: int) -> dict[str, Any]:
    """Measure what people got wrong and left out in drawn scenes, whose spellings are put right first."""
    with open(library.folder / "groups.csv", encoding="utf-8", newline="") as file:
        spellings = {row["spelling"]: row["tag"] for row in csv.DictReader(file)}
    pictures = pictures_of(library)
    vocabulary = Vocabulary.from_lists([picture.tags for picture in pictures])
    spelled = [[spellings.get(tag.lower(), spellings.get(tag, tag)) for tag in picture.given] for picture in pictures]
    written = [sorted(set(tags)) for tags in spelled]
    given, true, seen = (
        vocabulary.encode([[tag for tag in tags if tag in vocabulary] for tags in lists]).toarray() > 0
        for lists in (written, [picture.tags for picture in pictures], [picture.seen for picture in pictures])
    )
    return measure(X, given, (given & ~(true | seen), true & ~given), seed, np.random.default_rng(seed))


def pictures_of(library: Any) -> list[Any]:
    """Return the pictures of a drawn library in the order of their features."""
    return [picture for part in PARTS for picture in library.pictures if picture.split == part]


def written(measured: list[dict[str, Any]], name: str, label: str) -> dict[str, Any]:
    """Return the figures of each kind, of one measurement or of several together, and print them."""
    entry = {}
    for kind in measured[0]:
        chance, right, counts = (np.concatenate(parts) for parts in zip(*(of[kind][1] for of in measured), strict=True))
        likely = [int((of[kind][1][0] >= 0.5).sum()) for of in measured]
        figures = {"planted": int(right.sum()), "likely": likely, **measured[0][kind][0]}
        entry[kind] = of = {**figures, **reliability(chance, right, counts)}
        ratio = f"{of['ratio']:.2f} [{of['low']:.2f}, {of['high']:.2f}]" if "ratio" in of else ""
        steps = ", ".join(f"{step['promised']:.2f}: {step['right']:.2f}" for step in of["steps"])
        say(f"{name:22} {label:12} {kind:8} {ratio} likely {likely} promised: right {steps}")
    return entry


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("shared", type=Path, metavar="FOLDER", help="where data and models lie")
    parser.add_argument("--cache", type=Path, default=Path("encoded"), help="where encoded photos are kept")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", metavar="NAME", help="the beginning of names; figures of others stay")
    seed = (chosen := parse(parser)).seed
    result: dict[str, Any] = {"machine": machine(), "seed": seed, "data": {}}
    if chosen.only and chosen.json and chosen.json.exists():
        result["data"] = json.loads(chosen.json.read_text(encoding="utf-8"))["data"]
    for name, X, Y, library in data_sets(chosen.shared, chosen.cache, chosen.only):
        entries = result["data"][name] = {}
        if name == TRUE:
            entries[OWN] = written([own_mistakes(library, X, seed)], name, OWN)
            small = [planted_in(X, Y, 0.05, seed + n, SMALL, uniform=False) for n in range(LIBRARIES)]
            entries["5%, 60 photos"] = written(small, name, "5%, 60 photos")
        for rate in (0.0, *RATES[:2]) if name.startswith("Corel5k") else ():
            several = [planted_in(X, Y, rate, seed + n, MANY_TAGS, uniform=False) for n in range(MANY_TAGGED)]
            entries[f"{rate:.0%}, 400 photos"] = written(several, name, f"{rate:.0%}, 400 photos")
        for rate, uniform in [(rate, False) for rate in RATES] + [(0.05, True)] * name.endswith(("network", "tags")):
            label = f"{rate:.0%}" + (", uniform" if uniform else "")
            measured = planted_in(X, Y, rate, seed, MOST_IMAGES, uniform=uniform)
            entries[label] = written([measured], name, label)
        write(result, chosen.json)


if __name__ == "__main__":
    main()
