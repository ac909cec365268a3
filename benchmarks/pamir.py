"""Seconds of PAMIR's training at the paper's size, and how many times faster it is than plain NumPy, as JSON.

python benchmarks/pamir.py [--corel FOLDER] [--quick] [--runs 3] [--json FILE]

With --corel (a folder with labels.tsv and images/) the pictures are those of Corel5k, as visterms of 64-pixel blocks
like the paper's; without, images of the same size are drawn. Encoding is not timed; training is on one thread.
"""

from __future__ import annotations

import csv
import json
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from harness.runs import machine, options, parse, say, spread, write

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from reference import pamir as reference
from visterm.core.queries import inverse_frequencies, weigh_words
from visterm.core.threads import one_blas_thread
from visterm.core.vocabulary import Vocabulary
from visterm.data.tag_queries import queries_of_tags
from visterm.encoders.visterms import Visterms
from visterm.models.pamir.pamir import TripletTraining
from visterm_research.comparison.image_problems import unit_rows

STEPS, TWIN_STEPS, AGGRESSIVENESS = 2_530_000, 10_000, 0.1  # The first is from PAMIR, Table V
TRAIN, TEST, FEATURES, WORDS, BLOCKS, TOPICS = 4000, 499, 10_000, 179, 77, 100


class Problem(NamedTuple):
    """Images to learn from and to map, and weighed queries with what is relevant."""

    X: sp.csr_array
    X_test: sp.csr_array
    Q: sp.csr_array
    R: sp.csr_array


def drawn() -> Problem:
    """Draw images of 77 blocks each with captions of two to five words of one topic: half of the blocks show them."""
    rng = np.random.default_rng(1)
    topics = [rng.permutation(WORDS)[:8] for _ in range(TOPICS)]
    shown = rng.integers(0, FEATURES, (WORDS, 60))
    n_images = TRAIN + TEST
    Y = np.zeros((n_images, WORDS), np.float32)
    columns = rng.integers(0, FEATURES, (n_images, BLOCKS))
    for i in range(n_images):
        caption = rng.permutation(topics[rng.integers(TOPICS)])[: rng.integers(2, 6)]
        Y[i, caption] = 1
        columns[i, : BLOCKS // 2] = shown[rng.choice(caption, BLOCKS // 2), rng.integers(0, 60, BLOCKS // 2)]
    rows = np.repeat(np.arange(n_images), BLOCKS)
    X = sp.coo_array((np.ones(columns.size), (rows, columns.ravel())), shape=(n_images, FEATURES)).tocsr()
    X = unit_rows(X)
    return Problem(X[:TRAIN], X[TRAIN:], *weighed(Y[:TRAIN]))


def corel(folder: Path) -> Problem:
    """Encode Corel5k: 4,000 rows to learn from, the test rows to map, words that two or more test rows have."""
    with (folder / "labels.tsv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file, delimiter="\t"))
    train, test = ([row for row in table if row["split"] == split] for split in ("train", "test"))
    train = [train[i] for i in np.sort(np.random.default_rng(0).permutation(len(train))[:TRAIN])]
    vocabulary = Vocabulary.from_lists([row["labels"].split(",") for row in test], min_count=2)
    encoder = Visterms(
        block=1 / 6, scales=(1.0,), colour_space="rgb", texture_weight=1.0, neighbours=1, root_terms=False,
        codebook=FEATURES, random_state=0,
    )  # fmt: skip
    photos = [[str(folder / "images" / row["image"]) for row in rows] for rows in (train, test)]
    encoder.fit(photos[0])
    X, X_test = (sp.csr_array(encoder.transform(rows)) for rows in photos)
    return Problem(X, X_test, *weighed(vocabulary.encode([row["labels"].split(",") for row in train])))


def weighed(Y: Any) -> tuple[sp.csr_array, sp.csr_array]:
    """Make all queries of captions, weighed by idf."""
    queries = queries_of_tags(Y, max_words=None)
    idf = inverse_frequencies(np.asarray(Y.sum(axis=0)).ravel(), Y.shape[0])
    return weigh_words(queries.words, idf), queries.relevant


def ours(problem: Problem, n_steps: int, W: np.ndarray) -> tuple[float, int]:
    """Train and map the test images; give seconds and the number of triplets that made a step."""
    start = time.perf_counter()
    training = TripletTraining(problem.X, problem.Q, problem.R, W, rng=np.random.default_rng(0))
    _, n_moved = training.run(n_steps, AGGRESSIVENESS)
    mapped = problem.X_test @ W.T
    return time.perf_counter() - start if np.isfinite(mapped).all() else np.nan, n_moved


def twins(problem: Problem, n_steps: int, W: np.ndarray) -> float:
    """Time the slow twin's steps, its index arrays sliced and its triplets drawn beforehand."""
    relevant = [images for images, _ in reference.slices(problem.R)]
    triplets = list(reference.drawn_triplets(relevant, problem.X.shape[0], n_steps, 0, 0))
    queries, images = reference.slices(problem.Q), reference.slices(problem.X)
    start = time.perf_counter()
    reference.train(triplets, queries, images, AGGRESSIVENESS, W)
    return time.perf_counter() - start


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--corel", type=Path)
    arguments = parse(parser)
    n_steps, n_twin = (STEPS // 100, TWIN_STEPS // 10) if arguments.quick else (STEPS, TWIN_STEPS)
    problem = drawn() if arguments.corel is None else corel(arguments.corel)
    shape = problem.Q.shape[1], problem.X.shape[1]
    ours(problem, 10, np.zeros(shape, np.float32))
    full, ratios = [], []
    with one_blas_thread():
        for _ in range(arguments.runs):
            W = np.zeros(shape, np.float32)
            seconds, n_moved = ours(problem, n_steps, W)
            full.append(seconds)
            slow = twins(problem, n_twin, W.astype(np.float64))
            quick, _ = ours(problem, 20 * n_twin, W.copy())
            ratios.append(slow / n_twin / (quick / (20 * n_twin)))
    result = {
        "machine": machine(), "images": problem.X.shape[0], "stored_an_image": problem.X.nnz / problem.X.shape[0],
        "queries": problem.Q.shape[0], "steps": n_steps, "share_that_moved": n_moved / n_steps,
        "seconds": spread(full), "times_as_fast_as_numpy": spread(ratios),
    }  # fmt: skip
    say(json.dumps(result, indent=1))
    write(result, arguments.json)


if __name__ == "__main__":
    main()
