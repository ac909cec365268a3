"""Tables 1, 2, 4, 5 and 6 of the WSABIE paper, each with our rows and the paper's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import scipy.sparse as sp

from visterm_research.comparison.arms import DIMS, EXACT_KNN, WSABIE
from visterm_research.comparison.claims import least_claim, metric_claim, percent, shown_metric
from visterm_research.comparison.costs import formula
from visterm_research.comparison.problem import Problem
from visterm_research.comparison.run import Comparison
from visterm_research.comparison.trials import Tested
from visterm_research.papers import wsabie as paper

METRICS = ("p@1", "p@10", "psib@10", "map")
BASELINES = ("PAMIR-IA", "One-vs-Rest", "Approx. k-NN")
ABOVE = (("PAMIR-IA", "One-vs-Rest"), ("One-vs-Rest", "Approx. k-NN"))
LOSSES = (
    ("WSABIE", "embedding, AUC"),
    ("linear, WARP", "PAMIR-IA"),
    ("linear, WARP", "WSABIE"),
    ("PAMIR-IA", "embedding, AUC"),
)


def data_part(comparison: Comparison, problem: Problem) -> None:
    """Table 1: how large the data are."""
    here = {
        "training images": f"{problem.train.Y.shape[0]:,}",
        "test images": f"{problem.test.Y.shape[0]:,}",
        "validation images": f"{problem.valid.Y.shape[0]:,}",
        "tags": f"{len(problem.tags):,}",
        "median siblings a tag": "–" if problem.siblings is None else f"{_median_siblings(problem.siblings):.0f}",
    }
    rows = [[name, here[name], *(f"{value:,}" for value in values)] for name, values in paper.TABLE_1.items()]
    rows.append(["features", f"{problem.train.X.shape[1]:,}", "10,000", "10,000"])
    rows.append(["features of an image that are not zero", f"{problem.nonzeros:.0f}", "245", "245"])
    header = ["", problem.name, *(f"{name} (paper)" for name in paper.DATA)]
    comparison.document.table(f"Table 1 on {problem.name}: the data", header, rows)


def results_part(comparison: Comparison, problem: Problem) -> None:
    """Table 2: all methods on the test images."""
    tested = comparison.tested[problem.name]
    metrics = _metrics(problem)
    header = ("method", "data", *map(shown_metric, metrics))
    exact = {data: {"p@1": value} for data, value in paper.EXACT_NEIGHBOURS.items()}
    rows = _beside(tested, {**paper.TABLE_2, EXACT_KNN.label: exact}, problem, metrics)
    comparison.document.table(f"Table 2 on {problem.name}: the test images", header, rows)
    values = comparison.values(problem)
    pairs = [*(("WSABIE", other) for other in BASELINES), *ABOVE]
    for first, second in pairs:
        for metric in ("p@1", "map", "psib@10"):
            if first in values and second in values and metric in metrics:
                above, below = (paper.TABLE_2[name]["ImageNet"][metric] for name in (first, second))
                where = ("Table 2, ImageNet", above, below)
                comparison.claims.append(
                    metric_claim(first, second, metric, paper=where, problem=problem.name, values=values)
                )
    if "k-NN" in values and "WSABIE" in values:
        where = (
            "section 6.4, ImageNet",
            paper.EXACT_NEIGHBOURS["ImageNet"],
            paper.TABLE_2["WSABIE"]["ImageNet"]["p@1"],
        )
        comparison.claims.append(
            metric_claim("k-NN", "WSABIE", "p@1", paper=where, problem=problem.name, values=values)
        )


def sizes_part(comparison: Comparison, problem: Problem, *, quick: bool) -> None:
    """Table 4: sizes of the embedding, the other settings as they were chosen."""
    found = sized(comparison, problem, sizes(quick))
    if not found:
        return
    metrics = _metrics(problem)
    rows = []
    for size, theirs in zip(sizes(quick), paper.TABLE_4, strict=True):
        if size in found:
            rows.append([str(size), problem.name, *(percent(found[size].metrics[name]) for name in metrics)])
        rows.append([str(theirs), "ImageNet (paper)", *(percent(paper.TABLE_4[theirs][name]) for name in metrics)])
    header = ("size of the embedding", "data", *map(shown_metric, metrics))
    comparison.document.table(f"Table 4 on {problem.name}: WSABIE's size", header, rows)
    maps = [tested.metrics["map"] for tested in found.values()]
    reported = [row["map"] for row in paper.TABLE_4.values()]
    comparison.document.text(
        f"The worst size has {min(maps) / max(maps):.0%} of the best one's MAP; in the paper "
        f"{min(reported) / max(reported):.0%}: it calls WSABIE relatively insensitive to the size."
    )


def sizes(quick: bool) -> tuple[int, ...]:
    """Return the sizes that stand for the paper's 100, 200, 300 and 500."""
    return tuple(size // 10 for size in DIMS) if quick else DIMS


def sized(comparison: Comparison, problem: Problem, wanted: Sequence[int]) -> dict[int, Tested]:
    """Test WSABIE of several sizes with the settings that were chosen for it; sizes without time are left out."""
    base = comparison.tested[problem.name].get(WSABIE.label)
    if base is None:
        return {}
    found = {}
    for size in wanted:
        settings = {**base.chosen.settings, "dim": size}
        arm = base.chosen.arm.with_fixed(f"{WSABIE.label}-{size}", **settings)
        tested = comparison.try_test(problem, arm)
        if tested is not None:
            found[size] = tested
    return found


def loss_part(comparison: Comparison, problem: Problem) -> None:
    """Table 5: WARP against AUC, embedding against linear."""
    tested = comparison.tested[problem.name]
    metrics = ("p@1", "p@10", "map")
    tested = {label: one for label, one in tested.items() if label in paper.TABLE_5}
    rows = _beside(tested, paper.TABLE_5, problem, metrics)
    header = ("model and loss", "data", *map(shown_metric, metrics))
    comparison.document.table(f"Table 5 on {problem.name}: losses (PAMIR-IA is linear, AUC)", header, rows)
    values = comparison.values(problem)
    for first, second in LOSSES:
        if first in values and second in values:
            above, below = (paper.TABLE_5[name]["ImageNet"]["p@1"] for name in (first, second))
            where = ("Table 5, ImageNet", above, below)
            comparison.claims.append(
                metric_claim(first, second, "p@1", paper=where, problem=problem.name, values=values)
            )


def cost_part(comparison: Comparison, problem: Problem) -> None:
    """Table 6: seconds and bytes at test time as measured, and the formula."""
    rows = []
    for label, tested in comparison.tested[problem.name].items():
        counted = formula(tested.chosen.arm.model, problem, tested.chosen.settings)
        theirs = paper.TABLE_6.get(label, {}).get("ImageNet", ("–", "–"))
        rows.append(
            [
                label,
                counted.time if counted else "–",
                counted.space if counted else "–",
                f"{counted.operations:,.0f}" if counted else "–",
                f"{1e3 * tested.cost['batch']:.3f}",
                f"{1e3 * tested.cost['alone']:.3f}",
                f"{4e-6 * counted.numbers:,.2f}" if counted else "–",
                f"{1e-6 * tested.cost['bytes']:,.2f}",
                *theirs,
            ]
        )
    header = (
        "method",
        "time, by formula",
        "space, by formula",
        "operations an image",
        "ms an image, 200 together",
        "ms an image alone",
        "MB, by formula",
        "MB, measured",
        "all of ImageNet's test (paper)",
        "space on ImageNet (paper)",
    )
    comparison.document.table(f"Table 6 on {problem.name}: the cost at test time", header, rows)
    comparison.document.text(
        "Features that are extracted already, the best 10 tags of each image. d₀: features of an image that are not "
        "zero; by the formula a number takes 4 bytes (sparse rows also store where each number belongs)."
    )
    _cost_claims(comparison, problem)


def _cost_claims(comparison: Comparison, problem: Problem) -> None:
    tested = comparison.tested[problem.name]
    if WSABIE.label not in tested:
        return
    ours = tested[WSABIE.label].cost
    for other in ("PAMIR-IA", "One-vs-Rest", "k-NN"):
        if other not in tested:
            continue
        theirs = tested[other].cost
        for column, key, unit, of, scale in (
            (0, "batch", "ms an image", "time at test", 1e3),
            (1, "bytes", "MB", "memory", 1e-6),
        ):
            written = (paper.TABLE_6["WSABIE"]["ImageNet"][column], paper.TABLE_6[other]["ImageNet"][column])
            comparison.claims.append(
                least_claim(
                    WSABIE.label,
                    other,
                    of,
                    where="Table 6, ImageNet",
                    paper=written,
                    problem=problem.name,
                    here=(scale * ours[key], scale * theirs[key]),
                    unit=unit,
                )
            )


def _median_siblings(siblings: sp.csr_array) -> float:
    return float(np.median(np.diff(siblings.indptr) - 1))


def _metrics(problem: Problem) -> tuple[str, ...]:
    return METRICS if problem.siblings is not None else tuple(name for name in METRICS if name != "psib@10")


def _beside(
    tested: Mapping[str, Tested],
    theirs: Mapping[str, Mapping[str, Mapping[str, float]]],
    problem: Problem,
    metrics: Sequence[str],
) -> list[list[str]]:
    """Return a row of each method here, and below it the paper's rows of the same method."""
    rows = []
    for label in dict.fromkeys([*theirs, *tested]):
        if label in tested:
            rows.append([label, problem.name, *(percent(tested[label].metrics[name]) for name in metrics)])
        for data, figures in theirs.get(label, {}).items():
            cells = [percent(figures[name]) if name in figures else "–" for name in metrics]
            rows.append([label, f"{data} (paper)", *cells])
    return rows
