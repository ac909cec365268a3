"""Tables 3 and 8 of the WSABIE paper: tags that lie near each other, and annotations of a few test images."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from visterm.app.reproduce import paper_wsabie as paper
from visterm.app.reproduce.arms import ONE_VS_REST, PAMIR_IA, RIDGE, WSABIE
from visterm.app.reproduce.problem import Problem
from visterm.app.reproduce.run import Comparison

TAGS_SHOWN = 10
NEIGHBOURS = 8
IMAGES_SHOWN = 6
ANNOTATIONS = 10


def neighbours_part(comparison: Comparison, problem: Problem) -> None:
    """Table 3: the nearest tags, by cosine, of the most frequent ones; siblings in italics."""
    tested = comparison.tested[problem.name].get(WSABIE.label)
    if tested is None:
        return
    model = comparison.while_time(f"Table 3 on {problem.name}", lambda: comparison.trials.model(problem, tested.chosen))
    if model is None:
        return
    V = np.asarray(model.tag_rows_, np.float64)
    V = V / np.maximum(np.linalg.norm(V, axis=1, keepdims=True), 1e-12)
    frequent = np.argsort(-np.asarray((problem.train.Y > 0).sum(axis=0)).ravel(), kind="stable")[:TAGS_SHOWN]
    rows = []
    for tag in frequent:
        cosines = V @ V[tag]
        cosines[tag] = -np.inf
        near = np.argsort(-cosines, kind="stable")[: min(NEIGHBOURS, V.shape[0] - 1)]
        known = _row(problem.siblings, int(tag))
        rows.append([problem.name, problem.tags[tag], _written(problem, near.tolist(), known, frozenset())])
    rows += [["Web-data (paper)", tag, near] for tag, near in paper.TABLE_3.items()]
    comparison.document.table(
        f"Table 3 on {problem.name}: nearest tags in WSABIE's space (siblings in italics)",
        ("data", "tag", "nearest tags"),
        rows,
    )


def annotations_part(comparison: Comparison, problem: Problem) -> None:
    """Table 8: the best tags of a few test images by three methods; right ones bold, siblings in italics."""
    tested = comparison.tested[problem.name]
    wanted = [arm.label for arm in (PAMIR_IA, ONE_VS_REST, WSABIE) if arm.label in tested]
    wanted = wanted if len(wanted) > 1 else [arm.label for arm in (RIDGE, WSABIE) if arm.label in tested]
    models = {}
    for label in wanted:
        chosen = tested[label].chosen
        model = comparison.while_time(
            f"Table 8 on {problem.name}, {label}", partial(comparison.trials.model, problem, chosen)
        )
        if model is not None:
            models[label] = model
    if not models:
        return
    tagged = np.flatnonzero(np.diff(sp.csr_array(problem.test.Y > 0).indptr))
    images = tagged[:: max(1, tagged.size // IMAGES_SHOWN)][:IMAGES_SHOWN]
    rankings = {label: model.annotate(problem.test.X[images], ANNOTATIONS).ids for label, model in models.items()}
    rows = []
    for number, image in enumerate(images):
        right = _row(problem.test.Y, int(image))
        siblings = frozenset(other for tag in right for other in _row(problem.siblings, tag))
        name = problem.test_names[image] if problem.test_names else f"test image {image}"
        given = ", ".join(problem.tags[tag] for tag in sorted(right))
        cells = [_written(problem, ids[number].tolist(), siblings, right) for ids in rankings.values()]
        rows.append([name, given, *cells])
    header = ("image", "tags that people gave", *rankings)
    comparison.document.table(f"Table 8 on {problem.name}: annotations of test images", header, rows)
    comparison.document.text(f"The paper's, on Web-data, by WSABIE, {paper.TABLE_8}.")


def _written(problem: Problem, ids: Sequence[int], siblings: frozenset[int], right: frozenset[int]) -> str:
    words = []
    for tag in ids:
        mark = "**" if tag in right else "*" if tag in siblings else ""
        words.append(f"{mark}{problem.tags[tag]}{mark}")
    return ", ".join(words)


def _row(matrix: Any, row: int) -> frozenset[int]:
    """Give the columns of a row that are above 0; none where there is no matrix."""
    if matrix is None:
        return frozenset()
    part = slice(matrix.indptr[row], matrix.indptr[row + 1])
    return frozenset(matrix.indices[part][matrix.data[part] > 0].tolist())
