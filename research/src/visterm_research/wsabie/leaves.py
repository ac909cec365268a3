"""Leaf size in approximate neighbours, and what losing the nearest neighbour costs (WSABIE, section 6.4)."""

from __future__ import annotations

from visterm_research.comparison.arms import APPROX_KNN, EXACT_KNN, LEAVES
from visterm_research.comparison.claims import metric_claim, percent
from visterm_research.comparison.figures import draw_lines
from visterm_research.comparison.problem import Problem
from visterm_research.comparison.run import Comparison
from visterm_research.comparison.trials import Tested
from visterm_research.papers import wsabie as paper
from visterm_research.wsabie.nearest import any_lost, first_lost, neighbour_hits

CHANCES = (1.0, 0.75, 0.5, 0.25, 0.1)


def leaves_part(comparison: Comparison, problem: Problem) -> None:
    """Test trees of several depths, and work out what the exact neighbours say of lost ones."""
    _trade(comparison, problem)
    if EXACT_KNN.label in comparison.tested[problem.name]:
        _lost(comparison, problem)


def _trade(comparison: Comparison, problem: Problem) -> None:
    base = comparison.tested[problem.name].get(APPROX_KNN.label)
    if base is None:
        return
    found: dict[int, Tested] = {}
    for levels in LEAVES:
        settings = {**base.chosen.settings, "levels": levels}
        arm = base.chosen.arm.with_fixed(f"{APPROX_KNN.label}, {levels} levels", **settings)
        tested = comparison.try_test(problem, arm)
        if tested is not None:
            found[levels] = tested
    if not found:
        return
    n = problem.train.X.shape[0]
    rows = [
        [problem.name, f"{n / 2**levels:,.0f}", percent(one.metrics["p@1"]), f"{1e3 * one.cost['batch']:.3f}"]
        for levels, one in found.items()
    ]
    exact = comparison.tested[problem.name].get(EXACT_KNN.label)
    if exact is not None:
        cost = f"{1e3 * exact.cost['batch']:.3f}"
        rows.insert(0, [problem.name, f"{n:,} (all)", percent(exact.metrics["p@1"]), cost])
    rows += [["ImageNet (paper)", f"{size:,}", percent(value), "–"] for size, value in sorted(paper.LEAVES.items())]
    header = ("data", "training images in a leaf", "p@1", "ms an image")
    comparison.document.table(f"Section 6.4 on {problem.name}: the size of leaves", header, rows)
    times = {f"{n / 2**levels:,.0f} in a leaf": one for levels, one in found.items()}
    name = f"figures/leaves-{problem.name}.png"
    lines = {
        "approximate": (
            [1e3 * one.cost["batch"] for one in times.values()],
            [100 * one.metrics["p@1"] for one in times.values()],
        )
    }
    if exact is not None:
        lines["exact"] = [1e3 * exact.cost["batch"]], [100 * exact.metrics["p@1"]]
    draw_lines(
        comparison.out / name, [(problem.name, lines)], x="milliseconds an image", y="precision at 1 (%)", log_x=True
    )
    comparison.document.picture(name, f"Leaf size on {problem.name}: a deeper tree is faster and finds less.")
    if exact is not None:
        values = {EXACT_KNN.label: exact.values, APPROX_KNN.label: base.values}
        where = ("section 6.4, ImageNet", paper.EXACT_NEIGHBOURS["ImageNet"], paper.TABLE_2[APPROX_KNN.label]["ImageNet"]["p@1"])  # fmt: skip  # noqa: E501
        comparison.claims.append(
            metric_claim(EXACT_KNN.label, APPROX_KNN.label, "p@1", paper=where, problem=problem.name, values=values)
        )


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
    lines = {
        "the first may be lost": (
            [100 * chance for chance in CHANCES],
            [100 * first_lost(hits, chance) for chance in CHANCES],
        ),
        "any may be lost": (
            [100 * chance for chance in CHANCES],
            [100 * any_lost(hits, chance) for chance in CHANCES],
        ),
    }
    draw_lines(
        comparison.out / name, [(problem.name, lines)], x="chance to find a neighbour (%)", y="precision at 1 (%)"
    )
    comparison.document.picture(name, f"Losing the nearest neighbour on {problem.name}, worked out from exact ones.")
