"""Leaf size in approximate neighbours, and what losing the nearest neighbour costs (WSABIE, section 6.4)."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.threads import one_blas_thread
from visterm.core.types import Matrix
from visterm.kernels import top_k
from visterm_research.comparison.claims import percent
from visterm_research.comparison.figures import draw_lines
from visterm_research.comparison.image_problems import unit_rows
from visterm_research.comparison.methods import APPROX_KNN, EXACT_KNN
from visterm_research.comparison.problem import Problem
from visterm_research.comparison.run import Comparison
from visterm_research.comparison.trials import Judged
from visterm_research.papers import read_paper

paper = read_paper("wsabie")

LEAVES = (1, 2, 3, 4, 5, 6, 8)
"""Depths p of the tree of the approximate neighbours."""

LARGER_LEAVES = ((5, 6, (40_000, 20_000)), (3, 6, (20_000, 2500)))
"""Depths of which the first has leaves twice as large, or eight times, and the paper's leaves of that ratio."""

CHANCES = (1.0, 0.75, 0.5, 0.25, 0.1)

NEIGHBOURS = 50
"""Neighbours that are looked at: the chance to lose all of them is below 0.6 % where each is found 1 time in 10."""

BLOCK_BYTES = 2**25


def leaves_part(comparison: Comparison, problem: Problem) -> None:
    """Test trees of several depths, and work out what the exact neighbours say of lost ones."""
    _trade(comparison, problem)
    if EXACT_KNN.label in comparison.tested[problem.name]:
        _lost(comparison, problem)


def _trade(comparison: Comparison, problem: Problem) -> None:
    base = comparison.tested[problem.name].get(APPROX_KNN.label)
    if base is None:
        return
    found: dict[int, Judged] = {}
    for levels in LEAVES:
        settings = {**base.choice.settings, "levels": levels}
        arm = base.choice.method.with_fixed(_levels(levels), **settings)
        tested = comparison.try_test(problem, arm)
        if tested is not None:
            found[levels] = tested
    if not found:
        return
    n = problem.train.X.shape[0]
    rows = [
        [problem.name, f"{n / 2**levels:,.0f}", percent(one.metrics["p@1"]), f"{1e3 * one.record['cost']['batch']:.3f}"]
        for levels, one in found.items()
    ]
    exact = comparison.tested[problem.name].get(EXACT_KNN.label)
    if exact is not None:
        cost = f"{1e3 * exact.record['cost']['batch']:.3f}"
        rows.insert(0, [problem.name, f"{n:,} (all)", percent(exact.metrics["p@1"]), cost])
    rows += [["ImageNet (paper)", f"{size:,}", percent(value), "–"] for size, value in sorted(paper.LEAVES.items())]
    header = ("data", "training images in a leaf", "p@1", "ms an image")
    comparison.document.table(f"Section 6.4 on {problem.name}: the size of leaves", header, rows)
    times = {f"{n / 2**levels:,.0f} in a leaf": one for levels, one in found.items()}
    name = f"figures/leaves-{problem.name}.png"
    lines = {
        "approximate": (
            [1e3 * one.record["cost"]["batch"] for one in times.values()],
            [100 * one.metrics["p@1"] for one in times.values()],
        )
    }
    if exact is not None:
        lines["exact"] = [1e3 * exact.record["cost"]["batch"]], [100 * exact.metrics["p@1"]]
    draw_lines(
        comparison.out / name, [(problem.name, lines)], x="milliseconds an image", y="precision at 1 (%)", log_x=True
    )
    comparison.document.picture(name, f"Leaf size on {problem.name}: a deeper tree is faster and finds less.")
    by_name = {_levels(levels): one for levels, one in found.items()}
    for shallow, deep, sizes in LARGER_LEAVES:
        figures = paper.LEAVES[sizes[0]], paper.LEAVES[sizes[1]]
        names, where = (_levels(shallow), _levels(deep)), "section 6.4, ImageNet"
        comparison.judge_order(problem, *names, "p@1", where=where, paper=figures, tested=by_name)
    figures = paper.EXACT_NEIGHBOURS["ImageNet"], paper.TABLE_2[APPROX_KNN.label]["ImageNet"]["p@1"]
    comparison.judge_order(
        problem, EXACT_KNN.label, APPROX_KNN.label, "p@1", where="section 6.4, ImageNet", paper=figures
    )


