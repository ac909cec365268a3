"""Sampled tagging: a step of few drawn tags beside one of all, an epoch at two sizes of dictionary, and its memory.

Four questions, on drawn data of the shapes of "Sampled image tagging and retrieval methods on user generated content":
how much faster the output layer, its loss and their updates are with drawn tags than with all (14,000 tags); how much
longer an epoch takes with 432,213 tags than with 14,000; how many distinct words a batch may draw, for each word drawn
for an image, until a row a word is slower than a row a draw (`drawn_rows`); and how much memory a fit with 432,213 tags
takes at its peak, beside the bytes of the words' table and of the network.

    python sampled.py --threads 1 --json sampled.json
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness.runs import machine, options, parse, ratios, say, spread, write

from visterm.models.deep import objectives
from visterm.models.deep.objectives import SampledObjective
from visterm.models.deep.sampled_tagger import SampledTagger
from visterm.models.deep.tag_draws import TagDraws
from visterm.models.deep.word_table import WordTable
from visterm_research.models.deep.cross_entropy_tagger import CrossEntropyTagger
from visterm_research.models.deep.objectives import FullObjective
from visterm_research.ugc.methods import FULL_SETTINGS, PAPER_HIDDEN, SAMPLED_SETTINGS
from visterm_research.ugc.times import drawn_tags

FEW, MANY = 14_000, 432_213
DIM, BATCH = 300, 256
SMALL = [512]
"""A network in which the output layer is more of an epoch than in the paper's."""

STEPS = 3
"""Steps timed together."""


def seconds_a_step(objective: Any, n_tags: int, n_images: int) -> float:
    """Time steps of the output layer alone: rows taken, loss, gradients, rows moved."""
    rng = np.random.default_rng(0)
    table = WordTable(rng.standard_normal((n_tags, DIM), np.float32) / 17, trainable=True, device=torch.device("cpu"))
    objective.start_epoch(rng)
    f = torch.from_numpy(rng.standard_normal((BATCH, DIM), np.float32)).requires_grad_()

    def step() -> None:
        f.grad = None
        objective.loss(f, rng.integers(n_images, size=BATCH), table, rng).backward()
        table.step(0.1)

    step()
    start = time.perf_counter()
    for _ in range(STEPS):
        step()
    return (time.perf_counter() - start) / STEPS


def output_layer(n_tags: int, runs: int) -> dict[str, Any]:
    n_images = 2000
    Y = drawn_tags(n_images, n_tags)
    draws = TagDraws(Y, positives=5, negatives=10, power=1.0, background="exact", subset_size=1)
    times: dict[str, list[float]] = {"full": [], "sampled": []}
    for _ in range(runs):
        times["full"].append(seconds_a_step(FullObjective(Y), n_tags, n_images))
        times["sampled"].append(seconds_a_step(SampledObjective(draws, alpha=0.01), n_tags, n_images))
    found = {name: spread(values) for name, values in times.items()}
    found["full / sampled"] = ratios(times["full"], times["sampled"])
    return found


def rows_of_draws(runs: int, sizes: tuple[int, ...], negatives: tuple[int, ...]) -> list[dict[str, Any]]:
    """Time the output layer with a row a draw and with a row a word."""
    found = []
    n_images, limit = 2000, objectives.MAX_DISTINCT_WORDS
    ways = {"a row a draw": 0.0, "a row a word": math.inf}
    for n_tags, N, alpha in product(sizes, negatives, (0.0, 0.01)):
        Y = drawn_tags(n_images, n_tags)
        draws = TagDraws(Y, positives=5, negatives=N, power=0.5, background="exact", subset_size=1)
        rng = np.random.default_rng(0)
        drawn = draws.draw(rng.integers(n_images, size=BATCH), rng)
        words = np.unique(np.hstack([drawn.positives, drawn.negatives])).size
        times: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(runs):
            for way, objectives.MAX_DISTINCT_WORDS in ways.items():
                times[way].append(seconds_a_step(SampledObjective(draws, alpha=alpha), n_tags, n_images))
        row: dict[str, Any] = {"tags": n_tags, "negatives": N, "alpha": alpha, "words a draw": words / (5 + N)}
        row |= {way: spread(values) for way, values in times.items()}
        found.append(row | {"draw / word": ratios(times["a row a draw"], times["a row a word"])})
    objectives.MAX_DISTINCT_WORDS = limit
    return found


def seconds_an_epoch(kind: type[Any], n_tags: int, n_images: int, hidden: list[int], threads: int) -> float:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_images, 1024), np.float32)
    settings = SAMPLED_SETTINGS if kind is SampledTagger else FULL_SETTINGS
    model = kind(**settings, hidden=hidden, epochs=2, batch_size=BATCH, valid_share=0, device="cpu", n_jobs=threads)
    return float(model.fit(X, drawn_tags(n_images, n_tags)).history_[-1]["seconds"])


def epochs(sizes: tuple[int, int], n_images: int, hidden: list[int], threads: int, runs: int) -> dict[str, Any]:
    few, many = sizes
    sides = {
        "full, few": (CrossEntropyTagger, few), "few": (SampledTagger, few), "many": (SampledTagger, many)
    }  # fmt: skip
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(runs):
        for name, (kind, n_tags) in sides.items():
            times[name].append(seconds_an_epoch(kind, n_tags, n_images, hidden, threads))
    found: dict[str, Any] = {"images": n_images, "hidden": hidden}
    found |= {name: spread(values) for name, values in times.items()}
    found["many / few"] = ratios(times["many"], times["few"])
    found["full / sampled, few"] = ratios(times["full, few"], times["few"])
    return found


