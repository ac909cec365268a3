"""The ten best of a million pairs of an object's tag and a part's tag: ours, and all scores made and selected by NumPy.

A thousand tags; the score of a pair is ``a[i] + b[j] + F[i, j]`` (Mesnil et al. 2013, section 3), with one F for all
images. NumPy makes all scores by two additions into a matrix made beforehand, and selects either by argpartition, or by
the largest of each row: the ten best pairs are in the ten rows that have the largest. Beside them stand the floor, both
images' scores sorted, and the rank of a pair drawn among all. All sides run on one thread and take turns; ratios are
taken turn by turn. The cases, from scores that tell pairs apart to the worst that there are:

* images of norm 4 times tag rows of norm up to 1, alpha 0.1; images of norm 1;
* flat images: all scores 1, but for 0.001;
* even: both images and F all drawn normally, so that each of the three may decide;
* opposed: F undoes what the images say, so that all pairs score alike but for a millionth and nothing can be left out.

    python top_pairs.py --json figures/top_pairs.json
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from harness.runs import machine, options, parse, ratios, say, spread, write
from harness.turns import in_turns
from threadpoolctl import threadpool_limits

from visterm.models.parts.objects_and_parts import best_pairs, label_terms, ranks_of_pairs

TAGS, DIM, K = 1_000, 100, 10
ALPHA = 0.1
EXAMPLES = 16
"""Of a call of either side."""

GOAL = 20.0

ALL, ROWS, LISTS = "numpy, argpartition of all", "numpy, by the rows' largest", "numpy, both lists sorted"


class Case(NamedTuple):
    """Scores of the tags for images of objects and of parts, and the label-label term."""

    A: np.ndarray
    B: np.ndarray
    F: np.ndarray


def cases(n_tags: int, rng: np.random.Generator) -> dict[str, Case]:
    """Draw all cases."""

    def rows(n: int, norms: Any) -> np.ndarray:
        drawn = rng.standard_normal((n, DIM), np.float32)
        return drawn * (norms / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, np.float32)

    W = rows(n_tags, rng.uniform(0.5, 1, (n_tags, 1)))
    F = np.float32(ALPHA) * (W @ W.T)
    flat = [1 + np.float32(1e-3) * normal(EXAMPLES, n_tags) for _ in "ab"]
    a, b = normal(2, n_tags)
    opposed = np.float32(1e-6) * normal(n_tags, n_tags) - a[:, None] - b
    return {
        "images of norm 4": Case(rows(EXAMPLES, 4) @ W.T, rows(EXAMPLES, 4) @ W.T, F),
        "images of norm 1": Case(rows(EXAMPLES, 1) @ W.T, rows(EXAMPLES, 1) @ W.T, F),
        "flat": Case(*flat, F),
        "even": Case(normal(EXAMPLES, n_tags), normal(EXAMPLES, n_tags), normal(n_tags, n_tags)),
        "opposed": Case(np.tile(a, (EXAMPLES, 1)), np.tile(b, (EXAMPLES, 1)), opposed),
    }


def by_numpy(case: Case, by_rows: bool) -> Callable[[], np.ndarray]:
    """Return a call that finds the best pairs' scores with NumPy, by the largest of each row or among all at once."""
    n_tags = len(case.F)
    scores = np.empty((n_tags, n_tags), np.float32)
    flat = scores.reshape(-1)
    found = np.empty((EXAMPLES, K), np.float32)

    def call() -> np.ndarray:
        for e in range(EXAMPLES):
            np.add(case.A[e][:, None], case.B[e], out=scores)
            np.add(scores, case.F, out=scores)
            among = flat
            if by_rows:
                rows = np.argpartition(scores.max(axis=1), n_tags - K)[-K:]
                among = scores[rows].reshape(-1)
            found[e] = np.sort(among[np.argpartition(among, among.size - K)[-K:]])[::-1]
        return found

    return call