def _levels(levels: int) -> str:
    return f"{APPROX_KNN.label}, {levels} levels"


def _lost(comparison: Comparison, problem: Problem) -> None:
    hits = neighbour_hits(problem)
    rows = []
    for chance in CHANCES:
        theirs = [paper.LOST_NEIGHBOUR[kind].get(chance) for kind in ("first", "any")]
        rows.append(
            [
                f"{chance:.0%}",
                percent(first_lost(hits, chance)),
                percent(any_lost(hits, chance)),
                *("–" if value is None else percent(value) for value in theirs),
            ]
        )
    header = (
        "chance to find it",
        f"{problem.name}: the first may be lost",
        f"{problem.name}: any may be lost",
        "ImageNet (paper): the first",
        "ImageNet (paper): any",
    )
    caption = f"Section 6.4 on {problem.name}: p@1 of the nearest image that is found"
    comparison.document.table(caption, header, rows)
    name = f"figures/lost-{problem.name}.png"
    chances = [100 * chance for chance in CHANCES]
    lines = {
        "the first may be lost": (chances, [100 * first_lost(hits, chance) for chance in CHANCES]),
        "any may be lost": (chances, [100 * any_lost(hits, chance) for chance in CHANCES]),
    }
    draw_lines(
        comparison.out / name, [(problem.name, lines)], x="chance to find a neighbour (%)", y="precision at 1 (%)"
    )
    comparison.document.picture(
        name, f"p@1 on {problem.name} if near images are missed, computed from exact neighbours."
    )


def neighbour_hits(problem: Problem, k: int = NEIGHBOURS) -> NDArray[np.float64]:
    """Return the precision of annotating a test image with the tags of its j-th nearest training image, by cosine.

    Returns
    -------
    ndarray of float64, shape (k,)
        For each j, the mean over test images of the share of that neighbour's tags that the image has: p@1 where ties
        between the tags of one neighbour are broken at random.
    """
    trained, sought = _unit(problem.train.X), _unit(problem.test.X)
    given = sp.csr_array(problem.train.Y > 0, dtype=np.float32)
    right = sp.csr_array(problem.test.Y > 0, dtype=np.float32)
    tagged = np.flatnonzero(np.diff(right.indptr))
    counts = np.maximum(np.diff(given.indptr), 1)
    k = min(k, trained.shape[0])
    total = np.zeros(k)
    step = max(1, BLOCK_BYTES // (4 * trained.shape[0]))
    for start in range(0, tagged.size, step):
        rows = tagged[start : start + step]
        with one_blas_thread():
            cosines: Any = sought[rows] @ trained.T
            shared = (right[rows] @ given.T).toarray() / counts
        dense = cosines.toarray() if sp.issparse(cosines) else cosines
        ids, _ = top_k(np.ascontiguousarray(dense, np.float32), k)
        total += np.take_along_axis(shared, ids, axis=1).sum(axis=0)
    return np.asarray(total / max(1, tagged.size))


def first_lost(hits: NDArray[np.float64], chance: float) -> float:
    """Return the precision if the first neighbour is found with some chance, and the second without fail."""
    second = hits[min(1, hits.size - 1)]
    return float(chance * hits[0] + (1 - chance) * second)


def any_lost(hits: NDArray[np.float64], chance: float) -> float:
    """Return the precision of the nearest that is found if each neighbour is found with some chance, all independently.

    If none of those that are looked at is found, nothing is right.
    """
    return float(np.sum(chance * (1 - chance) ** np.arange(hits.size) * hits))


def _unit(X: Matrix) -> Matrix:
    if sp.issparse(X):
        return unit_rows(X)
    return np.asarray(X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-12), np.float32)