def memory(n_tags: int, n_images: int, hidden: list[int], valid_share: float) -> dict[str, Any]:
    """Fit in a process of its own, from memory-mapped vectors, and give its peak beside what it is measured against."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "words.npy"
        words = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n_tags, DIM))
        rng = np.random.default_rng(0)
        for start in range(0, n_tags, 10_000):
            words[start : start + 10_000] = rng.standard_normal((len(words[start : start + 10_000]), DIM), np.float32)
        words.flush()
        told = json.dumps([n_tags, n_images, hidden, valid_share, str(path)])
        ran = subprocess.run([sys.executable, __file__, "--memory-child", told], stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(ran.stdout)
    found["allowed"] = 3 * found["table"] + 4 * found["network"] + found["interpreter"]
    found["peak / allowed"] = found["peak"] / found["allowed"]
    return found


def memory_child(told: str) -> None:
    n_tags, n_images, hidden, valid_share, path = json.loads(told)
    X = np.random.default_rng(0).standard_normal((n_images, 1024), np.float32)
    Y = drawn_tags(n_images, n_tags)
    torch.optim.Adam([torch.zeros(1, requires_grad=True)], fused=True).step()  # imports what is imported at first use
    interpreter = _peak()
    words = np.load(path, mmap_mode="r")
    epochs = 2 if valid_share else 1
    model = SampledTagger(
        **SAMPLED_SETTINGS, hidden=hidden, epochs=epochs, batch_size=BATCH, word_vectors=words,
        valid_share=valid_share, device="cpu",
    ).fit(X, Y)  # fmt: skip
    network = sum(
        getattr(model, f"{kind}_{i}_").nbytes for kind in ("weights", "offsets") for i in range(model.n_layers_)
    )
    print(
        json.dumps({"peak": _peak(), "interpreter": interpreter, "table": model.tag_rows_.nbytes, "network": network})
    )


def _peak() -> int:
    """Return the most bytes that this process had in memory (Linux); getrusage would begin with those of its parent."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] == "--memory-child":
        memory_child(sys.argv[2])
        return
    parser = options(__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--images", type=int, default=4096, help="of an epoch; a quarter with the paper's network")
    parser.add_argument("--hidden", type=int, nargs="*", default=PAPER_HIDDEN, help="layers of the large network")
    parser.add_argument("--only", choices=["output", "epoch", "rows", "memory"], help="one of the questions")
    chosen = parse(parser)
    few, many, images, hidden = FEW, MANY, chosen.images, chosen.hidden
    if chosen.quick:
        few, many, images, hidden = 500, 2000, 600, [64]
    torch.set_num_threads(chosen.threads)
    result: dict[str, Any] = {"machine": machine(), "threads": chosen.threads, "images": images, "hidden": hidden}
    if chosen.only in (None, "output"):
        found = result["output layer"] = output_layer(few, chosen.runs)
        for side in ("full", "sampled"):
            say(f"{side}: {1000 * found[side]['median']:.1f} ms a step of {BATCH} images, {few:,} tags")
        say(f"full / sampled: {found['full / sampled']['median']:.1f} (goal: 10 or more)")
    if chosen.only in (None, "epoch"):
        result["epoch"] = []
        for layers, n in ([SMALL, images], [hidden, images // 4]):
            found = epochs((few, many), n, layers, chosen.threads, chosen.runs)
            result["epoch"].append(found)
            say(f"an epoch of {n:,} images, layers {layers}:")
            for name, size in (("full, few", few), ("few", few), ("many", many)):
                kind = "full" if name.startswith("full") else "sampled"
                say(f"  {kind}, {size:,} tags: {found[name]['median']:.2f} s")
            say(f"  full / sampled, {few:,} tags: {found['full / sampled, few']['median']:.1f}")
            say(f"  many / few: {found['many / few']['median']:.2f} (goal: under 1.5)")
    if chosen.only in (None, "rows"):
        sizes, negatives = ((200, 500), (10, 30)) if chosen.quick else ((300, 1000, 3000, 10_000), (10, 30, 100, 300))
        result["rows"] = rows_of_draws(chosen.runs, sizes, negatives)
        for found in result["rows"]:
            say(
                f"{found['tags']:,} tags, {found['negatives']} negatives, alpha {found['alpha']:g}, "
                f"{found['words a draw']:.1f} words a draw: a row a draw takes {found['draw / word']['median']:.2f} "
                "times as long as a row a word"
            )
    if chosen.only in (None, "memory"):
        names = ("peak", "allowed", "table", "network", "interpreter")
        for kind, share in (("memory", 0.0), ("memory, early stopping", 0.1)):
            found = result[kind] = memory(many, min(images, 2000), hidden, share)
            megabytes = {name: f"{found[name] / 2**20:,.0f} MiB" for name in names}
            say(f"{kind}, {many:,} tags: {megabytes}; peak / allowed {found['peak / allowed']:.2f} (goal: under 1)")
    write(result, chosen.json)


if __name__ == "__main__":
    main()