def by_sorting(case: Case) -> np.ndarray:
    """Find the best pairs' numbers, ties by the smaller, with a stable sort of all."""
    n_tags = len(case.F)
    numbers = np.arange(n_tags * n_tags)
    if not case.itself:
        numbers = numbers[numbers // n_tags != numbers % n_tags]
    found = []
    for a, b in zip(case.A, case.B, strict=True):
        scores = ((a[:, None] + b) + case.F).reshape(-1)[numbers]
        found.append(numbers[np.argsort(-scores, kind="stable")[:K]])
    return np.array(found)


def sorted_lists(case: Case) -> Callable[[], None]:
    """Return a call that sorts the scores of each image."""

    def call() -> None:
        for e in range(EXAMPLES):
            np.sort(case.A[e])
            np.sort(case.B[e])

    return call


def measure(name: str, case: Case, runs: int, rng: np.random.Generator) -> dict[str, Any]:
    """Compare the sides in one case."""
    n_tags = len(case.F)
    terms = label_terms(case.F)
    pairs = rng.permutation(n_tags * n_tags)[:EXAMPLES]
    numbers = pairs // n_tags, pairs % n_tags

    def ours(rows: slice = slice(None)) -> Any:
        return best_pairs(case.A[rows], case.B[rows], terms, K, 1)

    calls: dict[str, Callable[[], Any]] = {
        "visterm": ours,
        ALL: by_numpy(case, by_rows=False),
        ROWS: by_numpy(case, by_rows=True),
        "visterm, one example a call": lambda: [ours(slice(e, e + 1)) for e in range(EXAMPLES)],
        "visterm, rank of a pair": lambda: ranks_of_pairs(case.A, case.B, terms, *numbers, 1),
        LISTS: sorted_lists(case),
    }
    found = ours()
    same = {
        "visterm": bool(np.array_equal(found.objects * n_tags + found.parts, by_sorting(case))),
        **{side: bool(np.array_equal(calls[side](), found.scores)) for side in (ALL, ROWS)},
    }
    seconds = {side: [turn / EXAMPLES for turn in turns] for side, turns in in_turns(calls, runs, 5).items()}
    times = {side: ratios(seconds[side], seconds["visterm"]) for side in (ALL, ROWS)}
    floor = ratios(seconds["visterm"], seconds[LISTS])
    say(f"\n{name}: the {K} best of {n_tags**2:,} pairs; medians of {runs} turns, an example, one thread")
    for side, turns in seconds.items():
        other = "" if same.get(side, True) else "   OTHER PAIRS"
        say(f"  {side:32s}{1e6 * spread(turns)['median']:10.1f} µs (least {1e6 * min(turns):.1f}){other}")
    for side, each in times.items():
        span = f"{each['least']:.0f} to {each['most']:.0f}"
        say(f"  {each['median']:.0f} times as fast as {side} ({span}; goal {GOAL:.0f})")
    say(f"  {floor['median']:.1f} times the sorting of both lists ({floor['least']:.1f} to {floor['most']:.1f})")
    return {
        "seconds an example": {side: spread(turns) for side, turns in seconds.items()},
        "times as fast as": times,
        "over both lists sorted": floor,
        "same pairs": same,
    }


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--tags", type=int, default=TAGS)
    chosen = parse(parser)
    rng = np.random.default_rng(0)
    n_tags = 70 if chosen.quick else chosen.tags
    result: dict[str, Any] = {"machine": machine(), "threads": 1, "tags": n_tags, "k": K, "examples": EXAMPLES}
    result["goal, times as fast as numpy"] = GOAL
    with threadpool_limits(1):
        drawn = cases(n_tags, rng)
        F = drawn["flat"].F
        making = in_turns({"bounds": lambda: label_terms(F)}, chosen.runs, 5)["bounds"]
        result["seconds to make the bounds of F, once a model"] = spread(making)
        say(f"the bounds of F, once a model: {1e3 * spread(making)['median']:.2f} ms")
        result["cases"] = {name: measure(name, case, chosen.runs, rng) for name, case in drawn.items()}
    write(result, chosen.json)


if __name__ == "__main__":
    main()
