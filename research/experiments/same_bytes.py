"""What it costs that weights have the same bytes for any number of threads: beside a variant without locks or blocks.

The rival lets each thread take the steps of its pairs at once, on weights that the others are changing ("Hogwild"). All
sides go on from the same weights, with the same number of threads. Dense rows are only loops to the rival, where ours
takes blocks through BLAS. Ours asks memory for rows ahead of their use; the rival is timed without that and with it.
Both follow the paper (SGD, no bias), which `wsabie` does only if told to. On a machine with other work, seconds by the
clock depend on who gets a processor: see the least of many short runs, and the seconds of processor.

    python same_bytes.py --json same_bytes.json
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from harness.runs import machine, options, parse, ratios, say, spread, write
from lab.epochs import timed_epoch
from lab.one_by_one import OneByOne

from visterm_research.data.drawn_tags import draw_dictionary, draw_pairs, draw_visterms

SETTINGS = {"dim": 100, "learning_rate": 0.01, "max_norm": 2.0}

RIVALS = {"lock-free": False, "lock-free, asking ahead": True}


def sparse(n_images: int, n_tags: int) -> tuple[Any, sp.csr_array]:
    drawn = draw_visterms(n_images, n_tags, n_features=10_000, words_an_image=290, random_state=0)
    return drawn.X, drawn.Y


def by_number(n_images: int, n_tags: int) -> tuple[Any, sp.csr_array]:
    Y = draw_pairs(n_images, draw_dictionary(n_tags, random_state=0), random_state=1)
    return sp.eye_array(n_images, dtype=np.float32, format="csr"), Y


def dense(n_images: int, n_tags: int) -> tuple[Any, sp.csr_array]:
    Y = draw_pairs(n_images, draw_dictionary(n_tags, random_state=0), tags_an_image=3, random_state=1)
    rng = np.random.default_rng(2)
    X = Y @ rng.standard_normal((n_tags, 1280), np.float32) + rng.standard_normal((n_images, 1280), np.float32)
    return X / np.linalg.norm(X, axis=1, keepdims=True), Y


CASES = {
    "245 of 10,000 visterms, 16,000 tags": (sparse, 10_000, 16_000),
    "245 of 10,000 visterms, 371 tags": (sparse, 10_000, 371),
    "by number, 10,000 tags": (by_number, 50_000, 10_000),
    "by number, 81 tags": (by_number, 50_000, 81),
    "1,280 dense features, 371 tags": (dense, 4_000, 371),
}


def compare(X: Any, own: sp.csr_array, runs: int, threads: int) -> dict[str, Any]:
    rows = sp.csr_array(X)
    sides = ["blocks, same bytes", *RIVALS]
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    processor: dict[str, list[float]] = {name: [] for name in sides}
    state = timed_epoch(X, own, before=1, n_jobs=threads, **SETTINGS)
    for number in range(runs + 1):
        ours = timed_epoch(X, own, before=1, n_jobs=threads, **SETTINGS)
        found, clocks = [ours.seconds], [ours.processor]
        for ahead in RIVALS.values():
            theirs = OneByOne(
                rows,
                own,
                state.V.copy(),
                state.W.copy(),
                rate=SETTINGS["learning_rate"],
                max_norm=SETTINGS["max_norm"],
                max_trials=own.shape[1],
                threads=threads,
                ahead=ahead,
            )
            found.append(theirs.epoch(number))
            clocks.append(theirs.processor)
        if number > 0:  # the first run loads the compiled loops
            for name, one, clock in zip(sides, found, clocks, strict=True):
                seconds[name].append(one)
                processor[name].append(clock)
    return {
        "draws": state.draws,
        "violated": state.violated,
        "pairs": own.nnz,
        "seconds": {name: spread(found) for name, found in seconds.items()},
        "processor": {name: spread(found) for name, found in processor.items()},
        "cost": {name: ratios(seconds[sides[0]], seconds[name]) for name in RIVALS},
        "cost_in_processor": {name: ratios(processor[sides[0]], processor[name]) for name in RIVALS},
        "cost_at_least": {name: min(seconds[sides[0]]) / min(seconds[name]) for name in RIVALS},
    }


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="CASE")
    chosen = parse(parser)
    result: dict[str, Any] = {"machine": machine(), "threads": chosen.threads, "cases": {}}
    say(f"seconds of ours over those of the lock-free variant, {chosen.threads} threads each")
    for name in chosen.cases:
        draw, n_images, n_tags = CASES[name]
        X, own = draw(n_images // 20 if chosen.quick else n_images, n_tags)
        own.sort_indices()
        found = compare(X, own, chosen.runs, chosen.threads)
        result["cases"][name] = found
        costs = [f"{cost['median']:.2f} ({cost['least']:.2f} to {cost['most']:.2f})" for cost in found["cost"].values()]
        costs += [f"least against least {least:.2f}" for least in found["cost_at_least"].values()]
        costs += [f"processor {cost['median']:.2f}" for cost in found["cost_in_processor"].values()]
        per_pair = {side: 1e6 * each["median"] / own.nnz for side, each in found["seconds"].items()}
        say(
            f"  {name:38s}{', '.join(costs)}   "
            + ", ".join(f"{side} {micro:.2f} µs a pair" for side, micro in per_pair.items())
            + f"   {found['draws']:.1f} draws a pair"
        )
    write(result, chosen.json)


if __name__ == "__main__":
    main()
