"""How well relations that were left out are found again, by how many were: settings as chosen with half left out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from visterm_research.comparison.arms import Settings
from visterm_research.comparison.claims import percent
from visterm_research.comparison.pair_measures import measure_answers
from visterm_research.comparison.record import Record
from visterm_research.comparison.trials import Trials
from visterm_research.papers.objects_and_parts import LABELLING, TRIPLET
from visterm_research.parts.arms import PartArm
from visterm_research.parts.data import LEFT_OUT, PartsProblem
from visterm_research.parts.run import PartsRun
from visterm_research.parts.trials import answer_ranks, once

SHARES = (0.1, 0.25, 0.5)
"""Of the relations; the paper leaves out 10 of 781."""


def shares_part(run: PartsRun, make: Callable[[float], PartsProblem]) -> None:
    """Write the table; nothing is chosen anew, so the test rows of the left-out relations judge one fit a line.

    Parameters
    ----------
    make : callable
        Gives the problem where a share of the relations is left out.
    """
    rows = []
    for label, choice in run.choices.items():
        if not choice.arm.words:
            continue
        for share in SHARES:
            problem = make(share)
            if LEFT_OUT not in problem.tests:
                continue
            found: Record | None = run.comparison.while_time(
                f"{label} with a share of {share:g} left out, {run.name}",
                partial(left_out_again, run.trials, problem, choice.arm, choice.settings),
            )
            if found is not None:
                cells = [percent(found[f"{by}, {task}, p@1"]) for task in (TRIPLET, LABELLING) for by in ("I", "IW")]
                ranks = [f"{found[f'{by}, {LABELLING}, mean rank']:,.1f}" for by in ("I", "IW")]
                n = f"{len(problem.relations.left_out)}"
                rows.append([label, f"{share:g}", n, *cells, *ranks, found["place"]])
    scored = [f"({by})" for by in ("I", "IW")]
    header = (
        *("model", "share left out", "relations"),
        *(f"{task}, p@1 {by}" for task in (TRIPLET, LABELLING) for by in scored),
        *(f"{LABELLING}, mean rank {by}" for by in scored),
        "place by f_L",
    )
    document = run.comparison.document
    document.table(f"Left-out relations of {run.name}, by how many were left out: test quadruplets", header, rows)
    document.text(
        "(I) and (IW) are scores of one and the same fit here, with the settings that the method was given above. "
        "Place: where f_L puts the left-out part among the parts that the whole was not learned to have, 0 first, 1 "
        "last; 0.5 is chance."
    )


def left_out_again(trials: Trials, problem: PartsProblem, arm: PartArm, settings: Settings) -> Record:
    """Judge one fit on the left-out relations, with words and without, unless that is on record."""
    return once(trials, problem, arm, settings, "left out again", partial(_measured, trials, problem))


def _measured(trials: Trials, problem: PartsProblem, model: object) -> Record:
    found: Record = {"place": f"{place_of_left_out(problem, model):.2f}"}
    for by, words in (("I", False), ("IW", True)):
        for task, ranks in answer_ranks(problem, model, LEFT_OUT, words=words, n_jobs=trials.n_jobs).items():
            measures = measure_answers(ranks)
            found |= {f"{by}, {task}, {name}": float(values.mean()) for name, values in measures.items()}
    return found


def place_of_left_out(problem: PartsProblem, model: object) -> float:
    """Return the mean place of left-out parts by f_L, 0 to 1, among parts that their whole was not learned to have."""
    parts = np.unique(problem.every[:, 0])
    kept = problem.relations.kept
    places = []
    for part, whole in problem.relations.left_out:
        scores: NDArray[np.float32] = model.relation_scores([whole])[0]  # type: ignore[attr-defined]
        others = np.setdiff1d(parts, [part, whole, *kept[kept[:, 1] == whole, 0]])
        if others.size:
            above = (scores[others] > scores[part]) + 0.5 * (scores[others] == scores[part])
            places.append(float(above.mean()))
    return float(np.mean(places)) if places else float("nan")
