"""Figures 1 and 2 and Tables 3 and 8 of the WSABIE paper: precision, training, near tags, annotated test images."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from visterm.core.packing import key_of
from visterm_research.comparison.claims import Claim
from visterm_research.comparison.figures import Line, draw_lines
from visterm_research.comparison.methods import AUC, ONE_VS_REST, OWPC, PAMIR_IA, RIDGE, WSABIE
from visterm_research.comparison.problem import CURVE, Problem
from visterm_research.comparison.run import Comparison
from visterm_research.comparison.trials import Judged
from visterm_research.comparison.verdicts import by_ratio
from visterm_research.papers import read_paper

paper = read_paper("wsabie")

TAGS_SHOWN = 10
NEIGHBOURS = 8
IMAGES_SHOWN = 6
ANNOTATIONS = 10

FIGURE_2 = ((WSABIE.label, AUC.label), (WSABIE.label, OWPC.label), (AUC.label, OWPC.label))
"""WARP and AUC are well trained, but AUC does not perform as well, and OWPC-SGD has hardly got anywhere."""

HUNDREDTH = 0.01
"""MAPs of single trainings that are no further apart than this are equal."""


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
        points = [(point["seconds"], point["map"]) for point in one.choice.record["curve"] if point["map"] is not None]
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
        name,
        f"Figure 2 on {problem.name}: validation MAP by time of training, with the chosen settings. "
        f"The paper: {paper.FIGURE_2}.",
    )
    training_claims(comparison, problem, lines)


def training_claims(comparison: Comparison, problem: Problem, lines: Mapping[str, Line]) -> None:
    """Judge Figure 2: what WARP, AUC and OWPC-SGD have reached when WARP is at its best."""
    if WSABIE.label not in lines:
        return
    seconds, maps = lines[WSABIE.label]
    until = seconds[int(np.argmax(maps))]
    reached = {label: best_until(line, until) for label, line in lines.items()}
    for first, second in FIGURE_2:
        if first in reached and second in reached:
            comparison.claims.append(_after_the_same_time(problem, first, second, until, reached))


def best_until(line: Line, seconds: float) -> float:
    """Return the best value that a line has reached by a time in seconds; 0 before its first point."""
    return max((value for at, value in zip(*line, strict=True) if at <= seconds), default=0.0)


def _after_the_same_time(
    problem: Problem, first: str, second: str, until: float, reached: Mapping[str, float]
) -> Claim:
    return Claim(
        first,
        second,
        f"validation MAP after the {until:.3g} s that WSABIE takes to its best",
        "Figure 2",
        problem.name,
        ("well trained", "worse" if second == AUC.label else "hardly learned"),
        (f"{reached[first]:.4f}", f"{reached[second]:.4f}"),
        by_ratio(reached[second], reached[first], HUNDREDTH),
    )


def _at_each_k(tested: Judged, metric: str) -> Line:
    return list(CURVE), [100 * tested.metrics[f"{metric}@{k}"] for k in CURVE]


def neighbours_part(comparison: Comparison, problem: Problem) -> None:
    """Table 3: the nearest tags, by cosine, of the most frequent ones; siblings in italics."""
    tested = comparison.tested[problem.name].get(WSABIE.label)
    if tested is None:
        return
    given: Any = (problem.train.Y > 0).sum(axis=0)
    frequent = np.argsort(-np.asarray(given).ravel(), kind="stable")[:TAGS_SHOWN].tolist()
    near = _derived(
        comparison,
        problem,
        tested,
        f"Table 3 on {problem.name}",
        "nearest tags",
        lambda model: _nearest(model.tag_rows_, frequent),
    )
    if near is None:
        return
    rows = []
    for tag, others in zip(frequent, near, strict=True):
        known = _row(problem.siblings, tag)
        rows.append([problem.name, problem.tags[tag], _written(problem, others, known, frozenset())])
    rows += [["Web-data (paper)", tag, others] for tag, others in paper.TABLE_3.items()]
    comparison.document.table(
        f"Table 3 on {problem.name}: nearest tags in WSABIE's space (siblings in italics)",
        ("data", "tag", "nearest tags"),
        rows,
    )


def annotations_part(comparison: Comparison, problem: Problem) -> None:
    """Table 8: the best tags of a few test images by three methods; right ones bold, siblings in italics."""
    tested = comparison.tested[problem.name]
    wanted = [arm.label for arm in (PAMIR_IA, ONE_VS_REST, WSABIE) if arm.label in tested]
    if len(wanted) < 2:
        wanted = [arm.label for arm in (RIDGE, WSABIE) if arm.label in tested]
    tagged = np.flatnonzero(np.diff(sp.csr_array(problem.test.Y > 0).indptr))
    images = tagged[:: max(1, tagged.size // IMAGES_SHOWN)][:IMAGES_SHOWN]
    rankings: dict[str, list[list[int]]] = {}
    for label in wanted:
        ids = _derived(
            comparison,
            problem,
            tested[label],
            f"Table 8 on {problem.name}, {label}",
            "annotations",
            lambda model: model.annotate(problem.test.X[images], ANNOTATIONS).ids.tolist(),
        )
        if ids is not None:
            rankings[label] = ids
    if not rankings:
        return
    rows = []
    for number, image in enumerate(images):
        right = _row(problem.test.Y, int(image))
        siblings = frozenset(other for tag in right for other in _row(problem.siblings, tag))
        name = problem.test_names[image] if problem.test_names else f"test image {image}"
        given = ", ".join(problem.tags[tag] for tag in sorted(right))
        cells = [_written(problem, ids[number], siblings, right) for ids in rankings.values()]
        rows.append([name, given, *cells])
    header = ("image", "tags that people gave", *rankings)
    comparison.document.table(f"Table 8 on {problem.name}: annotations of test images", header, rows)
    comparison.document.text(f"The paper's tags by WSABIE, on Web-data, for {paper.TABLE_8}.")


def _derived(
    comparison: Comparison, problem: Problem, tested: Judged, what: str, name: str, work: Callable[[Any], Any]
) -> Any:
    """Return what some work makes of a chosen model, or made before; None, and a note, where the time is over."""
    choice, trials = tested.choice, comparison.trials
    key = key_of(trials.key(problem, choice.method.model, choice.settings), problem.test_fingerprint, name)
    found = comparison.while_time(
        what, lambda: trials.derive(problem, choice, key, lambda model: {"name": name, "result": work(model)})
    )
    return None if found is None else found["result"]


def _nearest(V: Any, tags: Sequence[int]) -> list[list[int]]:
    """Return the nearest other tags of each of some tags, by the cosine of their rows."""
    rows = np.asarray(V, np.float64)
    rows = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    cosines = rows[tags] @ rows.T
    cosines[np.arange(len(tags)), tags] = -np.inf
    found: list[list[int]] = np.argsort(-cosines, axis=1, kind="stable")[:, : min(NEIGHBOURS, len(rows) - 1)].tolist()
    return found


def _written(problem: Problem, ids: Sequence[int], siblings: frozenset[int], right: frozenset[int]) -> str:
    words = []
    for tag in ids:
        mark = "**" if tag in right else "*" if tag in siblings else ""
        words.append(f"{mark}{problem.tags[tag]}{mark}")
    return ", ".join(words)


def _row(matrix: Any, row: int) -> frozenset[int]:
    """Return the columns of a row that are above 0; none where there is no matrix."""
    if matrix is None:
        return frozenset()
    part = slice(matrix.indptr[row], matrix.indptr[row + 1])
    return frozenset(matrix.indices[part][matrix.data[part] > 0].tolist())
