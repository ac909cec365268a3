"""Tables 1, 2 and 4 of the VSE-ens paper, each with our rows and the paper's."""

from __future__ import annotations

from visterm_research.comparison.arms import OPT_AUC, VSE_ENS, VSE_WARP
from visterm_research.comparison.claims import least_claim, metric_claim, shown_metric
from visterm_research.comparison.problem import Problem
from visterm_research.comparison.record import Record
from visterm_research.comparison.run import Comparison
from visterm_research.papers import vse_ens as paper

METRICS = ("p@5", "r@5", "p@10", "r@10", "map", "auc")
PAIRS = ((VSE_ENS.label, VSE_WARP.label), (VSE_WARP.label, OPT_AUC.label))
REFERENCE = "NUS-WIDE"
"""Of the paper's three data sets the one whose figures stand in the claims."""

NEAR = 0.99
"""A model has converged, for the time of training, once it has this share of its own best validation MAP."""


def data_part(comparison: Comparison, problem: Problem) -> None:
    """Table 1: how large the data are."""
    here = {
        "images": problem.train.Y.shape[0],
        "tags": len(problem.tags),
        "training pairs": int((problem.train.Y > 0).sum()),
        "test pairs": int((problem.test.Y > 0).sum()),
    }
    rows = [[name, f"{here[name]:,}", *(f"{value:,}" for value in values)] for name, values in paper.TABLE_1.items()]
    header = ["", problem.name, *(f"{name} (paper)" for name in paper.DATA)]
    comparison.document.table(f"Table 1 on {problem.name}: the data", header, rows)


def results_part(comparison: Comparison, problem: Problem) -> None:
    """Table 2: ranking the held-out tags."""
    tested = comparison.tested[problem.name]
    rows = []
    for label in dict.fromkeys([*paper.TABLE_2, *tested]):
        if label in tested:
            rows.append([label, problem.name, *(f"{tested[label].metrics[name]:.4f}" for name in METRICS)])
        for data, theirs in paper.TABLE_2.get(label, {}).items():
            rows.append([label, f"{data} (paper)", *(f"{theirs[name]:.4f}" for name in METRICS)])
    if VSE_ENS.label in tested and VSE_WARP.label in tested:
        ours, warp = tested[VSE_ENS.label].metrics, tested[VSE_WARP.label].metrics
        gains = [f"{100 * (ours[name] / warp[name] - 1):+.2f} %" if warp[name] else "–" for name in METRICS]
        rows.append(["VSE-ens over WARP", problem.name, *gains])
    for data in paper.DATA:
        ours, warp = (paper.TABLE_2[label][data] for label in PAIRS[0])
        rows.append(
            ["VSE-ens over WARP", f"{data} (paper)", *(f"{100 * (ours[m] / warp[m] - 1):+.2f} %" for m in METRICS)]
        )
    header = ("method", "data", *map(shown_metric, METRICS))
    comparison.document.table(f"Table 2 on {problem.name}: the held-out tags", header, rows)
    values = comparison.values(problem)
    for first, second in PAIRS:
        for metric in ("r@5", "map", "auc"):
            if first in values and second in values:
                above, below = (paper.TABLE_2[label][REFERENCE][metric] for label in (first, second))
                where = (f"Table 2, {REFERENCE}", above, below)
                comparison.claims.append(
                    metric_claim(first, second, metric, paper=where, problem=problem.name, values=values)
                )


def time_part(comparison: Comparison, problem: Problem) -> None:
    """Table 4: the time of training until a model has converged."""
    rows, times = [], {}
    tested = comparison.tested[problem.name]
    for label in dict.fromkeys([*paper.TABLE_4, *tested]):
        point = converged(tested[label].chosen.record["curve"]) if label in tested else None
        if point is not None:
            times[label] = point["seconds"]
            record = tested[label].chosen.record
            rows.append([label, problem.name, f"{point['seconds']:.2f} s", str(point["epoch"]), f"{record['map']:.4f}"])
        for data, hours in paper.TABLE_4.get(label, {}).items():
            rows.append([label, f"{data} (paper)", f"{hours:g} h", "–", "–"])
    header = ("method", "data", "time of training", "epochs", "best validation MAP")
    comparison.document.table(f"Table 4 on {problem.name}: training until converged", header, rows)
    comparison.document.text(
        f"Time to {NEAR:.0%} of a method's own best validation MAP, with its chosen setting; measuring is not counted."
    )
    for other in (VSE_WARP.label, OPT_AUC.label):
        if VSE_ENS.label in times and other in times:
            written = tuple(f"{paper.TABLE_4[label][REFERENCE]:g} h" for label in (VSE_ENS.label, other))
            comparison.claims.append(
                least_claim(
                    VSE_ENS.label,
                    other,
                    "time of training",
                    where=f"Table 4, {REFERENCE}",
                    paper=(written[0], written[1]),
                    problem=problem.name,
                    here=(times[VSE_ENS.label], times[other]),
                    unit="s",
                )
            )


def converged(curve: list[Record]) -> Record | None:
    """Return the first point of a training that has `NEAR` of its best validation MAP; None where none was measured."""
    measured = [point for point in curve if point["map"] is not None]
    if not measured:
        return None
    best = max(point["map"] for point in measured)
    return next(point for point in measured if point["map"] >= NEAR * best)
