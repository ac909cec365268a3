"""The orders of the objects-and-parts paper, and how many times better words have to be; intervals over relations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from visterm_research.comparison.claims import Claim, order_claim, percent
from visterm_research.papers import read_paper
from visterm_research.parts import methods
from visterm_research.parts.methods import OFFSETS
from visterm_research.parts.parts_run import OWN_PARTS, QUADRUPLETS, PartsRun
from visterm_research.parts.ranks import ANNOTATION, KNOWN, LABELLING, TRIPLET, chance_measures

paper = read_paper("objects_and_parts")

SHARED_IW, UNSHARED_IW, SHARED_I, UNSHARED_I, SVM = (method.label for method in methods.PAPER_METHODS)

PLACES = {"p@1": 0, "p@10": 1, "MAP": 2}
"""In the paper's rows."""

TIMES_ON_TRIPLETS = 1.5
TIMES_CHANCE = 10.0
"""What image-word has to be beside image on learned relations, and beside a random choice among the related pairs. Of
relations that were left out the paper gives no factor: it says that they are found."""

BY_WORDS = ((SHARED_IW, SHARED_I), (UNSHARED_IW, UNSHARED_I))
GENERALISE = "section 6.5: image-word models find relations that were not learned"


def parts_claims(run: PartsRun) -> None:
    """Judge the orders of Tables 3 to 5, and of the relations that were left out."""
    learned, left_out = QUADRUPLETS[:1], QUADRUPLETS[1:]
    found: list[Claim | None] = []
    for words, images in BY_WORDS:
        found.append(_claim(run, words, images, learned, TRIPLET, "p@1", "Table 3", times=TIMES_ON_TRIPLETS))
        found.append(_claim(run, words, images, left_out, TRIPLET, "p@1", GENERALISE))
    for words, _ in BY_WORDS:
        found += [_above_chance(run, words, learned), _above_chance(run, words, left_out)]
    for words, images in BY_WORDS:
        found += [_claim(run, words, images, learned, LABELLING, metric, "Table 3") for metric in PLACES]
        found += [_claim(run, words, images, learned, TRIPLET, metric, "Table 3") for metric in ("p@10", "MAP")]
    found += [
        *(_claim(run, SHARED_IW, UNSHARED_IW, learned, LABELLING, metric, "Table 3") for metric in PLACES),
        _claim(run, UNSHARED_IW, SHARED_IW, learned, TRIPLET, "p@1", "Table 3"),
        _claim(run, UNSHARED_I, SHARED_I, learned, ANNOTATION, "p@1", "Table 3"),
        _claim(run, SHARED_I, SVM, learned, ANNOTATION, "p@1", "Table 3"),
        _claim(run, UNSHARED_I, SVM, learned, ANNOTATION, "p@1", "Table 3"),
        _claim(run, UNSHARED_IW, UNSHARED_I, OWN_PARTS, TRIPLET, "p@1", "Table 4"),
        *(_claim(run, words, images, OWN_PARTS, TRIPLET, "MAP", "Table 4") for words, images in BY_WORDS),
        *(_claim(run, words, images, OWN_PARTS, LABELLING, "MAP", "Table 4") for words, images in BY_WORDS),
        _claim(run, SHARED_IW, UNSHARED_IW, OWN_PARTS, LABELLING, "MAP", "Table 4"),
    ]
    sets = OWN_PARTS if any(name in run.problem.tests for name in OWN_PARTS) else QUADRUPLETS
    for words, images in BY_WORDS:
        found += [_claim(run, words, images, sets, KNOWN, metric, "Table 5") for metric in ("p@1", "MAP")]
    found += [_claim(run, SHARED_IW, UNSHARED_IW, sets, KNOWN, metric, "Table 5") for metric in ("p@1", "MAP")]
    run.comparison.claims += [claim for claim in found if claim is not None]


def _claim(
    run: PartsRun,
    first: str,
    second: str,
    sets: Sequence[str],
    task: str,
    metric: str,
    where: str,
    *,
    times: float = 1.0,
) -> Claim | None:
    """Judge whether the first is better, or better by a factor; None where one was not judged on these examples."""
    if not (run.has(first, sets) and run.has(second, sets)):
        return None
    above, below = (run.by_relation(label, sets, task, metric) for label in (first, second))
    figures = [_theirs(label, task, metric, where) for label in (first, second)]
    shown = OFFSETS.get(second, second) if task == KNOWN else second
    return _judged(run, first, shown, (above, below), figures, f"{_of(sets, task)}, {metric}", where, times)


def _above_chance(run: PartsRun, label: str, sets: Sequence[str]) -> Claim | None:
    if not run.has(label, sets):
        return None
    values = run.by_relation(label, sets, LABELLING, "p@1")
    chance = chance_measures(len(run.problem.every))["p@1"]
    learned = sets == QUADRUPLETS[:1]
    figures = [_theirs(label, LABELLING, "p@1", "Table 3"), 1 / paper.N_RELATIONS] if learned else [None, None]
    second, where = "chance among the related pairs", "Table 3" if learned else GENERALISE
    by_chance = np.full(values.shape, chance)
    return _judged(
        run, label, second, (values, by_chance), figures, f"{_of(sets, LABELLING)}, p@1", where, TIMES_CHANCE
    )


def _judged(
    run: PartsRun,
    first: str,
    second: str,
    values: tuple[Any, Any],
    figures: Sequence[float | None],
    of: str,
    where: str,
    times: float,
) -> Claim | None:
    """Judge an order over relations; None where there are fewer than two."""
    if values[0].size < 2:
        return None
    shown = "{:.4f}".format if of.endswith("MAP") else percent
    above, below = figures
    theirs = ("", "") if above is None or below is None else (shown(above), shown(below))
    return order_claim(
        first, second, of, values, where=where, problem=run.name, paper=theirs, times=times, units="relations",
        shown=shown,
    )  # fmt: skip


def _theirs(label: str, task: str, metric: str, where: str) -> float | None:
    """Return the paper's figure; None where it has none."""
    if where == "Table 5":
        figures = paper.TABLE_5[OFFSETS.get(label, label)]
    else:
        figures = {"Table 3": paper.TABLE_3, "Table 4": paper.TABLE_4}.get(where, {}).get(label, {}).get(task)
    return None if figures is None else float(figures[PLACES[metric]])


def _of(sets: Sequence[str], task: str) -> str:
    names: dict[tuple[str, ...], str] = {
        QUADRUPLETS: "all relations",
        QUADRUPLETS[:1]: "learned relations",
        QUADRUPLETS[1:]: "left-out relations",
        OWN_PARTS: "own parts",
    }
    return f"{task[0].lower()}{task[1:]} ({names[tuple(sets)]})"
