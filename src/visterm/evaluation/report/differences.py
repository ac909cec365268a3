"""Which run differs significantly from which: a table of runs against runs for each measure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

from visterm.evaluation.html_report import Cell, Report

SAY = {1: "better", -1: "worse", 0: "no sure difference"}
MARKS = {1: "good", -1: "poor", 0: ""}


def add_differences(report: Report, results: dict[str, Any], measures: Sequence[str], what: str) -> None:
    """Add a section with a table of all runs for each measure, if there are several runs.

    Parameters
    ----------
    report : Report
    results : dict
        With the ``runs`` and ``pairs`` of `visterm.evaluation.report.results`.
    measures : sequence of str
    what : str
        What the runs were compared on: "images".
    """
    names = [run["run"] for run in results["runs"]]
    if len(names) < 2:
        return
    n_pairs = len(names) * (len(names) - 1) // 2
    corrected = f", p-values corrected for the {n_pairs} pairs (Holm)" if n_pairs > 1 else ""
    report.section(
        "Which differs significantly from which",
        f"Each row against each column: mean difference, and whether it is sure at 95 % by Wilcoxon's signed ranks of "
        f"the differences over {what}{corrected}.",
    )
    pairs = dict(zip(combinations(range(len(names)), 2), results["pairs"], strict=True))
    for measure in measures:
        rows = [
            [Cell(name), *(_cell(pairs, measure, row, column) for column in range(len(names)))]
            for row, name in enumerate(names)
        ]
        report.cells(["", *names], rows, caption=measure)


def _cell(pairs: dict[tuple[int, int], dict[str, Any]], measure: str, row: int, column: int) -> Cell:
    if row == column:
        return Cell("")
    sign = 1 if row < column else -1
    found = pairs[min(row, column), max(row, column)][measure]
    better = sign * found["better"]
    return Cell(f"{sign * found['mean']:+.3f}", f"{SAY[better]}, p = {found['holm_p']:.2g}", MARKS[better])
