"""Tables 3 and 8 of the WSABIE paper: tags that lie near each other, and annotations of a few test images."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from visterm_research.comparison.arms import ONE_VS_REST, PAMIR_IA, RIDGE, WSABIE
from visterm_research.comparison.problem import Problem
from visterm_research.comparison.run import Comparison
from visterm_research.papers import wsabie as paper

TAGS_SHOWN = 10
NEIGHBOURS = 8
IMAGES_SHOWN = 6
ANNOTATIONS = 10


def neighbours_part(comparison: Comparison, problem: Problem) -> None:
    """Table 3: the nearest tags, by cosine, of the most frequent ones; siblings in italics."""
    tested = comparison.tested[problem.name].get(WSABIE.label)
    if tested is None:
        return
    given: Any = (problem.train.Y > 0).sum(axis=0)
    frequent = np.argsort(-np.asarray(given).ravel(), kind="stable")[:TAGS_SHOWN].tolist()
    near = comparison.while_time(
        f"Table 3 on {problem.name}",
        lambda: comparison.trials.derive(
            problem, tested.chosen, "nearest tags", lambda model: _nearest(model.tag_rows_, frequent)
        ),
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
        work = partial(
            comparison.trials.derive,
            problem,
            tested[label].chosen,
            "annotations",
            lambda model: model.annotate(problem.test.X[images], ANNOTATIONS).ids.tolist(),
        )
        ids = comparison.while_time(f"Table 8 on {problem.name}, {label}", work)
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
    comparison.document.text(f"The paper's, on Web-data, by WSABIE, {paper.TABLE_8}.")


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
