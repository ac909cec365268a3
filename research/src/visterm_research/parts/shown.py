"""What Table 6 and Figure 4 of the objects-and-parts paper show: which labels, their nearest ones, parts and images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from visterm.core.digests import jsonable
from visterm_research.comparison.record import Record
from visterm_research.parts.arms import PartArm
from visterm_research.parts.data import PartsProblem
from visterm_research.parts.tasks import Floats, Ints

SHOWN_WHOLES, SHOWN_PARTS = 3, 2
"""Labels of Figure 4, and parts that Table 6 has besides."""

NEAREST = 4
LIKELIEST_PARTS, SHOWN_IMAGES = 3, 6


def shown_lists(model: Any, S: Floats, problem: PartsProblem, arm: PartArm, shown: Sequence[int]) -> Record:
    """Return what Table 6 and Figure 4 show of some labels."""
    tags, found = problem.data.tags, {"nearest": {}, "images": {}, "parts": {}}  # type: Any, Record
    if not arm.words:
        return found
    of_relations = np.unique(problem.every)
    possible = np.unique(problem.every[:, 0])
    for tag in shown:
        scores = model.relation_scores([tag])[0]
        nearest = _best(scores, of_relations[of_relations != tag], NEAREST)
        parts = _best(scores, possible[possible != tag], LIKELIEST_PARTS)
        found["nearest"][tags[tag]] = [tags[one] for one in nearest]
        found["parts"][tags[tag]] = [tags[one] for one in parts]
        for one in (tag, *parts):
            found["images"][tags[one]] = np.argsort(-S[:, one], kind="stable")[:SHOWN_IMAGES].tolist()
    return dict(jsonable(found))


def _best(scores: NDArray[np.float32], candidates: Ints, k: int) -> Ints:
    order = np.argsort(-scores[candidates], kind="stable")
    chosen: Ints = candidates[order[:k]]
    return chosen


def shown_wholes(problem: PartsProblem) -> list[int]:
    """Choose the labels that Figure 4 asks for: of the wholes with two parts or more, those of the most test images."""
    wholes, n_parts = np.unique(problem.every[:, 1], return_counts=True)
    return _most(wholes[n_parts > 1], -_images_of(problem)[wholes[n_parts > 1]], SHOWN_WHOLES)


def shown_parts(problem: PartsProblem) -> list[int]:
    """Choose parts for Table 6: those of the most wholes."""
    parts, n_wholes = np.unique(problem.every[:, 0], return_counts=True)
    return _most(parts, -n_wholes, SHOWN_PARTS)


def _images_of(problem: PartsProblem) -> NDArray[np.int64]:
    bearing = sp.csr_array(problem.data.test.Y > 0).astype(np.int64)
    found: NDArray[np.int64] = np.asarray(bearing.sum(axis=0)).ravel()
    return found


def _most(tags: NDArray[np.int64], order: NDArray[np.int64], n: int) -> list[int]:
    return [int(tag) for tag in tags[np.argsort(order, kind="stable")[:n]]]
