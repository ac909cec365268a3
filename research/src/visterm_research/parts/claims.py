"""Claims of the objects-and-parts paper about orders of methods and factors between them, tested over relations."""

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

METRIC_COLUMNS = {"p@1": 0, "p@10": 1, "MAP": 2}
"""Columns of the measures in the paper's rows."""

FACTOR_ON_TRIPLETS = 1.5
FACTOR_OF_CHANCE = 10.0
"""Factors by which image-word has to be better than image alone on learned relations, and than a random choice of a
related pair. For relations that were left out, the paper has no factor; it says that they are found."""

WORD_IMAGE_PAIRS = ((SHARED_IW, SHARED_I), (UNSHARED_IW, UNSHARED_I))
GENERALISE = "section 6.5: image-word models find relations that were not learned"


def parts_claims(run: PartsRun) -> None:
    """Judge the orders of Tables 3 to 5, and the orders on relations that were left out."""
    learned, left_out = QUADRUPLETS[:1], QUADRUPLETS[1:]
    claims: list[Claim | None] = []
    for words, images in WORD_IMAGE_PAIRS:
        claims.append(_claim(run, words, images, learned, TRIPLET, "p@1", "Table 3", times=FACTOR_ON_TRIPLETS))
        claims.append(_claim(run, words, images, left_out, TRIPLET, "p@1", GENERALISE))
    for words, _ in WORD_IMAGE_PAIRS:
        claims += [_above_chance(run, words, learned), _above_chance(run, words, left_out)]
    for words, images in WORD_IMAGE_PAIRS:
        claims += [_claim(run, words, images, learned, LABELLING, metric, "Table 3") for metric in METRIC_COLUMNS]
        claims += [_claim(run, words, images, learned, TRIPLET, metric, "Table 3") for metric in ("p@10", "MAP")]
    claims += [
        *(_claim(run, SHARED_IW, UNSHARED_IW, learned, LABELLING, metric, "Table 3") for metric in METRIC_COLUMNS),
        _claim(run, UNSHARED_IW, SHARED_IW, learned, TRIPLET, "p@1", "Table 3"),
        _claim(run, UNSHARED_I, SHARED_I, learned, ANNOTATION, "p@1", "Table 3"),
        _claim(run, SHARED_I, SVM, learned, ANNOTATION, "p@1", "Table 3"),
        _claim(run, UNSHARED_I, SVM, learned, ANNOTATION, "p@1", "Table 3"),
        _claim(run, UNSHARED_IW, UNSHARED_I, OWN_PARTS, TRIPLET, "p@1", "Table 4"),
        *(_claim(run, words, images, OWN_PARTS, TRIPLET, "MAP", "Table 4") for words, images in WORD_IMAGE_PAIRS),
        *(_claim(run, words, images, OWN_PARTS, LABELLING, "MAP", "Table 4") for words, images in WORD_IMAGE_PAIRS),
        _claim(run, SHARED_IW, UNSHARED_IW, OWN_PARTS, LABELLING, "MAP", "Table 4"),
    ]
    sets = OWN_PARTS if any(name in run.problem.tests for name in OWN_PARTS) else QUADRUPLETS
    for words, images in WORD_IMAGE_PAIRS:
        claims += [_claim(run, words, images, sets, KNOWN, metric, "Table 5") for metric in ("p@1", "MAP")]
    claims += [_claim(run, SHARED_IW, UNSHARED_IW, sets, KNOWN, metric, "Table 5") for metric in ("p@1", "MAP")]
    run.comparison.claims += [claim for claim in claims if claim is not None]


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
    """Judge whether the first is better by the factor `times`; None if a method has no results on these examples."""
    if not (run.has(first, sets) and run.has(second, sets)):
        return None
    above, below = (run.by_relation(label, sets, task, metric) for label in (first, second))
    figures = [_paper_figure(label, task, metric, where) for label in (first, second)]
    second_text = OFFSETS.get(second, second) if task == KNOWN else second
    return _order_claim(
        run, first, second_text, (above, below), figures, f"{_task_text(sets, task)}, {metric}", where, times
    )


def _above_chance(run: PartsRun, label: str, sets: Sequence[str]) -> Claim | None:
    if not run.has(label, sets):
        return None
    values = run.by_relation(label, sets, LABELLING, "p@1")
    chance = chance_measures(len(run.problem.every))["p@1"]
    are_learned = sets == QUADRUPLETS[:1]
    figures = (
        [_paper_figure(label, LABELLING, "p@1", "Table 3"), 1 / paper.N_RELATIONS] if are_learned else [None, None]
    )
    second, where = "chance among the related pairs", "Table 3" if are_learned else GENERALISE
    chance_values = np.full(values.shape, chance)
    return _order_claim(
        run,
        label,
        second,
        (values, chance_values),
        figures,
        f"{_task_text(sets, LABELLING)}, p@1",
        where,
        FACTOR_OF_CHANCE,
    )


def _order_claim(
    run: PartsRun,
    first: str,
    second: str,
    values: tuple[Any, Any],
    figures: Sequence[float | None],
    measure_text: str,
    where: str,
    times: float,
) -> Claim | None:
    """Judge an order over relations; None if there are fewer than two relations."""
    if values[0].size < 2:
        return None
    format_value = "{:.4f}".format if measure_text.endswith("MAP") else percent
    above, below = figures
    paper_texts = ("", "") if above is None or below is None else (format_value(above), format_value(below))
    return order_claim(
        first, second, measure_text, values, where=where, problem=run.name, paper=paper_texts, times=times,
        units="relations", shown=format_value,
    )  # fmt: skip


def _paper_figure(label: str, task: str, metric: str, where: str) -> float | None:
    """Return the paper's figure, or None if the paper has none."""
    if where == "Table 5":
        figures = paper.TABLE_5[OFFSETS.get(label, label)]
    else:
        figures = {"Table 3": paper.TABLE_3, "Table 4": paper.TABLE_4}.get(where, {}).get(label, {}).get(task)
    return None if figures is None else float(figures[METRIC_COLUMNS[metric]])


def _task_text(sets: Sequence[str], task: str) -> str:
    names: dict[tuple[str, ...], str] = {
        QUADRUPLETS: "all relations",
        QUADRUPLETS[:1]: "learned relations",
        QUADRUPLETS[1:]: "left-out relations",
        OWN_PARTS: "own parts",
    }
    return f"{task[0].lower()}{task[1:]} ({names[tuple(sets)]})"
