"""Figures 1 and 2 of the WSABIE paper: precision at each k, and how good a model is after how much training."""

from __future__ import annotations

import numpy as np

from visterm_research.comparison.arms import AUC, OWPC, WSABIE
from visterm_research.comparison.claims import Claim
from visterm_research.comparison.figures import Line, draw_lines
from visterm_research.comparison.measures import CURVE
from visterm_research.comparison.problem import Problem
from visterm_research.comparison.run import Comparison
from visterm_research.comparison.trials import Tested
from visterm_research.papers import wsabie as paper


def precision_part(comparison: Comparison, problem: Problem) -> None:
    """Figure 1: precision and sibling precision at k = 1 to 10."""
    tested = comparison.tested[problem.name]
    if not tested:
        return
    panels = [("precision", "p"), *([("sibling precision", "psib")] if problem.siblings is not None else [])]
    drawn = [(title, {label: _at_each_k(one, metric) for label, one in tested.items()}) for title, metric in panels]
    name = f"figures/precision-{problem.name}.png"
    draw_lines(comparison.out / name, drawn, x="k (tags an image)", y=[f"{title} at k (%)" for title, _ in drawn])
    comparison.document.picture(name, f"Figure 1 on {problem.name}: precision at k, test images.")


def training_part(comparison: Comparison, problem: Problem) -> None:
    """Figure 2: WARP, AUC and OWPC-SGD against the time of training."""
    tested = comparison.tested[problem.name]
    shown = {arm.label: tested[arm.label] for arm in (WSABIE, AUC, OWPC) if arm.label in tested}
    lines: dict[str, Line] = {}
    for label, one in shown.items():
        points = [(point["seconds"], point["map"]) for point in one.chosen.record["curve"] if point["map"] is not None]
        if points:
            lines[label] = [point[0] for point in points], [point[1] for point in points]
    if not lines:
        return
    name = f"figures/training-{problem.name}.png"
    draw_lines(
        comparison.out / name,
        [(problem.name, lines)],
        x="seconds of training",
        y="MAP over the validation images",
        log_x=True,
    )
    comparison.document.picture(
        name, f"Figure 2 on {problem.name}: after how much training (chosen settings). The paper: {paper.FIGURE_2}."
    )
    if WSABIE.label not in lines:
        return
    seconds, maps = lines[WSABIE.label]
    until = seconds[int(np.argmax(maps))]
    for other in (AUC.label, OWPC.label):
        if other in lines:
            reached = best_until(lines[other], until)
            comparison.claims.append(_after_the_same_time(problem, other, until, max(maps), reached))


def best_until(line: Line, seconds: float) -> float:
    """Return the best value that a line has reached after so many seconds; 0 before its first point."""
    return max((value for at, value in zip(*line, strict=True) if at <= seconds), default=0.0)


def _after_the_same_time(problem: Problem, other: str, until: float, ours: float, theirs: float) -> Claim:
    ratio = theirs / ours if ours else np.inf
    verdict = "yes" if ratio < 0.99 else "no" if ratio > 1.01 else "too close to call"
    return Claim(
        WSABIE.label,
        other,
        f"validation MAP after the {until:.3g} s that WSABIE takes to its best",
        "Figure 2",
        problem.name,
        ("well trained", "worse" if other == AUC.label else "hardly learned"),
        (f"{ours:.4f}", f"{theirs:.4f}"),
        verdict,
    )


def _at_each_k(tested: Tested, metric: str) -> Line:
    return list(CURVE), [100 * tested.metrics[f"{metric}@{k}"] for k in CURVE]
